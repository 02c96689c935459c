"""Write numeric matrices as text fast: digits are looked up for a whole block, not formatted one by one."""

import numpy as np

_THREE_DIGITS = np.array([list(f"{n:03d}".encode()) for n in range(1000)], dtype=np.uint8)


def format_rows(prefixes, values, decimals, zero=b"0", separator=b","):
    """Text of one block of rows, as bytes: each row's prefix, then its values, each after a separator.

    prefixes: (rows,) bytes, such as a label. values: (rows, columns) floats in [0, 10), cut off after ``decimals``
    (0, 3 or 6) digits. zero: how an exact zero is written, a beginning of its full form such as ``0`` or ``0.0``.
    """
    units, thousands = _digits(values, decimals)
    rows, columns = units.shape
    cells = np.empty((rows, columns, 2 + (decimals and 1 + decimals)), dtype=np.uint8)
    cells[..., 0] = separator[0]
    cells[..., 1] = units + ord("0")
    if decimals:
        cells[..., 2] = ord(".")
    for group, digits in enumerate(thousands):
        cells[..., 3 + 3 * group : 6 + 3 * group] = _THREE_DIGITS[digits]
    keep = np.ones(cells.shape, dtype=bool)
    keep[..., 1 + len(zero) :] = ((units != 0) | np.any(thousands, axis=0))[..., None] if decimals else True
    return b"".join(
        prefix + cells[row][keep[row]].tobytes() + b"\n" for row, prefix in zip(range(rows), prefixes, strict=True)
    )


def _digits(values, decimals):
    """The units and, three at a time, the decimals of ``values``."""
    scaled = np.minimum((values * 10**decimals).astype(np.uint32), 10 ** (decimals + 1) - 1)
    units, rest = np.divmod(scaled, 10**decimals)
    if decimals == 6:
        return units, list(np.divmod(rest, 1000))
    return units, [rest] if decimals else []
