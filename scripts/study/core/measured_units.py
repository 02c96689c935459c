"""Units of single numbers in a program's output, and conversions: ms to s, s/it to it/s, img/s/GPU to img/s of all."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from study.core.quantities import MULTIPLES
from study.core.throughput_units import ITEMS, MINIMUM, TOGETHER, Throughput, parse_throughput, parse_time_unit

TOKENS = ("token", "tok", "word", "ns")  # are not samples
SAMPLES = {*ITEMS, "ex", "doc", "item", "row"}.difference(TOKENS, TOGETHER)
SIZES = {
    f"{letter}{end}": base**power for power, letter in enumerate("kmgt", 1) for end, base in (("b", 1e3), ("ib", 2**10))
}
WORD = r"[A-Za-z\u00b5\u03bc]+"
UNIT = rf"{WORD}(?:/{WORD})*(?: per {WORD})*"
BEHIND = re.compile(rf"(?P<space>[ \t]*)(?P<unit>{UNIT})")
NEXT_NUMBER = re.compile(r"[ \t]*[:=][ \t]*[-+]?[0-9.]")
# The unit in a title before a number: img/s: 12, time (ms): 12, step_time_ms=12, ms/step 12.
BEFORE = re.compile(rf"(?:(?P<bracket>[(\[]{UNIT}[)\]])|(?P<word>{UNIT}))[\"']?[ \t]*[:=]?[ \t]*$")

PER = re.compile(rf"(?P<item>{WORD})_per_(?P<time>{WORD})(?:_per_(?P<owner>{WORD}))?[\"']?[ \t]*[:=]?[ \t]*$")
COUNTED = (
    r"(?:(?P<done>[0-9]+)/)?(?P<count>[0-9][0-9,_]*) "
    r"(?P<item>steps?|its?|iters?|iterations?|(?:mini)?batch(?:es)?|updates?|epochs?)\b"
)
COUNT_BEFORE = re.compile(
    rf"(?<!after )(?<!every )(?<!at )(?<!of )(?<![0-9.,/]){COUNTED}(?: done| finished| completed)?"
    r"(?: (?:in|within|took|takes)|:|=)[ :=(~]*$"
)
COUNT_BEHIND = re.compile(rf" ?[a-z]* ?(?:for|per|over|/) ?(?:the last )?{COUNTED}")


@dataclass(frozen=True)
class Unit:
    """A unit of a number.

    Args:
        text: as it was written.
        seconds: of a unit of time, else None.
        item: of which the time is, such as ``it`` of s/it; empty if not given.
        rate: of a throughput, else None.
        size: bytes of a unit of memory, else None.
        factor: by which the number is to be multiplied: 1000 of k img/s.
    """

    text: str
    seconds: float | None = None
    item: str = ""
    rate: Throughput | None = None
    size: float | None = None
    factor: float = 1.0

    @property
    def is_known(self) -> bool:
        """Whether it is a unit of time, throughput or memory, which can be converted; others are labels."""
        return self.seconds is not None or self.rate is not None or self.size is not None


def parse_unit(text: str) -> Unit:
    """The unit in a text: a time, a throughput, a size of memory, or a label."""
    text = text.strip().replace("\u03bc", "\u00b5")
    if size := SIZES.get(text.lower()):
        return Unit(text, size=size)
    if (seconds := parse_time_unit(text)) is not None:
        _, *rest = re.split(r"/| per ", text.lower())
        return Unit(text, seconds, item=rest[0].strip().removesuffix("s") if rest else "")
    for factor, name in ((1.0, text), (MULTIPLES.get(text[:1], 0.0), text[1:].strip())):
        try:
            return Unit(text, rate=parse_throughput(name), factor=factor) if factor and name else Unit(text)
        except ValueError:
            continue
    return Unit(text)


def find_unit_behind(text: str) -> tuple[Unit | None, str]:
    """(The unit or multiple at the start of a text, the letters that touch the number before it)."""
    match = BEHIND.match(text)
    if not match:
        return None, ""
    word, touching = match["unit"], "" if match["space"] else match["unit"]
    if not touching and NEXT_NUMBER.match(text, match.end()):  # acc 0.9 img/s: 12 is no accuracy in img/s
        return None, ""
    if word in MULTIPLES and touching:
        further = BEHIND.match(text, match.end())
        unit = parse_unit(further["unit"]) if further else Unit("")
        return replace(unit if unit.is_known else Unit(""), factor=MULTIPLES[word]), word
    spaced_multiple = re.match(rf"([{''.join(MULTIPLES)}]) ({UNIT})", text[match.start("unit") :])
    unit = parse_unit("".join(spaced_multiple.groups()) if spaced_multiple else word)
    return (unit if unit.is_known else None), touching


def find_unit_before(text: str) -> Unit | None:
    """The unit in the title at the end of a text, such as ms of ``time (ms): ``; None without a known one."""
    if named := PER.search(text):  # tokens_per_sec_per_gpu
        unit = parse_unit("/".join(filter(None, named.groups())))
        return unit if unit.is_known else None
    match = BEFORE.search(text)
    if not match:
        return None
    name = match["bracket"][1:-1] if match["bracket"] else match["word"]
    title = text[: match.start()]
    if name in ("s", "d", "h", MINIMUM) and (title[-1:].isalpha() if match["bracket"] else not title.endswith("_")):
        return None  # GPU(s), min: 12
    unit = parse_unit(name)
    return unit if unit.is_known else None


def find_count(before: str, behind: str, item: str) -> int:
    """How many steps or epochs a time is of: 10 of ``10 steps in 5.2 s`` and ``5.2 s for 10 steps``, else 1.

    before, behind: the line around the time. item: of which the time is wanted.
    """
    match = COUNT_BEFORE.search(before.lower()) or COUNT_BEHIND.match(behind.lower())
    if match is None or match["item"].startswith("epoch") != (item == "epoch"):
        return 1
    return int(re.sub("[,_]", "", match["done"] or match["count"])) or 1


def convert_number(value: float, stated: Unit, wanted: Unit, ranks: int, nodes: int) -> float:
    """A number in another unit; a throughput of a rank or a node becomes that of all, or the other way round.

    Raises:
        ValueError: the units are not of one quantity.
    """
    value = value * stated.factor / wanted.factor
    if stated.seconds is not None and wanted.seconds is not None and _is_of_same(stated.item, wanted.item):
        return value * stated.seconds / wanted.seconds
    if stated.size and wanted.size:
        return value * stated.size / wanted.size
    if stated.rate and wanted.rate and _is_of_same(stated.rate.item, wanted.rate.item):
        return float(wanted.rate.from_all_ranks(stated.rate.of_all_ranks(value, ranks, nodes), ranks, nodes))
    pair = (stated.rate, wanted) if stated.rate else (wanted.rate, stated)
    rate, time = pair
    if rate and time.seconds is not None and time.item and _is_of_same(time.item, rate.item):
        return rate.seconds / time.seconds / value if value else math.inf
    raise ValueError(f"is in {stated.text}, not in {wanted.text}")


def is_convertible(unit: Unit, wanted: Unit) -> bool:
    """Whether numbers in a unit can be given in another one."""
    try:
        convert_number(1.0, unit, wanted, 1, 1)
    except ValueError:
        return unit.text == wanted.text
    return True


def _is_of_same(item: str, other: str) -> bool:
    """Whether two items are one: it and step, image and sample; an item that is not given is that of the other."""
    if not item or not other or item == other or {item, other} == {"tok", "token"}:
        return True
    if item in TOGETHER or other in TOGETHER:
        return TOGETHER.get(item) == TOGETHER.get(other)
    return item in SAMPLES and other in SAMPLES
