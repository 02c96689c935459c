"""Numbers on command lines, as ``type`` of an argument of argparse: plain decimal ones, which all readers take alike.

Python's own ``int`` and ``float`` also take 1_000, digits of other scripts, blanks, nan and inf.
"""

import argparse
import math
import re

WHOLE = r"[0-9]+"
DECIMAL = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"


def whole(text: str) -> int:
    """An integer of at least 0."""
    return _whole(text, 0)


def count(text: str) -> int:
    """An integer of at least 1."""
    return _whole(text, 1)


def seconds(text: str) -> float:
    """A time in seconds above 0."""
    return _above_0(text, "a number of seconds")


def rate(text: str) -> float:
    """A rate above 0."""
    return _above_0(text, "a number")


def _whole(text: str, least: int) -> int:
    if not re.fullmatch(WHOLE, text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer, at least {least}")
    return int(text)


def _above_0(text: str, what: str) -> float:
    value = float(text) if re.fullmatch(DECIMAL, text) else math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be {what} above 0")
    return value
