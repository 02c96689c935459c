"""Wording of messages."""

import re
import signal
from collections.abc import Callable, Iterable

LONGEST_VALUE = 200  # characters of a wrong value that a message shows
MOST_DIGITS = 17  # which tell any two floats apart
ADDRESS = re.compile(r"://(?:(?:[^/\s]*|[^/\s:]+:\S*)@)?([^\s?#]*)(?:[?#]\S*?(?=[\"'):,.;]*(?:\s|$)))?")


def format_clearly(value: float, limits: Iterable[float], digits: int, write: Callable[[int], str]) -> str:
    """``value`` with enough digits that the text lies on the same side of each limit as the value.

    An interval that excludes a limit must not read as one that reaches it, since a verdict may stand beside it.

    Args:
        value: the number.
        limits: what it is compared with, such as the value of no effect.
        digits: at least so many.
        write: from a number of digits to the text.
    """
    sides = [(limit, _find_side(value, limit)) for limit in limits]
    for number in range(digits, MOST_DIGITS):
        text = write(number)
        if all(_find_side(float(text), limit) == side for limit, side in sides):
            return text
    return write(MOST_DIGITS)


def _find_side(value: float, limit: float) -> int:
    """1 if a value is above a limit, -1 below, 0 at it; NumPy's booleans cannot be subtracted."""
    return int(value > limit) - int(value < limit)


def format_significant(value: float, limits: Iterable[float] = (), digits: int = 3, sign: str = "-") -> str:
    """A number with ``digits`` significant digits, or as many as `format_clearly` needs; an exponent if huge or tiny.

    sign: as in a format, ``+`` for one before positive numbers too.
    """

    def write(number: int) -> str:
        if 1000 <= abs(value) < 1e6:
            return f"{value:{sign}.{max(0, number - len(str(int(abs(value)))))}f}"
        return f"{value:{sign}.{number}g}"

    return format_clearly(value, limits, digits, write)


def format_with_multiple(value: float, digits: int = 4) -> str:
    """As `format_significant`, but a large number has M, G or T in place of an exponent: 22.9M."""
    for multiple, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= multiple:
            return format_significant(value / multiple, digits=digits) + letter
    return format_significant(value, digits=digits)


def format_duration(seconds: float) -> str:
    """A rounded duration, such as ``4 min``, ``30 s`` or ``7 s``."""
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{10 * round(seconds / 10) if seconds >= 10 else round(seconds)} s"


def to_one_line(text: str, longest: int = LONGEST_VALUE) -> str:
    """``text`` on one line, its middle left out beyond ``longest`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 2 :]}"


def hide_secrets(text: str) -> str:
    """``text`` with addresses cut to scheme, host and path, since user information and queries may be keys."""
    return ADDRESS.sub(r"://\1", text)


def format_sampled_share(share: float) -> str:
    """A probability found by sampling, in percent; never certain: ``more than 99%``."""
    if share > 0.995:
        return "more than 99%"
    return "less than 1%" if share < 0.005 else f"{share:.0%}"


def describe_signal(number: int) -> str:
    """A signal's number and name: ``signal 9 (SIGKILL)``, ``signal 35 (SIGRTMIN+1)``, ``signal 32``.

    Of the real-time signals, Python names the first and the last only (signal(7)).
    """
    try:
        name = signal.Signals(number).name
    except ValueError:
        if not signal.SIGRTMIN < number < signal.SIGRTMAX:
            return f"signal {number}"
        name = f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return f"signal {number} ({name})"


def format_count(number: object, noun: str) -> str:
    """A number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}" + ("" if str(number) == "1" else "s")


def describe_alike_blocks(blocks: int, independent: float) -> str:
    """Words for an interval that counts blocks as fewer, since successive ones are alike; empty if it does not.

    worth: of `study.core.statistics.count_independent`; NaN where there is no interval.
    """
    if not independent < blocks:
        return ""
    number = format_clearly(independent, [blocks], 1, lambda digits: f"{independent:.{digits}f}")
    return f"counted as {number}, because successive blocks are alike"
