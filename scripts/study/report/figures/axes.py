"""The two axes of a panel: counts on a base-2 logarithm or names, values linear or logarithmic, with suitable ticks."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from numpy.typing import NDArray

from study.report.figures.style import AXES_WIDTH, SMALL, text_width

TICK_GAP = 0.05  # inches between two labels
NICE = (1, 2, 5)
LOG_MARGIN = 1.25  # so that markers at the ends are complete
FEW_DECADES = 2  # up to this many decades, 2 and 5 are labelled too
PLAIN = (0.001, 100_000)  # plain numbers on an axis within this range, else powers of ten


def set_gpu_axis(axes: Axes, counts: Sequence[int], label: str = "GPUs (ranks)") -> None:
    """Ticks at exactly the ``counts`` (ascending), as those of GPUs; labels that would collide are left out."""
    first, last = counts[0], counts[-1]
    margin = (last / first) ** 0.05 if len(counts) > 1 else 2
    low, high = first / margin, last * margin
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    labelled = readable(counts, AXES_WIDTH / math.log2(high / low))
    axes.set_xticks(labelled, [str(count) for count in labelled])
    axes.set_xticks([count for count in counts if count not in labelled], minor=True)
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel(label)


def set_name_axis(axes: Axes, names: Sequence[str], label: str) -> None:
    """Names at 0, 1, 2 ..."""
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(label)


def readable(counts: Sequence[int], octave: float) -> list[int]:
    """Of ``counts``, those whose labels fit: the last one, and from the first on each that fits.

    octave: inches between a count and its double.
    """
    kept = counts[:1]
    for count in counts[1:-1]:
        if _fit(kept[-1], count, octave) and _fit(count, counts[-1], octave):
            kept = [*kept, count]
    return [*kept, *counts[-1:]] if len(counts) > 1 else list(kept)


def _fit(left: int, right: int, octave: float) -> bool:
    widths = (text_width(str(left), SMALL) + text_width(str(right), SMALL)) / 2
    return math.log2(right / left) * octave >= widths + TICK_GAP


def set_value_axis(
    axes: Axes, scale: str, lows: NDArray[np.float64], highs: NDArray[np.float64], signed: bool = False
) -> None:
    """A y axis for values between ``lows`` and ``highs`` (including the ends of the intervals), NaN for no value.

    Linear axes begin at 0, or below if a value is negative. A value that is not positive makes the axis linear,
    whatever ``scale`` says. An interval that extends below the axis is cut off, unless the values are ``signed``: then
    the axis has room for it, and a line at 0.
    """
    middle = (lows + highs) / 2
    if scale == "log" and np.nanmin(middle) > 0:
        positive = np.where(lows > 0, lows, middle)
        _set_log_axis(axes, float(np.nanmin(positive)) / LOG_MARGIN, float(np.nanmax(highs)) * LOG_MARGIN)
    else:
        low = min(0.0, float(np.nanmin(lows))) if signed or np.nanmin(middle) < 0 else 0.0
        high = max(0.0, float(np.nanmax(highs)))
        margin = 0.06 * ((high - low) or 1.0)
        axes.set_ylim(low - margin if low < 0 else 0, high + margin)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
        if signed:
            axes.axhline(0, color="black", linewidth=0.6, zorder=1)


def _set_log_axis(axes: Axes, low: float, high: float) -> None:
    """Limits widened to 1, 2 or 5 times a power of ten, so that there are always labels."""
    steps = [factor * 10.0**power for power in range(-12, 16) for factor in NICE]
    low = max((step for step in steps if step <= low), default=low)
    high = min((step for step in steps if step >= high), default=high)
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low, high)
    few = math.log10(high / low) <= FEW_DECADES
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=NICE if few else (1,), numticks=20))
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=range(2, 10), numticks=20))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(_plain if PLAIN[0] <= low and high <= PLAIN[1] else _power))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _plain(value: float, position: int | None) -> str:
    return f"{value:,g}"


def _power(value: float, position: int | None) -> str:
    power = math.floor(math.log10(value) + 1e-9)
    factor = round(value / 10**power)
    return f"$10^{{{power}}}$" if factor == 1 else f"${factor}\\times10^{{{power}}}$"
