"""The figure over time: what is drawn of each traced run, on which clock, and what is told of what is missing."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import timelines
from examples import define, expand

from study.core.errors import StudyError
from study.experiment.parameters import PARAMETERS, list_observing_keys
from study.instruments.power.sampler import COLUMNS
from study.instruments.timeline import summarize_timeline
from study.report.figures.description import is_drawn, load_description
from study.report.figures.drawing import write_figure
from study.report.figures.timeline import POINTS, select_timeline
from study.report.figures.timeline_drawing import draw

FIGURE = load_description("icpp2019_figure7_12_19")
STARTED_NS = (timelines.START_US - 5_000_000) * 1000  # five seconds before the timeline begins
ROW = {
    **{name: PARAMETERS[name].default for name in list_observing_keys()},
    "machine": "local", "memory_mode": "none", "benchmark": "nt3",
    "scaling": "weak", "gpus": 2, "nodes": 1, "loader": "read_csv",
    "host": "n1", "hosts": "n1", "clock_uncertainty_s": None,
    "staging": "none",
    "straggler_loads": 0, "trace": True, "repeat": 1, "status": "ok", "power_source": None,
    "power_reason": "no power sensor here",
}  # fmt: skip


def add_run(folder, name, ranks=2, power=None, host="n1", machine=None, gpus=(), **changes):
    """A run's files in ``folder/name``, and its row. power: {device: (kind, watts or None, joules a second)}.

    A device of another sensor than NVML is ``SENSOR/DEVICE``. machine: settings of its own. gpus: the ranks' UUIDs.
    """
    directory = folder / name
    directory.mkdir()
    outcome = {"status": "ok", "failure": None, "exit_code": 0, "started_wall_ns": STARTED_NS, "runtime_s": 20.0,
               "started_monotonic_ns": None, "boot_id": None, "workers_lost": None}  # fmt: skip
    (directory / "outcome.json").write_text(json.dumps({**outcome, "files": {}}))
    edges = []
    for rank in range(ranks):
        for phase, begin, end in (("load", 1, 2 + rank), ("stage", 1.1, 1.9), ("broadcast", 5, 9), ("train", 14, 18)):
            for edge, at in (("begin", begin), ("end", end)):
                wall = STARTED_NS + int(at * 1e9)
                edges.append({"phase": phase, "edge": edge, "rank": rank, "wall_ns": wall, "monotonic_ns": wall})
                edges[-1]["host"] = host.format(rank)
    (directory / "phases.jsonl").write_text("".join(json.dumps(edge) + "\n" for edge in edges))
    timelines.write(directory / "t.json", timelines.run(ranks=3))
    summarize_timeline(directory / "t.json").activity.to_csv(directory / "activity.csv", index=False)
    rows = [
        [
            0,
            STARTED_NS + int(t * 1e9),
            host.format(0),
            device.rpartition("/")[0] or "nvml",
            kind,
            device.rpartition("/")[2],
            watts,
            None,
            joules * t if joules else None,
        ]
        for device, (kind, watts, joules) in (power or {}).items()
        for t in np.arange(1, 18, 0.1)
    ]
    if rows:
        pd.DataFrame(rows, columns=COLUMNS[:9]).reindex(columns=COLUMNS).to_csv(
            directory / "telemetry.csv", index=False
        )
        defined = define(expand()[0])
        dataclasses.replace(defined, machine={**defined.machine, **(machine or {})}).write(directory / "run.yaml")
        (directory / "metrics.json").write_text(json.dumps({"ranks": [{"gpu": gpu} for gpu in gpus]}))
    return {**ROW, "gpus": ranks, "record": f"{name}/record.json", **changes}


def selected(tmp_path, *rows):
    return select_timeline(FIGURE, pd.DataFrame(rows), "test", tmp_path)


def test_all_is_on_the_clock_of_the_launch(tmp_path):
    (run,) = selected(tmp_path, add_run(tmp_path, "a")).runs
    assert [lane.label for lane in run.lanes] == ["rank 0", "rank 1"]
    assert run.lanes[1].spans[0] == ("load", pytest.approx(1), pytest.approx(3))
    assert [phase for phase, _, _ in run.lanes[1].spans] == ["load", "broadcast", "train"], "staging is part of loading"
    waiting = run.communication["broadcast negotiation"]  # from the timeline's begin on for two seconds
    bin_s = run.end / POINTS
    assert run.seconds[np.flatnonzero(waiting)[0]] == pytest.approx(5, abs=bin_s)
    assert waiting.sum() * bin_s == pytest.approx(2.0, rel=0.01)
    moving = run.communication["allreduce transfer"]
    assert moving.sum() * bin_s == pytest.approx(6 * 0.019, rel=0.01)
    assert run.seconds[np.flatnonzero(moving)[0]] == pytest.approx(15, abs=2 * bin_s)


@pytest.mark.parametrize(("gpus", "drawn"), [(("G0", "G1"), (100, 150, 200)), (("G1",), (200, 200, 200)),
                                              ((None,), (50, 350 / 3, 200))],
                         ids=["two ranks", "one rank", "a rank whose GPU is unknown"])  # fmt: skip
def test_power_is_of_one_sensor_and_of_the_ranks_own_gpus(tmp_path, gpus, drawn):
    """A node of three GPUs, of which one is idle; POWER9's sensor of a socket has the sum of all, 350 W."""
    power = {"G0": ("gpu", 100, None), "G1": ("gpu", 200, None), "G2": ("gpu", 50, None)}
    power |= {"occ/chip 0 gpu": ("gpu", 350, None), "occ/system": ("node", 900, None)}
    machine = {"power_sensors": ["nvml", "occ"], "gpus_per_rank": 1, "ranks_per_node": 2}
    (run,) = selected(tmp_path, add_run(tmp_path, "a", power=power, machine=machine, gpus=gpus)).runs
    gpu, node = run.lines
    middle = POINTS // 2
    assert (gpu.low[middle], gpu.mean[middle], gpu.high[middle]) == pytest.approx(drawn)
    assert node.mean[middle] == pytest.approx(900)


