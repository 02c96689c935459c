"""Write numeric matrices as text fast: the digits of a whole block are looked up in a table."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_THREE_DIGITS = np.array([list(f"{n:03d}".encode()) for n in range(1000)], dtype=np.uint8)


def format_rows(
    prefixes: Iterable[bytes], values: NDArray[Any], decimals: int, zero: bytes = b"0", separator: bytes = b","
) -> bytes:
    """Text of one block of rows, as bytes: for each row its prefix, then its values, each after a separator.

    prefixes: (rows,) bytes, such as a label. values: (rows, columns) floats in [0, 10), truncated to ``decimals`` (0, 3
    or 6) digits. zero: text of an exact zero, a beginning of its full form such as ``0`` or ``0.0``.
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


def _digits(values: NDArray[Any], decimals: int) -> tuple[NDArray[np.uint32], list[NDArray[np.uint32]]]:
    """The units of ``values`` and, in groups of three, their decimals."""
    scaled = np.minimum((values * 10**decimals).astype(np.uint32), 10 ** (decimals + 1) - 1)
    units, rest = np.divmod(scaled, 10**decimals)
    if decimals == 6:
        return units, list(np.divmod(rest, 1000))
    return units, [rest] if decimals else []
