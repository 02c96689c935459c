"""The SC18 paper: its derived numbers, its tables beside runs with known numbers, and both memory modes together."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import expand

from study.core import configuration
from study.core.errors import StudyError
from study.core.files import sha256, write_json
from study.experiment import expansion
from study.experiment.study import Further, Study
from study.instruments.power.sampler import COLUMNS, MEASURES
from study.instruments.power.sensors import cray
from study.machines import machine
from study.records import table_inputs
from study.records.record import make_record
from study.records.tidy import loading_frame, read_runs, runs_frame
from study.report import sources
from study.report.figures import drawing, timeline, timeline_drawing
from study.report.figures.description import load_description
from study.report.papers.sc18 import loading_factor
from study.report.tables import TABLES

NO_LOADING = loading_frame([], "c0de", Path("."))
CODE = {"nt3": "c0de"}
NODE, CPU, MEMORY, SECONDS = 159.21, 105.26, 12.08, 1567  # sc18, Table 1, batch size 20


@pytest.fixture
def frame(make_run, tmp_path):
    """The tidy table of made-up runs of one machine: ``frame((run, facts), ..., on="theta")``."""

    def build(*runs, on="local"):
        for run, facts in runs:
            folder = make_run(run, machine=on, **facts)
            write_json(folder / "record.json", make_record(folder))
        path = tmp_path / on / "runs.csv"
        runs_frame([run for run, _ in runs], CODE, tmp_path / on).to_csv(path, index=False)
        return read_runs(path)

    return build


def one_node(**changes):
    """Runs of one epoch on one node at the paper's size."""
    return expand(**{"scaling": "weak", "epochs": 1, "gpus": 1, "full_size": True, **changes})


@pytest.mark.slow
def test_a_claim_is_of_the_blocks_that_both_points_have(frame):
    """The slow fourth repeat of the larger batch has no partner: the interval and the value are without it."""
    times = {20: [100.0, 101.0, 99.0, 100.0], 200: [90.0, 91.0, 89.0, 150.0]}
    runs = []
    for place, (batch, seconds) in enumerate(times.items()):
        for block, (run, runtime) in enumerate(zip(one_node(batch_size=batch, repeats=4), seconds, strict=True)):
            lost = {"status": "failed"} if (batch, block) == (20, 3) else {}
            runs.append((run, {"runtime": runtime, "started": 1000 * (block + 1) + place, **lost}))
    found = claims_of(frame(*runs))
    row = found[found["quantity"] == "batch size 200 less 20: runtime"].iloc[0]
    assert row["value"] == pytest.approx(-10, abs=0.01)
    assert row["low"] < row["value"] < row["high"] < 0
    assert (row["pairing"], row["repeats"]) == ("paired", 3)


# The paper's numbers


def claims_of(runs):
    return TABLES["sc18_claims"].make(runs, NO_LOADING).frame


@pytest.mark.parametrize(
    ("quantity", "at", "expected", "digits"),
    [
        ("flat / cache: runtime", "gpus=1", 1.026, 3),
        ("flat / cache: model.fit", "gpus=400", 1.140, 3),
        ("flat / cache: model.fit", "gpus=100", 1.539, 3),
        ("batch size 200 less 20: runtime", "gpus=1", -6.7, 1),
        ("batch size 100 less 200: energy", "gpus=1", 0.013, 3),
        ("same less scaled learning rate: runtime", "profile=True", 6.0, 1),
        ("512 / 2 nodes: model.fit", "learning_rate_scaling=linear", 1.40, 2),
        ("energy less mean power x time", "batch_size=20", 78.35, 2),
        *(("energy less mean power x time", f"batch_size={size}", 0.0, 2) for size in (50, 100, 150, 200)),
        ("energy / time", "batch_size=20", 159.26, 2),
        ("scaled less same learning rate: accuracy", "gpus=100", -0.2964, 4),
        *(("same less scaled learning rate: model.fit", f"gpus={nodes}", pct, 1)
          for nodes, pct in ((400, 1.1), (25, 24.8))),
        ("time of model.fit per epoch", "gpus=100", 660, 0),
    ],
)  # fmt: skip
def test_derived_numbers_without_any_run(quantity, at, expected, digits):
    table = claims_of(pd.DataFrame())
    rows = table[table["quantity"] == quantity]
    (row,) = (row for row in rows.itertuples() if at in row.at.split(";"))
    assert round(row.published_value, digits) == pytest.approx(expected)
    assert (row.published_value == 0) == (expected == 0), "no rounding of floats for what is 0"
    assert row.follows_from
    assert math.isnan(row.value) and row.missing.startswith("runs of ")