def test_power_that_is_doubtful_is_not_drawn(tmp_path):
    power = {"G0": ("gpu", 100, 50), "package": ("cpu", 50, None)}
    doubt = {"doubtful_energy": "gpu", "power_reason": "doubtful: energy counter and power of a gpu disagree"}
    data = selected(tmp_path, add_run(tmp_path, "a", power=power, **doubt))
    assert [line.label for line in data.runs[0].lines] == ["cpu"]
    assert "power of gpu is doubtful in some runs and not shown" in data.notes


def test_no_power_says_why(tmp_path):
    """Once for all runs, if the reason is the same."""
    data = selected(tmp_path, add_run(tmp_path, "a"), add_run(tmp_path, "b", loader="chunked"))
    figure = draw(data)
    assert figure.get_suptitle().endswith("\nno power: no power sensor here")
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == []
    other = replace(data.runs[1], reason="no power: another reason")
    texts = [text.get_text() for axes in draw(replace(data, runs=(data.runs[0], other))).axes for text in axes.texts]
    assert texts == ["no power: no power sensor here", "no power: another reason"]


def test_original_and_optimised_stand_below_each_other_with_one_time_axis(tmp_path):
    rows = [add_run(tmp_path, "a", loader="chunked", straggler_loads=3), add_run(tmp_path, "b", straggler_loads=3)]
    figure = draw(selected(tmp_path, *rows))
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == [
        "NT3, 2 ranks, weak scaling, read_csv (base), last rank loads 4 times",
        "NT3, 2 ranks, weak scaling, chunked (optimised), last rank loads 4 times",
    ]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_failed_and_further_runs_are_told(tmp_path):
    rows = [add_run(tmp_path, f"r{index}") for index in range(8)] + [{**ROW, "status": "failed", "record": "none"}]
    data = selected(tmp_path, *rows)
    assert len(data.runs) == 6
    assert data.notes == ("1 traced runs failed and are not shown", "2 more traced runs are not shown")


def test_a_study_without_traced_runs_is_refused(tmp_path):
    with pytest.raises(StudyError, match="needs traced runs; the study"):
        selected(tmp_path, {**ROW, "trace": False})
    usual = {name: PARAMETERS[name].default for name in list_observing_keys()}
    traced = {**usual, "benchmark": "p1b1", "trace": True}
    assert is_drawn(FIGURE, traced, traced=True)
    assert not is_drawn(FIGURE, {**traced, "trace": False}, traced=True)


@pytest.mark.slow
def test_a_small_file(tmp_path):
    power = {f"G{index}": ("gpu", 100 + index, None) for index in range(6)}
    data = selected(tmp_path, *(add_run(tmp_path, f"r{index}", ranks=3, power=power) for index in range(4)))
    write_figure(draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    assert (tmp_path / "f.svg").stat().st_size < 600_000
