"""Grids expand to the runs the paper means, and what cannot run is refused with file, key and reason."""

import copy
import dataclasses
import gzip
import itertools
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment import datasets, expansion, identity, inputs, run_order, schemas
from study.experiment.parameters import PARAMETERS
from study.experiment.study import scale_batch_size
from study.launch import model_checks
from study.machines import machine

SYNTHETIC = {"source": "synthetic", "train_samples": 100, "test_samples": 20, "features": 60, "seed": 1}
BASE = {
    "description": "a test",
    "datasets": {"nt3": SYNTHETIC},
    "runs": [{"benchmark": "nt3", "scaling": "strong", "epochs": 8, "gpus": [1, 2, 4], "loader": ["read_csv", "npy"]}],
    "tables": ["scaling"],
}


def study(**changes):
    content = copy.deepcopy(BASE)
    content["runs"][0].update(changes)
    return expansion.expand_study("test", content, "test.yaml")


def test_synthetic_data_of_another_generator_are_another_dataset():
    """Finished runs keep the data that they trained on."""
    first, second = (datasets.build_dataset(name, SYNTHETIC, "test.yaml") for name in ("p1b2", "nt3"))
    assert (first.generator_version, first.id) == (1, "synthetic-100-20x60-seed1"), "as before versions had names"
    assert (second.generator_version, second.id) == (2, "synthetic-100-20x60-seed1-v2")
    assert datasets.build_dataset("nt3", {"source": "url"}, "test.yaml").generator_version == 1


@pytest.mark.parametrize(("scaling", "expected"), [("strong", {1: 8, 2: 4, 4: 2}), ("weak", {1: 8, 2: 8, 4: 8})])
def test_epochs_a_rank(scaling, expected):
    assert {run.gpus: run.epochs_per_rank for run in study(scaling=scaling).runs} == expected


def test_equal_points_of_two_grids_are_one_run():
    content = copy.deepcopy(BASE)
    content["runs"].append({**content["runs"][0], "gpus": [2, 8]})
    runs = expansion.expand_study("test", content, "test.yaml").runs
    assert sorted({run.gpus for run in runs}) == [1, 2, 4, 8]
    assert len(runs) == 4 * 2


def test_defaults_come_from_the_benchmark():
    content = copy.deepcopy(BASE)
    content["datasets"]["nt3"] = {"source": "url"}
    content["runs"] = [
        {"benchmark": "nt3", "scaling": scaling, "gpus": 1, "loader": "npy"} for scaling in ("strong", "weak")
    ]
    strong, weak = expansion.expand_study("test", content, "test.yaml").runs
    assert (strong.parameters["epochs"], weak.parameters["epochs"]) == (384, 8)
    assert strong.parameters["batch_size"] == 20


@pytest.mark.parametrize(
    ("batch", "gpus", "scaling", "expected"),
    [
        (100, 48, "cubic_root", 363),  # icpp2019, section 4.2.4
        (100, 192, "linear", 19200),
        (100, 384, "linear", 38400),
        (100, 4, "square_root", 200),
        (100, 8, "cubic_root", 200),
        (100, 384, "square_root", 1959),
        (20, 384, "none", 20),
    ],
)
def test_batch_scaling(batch, gpus, scaling, expected):
    assert scale_batch_size(batch, gpus, scaling) == expected


