"""Units of times and throughputs as people write them: ms, images/s, tokens/s/GPU, samples_per_second, it/s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "microseconds"), 1e-6),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
OF_A_RANK = ("gpu", "rank", "device", "accelerator", "chip", "card", "process", "worker", "npu", "tpu", "gcd", "core")
OF_A_NODE = ("node", "host", "server", "machine")
OF_ALL = ("all", "total", "sum", "aggregate", "aggregated", "combined", "global", "overall", "system", "cluster")
STEPS = ("step", "it", "iter", "iteration", "batch", "minibatch", "update")
TOGETHER = {**dict.fromkeys(STEPS, "time_per_step_s"), "epoch": "time_per_epoch_s"}  # what all ranks take together
SHORT = {"tgs": "tokens/s/gpu", "tps": "tokens/s", "fps": "frames/s", "ips": "images/s", "qps": "queries/s"}
MULTIPLES = ("k", "m", "g", "b", "kilo", "mega", "giga", "thousand", "million", "billion")
IN_ONE_WORD = re.compile(r"[kmg](tok|image|img|sample|frame|seq|word|quer)")  # such as ktokens
BRACKETS = re.compile(r"\s*\((.*?)\)")
EXPECTED = "a throughput such as images/s (of all ranks) or tokens/s/GPU (of one) is expected"
# What a title without the word throughput counts, such as img/s.
ITEMS = ("image", "img", "sample", "token", "tok", "sequence", "seq", "frame", "sentence", "example", "record", "word",
         "document", "query", "ns", *TOGETHER)  # fmt: skip
IN_BRACKETS = r"[(\[]([^()\[\]]*)[)\]]"
MINIMUM = "min"  # in brackets: minutes or the least value
OWNERS = "|".join((*OF_A_RANK, *OF_A_NODE))
# A word without a slash or per before it names no owner: GPU throughput may be that of one or of all.
OWNER = re.compile(rf"(?:/|(?<![a-z])per[\s_-])[\s_]*({OWNERS})s?(?![a-z0-9])|^({OWNERS})/")
OF_TRAINING = rf"(?:(?:{'|'.join(OF_ALL)}|train|training|mean|median|average|avg|measured)[\s_]+)*"
BEFORE = rf"{OF_TRAINING}(per[\s_-]+(?:{OWNERS})[\s_-]+)?{OF_TRAINING}"
THROUGHPUT_TITLE = re.compile(rf"{BEFORE}throughput(?![a-z])(.*)", re.S)
UNIT_TITLE = re.compile(rf"{BEFORE}(([a-z]+)[\s_]*(?:/|per[\s_]).*)", re.S)
# Two divisors as one: of img/(s GPU), tokens/GPU-second and img/s*GPU.
PRODUCT = re.compile(r"/\s*\(\s*([a-z]+)[\s_*\u00b7.-]+([a-z]+)\s*\)")
DIVISORS = re.compile(rf"(?:({OWNERS})[\s_*\u00b7.-]+|([a-z]+)[*\u00b7.-])([a-z]+)")


@dataclass(frozen=True)
class Throughput:
    """A unit of throughput. item: what is counted, in singular; per: ``all``, ``rank`` or ``node``.

    seconds: of the unit's time.
    """

    item: str
    per: str
    seconds: float

    @property
    def time_of(self) -> str | None:
        """Which time its inverse is, if it counts steps or epochs, which all ranks take together; else None."""
        return TOGETHER.get(self.item)

    def from_all_ranks(self, value: Any, ranks: Any, nodes: Any) -> Any:
        """Items/s of all ranks as values in this unit; the inverse of `of_all_ranks`."""
        if self.time_of:
            return value * self.seconds
        return value / {"all": 1.0, "rank": ranks, "node": nodes}[self.per] * self.seconds

    def of_all_ranks(self, value: Any, ranks: Any, nodes: Any) -> Any:
        """Values in this unit as items/s of all ranks; numbers, or arrays of one shape. nodes: NaN if unknown."""
        if self.time_of:
            return value / self.seconds
        return value * {"all": 1.0, "rank": ranks, "node": nodes}[self.per] / self.seconds


def parse_time_unit(unit: str) -> float | None:
    """The seconds of a unit of time, such as ms or s/step; None if it is none, as GPU hours are."""
    head, *rest = re.split(r"/|\(|\bper\b", unit.strip().lower())
    is_of_one = any(_classify_owner(word) in ("rank", "node") for part in rest for word in re.findall("[a-z]+", part))
    return None if is_of_one else SECONDS.get(head.strip())


def parse_throughput(unit: str) -> Throughput:
    """A unit of throughput; raises ValueError with what is expected."""
    text = BRACKETS.sub(_read_remark, PRODUCT.sub(r"/\1/\2", unit.strip().lower()))
    text = re.sub(r"[-_ ]*\bper[-_ ]+|_per_", "/", text.replace("_per_", " per "))
    text = re.sub(r"[\[\]]", "", text).strip()
    item, *parts = [part.strip(" _.*,") for part in SHORT.get(text, text).split("/")]
    seconds, per = [], []
    for part in (divisor for each in parts for divisor in _split_divisors(each)):
        if part in SECONDS:
            seconds.append(SECONDS[part])
        else:
            per.append(_classify_owner(part))
    if not item or len(seconds) != 1 or len(per) > 1 or None in per:
        raise ValueError(f"{unit!r} is not known; {EXPECTED}")
    if any(word in MULTIPLES or word.isdigit() or IN_ONE_WORD.match(word) for word in re.split(r"[^a-z0-9]+", item)):
        raise ValueError(f"{unit!r} counts many at once; convert the numbers: {EXPECTED}")
    words = re.split(r"[^a-z]+", item)
    return Throughput(_make_singular(words[-1]), str(per[0]) if per else "all", seconds[0])


def is_throughput(unit: str) -> bool:
    """Whether a unit is one of a throughput."""
    try:
        parse_throughput(unit)
    except ValueError:
        return False
    return True


def parse_throughput_title(title: str) -> str | None:
    """The unit in the title of a throughput: img/s of ``throughput (img/s)``, ``throughput_img_per_s`` or ``img/s``.

    `parse_throughput` may not know it if the title has the word throughput. None for other titles, and without a unit.
    """
    text = title.strip().lower()
    counted = UNIT_TITLE.fullmatch(text)
    if counted and _make_singular(counted[3]) in ITEMS and is_throughput(unit := _append_owner(counted[2], counted[1])):
        return unit
    named = THROUGHPUT_TITLE.fullmatch(text)
    if named is None:
        return None
    rest = named[2].strip(" \t\r\n_:,=-")
    brackets = list(re.finditer(IN_BRACKETS, rest))  # the unit, or a remark such as (per GPU)
    first = re.match(IN_BRACKETS, rest)
    if found := next((each for each in brackets if is_throughput(each[1])), first):
        parts = (found[1], rest[: found.start()], rest[found.end() :])
        rest = " ".join(part.strip(" _") for part in parts).strip()
    return _append_owner(rest, named[1]) or None


def find_owner(title: str) -> str | None:
    """Whose a throughput is by its title: ``rank`` of throughput/GPU and img/s per device, ``node``; else None."""
    unit = parse_throughput_title(title)
    if unit is not None and is_throughput(unit):
        per = parse_throughput(unit).per
        return None if per == "all" else per
    match = OWNER.search(title.lower())
    return _classify_owner(match[1] or match[2]) if match else None


def _append_owner(unit: str, per: str | None) -> str:
    """The unit with the words before it, such as per_gpu_, behind it."""
    return f"{unit} {per.strip(' _-')}".strip() if per else unit


def _split_divisors(part: str) -> list[str]:
    """The two of a product such as gpu-second, else the part alone."""
    match = DIVISORS.fullmatch(part)
    parts = [match[1] or match[2], match[3]] if match else []
    is_product = any(each in SECONDS for each in parts) and any(_classify_owner(each) for each in parts)
    return parts if is_product else [part]


def _read_remark(match: re.Match[str]) -> str:
    """What a remark in brackets adds to a unit: ``/gpu`` of (per GPU), nothing of (total) or (mean).

    Raises ValueError for one that names an owner in another way, such as (8 GPUs).
    """
    words = re.findall(r"[a-z0-9]+", match[1])
    if any(word in OF_ALL for word in words) or not any(_classify_owner(word) for word in words):
        return ""
    if len(words) == 1 or words[:-1] in (["per"], ["each"], ["a"], ["one"]):
        return f"/{words[-1]}"
    raise ValueError(f"the remark {match[0].strip()!r} in a unit is not known; {EXPECTED}")


def _classify_owner(part: str) -> str | None:
    name = _make_singular(part)
    return "rank" if name in OF_A_RANK else "node" if name in OF_A_NODE else "all" if name in OF_ALL else None


def _make_singular(word: str) -> str:
    if len(word) < 3 or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
