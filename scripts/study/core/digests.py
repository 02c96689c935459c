"""Short digests that no program takes for a number."""

from __future__ import annotations

import re

DIGITS = 12
NUMBER_LIKE = re.compile("[0-9]+(e[0-9]+)?")
LETTERS = "ghijklmnop"  # for 0 to 9; none is hexadecimal


def short(digest: str) -> str:
    """The first `DIGITS` of a hexadecimal digest, with a letter at the begin of one that is a number.

    One of 200 digests of 12 digits is a number, such as 7e6820030182. Spreadsheets and pandas read such a cell of a
    table as one, and pandas 2.3 ends with a segmentation fault at such an exponent.
    """
    found = digest[:DIGITS]
    return LETTERS[int(found[0])] + found[1:] if NUMBER_LIKE.fullmatch(found) else found