@given(batch=st.integers(1, 10_000), gpus=st.integers(1, 10_000))
def test_batch_scaling_roots_are_floors(batch, gpus):
    for scaling, power in (("square_root", 2), ("cubic_root", 3)):
        scaled = scale_batch_size(batch, gpus, scaling)
        assert scaled**power <= batch**power * gpus < (scaled + 1) ** power
        assert math.isclose(scaled, batch * gpus ** (1 / power), rel_tol=1e-6, abs_tol=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": [3]}, ["runs[0].gpus: 3", "8 epochs cannot be divided", "2 or 4"]),
        ({"gpus": [16]}, ["runs[0].gpus: 16", "divided"]),
        ({"batch_size": 101}, ["runs[0].batch_size: 101", "100 training samples"]),
        ({"batch_size": 50, "batch_scaling": "linear"}, ["runs[0].batch_size: 200 on 4 ranks"]),
        (
            {"batch_size": 30, "sharding": "by_rank"},
            ["runs[0].batch_size: 30 on 4 ranks", "25 training samples of a rank"],
        ),
        ({"scaling": "batch"}, ["runs[0].batch_scaling", "linear, square_root, cubic_root"]),
        ({"scaling": "weak", "warmup_epochs": 9}, ["runs[0].warmup_epochs: 9 is more than the 8 epochs"]),
        ({"warmup_epochs": 1, "plateau_epochs": 2}, ["runs[0].plateau_epochs: the warm-up sets the learning rate"]),
        ({"warmup_epochs": 1, "learning_rate_scaling": "none"}, ["runs[0].warmup_epochs: there is nothing to warm up"]),
        ({"trace": True, "profile": True, "gpus": 2}, ["runs[0].profile", "traced and profiled at once"]),
        ({"straggler_loads": 2}, ["runs[0].straggler_loads", "needs trace: true"]),
        ({"checkpoint_epochs": 1, "profile": True}, ["runs[0].checkpoint_epochs", "has no checkpoints"]),
        (
            {"staging": "local_copy", "trace": True, "gpus": 2, "straggler_loads": 1},
            ["runs[0].straggler_loads", "staging: none"],
        ),
        (
            {"input_pipeline": "keras_arrays", "checkpoint_epochs": 1},
            ["runs[0].checkpoint_epochs", "Keras keeps the order", "tf_data"],
        ),
        ({"gpus": 1, "trace": True}, ["runs[0].trace", "no communication to trace"]),
        ({"dataset": "nt4"}, ["runs[0].dataset", "no dataset 'nt4'", "nt3"]),
    ],
)
def test_what_cannot_run_is_refused(changes, words):
    with pytest.raises(StudyError) as refusal:
        study(**changes)
    for word in ["test.yaml", *words]:
        assert word in str(refusal.value)


