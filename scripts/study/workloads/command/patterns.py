"""Numbers that the patterns of a benchmark find in a program's output."""

from __future__ import annotations

import math
import re

# What stands before or behind a part of a number: the rest of its digits, its decimals or its exponent.
BEFORE, BEHIND = re.compile(rb"[0-9](\.|[eE][-+]?)?$"), re.compile(rb"\.?[0-9]|[eE][-+]?[0-9]")
THOUSANDS = re.compile(rb"[-+]?[0-9]{1,3}"), re.compile(rb"(,[0-9]{3})+(?![0-9])")  # of 1,234: before and behind it
OF_NUMBERS = rb"[-+0-9.,eE]*"


def number_of(found: re.Match[bytes]) -> tuple[float | None, str | None]:
    """(the number in a match's group, None), or (None, why there is none), such as for 1 of ``1,234`` or of ``1e5``.

    Digits behind the group that the pattern takes in, such as those of ``([0-9]+),[0-9]+``, are meant to be left out.
    """
    text = found[1] or b""
    before, behind = found.string[: found.start(1)], found.string[found.end(1) :]
    is_open = found.end() == found.end(1)
    is_cut = (text[:1].isdigit() and BEFORE.search(before)) or (is_open and _goes_on(text, behind))
    if is_cut:
        parts = re.search(OF_NUMBERS + rb"$", before), re.match(OF_NUMBERS, behind)
        left, right = (part[0] if part else b"" for part in parts)
        return None, f"its pattern takes {_words(text)} of {_words(left + text + right)}"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return None, f"its pattern found {_words(text)}, which is not a finite number"
    return number, None


def _goes_on(text: bytes, behind: bytes) -> bool:
    """Whether a number that ends with ``text`` has more digits."""
    first, rest = THOUSANDS
    return bool(text[-1:].isdigit() and (BEHIND.match(behind) or (first.fullmatch(text) and rest.match(behind))))


def _words(text: bytes) -> str:
    return repr(text.decode(errors="replace")[:40])
