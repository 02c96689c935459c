"""Write numeric matrices as CSV fast: digits are looked up for a whole block, not formatted one by one."""

import numpy as np

DECIMALS = 6
ZERO = np.frombuffer(b"0.0,", dtype=np.uint8)
_THREE_DIGITS = np.array([list(f"{n:03d}".encode()) for n in range(1000)], dtype=np.uint8)


def format_block(labels, values):
    """CSV bytes of one block of rows: an integer label, then ``d.dddddd`` values; exact zeros as ``0.0``.

    labels: (rows,) integers 0 to 9. values: (rows, columns) floats in [0, 10).
    """
    micro = np.minimum((values * 10**DECIMALS).astype(np.uint32), 10 ** (DECIMALS + 1) - 1)
    rows, columns = micro.shape
    cells = np.empty((rows, columns + 1, 9), dtype=np.uint8)
    body = cells[:, 1:]
    units, decimals = np.divmod(micro, 10**6)
    body[..., 0] = units + ord("0")
    body[..., 1] = ord(".")
    body[..., 2:5] = _THREE_DIGITS[decimals // 1000]
    body[..., 5:8] = _THREE_DIGITS[decimals % 1000]
    cells[..., 8] = ord(",")
    cells[:, -1, 8] = ord("\n")
    keep = np.ones(cells.shape, dtype=bool)
    keep[:, 1:, 3:8] = (micro != 0)[..., None]  # "0.000000" is written "0.0", as the real files do
    cells[:, 0, 0] = np.asarray(labels) + ord("0")
    keep[:, 0, 1:8] = False
    return cells[keep].tobytes()