ONE = {"scaling": "weak", "gpus": 1, "loader": "npy"}
REFUSED = {
    "joined samples handed to Keras": (
        {"datasets": {"p1b3": SYNTHETIC}, "runs": [
            {**ONE, "benchmark": "p1b3", "epochs": 1, "batch_size": 10, "input_pipeline": "keras_arrays"}]},
        r"runs\[0\].input_pipeline: p1b3's samples are joined one batch at a time"),
    "a mode without default epochs": (
        {"runs": [{**ONE, "benchmark": "nt3", "scaling": "batch", "batch_scaling": "linear", "batch_size": 10}]},
        r"runs\[0\]: the key 'epochs' is missing; nt3 has no default under batch"),
    "a batch with validation samples": (
        {"datasets": {"p1b1": {**SYNTHETIC, "train_samples": 300}},
         "runs": [{**ONE, "benchmark": "p1b1", "batch_size": 271}]}, "larger than the 270 training samples"),
    "too few rows to validate": (
        {"datasets": {"p1b1": {**SYNTHETIC, "train_samples": 9}},
         "runs": [{**ONE, "benchmark": "p1b1", "batch_size": 1}]}, "train_samples: 9 leave no validation sample"),
    "too few features": (
        {"datasets": {"nt3": {**SYNTHETIC, "features": 37}}},
        r"datasets.nt3.features: 37 is too few: nt3's layers need 38"),
    "another file than the benchmark's": (
        {"datasets": {"nt3": {"source": "path", "train": "a", "tset": "b"}}},
        "datasets.nt3.tset: nt3 has no such file; its files: train, test"),
    "a file of the benchmark is missing": (
        {"datasets": {"nt3": {"source": "path", "train": "a"}}},
        "datasets.nt3: the key 'test' is missing; nt3's files: train, test"),
    "a dataset measured twice": (
        {"loading": [{"benchmark": "nt3", "loader": "npy", "repeats": number} for number in (1, 2)]},
        r"loading\[1\].dataset: 'nt3' is measured by another entry"),
    "a dataset measured under two names": (
        {"datasets": {"nt3": SYNTHETIC, "again": {**SYNTHETIC, "benchmark": "nt3"}},
         "loading": [{"benchmark": "nt3", "dataset": name, "loader": "npy", "repeats": 1}
                     for name in ("nt3", "again")]},
        r"loading\[1\].dataset: 'again' is measured by another entry"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_study_that_cannot_run_is_refused(case):
    content, message = REFUSED[case]
    with pytest.raises(StudyError, match=message):
        expansion.expand_study("test", {**copy.deepcopy(BASE), **content}, "test.yaml")


def test_a_point_s_name_has_what_differs_from_the_defaults():
    content = copy.deepcopy(BASE)
    content["datasets"]["nt3"] = {"source": "url"}
    point = {"benchmark": "nt3", "scaling": "strong", "gpus": 4, "loader": "chunked"}
    content["runs"] = [point, {**point, "epochs": 8, "batch_size": 50, "sharding": "by_rank", "repeats": 2}]
    default, first, second = expansion.expand_study("test", content, "test.yaml").runs
    assert default.directory == "nt3/candle/strong+gpus~4+loader~chunked"
    assert first.directory == "nt3/candle/strong+epochs~8+gpus~4+batch_size~50+loader~chunked+sharding~by_rank"
    assert second.directory == first.directory + "+repeat~2"


def test_a_long_name_is_shortened_and_stays_unique():
    """With the longest value of each key that has names for values, and numbers of eight digits."""
    names = set()
    for repeat in (999, 1000):
        values = {}
        for name, parameter in PARAMETERS.items():
            choices = getattr(parameter.kind, "values", None)
            values[name] = max(choices, key=len) if choices else 99_999_999
        values |= {"trace": True, "profile": True, "repeat": repeat}
        name = identity.name_point(values, configuration.load_named("benchmarks", "nt3"))
        assert len(name.encode()) <= 200
        assert re.search(r"\+~[0-9a-f]{12}$", name), name
        names.add(name)
    assert len(names) == 2


@given(st.dictionaries(st.sampled_from(["warmup_epochs", "straggler_loads", "checkpoint_epochs"]), st.integers(0, 3)))
def test_equal_runs_have_one_name_and_unlike_ones_two(changes):
    """Whether a default is given or left out."""
    spec, base = configuration.load_named("benchmarks", "nt3"), study().runs[0].parameters
    same = all(value == PARAMETERS[name].default for name, value in changes.items())
    assert (identity.name_point({**base, **changes}, spec) == identity.name_point(base, spec)) is same
    assert identity.fill_defaults(identity.select_differing({**base, **changes})) == {**base, **changes}


def test_every_key_may_be_a_list():
    axes = {
        "scaling": ["strong", "weak"],
        "learning_rate_scaling": ["linear", "none"],
        "sharding": ["none", "by_rank"],
        "epochs": [4, 8],
        "checkpoint_epochs": [0, 2],
        "batch_size": [5, 10],
        "gpus": [1, 2],
    }
    content = copy.deepcopy(BASE)
    content["runs"][0] |= axes
    validation.validate(content, schemas.build_study_schema(), "test.yaml")
    runs = expansion.expand_study("test", content, "test.yaml").runs
    assert len(runs) == 2**7 * 2
    assert len({run.directory for run in runs}) == len(runs)


def test_the_fingerprint_has_what_training_reads():
    """The benchmark's values, the dataset, the machine's settings; not where the data lie."""
    run, on = study().runs[0], machine.load("local")
    spec = {**run.dataset.spec, "learning_rate": 0.5}
    other = dataclasses.replace(run, dataset=dataclasses.replace(run.dataset, spec=spec))
    fingerprint = inputs.define_run(run, on, "data").fingerprint
    assert inputs.define_run(run, on, "elsewhere").fingerprint == fingerprint
    assert inputs.define_run(other, on, "data").fingerprint != fingerprint
    assert inputs.define_run(run, {**on, "cores_per_rank": 2}, "data").fingerprint != fingerprint
    assert inputs.define_run(run, {**on, "environment": {"A": "1"}}, "data").fingerprint != fingerprint


def test_what_is_handed_to_a_step_comes_back_whole():
    defined = inputs.define_run(study().runs[0], machine.load("local"), "data")
    handed = inputs.to_param(defined)
    assert "staging" not in handed["parameters"]
    assert inputs.from_param(json.loads(json.dumps(handed))) == defined


def test_blocks_follow_one_another_in_balanced_orders():
    runs = study(repeats=3, gpus=[1, 2], loader="npy").runs
    ordered = run_order.sort_runs(runs)
    assert [(run.repeat, run.gpus) for run in ordered] == [(1, 1), (1, 2), (2, 2), (2, 1), (3, 2), (3, 1)]
    priorities = run_order.compute_priorities(runs)
    assert [priorities[run.directory] for run in ordered] == [6, 5, 4, 3, 2, 1]
    assert max(priorities.values()) < run_order.PREPARE


TOO_WIDE = "dask_dataframe: file train of dataset 'nt3' has {} columns; above 30,000 this loader takes minutes"


def test_tables_too_wide_for_dask_s_own_call_are_refused_in_the_plan():
    """29,999 features and the label are the widest that it loads."""
    content = copy.deepcopy(BASE)
    content["runs"][0] |= {"loader": "dask_dataframe", "gpus": 1}
    content["datasets"]["nt3"] = {**SYNTHETIC, "features": 29_999}
    content["loading"] = [{"benchmark": "nt3", "loader": ["read_csv", "dask_dataframe"], "repeats": 1}]
    assert len(expansion.expand_study("test", content, "test.yaml").runs) == 1
    content["datasets"]["nt3"]["features"] = 30_000
    with pytest.raises(StudyError, match=r"test.yaml: runs\[0\].loader: " + TOO_WIDE.format("30,001")):
        expansion.expand_study("test", content, "test.yaml")
    content["runs"] = []
    with pytest.raises(StudyError, match=r"test.yaml: loading\[0\].loader: " + TOO_WIDE.format("30,001")):
        expansion.expand_study("test", content, "test.yaml")
    content["datasets"]["nt3"] = {"source": "url"}
    with pytest.raises(StudyError, match=TOO_WIDE.format("60,484")):
        expansion.expand_study("test", content, "test.yaml")


@pytest.mark.parametrize("columns", [30_000, 30_001])
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_the_width_of_one_s_own_files_is_read_from_them(tmp_path, columns, packed):
    content = copy.deepcopy(BASE)
    content["runs"][0] |= {"loader": "dask_dataframe", "gpus": 1}
    files = {file: str(tmp_path / f"{file}.csv") for file in ("train", "test")}
    content["datasets"]["nt3"] = {"source": "path", **files}
    assert len(expansion.expand_study("test", content, "test.yaml").runs) == 1, (
        "another check tells that they are not there"
    )
    for path in files.values():
        Path(path).write_bytes(packed(",".join(["1"] * columns).encode() + b"\n"))
    if columns <= 30_000:
        assert len(expansion.expand_study("test", content, "test.yaml").runs) == 1
    else:
        with pytest.raises(StudyError, match=TOO_WIDE.format("30,001")):
            expansion.expand_study("test", content, "test.yaml")


def test_datasets_of_two_studies_are_told_apart_by_what_they_are():
    def identity(**changes):
        content = copy.deepcopy(BASE)
        content["datasets"]["nt3"].update(changes)
        return expansion.expand_study("test", content, "test.yaml").runs[0].directory

    assert identity() == identity()
    assert len({identity(), identity(seed=2), identity(features=61), identity(test_samples=21)}) == 4


@pytest.mark.parametrize(
    ("grid", "carried", "counts"),
    [
        ({"scaling": "strong", "epochs": 4}, 64, [1, 2, 4]),
        ({"scaling": "strong", "epochs": 6}, 64, [1, 2]),
        ({"scaling": "strong", "epochs": 4}, 3, [1, 2]),
        ({"scaling": "weak", "epochs": 4}, 12, [1, 2, 4, 8]),
        ({"scaling": "weak", "epochs": 4}, 1, [1]),
    ],
)
def test_available_counts_are_those_that_the_machine_carries_and_the_epochs_allow(grid, carried, counts):
    content = {**copy.deepcopy(BASE), "runs": [{"benchmark": "nt3", "loader": "npy", "gpus": "available", **grid}]}
    found = expansion.expand_study("test", content, "test.yaml", lambda: carried)
    assert [run.gpus for run in found.runs] == counts
    by_numbers = expansion.expand_study(
        "test", {**content, "runs": [{**content["runs"][0], "gpus": counts}]}, "test.yaml"
    )
    assert [run.directory for run in found.runs] == [run.directory for run in by_numbers.runs]


def test_icpp2019_has_every_published_nt3_point():
    import pandas as pd

    runs = expansion.load_study("icpp2019").runs
    planned = {(r["scaling"], r["batch_size"], r.gpus, r["loader"]) for r in runs}
    folder = configuration.CONFIG / "papers" / "icpp2019"
    table2 = pd.read_csv(folder / "icpp2019_table2_nt3_strong.csv")
    table6 = pd.read_csv(folder / "icpp2019_table6_nt3_weak.csv")
    assert {("strong", b, g, "read_csv") for b, g in zip(table2.batch_size, table2.gpus, strict=True)} <= planned
    assert {("weak", 20, g, loader) for loader, g in zip(table6.loader, table6.gpus, strict=True)} <= planned
    traced = {(r["benchmark"], r["scaling"], r.gpus, r["loader"]) for r in runs if r["trace"]}
    points = [("nt3", "strong", 384), ("nt3", "weak", 768)]  # Figures 7, 12 and 19
    assert traced == {(*point, loader) for point in points for loader in ("read_csv", "chunked")}
    profiled = [(r["benchmark"], r["scaling"], r.gpus, r["loader"]) for r in runs if r["profile"]]
    assert profiled == [("nt3", "strong", 384, "read_csv")]  # section 4, of the run in Figure 7


@pytest.mark.parametrize("name", ["icpp2019", "icpp2019_theta"])
def test_both_machines_have_weak_scaling_and_dask_s_own_call(name):
    """Section 6, by text on Theta too; section 5, for files that are narrow enough."""
    study = expansion.load_study(name)
    weak = {(r["benchmark"], r.gpus, r["loader"]) for r in study.runs if r["scaling"] == "weak"}
    names, loaders = ("nt3", "p1b1", "p1b2"), ("read_csv", "chunked")
    assert {(each, ranks, loader) for each in names for ranks in (24, 96, 384) for loader in loaders} <= weak
    by_dask = {load.dataset.benchmark for load in study.loading if "dask_dataframe" in load.loaders}
    assert by_dask == {"p1b2", "p1b3"}


@pytest.mark.parametrize(
    ("benchmark", "changes", "words"),
    [
        ("p1b3", {"feature_subsample": -5}, "p1b3.yaml: model.feature_subsample: -5 is less than the minimum of 1"),
        ("p1b1", {"encoder": []}, "p1b1.yaml: model.encoder"),
        ("p1b2", {"danse": [1]}, "p1b2.yaml: model.danse: unknown key; did you mean 'dense'?"),
        ("nt3", {"dropout": 1.5}, "nt3.yaml: model.dropout: 1.5 is greater than or equal to the maximum of 1"),
    ],
)
def test_a_model_s_values_are_checked(monkeypatch, benchmark, changes, words):
    spec = copy.deepcopy(configuration.load_named("benchmarks", benchmark))
    spec["model"] |= changes
    monkeypatch.setattr(configuration, "load_named", lambda *_: spec)
    content = {**copy.deepcopy(BASE), "datasets": {benchmark: {**SYNTHETIC, "train_samples": 300}}}
    content["runs"] = [{"benchmark": benchmark, "scaling": "weak", "epochs": 1, "gpus": 1, "loader": "npy"}]
    with pytest.raises(StudyError, match=re.escape(words)):
        expansion.expand_study("test", content, "test.yaml")


# Arms

POINT = {"loader": "npy", "gpus": 1}


def test_a_grid_s_arms_are_points_beside_each_of_its_points():
    tuning = {"arrays": {"input_pipeline": "keras_arrays"}, "same": {"control": 1}}
    plain = study(repeats=2, gpus=[1, 2], loader="npy").runs
    runs = study(repeats=2, gpus=[1, 2], loader="npy", tuning=tuning).runs
    assert len(runs) == 2 * 2 * 3
    assert [run.directory for run in plain] == [run.directory for run in runs if run.arms[0].name == "baseline"]
    (base, arrays, same) = [run for run in runs if (run.repeat, run.gpus) == (2, 2)]
    assert {run.arms[0].baseline for run in (base, arrays, same)} == {base.point} != {base.directory}
    assert (arrays["input_pipeline"], same["control"]) == ("keras_arrays", 1)
    assert arrays.arms[0].switches == {"input_pipeline": ("keras_arrays", "tf_data")}
    assert base.arms[0].switches == {} and plain[0].arms == ()


def test_an_arm_of_one_baseline_may_be_the_baseline_of_another_and_runs_once():
    content = copy.deepcopy(BASE)
    content["runs"][0] |= {**POINT, "tuning": {"arrays": {"input_pipeline": "keras_arrays"}}}
    content["runs"].append(
        {**content["runs"][0], "input_pipeline": "keras_arrays", "tuning": {"csv": {"loader": "read_csv"}}}
    )
    validation.validate(content, schemas.build_study_schema(), "test.yaml")
    runs = expansion.expand_study("test", content, "test.yaml").runs
    assert len(runs) == 3
    assert [arm.name for run in runs for arm in run.arms] == ["baseline", "arrays", "baseline", "csv"]
    assert runs[1].arms[1].baseline == runs[1].point == runs[2].arms[0].baseline


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"a": {"shardin": "by_rank"}}, r"runs\[0\].tuning.a.shardin: unknown key; did you mean 'sharding'\?"),
        ({"a": {"sharding": "by_rak"}}, r"runs\[0\].tuning.a.sharding: 'by_rak' is not one of none, by_rank; did"),
        ({"a": {"sharding": ["by_rank"]}}, r"runs\[0\].tuning.a.sharding: \['by_rank'\] is not one of"),
        ({"a": {}}, r"runs\[0\].tuning.a: {} "),
        ({"a": {"control": -1}}, r"runs\[0\].tuning.a.control: -1 is less than"),
        ({"a": {"ensemble": 2}}, r"runs\[0\].tuning.a.ensemble: an arm trains the baseline's workload"),
        ({"a": {"gpus": 2}}, r"runs\[0\].tuning.a.gpus: an arm trains the baseline's workload"),
        ({"a": {"trace": True}}, r"runs\[0\].tuning.a.trace: runs with this key give no timings"),
        ({"baseline": {"control": 1}}, r"runs\[0\].tuning.baseline: is the name of the grid's own point"),
        ({"a": {"sharding": "none"}}, r"runs\[0\].tuning.a.sharding: .* same run as the baseline; .* set control"),
        ({"a": {"control": 1}, "b": {"control": 1}}, r"runs\[0\].tuning.b.control: .* same run as arm 'a'"),
        ({"a": {"servers": 2}}, r"runs\[0\].tuning.a.servers: 2 servers need strategy: parameter_server"),
    ],
)
def test_an_arm_that_cannot_run_is_refused_by_its_name_and_key(tuning, message):
    content = copy.deepcopy(BASE)
    content["runs"][0] |= {**POINT, "tuning": tuning}
    with pytest.raises(StudyError, match=f"test.yaml: {message}"):
        validation.validate(content, schemas.build_study_schema(), "test.yaml")
        expansion.expand_study("test", content, "test.yaml")


