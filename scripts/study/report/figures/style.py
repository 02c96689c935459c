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


def make_line_style(series: int, quantity: int, series_count: int) -> dict[str, Any]:
    """Choose the colour, dashes and marker of a line, as keyword arguments of ``Line2D``.

    The colour identifies the series, dashes and marker the line; the first quantity of a series looks the same in every
    panel. The numbers of colours, dashes and markers have no common factor, so that lines stay different when the
    colours repeat.
    """
    index = quantity * series_count + series
    return {
        "color": COLOURS[series % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": _compute_marker_size(5.5, series),
    }


def make_published_style(series: int) -> dict[str, Any]:
    """Choose the markers of published points: hollow, grey, of the series' shape, larger than measured ones."""
    return {
        "color": GREY,
        "linestyle": "none",
        "marker": MARKERS[series % len(MARKERS)],
        "markersize": _compute_marker_size(8.7, series),
        "markerfacecolor": "none",
        "markeredgewidth": 0.9,
    }


def _compute_marker_size(largest: float, series: int) -> float:
    """Compute a series' marker size: later ones are smaller, so that coinciding points stay visible."""
    return largest - 1.2 * (series % 3)


@functools.cache
def measure_text_width(text: str, size: float) -> float:
    """Measure the width of a line of text in inches; size in points."""
    path = TextPath((0, 0), text, size=size, prop=FontProperties(family=RC["font.family"]))
    return path.get_extents().width / POINTS_PER_INCH


TICK_GAP = 0.05  # inches between two labels
NICE_FACTORS = (1, 2, 5)
LOG_MARGIN = 1.25  # so that markers at the ends are complete
FEW_DECADES = 2  # up to this many decades, 2 and 5 are labelled too
PLAIN_RANGE = (0.001, 100_000)  # plain numbers on an axis within this range, else powers of ten


def set_gpu_axis(axes: Axes, counts: Sequence[int], label: str = "GPUs (ranks)") -> None:
    """Set a logarithmic x axis with ticks at exactly the ``counts`` (ascending), and labels where they fit."""
    first, last = counts[0], counts[-1]
    margin = (last / first) ** 0.05 if len(counts) > 1 else 2
    low, high = first / margin, last * margin
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    labelled = select_readable_ticks(counts, AXES_WIDTH / math.log2(high / low))
    axes.set_xticks(labelled, [str(count) for count in labelled])
    axes.set_xticks([count for count in counts if count not in labelled], minor=True)
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel(label)


def set_name_axis(axes: Axes, names: Sequence[str], label: str) -> None:
    """Set an x axis with names at 0, 1, 2 ..."""
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(label)


def select_readable_ticks(counts: Sequence[int], octave: float) -> list[int]:
    """Select the counts whose labels fit: the last one, and from the first on each that fits.

    octave: inches between a count and its double.
    """
    labelled = counts[:1]
    for count in counts[1:-1]:
        if _can_stand_beside(labelled[-1], count, octave) and _can_stand_beside(count, counts[-1], octave):
            labelled = [*labelled, count]
    return [*labelled, *counts[-1:]] if len(counts) > 1 else list(labelled)


def _can_stand_beside(left: int, right: int, octave: float) -> bool:
    """True if the labels of two counts do not collide. octave: as of `select_readable_ticks`."""
    widths = (measure_text_width(str(left), SMALL) + measure_text_width(str(right), SMALL)) / 2
    return math.log2(right / left) * octave >= widths + TICK_GAP


def set_value_axis(
    axes: Axes, scale: str, lows: NDArray[np.float64], highs: NDArray[np.float64], signed: bool = False
) -> None:
    """Set a y axis for values between ``lows`` and ``highs`` (including intervals), NaN for no value.

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
    """Set a logarithmic y axis whose limits are widened to 1, 2 or 5 times a power of ten, so that labels fit."""
    steps = [factor * 10.0**power for power in range(-12, 16) for factor in NICE_FACTORS]
    low = max((step for step in steps if step <= low), default=low)
    high = min((step for step in steps if step >= high), default=high)
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low, high)
    few = math.log10(high / low) <= FEW_DECADES
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=NICE_FACTORS if few else (1,), numticks=20))
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=range(2, 10), numticks=20))
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(_format_plain if PLAIN_RANGE[0] <= low and high <= PLAIN_RANGE[1] else _format_power)
    )
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _format_plain(value: float, position: int | None) -> str:
    """Format a tick as a plain number."""
    return f"{value:,g}"


def _format_power(value: float, position: int | None) -> str:
    """Format a tick as a power of ten."""
    power = math.floor(math.log10(value) + 1e-9)
    factor = round(value / 10**power)
    return f"$10^{{{power}}}$" if factor == 1 else f"${factor}\\times10^{{{power}}}$"