@pytest.mark.slow
def test_the_first_allreduce_is_that_of_the_traced_run(frame):
    (run,) = expand(scaling="strong", epochs=4, gpus=2, full_size=True, trace=True)
    runs = frame((run, {}))
    assert runs.allreduce_first_s.item() == pytest.approx(0.021)  # of the made-up timeline
    runs["gpus"] = 400
    row = claims_of(runs).set_index("quantity").loc["first allreduce"]
    assert (row.value, row.published_value, row.stated) == (pytest.approx(0.021), 131, 131)
    assert claims_of(pd.DataFrame()).set_index("quantity").loc["first allreduce"].missing.startswith("runs of ")


def test_a_series_has_its_range():
    table = claims_of(pd.DataFrame())
    rows = table.set_index("quantity")
    seconds, percent = (rows.loc[f"same less scaled learning rate: runtime{end}"] for end in ("", ", %"))
    assert (seconds.published_value, seconds.published_lowest, seconds.published_highest) == (6.0, -3, 16)
    assert percent.published_value == pytest.approx(0.35, abs=0.005)


def test_the_projection_is_of_published_numbers_alone():
    assert loading_factor() == pytest.approx(3.8, abs=0.05)
    table = TABLES["sc18_loading_projection"].make(pd.DataFrame(), NO_LOADING)
    row = table.frame.iloc[0]
    assert row.projected_total_s == pytest.approx(1561 - 737 + 737 / loading_factor())
    measured = set(table.frame) - {"machine", "benchmark", "memory_mode", "learning_rate_scaling", "gpus"}
    assert all(name.startswith(("published_", "projected_")) for name in measured)


# The studies


@pytest.mark.parametrize(("name", "may_fail"), [("sc18", 0), ("sc18_flat", 1)])
def test_the_point_that_failed_in_the_paper_may_fail(name, may_fail):
    study = expansion.load_study(name)
    assert sum(run.may_fail is not None for run in study.runs) == may_fail


def test_each_published_point_has_a_run():
    studies = [expansion.load_study(name) for name in ("sc18", "sc18_flat")]
    mode = {"sc18": "cache", "sc18_flat": "flat"}
    planned = {
        (mode[study.name], run["scaling"], run["learning_rate_scaling"], run.gpus, run["batch_size"])
        for study in studies
        for run in study.runs
    }
    for file in sorted((configuration.CONFIG / "papers" / "sc18").glob("sc18_table*.csv")):
        for _, row in pd.read_csv(file).iterrows():
            scaled, size = row.get("learning_rate_scaling", "linear"), row.get("batch_size", 20)
            assert (row["memory_mode"], row["scaling"], scaled, row["gpus"], size) in planned, (file, row)


# Memory modes


@pytest.mark.parametrize(
    ("declared", "options", "words"),
    [
        ("flat", ["--attrs", "mcdram=cache:numa=quad"], "memory_mode: flat, but job_options request mcdram=cache"),
        (None, ["--attrs", "mcdram=flat:numa=quad"], "memory_mode: is missing, but job_options request mcdram=flat"),
        ("cache", ["--attrs", "mcdram=cache:numa=quad"], None),
        ("cache", [], None),
    ],
)
def test_the_declared_memory_mode_is_the_requested_one(monkeypatch, declared, options, words):
    content = {**machine.load("theta"), "job_options": options, "memory_mode": declared}
    content = {key: value for key, value in content.items() if key != "name" and value is not None}
    monkeypatch.setattr(configuration, "load_named", lambda *_: content)
    if words is None:
        assert machine.load("theta")["memory_mode"] == declared
        return
    with pytest.raises(StudyError) as error:
        machine.load("theta")
    assert f"config/machines/theta.yaml: {words}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("on", "mode"), [("theta_flat", "flat"), ("local", "none")])
def test_a_record_knows_its_memory_mode(make_run, on, mode):
    (run,) = one_node()
    assert make_record(make_run(run, machine=on))["memory_mode"] == mode


@pytest.fixture
def both_modes(frame, tmp_path, monkeypatch):
    """Tidy table of theta's runs, followed by those of theta_flat, of which one has no record yet."""
    here, there = one_node(), (*one_node(), *one_node(epochs=2))
    frame((here[0], {"runtime": 1567.0, "load": (2.0,)}), on="theta")
    frame((there[0], {"runtime": 1608.0, "load": (2.0,), "session": "another"}), on="theta_flat")
    monkeypatch.setattr(table_inputs, "load_study", lambda name, on: Study(name, "", {}, there))
    study = Study("sc18", "", {}, here, further=(Further("theta_flat", "sc18_flat"), Further("theta", "sc18")))
    assert table_inputs.elsewhere(study, tmp_path / "theta") == {"theta_flat": [there[0]]}
    uses = TABLES["sc18_memory_modes"].uses
    alone, _ = table_inputs.gather(study, tmp_path / "theta", uses, uses_loading=False)
    found, _ = table_inputs.gather(study, tmp_path / "theta", uses, uses_loading=False, reads_further=True)
    assert (alone["machine"].tolist(), found["machine"].tolist()) == (["theta"], ["theta", "theta_flat"])
    return found