@pytest.mark.parametrize("arms", [1, 2, 3, 4, 5, 6, 7, 10])
def test_each_arm_follows_each_other_arm_and_has_each_place_equally_often(arms):
    """Once in as many blocks as there are arms; an odd number of arms twice in twice as many blocks."""
    times = 1 + arms % 2
    rows = [run_order.balance_arms(arms, block) for block in range(times * arms)]
    pairs = [pair for row in rows for pair in itertools.pairwise(row)]
    assert all(pairs.count(pair) == times for pair in pairs) and len(pairs) == times * arms * (arms - 1)
    assert all(sorted(column) == sorted([*range(arms)] * times) for column in zip(*rows, strict=True))


def test_a_baseline_and_its_arms_run_beside_each_other():
    tuning = {"arrays": {"input_pipeline": "keras_arrays"}, "same": {"control": 1}}
    ordered = run_order.sort_runs(study(repeats=3, gpus=[1, 2], loader="npy", tuning=tuning).runs)
    assert [run.repeat for run in ordered] == [1] * 6 + [2] * 6 + [3] * 6
    assert [run.gpus for run in ordered] == [1, 1, 1, 2, 2, 2] + [2, 2, 2, 1, 1, 1] * 2
    names = [run.arms[0].name for run in ordered]
    assert (names[:3], names[6:9]) == (["baseline", "arrays", "same"], ["same", "arrays", "baseline"])
    assert names[12:15] == ["arrays", "same", "baseline"]


