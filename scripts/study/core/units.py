"""Units: those of columns, by the ends of their names, and conversions."""

import re

MIB = 2**20  # bytes
MIB_IN_MB = MIB / 1e6
# {end of a column's name: its unit}; of several that fit, the first counts.
UNITS = {
    "samples_per_j": "samples/J",
    "flop_per_sample": "FLOP",
    "gflop_per_s": "GFLOP/s",
    "flop_per_s": "FLOP/s",
    "flop_per_s_per_rank": "FLOP/s",
    "mbit_per_s": "Mbit/s",
    "gb_per_s": "GB/s",
    "mb_per_step": "MB",
    "threshold_mb": "MiB",  # of Horovod's fusion buffer, as Horovod counts
    "pct": "%",
    "js": "J s",
    "ns": "ns",
    "mb": "MB",
    "s": "s",
    "w": "W",
    "j": "J",
}
RATE = re.compile(r"(?:(.*)_)?([a-z]+)_per_s")  # of samples, tokens, steps
RATIO = "ratio_"  # what begins so has no unit, whatever it is a ratio of


def find_unit(name: str) -> str | None:
    """The unit of a column, such as ``s`` for ``load_s``; None for a column without one."""
    return split_unit(name)[1]


def split_unit(name: str) -> tuple[str, str | None]:
    """(name without its unit, unit): ``("load", "s")`` for ``load_s``; None without a unit."""
    end = next((end for end in UNITS if f"_{name}".endswith(f"_{end}")), None)
    if end is None:
        return name, None
    stem, unit = name[: len(name) - len(end)].removesuffix("_"), UNITS[end]
    if end == "s" and (rate := RATE.fullmatch(name)):
        stem, unit = rate[1] or "", f"{rate[2]}/s"
    return stem or name, None if name.startswith(RATIO) else unit
