"""Figures of the check's report as SVG, without a library that draws: ratios of arms, and power over time."""

import html
import math
from pathlib import Path

from study.launch.gpu_check.results import table_rows

RATIOS = "study_ratios.csv"
WIDTH, LEFT, RIGHT, LINE = 720, 160, 30, 24
PLOT_HEIGHT, BELOW = 160, 36
LOADS = ("idle", "full", "alternating")


def figures(folder: Path) -> list[tuple[str, str]]:
    """(caption, SVG) of those whose data are in the check's folder."""
    found = []
    if rows := table_rows(folder / RATIOS):
        found.append(
            ("Throughput of each arm / baseline, with its 95 % interval; the line is no difference", _ratios(rows))
        )
    for load in LOADS:
        if rows := table_rows(folder / f"samples_{load}.csv"):
            points = [(float(row["time_s"]), float(row["power_w"])) for row in rows if row["power_w"]]
            if len(points) > 1:
                found.append((f"Power at {load} load, W over s", _curve(points)))
    return found


def _ratios(rows: list[dict[str, str]]) -> str:
    ends = [math.log(float(row[name])) for row in rows for name in ("low", "high")] + [0.0]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 0.1
    low, high = low - margin, high + margin

    def x(value: float) -> float:
        return LEFT + (math.log(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    bottom = LINE * (len(rows) + 1)
    parts = [f'<line x1="{x(1):.1f}" y1="8" x2="{x(1):.1f}" y2="{bottom - 8}" stroke="#999" stroke-dasharray="4"/>']
    for number, row in enumerate(rows):
        y = LINE * (number + 1)
        one, middle, other = (x(float(row[name])) for name in ("low", "ratio", "high"))
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{html.escape(row["arm"])}</text>',
            f'<line x1="{one:.1f}" y1="{y}" x2="{other:.1f}" y2="{y}" stroke="#246" stroke-width="2"/>',
            f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="#246"/>',
        ]
    ticks = sorted({math.exp(low), 1.0, math.exp(high)})
    parts += [f'<text x="{x(each):.1f}" y="{bottom + 10}" text-anchor="middle">{each:.3g}</text>' for each in ticks]
    return _svg(bottom + BELOW / 2, parts)


def _curve(points: list[tuple[float, float]]) -> str:
    longest, most = points[-1][0] or 1.0, max(watts for _, watts in points) or 1.0

    def place(seconds: float, watts: float) -> str:
        x = LEFT / 2 + seconds / longest * (WIDTH - LEFT / 2 - RIGHT)
        return f"{x:.1f},{PLOT_HEIGHT - watts / most * (PLOT_HEIGHT - 16):.1f}"

    line = " ".join(place(*point) for point in points)
    return _svg(PLOT_HEIGHT + BELOW, [
        f'<polyline points="{line}" fill="none" stroke="#246"/>',
        f'<text x="{LEFT / 2 - 8}" y="20" text-anchor="end">{most:.4g}</text>',
        f'<text x="{LEFT / 2 - 8}" y="{PLOT_HEIGHT}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{PLOT_HEIGHT + 20}" text-anchor="end">{longest:.4g}</text>',
    ])  # fmt: skip


def _svg(height: float, parts: list[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'
