"""Short digests that no program takes for a number."""

from __future__ import annotations

import re

DIGITS = 12
NUMBER_LIKE = re.compile("[0-9]+(e[0-9]+)?")
LETTERS = "ghijklmnop"  # for 0 to 9; none is hexadecimal


def shorten_digest(digest: str) -> str:
    """The first `DIGITS` digits of a hexadecimal digest; its first becomes a letter if they would read as a number.

    One of 200 digests of 12 digits is a number, such as 7e6820030182. Spreadsheets and pandas read such a cell of a
    table as one, and pandas 2.3 ends with a segmentation fault at such an exponent.
    """
    short = digest[:DIGITS]
    return LETTERS[int(short[0])] + short[1:] if NUMBER_LIKE.fullmatch(short) else short
