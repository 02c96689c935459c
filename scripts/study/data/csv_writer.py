"""Write numeric matrices as text fast: the digits of a whole block are looked up in a table."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_THREE_DIGITS = np.array([list(f"{n:03d}".encode()) for n in range(1000)], dtype=np.uint8)


def format_rows(
    prefixes: Iterable[bytes], values: NDArray[Any], decimals: int, zero: bytes = b"0", separator: bytes = b","
) -> bytes:
    """Text of a block of rows, as bytes: each row's prefix, then its values, each after a separator.

    prefixes: (rows,) bytes, such as a label. values: (rows, columns) floats in [0, 100), truncated to ``decimals``
    digits (0, 3 or 6). zero: text of an exact zero, a beginning of its full form such as ``0`` or ``0.0``.
    """
    units, thousands = _split_digits(values, decimals)
    rows, columns = units.shape
    cells = np.empty((rows, columns, 3 + (decimals and 1 + decimals)), dtype=np.uint8)
    cells[..., 0] = separator[0]
    cells[..., 1:3] = _THREE_DIGITS[units, 1:]
    if decimals:
        cells[..., 3] = ord(".")
    for group, digits in enumerate(thousands):
        cells[..., 4 + 3 * group : 7 + 3 * group] = _THREE_DIGITS[digits]
    keep = np.ones(cells.shape, dtype=bool)
    keep[..., 1] = units >= 10
    keep[..., 2 + len(zero) :] = ((units != 0) | np.any(thousands, axis=0))[..., None] if decimals else True
    return b"".join(
        prefix + cells[row][keep[row]].tobytes() + b"\n" for row, prefix in zip(range(rows), prefixes, strict=True)
    )


def _split_digits(values: NDArray[Any], decimals: int) -> tuple[NDArray[np.uint32], list[NDArray[np.uint32]]]:
    """Whole numbers of ``values``, and their decimals in groups of three digits."""
    scaled = np.minimum((values * 10**decimals).astype(np.uint32), 10 ** (decimals + 2) - 1)
    units, rest = np.divmod(scaled, 10**decimals)
    if decimals == 6:
        return units, list(np.divmod(rest, 1000))
    return units, [rest] if decimals else []