def test_a_step_refuses_a_study_that_was_changed_since_the_plan(monkeypatch):
    study = expansion.load_study("smoke")
    assert expansion.load_planned_study("smoke") == study, "called by hand"
    monkeypatch.setenv(expansion.PLANNED, expansion.digest_study(study))
    assert expansion.load_planned_study("smoke") == study
    monkeypatch.setenv(expansion.PLANNED, expansion.digest_study(dataclasses.replace(study, runs=study.runs[1:])))
    with pytest.raises(StudyError, match=r"config/studies/smoke.yaml: was changed since this command began"):
        expansion.load_planned_study("smoke")


def test_a_model_of_one_s_own_files_is_checked_with_their_width(tmp_path, monkeypatch):
    """61 columns of NT3 are the class and 60 features. Without files, the warning says what to do."""
    content = copy.deepcopy(BASE)
    files = {file: tmp_path / f"{file}.csv" for file in ("train", "test")}
    content["datasets"]["nt3"] = {"source": "path", **{file: str(path) for file, path in files.items()}}
    asked = []
    monkeypatch.setattr(model_checks, "SHIPPED", ())
    monkeypatch.setattr(
        model_checks, "_run_checks", lambda cases, _: (asked.extend(cases) or [None] * len(cases), None)
    )
    found = expansion.expand_study("test", content, "test.yaml")
    local = machine.load("local")
    assert model_checks.list_refusals(found, local, "data") == ([], [
        "the model of nt3 is checked when its runs start, since the number of features of dataset nt3 is not known "
        "yet; to check it before, make a dry run of a study with source: synthetic and as many features"
    ])  # fmt: skip
    for path in files.values():
        path.write_text(",".join(["1"] * 61) + "\n")
    assert model_checks.list_refusals(found, local, "data") == ([], [])
    assert {each["shape"]["features"] for each in asked} == {60}
    files["test"].write_text(",".join(["1"] * 60) + "\n")
    _, (told,) = model_checks.list_refusals(found, local, "data")
    assert "is not known yet" in told, "the conversion says which file is wrong"
