"""Units of times and throughputs as people write them: ms, images/s, tokens/s/GPU, samples_per_second, it/s."""

from __future__ import annotations

import re
from dataclasses import dataclass

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "microseconds"), 1e-6),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}
OF_A_RANK = ("gpu", "rank", "device", "accelerator", "chip", "card", "process", "worker", "npu", "tpu", "gcd", "core")
OF_A_NODE = ("node", "host", "server", "machine")
STEPS = ("step", "it", "iter", "iteration", "batch", "batches", "update")
SHORT = {"tgs": "tokens/s/gpu", "tps": "tokens/s", "fps": "frames/s", "ips": "images/s", "qps": "queries/s"}
EXPECTED = "a throughput such as images/s (of all ranks) or tokens/s/GPU (of one) is expected"


@dataclass(frozen=True)
class Throughput:
    """A unit of throughput. item: what is counted, in singular; per: ``all``, ``rank`` or ``node``.

    seconds: of the unit's time.
    """

    item: str
    per: str
    seconds: float

    @property
    def is_steps(self) -> bool:
        """Whether it counts training steps, each of which all ranks take together."""
        return self.item in STEPS


def time_in_seconds(unit: str) -> float | None:
    """The seconds of a unit of time; None if it is none."""
    return SECONDS.get(unit.strip().lower())


def throughput(unit: str) -> Throughput:
    """A unit of throughput; raises ValueError with what is expected."""
    text = unit.strip().lower()
    text = re.sub(r"[_ ]*\bper[_ ]+|_per_", "/", text.replace("_per_", " per "))
    text = re.sub(r"\(.*?\)|[\[\]]", "", text).strip()
    item, *parts = [part.strip(" _.*") for part in SHORT.get(text, text).split("/")]
    seconds, per = [], []
    for part in parts:
        if part in SECONDS:
            seconds.append(SECONDS[part])
        else:
            per.append(_owner(part))
    if not item or len(seconds) != 1 or len(per) > 1 or None in per:
        raise ValueError(f"{unit!r} is not known; {EXPECTED}")
    words = re.split(r"[^a-z]+", item)
    return Throughput(_singular(words[-1]), str(per[0]) if per else "all", seconds[0])


def _owner(part: str) -> str | None:
    name = _singular(part)
    return "rank" if name in OF_A_RANK else "node" if name in OF_A_NODE else "all" if name in ("all", "total") else None


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 2 and not word.endswith("ss") else word
