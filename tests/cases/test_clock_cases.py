"""Wall clocks that are set while runs go on: durations are of monotonic clocks, or empty."""

import gzip
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import test_queue_usage  # noqa: E402
import timelines  # noqa: E402
from examples import define, expand  # noqa: E402
from test_record import MEMBER  # noqa: E402
from test_timeline_figure import STARTED_NS, add_run, selected  # noqa: E402

from study.backends.tensorflow.input_measures import InputMeasures  # noqa: E402
from study.backends.tensorflow.step_measures import StepMeasures  # noqa: E402
from study.instruments import phases, queue_usage  # noqa: E402
from study.instruments.timeline import read_communication  # noqa: E402
from study.launch import failure  # noqa: E402
from study.records import ensemble  # noqa: E402

SET_AT_S, LATER_S = 3.0, (-30.0, 0.9, 3600.0)  # when the clock is set, and by how much


def wall(seconds, step_s):
    """A wall time (ns) so many seconds after the launch."""
    return STARTED_NS + round((seconds + (step_s if seconds >= SET_AT_S else 0)) * 1e9)


def set_back(folder, step_s):
    """Set the clock of a run's files 3 s after its launch, in what has wall times."""
    path = folder / "phases.jsonl"
    edges = [json.loads(line) for line in path.read_text().splitlines()]
    for edge in edges:
        edge["wall_ns"] = wall((edge["monotonic_ns"] - STARTED_NS) / 1e9, step_s)
    path.write_text("".join(json.dumps(edge) + "\n" for edge in edges))
    if (folder / "telemetry.csv").exists():
        rows = pd.read_csv(folder / "telemetry.csv")
        rows["wall_ns"] = [wall((each - STARTED_NS) / 1e9, step_s) for each in rows["monotonic_ns"]]
        rows.to_csv(folder / "telemetry.csv", index=False)


def edge(phase, what, rank, at, host="n1", step_s=0.0):
    at_ns = round(at * 1e9)
    return {"phase": phase, "edge": what, "rank": rank, "host": host, "wall_ns": at_ns + round(step_s * 1e9),
            "monotonic_ns": at_ns}  # fmt: skip


def members(*ranks):
    """The section of an ensemble. ranks: (host, begin and end in s by its monotonic clock)."""
    found = []
    for number, (host, begun, ended) in enumerate(ranks):
        times = {"begun_monotonic_ns": round(begun * 1e9), "ended_monotonic_ns": round(ended * 1e9)}
        member = MEMBER | {"number": number, "batch_size": 10} | times
        found.append({"rank": number, "host": host, "final_weights_crc32": 7, "member": member})
    return {"ranks": found}


@pytest.mark.case("ensemble-clock", source="our own, as conbench/conbench #528", right="10 s, by the monotonic clock")
@pytest.mark.parametrize("step_s", LATER_S)
def test_members_while_the_clock_is_set_there_and_back(step_s):
    """It is right again before the run's next edge, so that no edge shows it."""
    edges = [edge("train", "begin", 0, 100), edge("train", "end", 0, 111)]
    found = ensemble.section(members(("n1", 100, 110)), edges)
    assert (found["makespan_s"], found["members"][0]["train_s"]) == pytest.approx((10, 10))


@pytest.mark.case("ensemble-two-hosts", source="our own", right="12 s on two hosts, one of whose clocks is set")
def test_members_of_two_hosts_one_of_whose_clocks_is_set():
    """n2 was booted 1,000 s after n1; its clock is 5 s ahead, which is known, and is set back while it trains."""
    edges = [edge("train", "begin", 0, 1100), edge("train", "end", 0, 1111)]
    edges += [edge("train", "begin", 1, 102, "n2", 1000), edge("train", "end", 1, 112, "n2", 1000 - 30)]
    found = ensemble.section(members(("n1", 1100, 1110), ("n2", 102, 112)), edges)
    assert found["makespan_s"] == pytest.approx(12)
    assert [each["train_s"] for each in found["members"]] == pytest.approx([10, 10])


@pytest.mark.case("figure-clock", source="our own", right="phases, power and cores at the times of the monotonic clock")
@pytest.mark.parametrize("step_s", LATER_S)
def test_a_figure_over_time_of_a_clock_that_is_set(tmp_path, step_s):
    power = {"G0": ("gpu", 100, None), "package": ("cpu", None, 50)}
    row = add_run(tmp_path, "a", ranks=1, power=power, trace=False, batch_size=20)
    still = selected_untraced(tmp_path, row)
    set_back(tmp_path / "a", step_s)
    (run,), (before,) = selected_untraced(tmp_path, row).runs, still.runs
    assert [lane.spans for lane in run.lanes] == [lane.spans for lane in before.lanes]
    assert run.lanes[0].spans[0] == ("load", pytest.approx(1), pytest.approx(2))
    cpu, right = run.lines[1], pytest.approx(50, rel=1e-5)  # these clocks are at 50 years, of which a double has 0.2 us
    assert np.nanmin(cpu.mean) == right and np.nanmax(cpu.mean) == right


def selected_untraced(tmp_path, row):
    from study.report.figures.description import load_description
    from study.report.figures.timeline import select_timeline

    return select_timeline(load_description("sc18_figure3_4"), pd.DataFrame([row]), "test", tmp_path, traced=False)


