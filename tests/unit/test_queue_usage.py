"""The fill of queues and the cores used over time: few rows, none lost, and a figure of them."""

import numpy as np
import pandas as pd
import pytest
from test_timeline_figure import STARTED_NS, add_run

from study.instruments import queue_usage
from study.instruments.queue_usage import MOST_ROWS, SHORTEST_S, Usage
from study.report.figures import drawing, timeline, timeline_drawing
from study.report.figures.description import load_description

ENSEMBLE = {
    "trace": False, "ensemble": 2, "input_sharing": "duplicated", "core_limit": 0, "measure": "train",
}  # fmt: skip


class Clock:
    """Seconds that a test sets; the rank uses one and a half cores all the time."""

    def __init__(self):
        self.s = 0.0

    def made(self):
        found = Usage(lambda: self.s, lambda: 1.5 * self.s)
        found.begin()
        return found


def rows_of(found, tmp_path, rank=0):
    found.write(tmp_path / f"usage-{rank:05d}.csv", rank)
    return queue_usage.read(tmp_path / f"usage-{rank:05d}.csv")


def test_each_interval_has_its_fill_and_cores(tmp_path):
    clock = Clock()
    found = clock.made()
    for second, fill in ((0.1, 0.5), (0.3, 1.0), (0.4, 0.25), (5.4, 0.75)):
        clock.s = second
        found.note_block(fill)
    clock.s = 7.4
    found.end()
    rows = rows_of(found, tmp_path)
    assert rows.seconds.tolist() == pytest.approx([0.3, 5.1, 2.0])
    assert rows.queue_fill.tolist() == pytest.approx([0.75, 0.5, np.nan], nan_ok=True)
    assert rows.cores_used.tolist() == pytest.approx([1.5] * 3)
    assert np.diff(rows.begin_wall_ns).tolist() == pytest.approx([0.3e9, 5.1e9])
    assert found.queue_fill == pytest.approx(2.5 / 4)


def test_a_long_run_has_few_rows_and_the_same_means(tmp_path):
    clock, blocks = Clock(), 10_000
    found = clock.made()
    fills = np.linspace(0, 1, blocks)
    for fill in fills:
        clock.s += SHORTEST_S
        found.note_block(float(fill))
    found.end()
    rows = rows_of(found, tmp_path)
    assert MOST_ROWS / 2 <= len(rows) <= MOST_ROWS
    assert rows.seconds.sum() == pytest.approx(blocks * SHORTEST_S)
    assert rows.queue_fill.is_monotonic_increasing
    assert (rows.queue_fill * rows.seconds).sum() / rows.seconds.sum() == pytest.approx(fills.mean())
    assert found.queue_fill == pytest.approx(fills.mean())
    assert rows.cores_used.tolist() == pytest.approx([1.5] * len(rows))


def test_the_rows_of_all_ranks_are_on_one_clock(tmp_path):
    clock = Clock()
    for rank in (0, 1):
        found = clock.made()
        clock.s += 2.0
        found.end()
        rows_of(found, tmp_path, rank)
    (host,) = set(queue_usage.read(tmp_path / "usage-00000.csv")["host"])
    queue_usage.merge(tmp_path, tmp_path / queue_usage.FILE, {host: 50, "another": 70})
    merged = queue_usage.read(tmp_path / queue_usage.FILE)
    assert merged["rank"].tolist() == [0, 1]
    own = [queue_usage.read(tmp_path / f"usage-0000{rank}.csv").begin_wall_ns[0] for rank in (0, 1)]
    assert merged.begin_wall_ns.tolist() == [begin - 50 for begin in own]


# The figures


def drawn(tmp_path, name, rows):
    row = add_run(tmp_path, "a", **ENSEMBLE)
    begins = {begin: STARTED_NS + int(begin * 1e9) for _, begin, *_ in rows}
    table = [[rank, "n1", begins[begin], *values, begins[begin]] for rank, begin, *values in rows]
    if table:
        pd.DataFrame(table, columns=list(queue_usage.COLUMNS)).to_csv(tmp_path / "a" / queue_usage.FILE, index=False)
    data = timeline.select_timeline(
        load_description(name),
        pd.DataFrame([row]),
        "test",
        tmp_path,
        traced=False,
        quantity=load_description(name).kind,
    )
    drawing.write_figure(timeline_drawing.draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    return data


# (rank, begin, seconds, fill, cores); the run ends after 18 s
ROWS = [(0, 4, 4, 1.0, 0.5), (0, 8, 4, 0.5, 1.5), (1, 4, 4, 0.0, 1.0), (1, 8, 8, None, 0.25)]


@pytest.mark.parametrize(
    ("figure", "at_6", "at_10", "at_14"),
    [
        ("pittman2018_figure2", (0.0, 0.5, 1.0), (0.5, 0.5, 0.5), (np.nan, np.nan, np.nan)),
        ("pittman2018_figure3", (0.5, 0.75, 1.0), (0.25, 0.875, 1.5), (0.25, 0.25, 0.25)),
    ],
)
def test_a_figure_has_mean_and_range_of_the_ranks(tmp_path, figure, at_6, at_10, at_14):
    data = drawn(tmp_path, figure, ROWS)
    ((line,),) = [run.lines for run in data.runs]
    assert line.label.endswith("of a rank (mean and range of 2)")
    for second, expected in ((6, at_6), (10, at_10), (14, at_14)):
        place = int(np.searchsorted(line.seconds, second))
        found = [values[place] for values in (line.low, line.mean, line.high)]
        assert found == pytest.approx(list(expected), nan_ok=True), second
    assert np.isnan([line.mean[0], line.mean[-1]]).all(), "nothing before the first row and after the last"
    assert data.axis in (tmp_path / "f.svg").read_text()
