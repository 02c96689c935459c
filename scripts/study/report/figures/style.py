"""The look of all figures: colours, sizes, and axes of rank counts, names and values."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

PANEL_WIDTH = 3.3  # inches, as all lengths here; one column of a two-column paper
AXES_HEIGHT = 1.75
AXES_WIDTH = 2.6  # what the y axis leaves of a panel, to within its labels
FONT_SIZE = 8
SMALL = 7  # points; legends, ticks and notes
POINTS_PER_INCH = 72

# Those of Okabe and Ito's colours that stand out on white, ordered so that the first ones are far apart in lightness
# too (L* 46, 71, 0, 61, 57).
COLOURS = ("#0072B2", "#E69F00", "#000000", "#CC79A7", "#009E73")
MARKERS = ("o", "s", "^", "D", "v", "P", "*")
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
GREY = "#606060"

RC = {
    **{key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith(("backend", "toolbar"))},
    "font.family": "DejaVu Sans",  # comes with Matplotlib, so that text is as wide on every machine
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "figure.titlesize": FONT_SIZE,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "figures",  # ids that do not change from one drawing to the next
    "pdf.fonttype": 42,
}


def line_style(series: int, quantity: int, series_count: int) -> dict[str, Any]:
    """Colour, dashes and marker of a line, as keyword arguments of ``Line2D``.

    The colour identifies the series, dashes and marker the line; the first quantity of a series looks the same in every
    panel. The numbers of colours, dashes and markers have no common factor, so that lines stay different when the
    colours repeat.
    """
    index = quantity * series_count + series
    return {
        "color": COLOURS[series % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": _marker_size(5.5, series),
    }


def published_style(series: int) -> dict[str, Any]:
    """Hollow grey markers with the shape of the series' first quantity, larger than measured ones."""
    return {
        "color": GREY,
        "linestyle": "none",
        "marker": MARKERS[series % len(MARKERS)],
        "markersize": _marker_size(8.7, series),
        "markerfacecolor": "none",
        "markeredgewidth": 0.9,
    }


def _marker_size(largest: float, series: int) -> float:
    """Later series have smaller markers, so that of coinciding points the lower one stays visible."""
    return largest - 1.2 * (series % 3)


@functools.cache
def text_width(text: str, size: float) -> float:
    """Width of a line of text in inches; size in points."""
    path = TextPath((0, 0), text, size=size, prop=FontProperties(family=RC["font.family"]))
    return path.get_extents().width / POINTS_PER_INCH


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
