"""Units: those of columns, by the ends of their names, and conversions."""

MIB = 2**20  # bytes
MIB_IN_MB = MIB / 1e6
# {end of a column's name: its unit}; of several that fit, the first counts.
UNITS = {
    "samples_per_s": "samples/s",
    "samples_per_j": "samples/J",
    "flop_per_sample": "FLOP",
    "flop_per_s": "FLOP/s",
    "flop_per_s_per_rank": "FLOP/s",
    "gb_per_s": "GB/s",
    "mb_per_step": "MB",
    "js": "J s",
    "ns": "ns",
    "mb": "MB",
    "s": "s",
    "w": "W",
    "j": "J",
}


def of_column(name: str) -> str | None:
    """The unit of a column, such as ``s`` for ``load_s``; None for a column without one."""
    return next((unit for end, unit in UNITS.items() if f"_{name}".endswith(f"_{end}")), None)