@pytest.mark.slow
def test_both_modes_stand_in_one_table(both_modes, tmp_path):
    assert all((tmp_path / "theta" / record).exists() for record in both_modes["record"])
    table = TABLES["sc18_memory_modes"].make(both_modes, NO_LOADING)
    assert table.frame["memory_mode"].tolist() == ["cache", "flat"]
    assert table.frame["ratio_runtime_s"].tolist() == [1, 1]
    assert table.frame["published_memory_power_w"].tolist() == [12.08, 17.0]
    row = claims_of(both_modes).iloc[0]
    assert (row.value, row.published_value) == (pytest.approx(1608 / 1567), pytest.approx(1608 / 1567))
    assert (row.pairing, row.missing) == ("unpaired", None)
    assert math.isnan(row.low), "two machines are never interleaved"
    assert row.follows_from == "section 4.1"


@pytest.mark.slow
def test_a_mode_is_compared_with_its_own_published_points_only(frame):
    runs = expand(scaling="strong", epochs=400, gpus=[400, 100], full_size=True)
    table = TABLES["sc18_table4_5_6"].make(frame(*((run, {}) for run in runs), on="theta_flat"), NO_LOADING).frame
    ours = table[table["repeats_ok"] > 0].set_index("gpus")
    assert ours["published_model_fit_s"].to_dict() == {400: 1188, 100: 4062}
    others = table[table["repeats_ok"] == 0]
    assert len(table) == 15, "every published point has a row"
    assert others["ratio_model_fit_s"].isna().all() and set(others["ratio_reason"]) == {"no run of this point"}
    (profiled,) = expand(scaling="weak", epochs=1, gpus=2, full_size=True, profile=True)
    cprofile = TABLES["sc18_table2_3"].make(frame((profiled, {}), on="theta_flat"), NO_LOADING).frame.iloc[0]
    assert math.isnan(cprofile.published_total_s), "Tables 2 and 3 are of cache mode"


@pytest.mark.slow
def test_points_of_two_modes_are_never_averaged(frame):
    runs = frame(*((run, {}) for run in one_node(repeats=2)))
    runs["memory_mode"] = ["cache", "flat"]
    table = TABLES["scaling"].make(runs, NO_LOADING)
    assert table.frame["repeats_ok"].tolist() == [1, 1]
    assert "flat" in table.markdown()


# Table 1


def dithered(watts, ticks):
    """Whole watts whose mean is ``watts``: the counters' files hold integers."""
    return np.diff(np.floor(watts * np.arange(ticks + 1))).astype(int)


