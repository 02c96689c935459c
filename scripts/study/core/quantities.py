"""Numbers as people and programs write them: 1,234, 2_000.0, 2 000.0, 1.09M, 4.0k, 0:02:07, 1.2e+04, in colours."""

from __future__ import annotations

import math
import re

MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
WITH_MULTIPLE = re.compile(rf"([-+]?[0-9]+(?:\.[0-9]+)?)[ ]?([{''.join(MULTIPLES)}])")  # 1.09M
THOUSANDS = re.compile(r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")
SPACES = " \u00a0\u2009\u202f"  # that divide thousands, as do the next marks
MARKS = "_'\u2019"
# A number whose thousands are divided by one mark, which is no decimal one.
DIVIDED = re.compile(rf"[-+]?[1-9][0-9]{{0,2}}([{SPACES}{MARKS}])[0-9]{{3}}(?:\1[0-9]{{3}})*(?:[.,][0-9]+)?")
CLOCK = re.compile(r"(?:([0-9]+)(?: days?, |-))?(?:([0-9]+):)?([0-9]{1,2}):([0-9]{2}(?:\.[0-9]+)?)")  # 1-02:03:04.5
IN_WORDS = re.compile(r"(?:([0-9]+)d ?)?(?:([0-9]+)h ?)?(?:([0-9]+)m(?:in)? ?)?(?:([0-9]+(?:\.[0-9]+)?)s)?")  # 2m 07s
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")  # colours, cursor, titles


def remove_colours(text: str) -> str:
    """The text without the escape sequences by which a terminal colours it or moves in it."""
    return ANSI.sub("", text)


def parse_number(text: str) -> float:
    """The number in a text, without thousands separators; NaN if it is none or ambiguous."""
    text = text.strip()
    if DIVIDED.fullmatch(text):
        text = re.sub(f"[{SPACES}{MARKS}]", "", text)
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if match := WITH_MULTIPLE.fullmatch(text):
        return float(match[1]) * MULTIPLES[match[2]]
    try:
        return float(text) if re.fullmatch(r"[-+.0-9eE]+|[-+]?inf", text) else math.nan
    except ValueError:
        return math.nan


def parse_duration(text: str) -> float:
    """The seconds of a duration such as ``0:02:07``, ``2:07``, ``1 day, 2:03:04.5`` or ``2m 07s``; NaN for others."""
    match = CLOCK.fullmatch(text.strip()) or IN_WORDS.fullmatch(text.strip())
    if not match or sum(each is not None for each in match.groups()) < 2:
        return math.nan
    days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
