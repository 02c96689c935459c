"""Numbers on command lines, as ``type`` of an argument of argparse: plain decimal ones, which all readers take alike.

Python's own ``int`` and ``float`` also take 1_000, digits of other scripts, blanks, nan and inf.
"""

import argparse
import math
import re

WHOLE = r"[0-9]+"
DECIMAL = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"


def parse_whole(text: str) -> int:
    """The integer of at least 0 in a text."""
    return _parse_integer(text, 0)


def parse_count(text: str) -> int:
    """The integer of at least 1 in a text."""
    return _parse_integer(text, 1)


def parse_seconds(text: str) -> float:
    """The number of seconds above 0 in a text."""
    return _parse_positive(text, "a number of seconds")


def parse_rate(text: str) -> float:
    """The rate above 0 in a text."""
    return _parse_positive(text, "a number")


def _parse_integer(text: str, least: int) -> int:
    if not re.fullmatch(WHOLE, text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer, at least {least}")
    return int(text)


def _parse_positive(text: str, what: str) -> float:
    value = float(text) if re.fullmatch(DECIMAL, text) else math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be {what} above 0")
    return value