@pytest.mark.case("figure-launch", source="our own", right="seconds since the launch, by the launching host's clock")
@pytest.mark.parametrize("step_s", [-30, 30])
def test_a_clock_that_is_set_between_the_launch_and_the_first_rank(tmp_path, step_s):
    row = add_run(tmp_path, "a")
    path = tmp_path / "a" / "outcome.json"
    outcome = json.loads(path.read_text())
    outcome |= {"started_monotonic_ns": STARTED_NS, "started_wall_ns": STARTED_NS - step_s * 10**9}
    path.write_text(json.dumps(outcome))
    (run,) = selected(tmp_path, row).runs
    assert run.lanes[0].spans[0] == ("load", pytest.approx(1), pytest.approx(2))
    waiting = run.communication["broadcast negotiation"]
    assert run.seconds[np.flatnonzero(waiting)[0]] == pytest.approx(5, abs=0.05)


@pytest.mark.case("figure-traced", source="our own", right="no communication, and the note why")
def test_a_traced_run_during_which_a_clock_was_set(tmp_path):
    row = add_run(tmp_path, "a")
    set_back(tmp_path / "a", -30)
    data = selected(tmp_path, row)
    assert data.runs[0].communication == {}
    assert "communication of 1 run is not shown: a clock was set while it was traced" in data.notes


@pytest.mark.case("usage-clock", source="our own", right="1.5 cores of a rank from 4 to 8 s")
def test_cores_over_time_of_a_clock_that_was_set(tmp_path):
    row = add_run(tmp_path, "a", **test_queue_usage.ENSEMBLE)
    begun = STARTED_NS + 4 * 10**9
    values = [[0, "n1", begun - 3600 * 10**9, 4.0, 0.5, 1.5, begun]]
    rows = pd.DataFrame(values, columns=list(queue_usage.COLUMNS))
    rows.to_csv(tmp_path / "a" / queue_usage.FILE, index=False)
    from study.report.figures.timeline import QUANTITIES, Launch

    lines, _ = QUANTITIES["cores_used"].read(row, tmp_path / "a", Launch(STARTED_NS, {"n1": STARTED_NS}), 18.0)
    at_6, at_10 = (lines[0].mean[np.searchsorted(lines[0].seconds, second)] for second in (6, 10))
    assert (at_6, at_10) == pytest.approx((1.5, np.nan), nan_ok=True)


@pytest.mark.case("failure-clock", source="our own", right="rank 1 in train, which the others wait for")
def test_a_run_that_hangs_after_its_clock_was_set_back(tmp_path):
    log = [edge("load", "begin", rank, 1 + rank / 10) for rank in (0, 1)]
    log += [edge("load", "end", rank, 40 + rank / 10, step_s=-30) for rank in (0, 1)]
    log += [edge("train", "begin", rank, 41 + rank / 10, step_s=-30) for rank in (0, 1)]
    log += [edge("train", "end", 0, 50, step_s=-30)]
    (tmp_path / "phases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in log))
    found = failure.describe_failure(tmp_path, "hang", "no heartbeat")
    assert (found["phase"], found["rank"]) == ("train", 1)
    assert phases.find_last_phase(log[:6]) == ("train", 1)


@pytest.mark.case("epochs-clock", source="our own", right="allreduces by epoch, as without")
def test_epochs_whose_clock_is_set_by_less_than_a_second(tmp_path):
    """The edges of phases do not tell it from a clock that is slowed."""
    begins, found = timelines.epoch_edges_ns(), []
    zero = begins[0] - 11 * 10**9
    history = {"begin_monotonic_ns": [each - zero for each in begins[:-1]], "time_s": np.diff(begins) / 1e9}
    for step_s in (0, -0.9):
        folder = tmp_path / f"{step_s}"
        folder.mkdir()
        edges = [edge("train", "begin", 0, 10), edge("train", "end", 0, 30, step_s=step_s)]
        edges = [each | {"wall_ns": each["wall_ns"] + zero} for each in edges]
        (folder / "timeline.json.gz").write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
        (folder / "phases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in edges))
        pd.DataFrame(history).to_csv(folder / "history.csv", index=False)
        found.append(read_communication(folder).summary["allreduce_epochs"])
    assert found[1] == found[0] and found[0]


PROVENANCE = {
    "training_code": "c0de", "loader_sensor_code": "c0de", "data": {}, "git": {"commit": None, "dirty": None},
    "packages": {}, "session": None, "steering": {},
    "host": {"name": "n1", "cores_allowed": 1, "physical_cores_allowed": None, "cpu_quota_cores": None},
}  # fmt: skip


@pytest.mark.case("graph-clock", source="our own: tf.timestamp is the wall clock", right="empty for that epoch")
@pytest.mark.parametrize("step_s", [0, -30, 30])
def test_times_of_steps_while_the_clock_is_set(monkeypatch, step_s):
    """The clock is set in the second of three epochs, in which the variables hold what TensorFlow took."""
    real, ahead = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + ahead[0])
    steps, inputs, rows = StepMeasures(define(expand()[0]), steps=4), InputMeasures(), []
    for epoch in range(3):
        at_s = np.arange(4) * 0.1
        if epoch == 1:
            ahead[0] = step_s * 10**9
            at_s[2:] += step_s
        steps._begins.assign(at_s)
        steps._compute_s.assign(0.2 + (step_s if epoch == 1 else 0))
        inputs._waited.assign(0.04 + (step_s if epoch == 1 else 0))
        rows.append(steps.end_epoch(4) | inputs.end_epoch(4))
    history = pd.DataFrame(rows)
    assert history["compute_per_step_s"].dropna().tolist() == pytest.approx([0.05] * (2 if step_s else 3))
    assert history["input_wait_per_step_s"].dropna().tolist() == pytest.approx([0.01] * (2 if step_s else 3))
    assert steps.summarize_step_times() == {"median_s": pytest.approx(0.1), "p95_s": pytest.approx(0.1),
                                  "jitter": pytest.approx(0, abs=1e-9)}  # fmt: skip
