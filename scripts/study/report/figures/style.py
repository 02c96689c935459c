"""Style of figures: sizes for a two-column paper, and lines that differ in lightness, dashes and marker at once."""

import functools
from typing import Any

import matplotlib
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

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
