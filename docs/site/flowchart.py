"""Draws the pages' Mermaid flowcharts as SVG while the site is built, so that it needs neither network nor scripts.

GitHub draws the same blocks itself. Understood are the lines that the pages use: `a --> b --> c`, `a & b --> c & d`,
`a -->|label| b` and the dashed `a -.-> b`. Anything else is an error of the build.
"""

import html
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

ARROW = re.compile(r"\s*(-->|-\.->)(?:\|([^|]*)\|)?\s*")
NAME = re.compile(r"\w+")
STEP, HEIGHT, LETTER, GAP, MARGIN = 62, 28, 7.6, 22, 12  # pixels: rows, boxes, a letter, between boxes, around


@dataclass(frozen=True)
class Edge:
    """An arrow."""

    begin: str
    end: str
    label: str = ""
    dashed: bool = False


@dataclass
class Graph:
    """Arrows, and the row and horizontal centre of each box; a long arrow has a bend in each row that it crosses."""

    edges: list[Edge]
    row: dict[str, int] = field(default_factory=dict)
    centre: dict[str, float] = field(default_factory=dict)
    bends: dict[Edge, list[str]] = field(default_factory=dict)


def parsed(text: str) -> list[Edge]:
    """The arrows of a flowchart. Raises `ExtensionError` for a line that is not understood."""
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    if not first.startswith("flowchart"):
        raise ExtensionError(f"a Mermaid block must begin with 'flowchart', this one with {first!r}")
    return [edge for line in lines for edge in _edges(line)]


def _edges(line: str) -> list[Edge]:
    parts = ARROW.split(line)  # boxes, arrow, label, boxes, ...
    groups = [[name.strip() for name in part.split("&")] for part in parts[::3]]
    if len(groups) < 2 or not all(NAME.fullmatch(name) for group in groups for name in group):
        raise ExtensionError(f"this line of a Mermaid block is not understood: {line!r}")
    arrows = list(zip(parts[1::3], parts[2::3], strict=True))
    return [
        Edge(begin, end, label or "", arrow == "-.->")
        for (arrow, label), begins, ends in zip(arrows, groups, groups[1:], strict=False)
        for begin in begins
        for end in ends
    ]


def arranged(edges: list[Edge]) -> Graph:
    """A graph with a place for every box: rows by the longest way from the top, in each row near their neighbours."""
    graph = Graph(edges)
    names = list(dict.fromkeys(name for edge in edges for name in (edge.begin, edge.end)))
    graph.row = dict.fromkeys(names, 0)
    for _ in names:  # relaxed once per box; a cycle would never come to rest
        for edge in edges:
            graph.row[edge.end] = max(graph.row[edge.end], graph.row[edge.begin] + 1)
    if max(graph.row.values()) >= len(names):
        raise ExtensionError("a Mermaid block has a cycle")
    neighbours = _with_bends(graph)
    rows = defaultdict(list)
    for name, row in graph.row.items():
        rows[row].append(name)
    for sweep in range(24):
        for row in sorted(rows, reverse=bool(sweep % 2)):
            _place(rows[row], graph, neighbours)
    left = min(graph.centre[name] - _width(name) / 2 for name in graph.row)
    graph.centre = {name: centre - left + MARGIN for name, centre in graph.centre.items()}
    return graph


def _with_bends(graph: Graph) -> dict[str, list[str]]:
    """Adds the bends of long arrows as boxes without width; returns the neighbours of each box."""
    neighbours = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        between = range(graph.row[edge.begin] + 1, graph.row[edge.end])
        graph.bends[edge] = [f"{number}:{row}" for row in between]
        graph.row.update(zip(graph.bends[edge], between, strict=True))
        chain = [edge.begin, *graph.bends[edge], edge.end]
        for one, other in zip(chain, chain[1:], strict=False):
            neighbours[one].append(other)
            neighbours[other].append(one)
    return neighbours


def _place(names: list[str], graph: Graph, neighbours: dict[str, list[str]]) -> None:
    """Orders a row by the mean place of its boxes' neighbours, and moves boxes apart that would overlap."""
    wanted = {}
    for name in names:
        known = [graph.centre[other] for other in neighbours[name] if other in graph.centre]
        wanted[name] = sum(known) / len(known) if known else graph.centre.get(name, 0.0)
    names.sort(key=wanted.__getitem__)
    places = [wanted[name] for name in names]
    for _ in range(60):
        for left in range(len(names) - 1):
            need = (_width(names[left]) + _width(names[left + 1])) / 2 + GAP
            lacking = need - (places[left + 1] - places[left])
            if lacking > 0:
                places[left] -= lacking / 2
                places[left + 1] += lacking / 2
    graph.centre.update(zip(names, places, strict=True))


def _width(name: str) -> float:
    return 0.0 if ":" in name else len(name) * LETTER + 18


def drawn(graph: Graph) -> str:
    """The graph as SVG. Colours are those of the page's style sheet."""
    boxes = [name for name in graph.row if ":" not in name]
    width = max(graph.centre[name] + _width(name) / 2 for name in graph.row) + MARGIN
    height = max(graph.row.values()) * STEP + HEIGHT + 2 * MARGIN
    said = "; ".join(f"{edge.begin} to {edge.end}" for edge in graph.edges)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img"'
        f' aria-label="Flowchart: {html.escape(said)}" font-size="12.5">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" style="fill: currentColor; stroke: none"/></marker></defs>',
        *(_arrow(edge, graph) for edge in graph.edges),
        *_labels(graph),
    ]
    for name in boxes:
        x, y, wide = graph.centre[name], _top(graph.row[name]), _width(name)
        parts.append(f'<rect class="box" x="{x - wide / 2:.1f}" y="{y}" width="{wide:.1f}" height="{HEIGHT}" rx="4"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{html.escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def _top(row: int) -> int:
    return MARGIN + row * STEP


def _arrow(edge: Edge, graph: Graph) -> str:
    """A curve from row to row, straight past the boxes of a row that it crosses."""
    x, y = graph.centre[edge.begin], _top(graph.row[edge.begin]) + HEIGHT
    path = f"M{x:.1f} {y}"
    for name in [*graph.bends[edge], edge.end]:
        to, top = graph.centre[name], _top(graph.row[name])
        half = (y + top) / 2
        path += f" C{x:.1f} {half} {to:.1f} {half} {to:.1f} {top}"
        x, y = to, top + HEIGHT
        if name != edge.end:
            path += f" L{x:.1f} {y}"
    dashes = ' stroke-dasharray="5 4"' if edge.dashed else ""
    return f'<path d="{path}" marker-end="url(#arrow)"{dashes}/>'


def _labels(graph: Graph) -> Iterator[str]:
    """Labels, over all arrows; arrows from one box with the same label have it once, in their middle."""
    ends = defaultdict(list)
    for edge in graph.edges:
        if edge.label:
            ends[edge.begin, edge.label].append(graph.centre[[*graph.bends[edge], edge.end][0]])
    for (begin, label), centres in ends.items():
        x = (graph.centre[begin] + sum(centres) / len(centres)) / 2
        y = _top(graph.row[begin]) + (HEIGHT + STEP) / 2 + 4
        yield f'<text class="label" x="{x:.1f}" y="{y}" text-anchor="middle" font-size="11">{html.escape(label)}</text>'


class Flowcharts(SphinxTransform):
    """Replaces Mermaid blocks by their drawing."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Replace the blocks of a page."""
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                svg = drawn(arranged(parsed(block.astext())))
                block.replace_self(nodes.raw("", f'<div class="flowchart">{svg}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(Flowcharts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
