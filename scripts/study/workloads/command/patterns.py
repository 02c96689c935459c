"""Numbers that the patterns of a benchmark find in a program's output."""

from __future__ import annotations

import math
import re

# A number up to the first character of a part of it, and what may stand behind a part: digits, decimals, an exponent.
BEFORE = re.compile(rb"[0-9](\.|[eE][-+]|(\.|[eE][-+]?)?[0-9])$")
BEHIND = re.compile(rb"\.?[0-9]|[eE][-+]?[0-9]")
WITH_COMMA = re.compile(  # with marks between thousands, or with a decimal comma
    rb"[-+]?([0-9]{1,3}([,'][0-9]{3})+(\.[0-9]+)?|([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+)([eE][-+]?[0-9]+)?"
)
LEFT, RIGHT = re.compile(rb"[0-9.,']*$"), re.compile(rb"[0-9.,']*([eE][-+]?[0-9]+)?")
OF_NUMBERS = rb"[-+0-9.,'eE]*"


def read_number(match: re.Match[bytes]) -> tuple[float | None, str | None]:
    """The number in a match's group: (number, None), or (None, why there is none), as for 1 of ``1,234`` or ``1e5``.

    Digits behind the group that the pattern takes in, such as those of ``([0-9]+),[0-9]+``, are meant to be left out;
    so are those before the comma of ``,([0-9]+)``.
    """
    text = match[1] or b""
    before, behind = match.string[: match.start(1)], match.string[match.end(1) :]
    is_open = match.end() == match.end(1)
    is_cut = bool(text) and (BEFORE.search(before + text[:1]) or (is_open and _has_more_digits(text, behind)))
    if is_cut or _is_cut_at_comma(match, is_open):
        parts = re.search(OF_NUMBERS + rb"$", before), re.match(OF_NUMBERS, behind)
        digits_before, digits_behind = (part[0] if part else b"" for part in parts)
        return None, f"its pattern takes {_quote(text)} of {_quote(digits_before + text + digits_behind)}"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return None, f"its pattern found {_quote(text)}, which is not a finite number"
    return number, None


def _has_more_digits(text: bytes, behind: bytes) -> bool:
    """Whether a number that ends with ``text`` has more digits, by its point and its exponent."""
    return bool(text[-1:].isdigit() and BEHIND.match(behind))


def _is_cut_at_comma(match: re.Match[bytes], is_open: bool) -> bool:
    """Whether the group is a part of a number such as ``1,234`` or, with a decimal comma, ``0,5``."""
    if b",(" in match.re.pattern:  # of a line of a CSV file
        return False
    text = match[1] or b""
    before = LEFT.search(match.string[: match.start(1)])
    behind = RIGHT.match(match.string[match.end(1) :]) if is_open else None
    whole = b"".join([before[0] if before else b"", text, behind[0] if behind else b""]).strip(b".,'")
    return bool(text) and whole != text.strip(b".,'") and bool(WITH_COMMA.fullmatch(whole))


def _quote(text: bytes) -> str:
    """Text in quotes for messages, cut off after 40 characters."""
    return repr(text.decode(errors="replace")[:40])