@pytest.fixture
def measured(make_run, tmp_path):
    """The run of Table 1's first row on theta, sampled from made-up Cray counters with these watts."""

    def make(run, sampled=None):
        """sampled: monotonic seconds at which the sampler and the processes were there, if that is known."""
        folder = make_run(run, machine="theta", runtime=float(SECONDS))
        times = {"startup": (0, 10), "load": (10, 810), "broadcast": (810, 811), "train": (811, 1555),
                 "evaluate": (1555, 1567)}  # fmt: skip
        edges = [
            {"phase": phase, "edge": edge, "rank": 0, "host": "n1", "wall_ns": at * 10**9, "monotonic_ns": at * 10**9}
            for phase, span in times.items()
            for edge, at in zip(("begin", "end"), span, strict=True)
        ]
        (folder / "phases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in edges))
        telemetry(tmp_path / "pm_counters").to_csv(folder / "telemetry.csv", index=False)
        outcome = json.loads((folder / "outcome.json").read_text())
        if sampled:
            times = dict(zip(("begin", "processes_end"), (int(at * 1e9) for at in sampled), strict=True))
            facts = {f"{name}_monotonic_ns": at for name, at in times.items()}
            (folder / "sensors.json").write_text(json.dumps([{"host": "n1", "boot_id": "b", "reasons": {}, **facts}]))
        outcome["files"] = {path.name: sha256(path) for path in folder.iterdir() if path.name != "outcome.json"}
        write_json(folder / "outcome.json", outcome)
        write_json(folder / "record.json", make_record(folder))
        return runs_frame([run], CODE, tmp_path / "theta")

    return make


def telemetry(root):
    """What the sampler would have written: the node's joules exceed its watts x time by 0.5 %."""
    root.mkdir()
    seconds = np.linspace(9.5, SECONDS + 0.5, 320)  # fewer than the sampler's two a second, which would take long
    watts = {"": dithered(NODE, len(seconds)), "cpu_": dithered(CPU, len(seconds)),
             "memory_": dithered(MEMORY, len(seconds))}  # fmt: skip
    joules = {"": 1.005 * NODE, "cpu_": CPU, "memory_": MEMORY}
    devices, rows = None, []
    for tick, at in enumerate(seconds):
        (root / "freshness").write_text(f"{tick}\n")
        for prefix, power in watts.items():
            (root / f"{prefix}power").write_text(f"{power[tick]} W\n")
            (root / f"{prefix}energy").write_text(f"{int(joules[prefix] * at)} J\n")
        devices = devices or cray.find(root)
        for device in devices:
            reading = dataclasses.asdict(device.read())
            place = [int(at * 1e9), int(at * 1e9), "n1", device.sensor, device.kind, device.name]
            rows.append([*place, *(reading[name] for name in MEASURES)])
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.slow
def test_table1_from_cray_counters(measured):
    (run,) = one_node()
    runs = measured(run)
    row = TABLES["sc18_table1"].make(runs, NO_LOADING).frame.iloc[0]
    window = SECONDS - 10
    assert (row.batch_size, row.memory_mode, row.runtime_s, row.energy_window_s) == (20, "cache", SECONDS, window)
    assert (row.node_power_w, row.cpu_power_w, row.memory_power_w) == pytest.approx((NODE, CPU, MEMORY), rel=1e-3)
    assert row.energy_j == pytest.approx(1.005 * NODE * window, rel=1e-3), "the counter"
    assert row.node_power_time_j == pytest.approx(NODE * window, rel=1e-3), "mean power x time"
    assert row.energy_j / row.node_power_time_j == pytest.approx(1.005, rel=2e-4)
    assert row.ratio_runtime_s == 1
    of_power = [name for name in row.index if name.startswith("ratio_") and name.endswith(("_w", "_j"))]
    assert len(of_power) == 4 and row[of_power].isna().all(), "it is not known when the processes ended"
    phases = TABLES["energy_by_phase"].make(runs, NO_LOADING).frame.iloc[0]
    assert phases.load_energy_j == pytest.approx(1.005 * NODE * 800, rel=1e-3)
    assert phases.load_share == pytest.approx(800 / window, rel=1e-3)


@pytest.mark.slow
def test_power_of_the_paper_s_window_has_a_ratio(measured):
    """The sampler covers the processes' 1,557 s: NODE watts, and 0.5 % more joules."""
    runs = measured(one_node()[0], sampled=(9.6, SECONDS))
    row = TABLES["sc18_table1"].make(runs, NO_LOADING).frame.iloc[0]
    assert row.whole_run_node_power_w == pytest.approx(NODE, rel=1e-3)
    assert (row.ratio_whole_run_node_power_w, row.ratio_whole_run_memory_power_w) == pytest.approx((1, 1), rel=1e-3)
    length = SECONDS - 9.6
    assert row.ratio_whole_run_node_energy_j == pytest.approx(1.005 * NODE * length / 249560.42, rel=1e-3)
    assert row.power_runtime_j == pytest.approx(row.published_energy_j, rel=1e-3), "as the paper computed it"
    assert runs.whole_run_window_s.item() == pytest.approx(length)
    assert runs.whole_run_outside_s.item() == pytest.approx(9.6)
    assert runs.whole_run_energy_per_gpu_one_hz_j.item() == pytest.approx(NODE * length, rel=1e-3)
    assert runs.whole_run_energy_per_gpu_j.item() == pytest.approx(1.005 * NODE * length, rel=1e-3), "the counter"
    found = claims_of(runs)
    ours = found[found["at"] == "scaling=weak;gpus=1;batch_size=20"].set_index("quantity")["value"]
    assert ours["energy / time"] == pytest.approx(1.005 * NODE, rel=1e-3)
    assert ours["energy less mean power x time"] == pytest.approx(0.005 * NODE * length, rel=0.05), "start-up included"


@pytest.mark.slow
def test_without_sensors_the_columns_are_empty_with_the_reason(frame, tmp_path):
    runs = frame(*((run, {"load": (2.0,)}) for run in one_node()), on="theta")
    table = TABLES["sc18_table1"].make(runs, NO_LOADING)
    assert table.frame.loc[0, ["node_power_w", "energy_j", "node_power_time_j", "power_runtime_j"]].isna().all()
    assert "missing power or energy: no power sensor here" in table.markdown()
    assert len(table.frame) == 5 and table.frame["published_energy_j"].notna().all()
    data = timeline.select_timeline(load_description("sc18_figure3_4"), runs, "test", tmp_path / "theta", traced=False)
    assert data.runs[0].reason == "no power: no power sensor here"
    drawing.write_figure(timeline_drawing.draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    assert "no power: no power sensor here" in (tmp_path / "f.svg").read_text()


@pytest.mark.slow
def test_power_over_time_of_runs_that_were_not_traced(measured, tmp_path):
    (run,) = one_node()
    data = timeline.select_timeline(
        load_description("sc18_figure3_4"), measured(run), "test", tmp_path / "theta", traced=False
    )
    (drawn,) = data.runs
    assert drawn.title == "NT3, 1 rank, weak scaling, read_csv (base), memory mode cache"
    assert [line.label for line in drawn.lines] == ["node", "cpu", "memory"]
    assert np.nanmean(drawn.lines[0].mean) == pytest.approx(NODE, rel=1e-2)
    assert drawn.communication == {}
    drawing.write_figure(timeline_drawing.draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    assert "busy share" not in (tmp_path / "f.svg").read_text()
    study = expansion.load_study("sc18")
    first, sixth = (sources.select_figure_sources(study, name).runs for name in ("sc18_figure3_4", "sc18_figure6"))
    assert [(run.gpus, run["batch_size"], run["trace"]) for run in first] == [(1, 20, False)] * 3
    assert [(run.gpus, run["trace"]) for run in sixth] == [(400, True)]


def test_synthetic_data_have_no_ratio_of_quality(frame):
    (run,) = expand(scaling="strong", epochs=400, gpus=400, full_size=True)
    runs = frame((run, {"accuracy": 0.542, "loss": 0.6912}))
    real = TABLES["sc18_table4_5_6"].make(runs, NO_LOADING).frame
    assert real[real["repeats_ok"] > 0].iloc[0].ratio_accuracy == pytest.approx(1)
    made = TABLES["sc18_table4_5_6"].make(runs.assign(dataset="synthetic-1"), NO_LOADING).frame
    ours = made[made["repeats_ok"] > 0].iloc[0]
    assert ours[["ratio_accuracy", "ratio_loss", "ratio_validation_loss"]].isna().all()
    assert ours.ratio_model_fit_s == pytest.approx(ours.model_fit_s / 1042) or math.isnan(ours.model_fit_s)


# The best batch size


def by_batch(frame, seconds, repeats=3, failed=()):
    """The table of runs whose runtime is ``seconds[batch size] x`` the repeat's drift, run interleaved."""
    runs = one_node(batch_size=list(seconds), repeats=repeats)
    facts = [
        {"runtime": seconds[run["batch_size"]] * (1 + run.repeat) * noise(run), "started": 10 * run.repeat + place}
        for place, run in enumerate(runs)
    ]
    data = frame(*zip(runs, facts, strict=True))
    data.loc[data["batch_size"].isin(failed), ["status", "runtime_s"]] = ["failed", math.nan]
    table = TABLES["batch_size_optimum"].make(data, NO_LOADING)
    return table, table.frame.set_index("batch_size")


def noise(run):
    """Up to 2 %, and not the same for all batch sizes."""
    return 1 + 0.01 * ((run.repeat * run["batch_size"] // 10) % 3)


@pytest.mark.slow
def test_a_best_batch_size_needs_intervals_that_exclude_the_others(frame):
    table, rows = by_batch(frame, {20: 20.0, 50: 10.0, 100: 20.0})
    assert rows["runtime_verdict"].to_dict() == {20: "higher", 50: "lowest", 100: "higher"}
    assert rows.loc[20, "runtime_to_lowest_low"] > 1
    assert rows["energy_verdict"].isna().all()


@pytest.mark.slow
def test_batch_sizes_that_cannot_be_told_apart(frame):
    table, rows = by_batch(frame, {20: 20.0, 50: 10.0, 100: 10.01})
    assert rows.loc[[50, 100], "runtime_verdict"].tolist() == ["not told apart"] * 2
    assert rows.loc[20, "runtime_verdict"] == "higher"


def test_one_repeat_gives_no_verdict(frame):
    _, rows = by_batch(frame, {20: 20.0, 50: 10.0}, repeats=1)
    assert rows["runtime_verdict"].isna().all()
