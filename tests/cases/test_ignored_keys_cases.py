"""Keys that would have no effect: refused in the plan, with the place and what makes them so."""

import copy
import itertools

import pytest
from examples import expand

from study.core import configuration, validation
from study.core.errors import StudyError
from study.data.images import synthetic
from study.experiment import expansion, inputs
from study.experiment.datasets import build_dataset
from study.experiment.parameters import PARAMETERS
from study.machines import machine, storage
from study.report import sources

IDLE = [
    ({"gpus": 1, "fusion_threshold_mb": 64}, "fusion_threshold_mb: 64 has no effect: one rank has no communication"),
    ({"gpus": 1, "cycle_time_ms": 5}, "cycle_time_ms: 5.0 has no effect: one rank"),
    ({"gpus": 1, "cache_capacity": 0}, "cache_capacity: 0 has no effect: one rank"),
    ({"gpus": 1, "gradient_compression": "fp16"}, "gradient_compression: fp16 has no effect: one rank"),
    ({"gpus": 1, "link_mbit_per_s": 50}, "link_mbit_per_s: 50 has no effect: one rank"),
    ({"gpus": 1, "batch_scaling": "linear"}, "batch_scaling: linear has no effect: one rank trains alone"),
    ({"gpus": 1, "warmup_epochs": 2}, "warmup_epochs: 2 has no effect: one rank trains alone"),
    ({"checkpoint_epochs": 9}, "checkpoint_epochs: 9 has no effect: none is written: a rank trains 2 epochs"),
    ({"plateau_epochs": 2}, "plateau_epochs: 2 has no effect: no plateau of 2 epochs fits in 2 epochs of a rank"),
    ({"learning_rate_decay": "step", "decay_epochs": 2},
     "learning_rate_decay: step has no effect: the first reduction would be after 2 epochs, and a rank trains 2"),
    ({"reduction_epochs": "2-3", "learning_rate_decay": "step"},
     "learning_rate_decay: step has no effect: the first reduction would be after 2 epochs, and a rank trains 2"),
    ({"gpus": 1, "measure": "peak_throughput", "base_learning_rate": 0.1},
     "base_learning_rate: 0.1 has no effect: with measure: peak_throughput nothing is trained"),
    ({"gpus": 1, "measure": "peak_throughput", "xla": True}, "xla: true has no effect: with measure: peak_throughput"),
]  # fmt: skip


@pytest.mark.case("idle-grid-key", source="our own", right="refused, with the key that makes it so")
@pytest.mark.parametrize(("point", "words"), IDLE, ids=[next(reversed(point)) for point, _ in IDLE])
def test_a_grid_key_without_effect_is_refused(point, words):
    with pytest.raises(StudyError) as told:
        expand(**point)
    assert f"runs[0].{words}" in str(told.value)
    assert str(told.value).endswith("; leave it out")


def test_a_sweep_may_have_points_in_which_a_key_has_no_effect():
    assert len(expand(gpus=[1, 2], fusion_threshold_mb=64)) == 2
    assert len(expand(gpus=1, fusion_threshold_mb=PARAMETERS["fusion_threshold_mb"].default)) == 1


@pytest.mark.case("idle-arm", source="our own", right="refused: an arm that is the baseline under another name")
def test_an_arm_without_effect_is_refused():
    with pytest.raises(StudyError) as told:
        expand(gpus=1, tuning={"fused": {"fusion_threshold_mb": 64}})
    assert "runs[0].tuning.fused.fusion_threshold_mb: 64 has no effect" in str(told.value)


STUDY = {
    "description": "a test",
    "datasets": {name: {"benchmark": "nt3", "source": "synthetic", "train_samples": 100, "test_samples": 20,
                        "features": 60, "seed": seed} for name, seed in (("nt3", 1), ("mine", 2))},
    "runs": [{"benchmark": "nt3", "scaling": "weak", "epochs": 2, "gpus": 2, "loader": "npy"}],
    "tables": ["scaling"],
}  # fmt: skip


def changed(**keys):
    return {**copy.deepcopy(STUDY), **keys}


@pytest.mark.case("dataset-forgotten-in-the-grid", source="our own", right="refused: the runs would be of other data")
def test_a_dataset_that_no_grid_uses_is_refused():
    with pytest.raises(StudyError) as told:
        expansion.expand_study("t", STUDY, "t.yaml")
    assert str(told.value).startswith(
        "t.yaml: datasets.mine: no grid or loading measurement uses it; give one dataset:"
    )
    loading = [{"benchmark": "nt3", "dataset": "mine", "loader": "npy", "repeats": 1}]
    expansion.expand_study("t", changed(loading=loading), "t.yaml")


@pytest.mark.case("members-forgotten-in-the-grid", source="our own", right="refused")
def test_a_list_of_members_that_no_grid_uses_is_refused():
    grid = {**STUDY["runs"][0], "ensemble": 2, "learning_rate_scaling": "none", "dataset": "mine"}
    content = changed(runs=[STUDY["runs"][0], grid], members={"two": [{}, {"seed": 3}]})
    with pytest.raises(StudyError, match="members.two: no grid uses it; give one members: two"):
        expansion.expand_study("t", content, "t.yaml")


@pytest.mark.case("further-results-unread", source="our own", right="refused")
def test_further_results_that_nothing_shows_are_refused():
    del (content := changed())["datasets"]["mine"]
    study = expansion.expand_study(
        "t", {**content, "further_results": [{"machine": "theta", "study": "smoke"}]}, "t.yaml"
    )
    sources.check_further(expansion.expand_study("t", content, "t.yaml"))
    with pytest.raises(StudyError, match="further_results: no table or figure of the study shows them"):
        sources.check_further(study)


# Two values of each key of a dataset that the schema allows.
VALUES = {
    "layout": None, "source": None, "benchmark": None,  # what the others are varied for
    "train": ("a/train", "b/train"), "test": ("a/test", "b/test"), "first_label": (None, 0, 1),
    "image_size": (28, 24), "resize": (32, 36), "channels": (1, 3), "classes": (10, 12), "flip": (True, False),
    "train_samples": (100, 120), "test_samples": (20, 30), "seed": (1, 2), "noise": (1.5, 2), "record_kb": (1, 1.2),
    "stored_width": (40, 48), "stored_height": (40, 48),
    "features": (60, 80), "server": ("http://a", "http://b"),
    "checksums": ({"train": {"bytes": 1}}, {"train": {"bytes": 2}}),
    "target_quality": [{"quantity": "validation_loss", "at_most": most, "why": "x"} for most in (0.5, 0.6)],
}  # fmt: skip
LAYOUTS = ("folder", "tfrecord", "mnist", "cifar10")
SOURCES = {
    "image_files": ("lenet", ("train", "test")),
    "synthetic_images": ("lenet", ("train_samples", "test_samples", "seed")),
    "synthetic": ("nt3", ("train_samples", "test_samples", "features", "seed")),
    "url": ("nt3", ()),
    "path": ("nt3", ("train", "test")),
}


def keys():
    """(source, layout, key) of every key that the schema has for a source."""
    schema = validation.read_schema("studies")["$defs"]
    for source, (_, required) in SOURCES.items():
        own = {*schema[f"{source}_dataset"]["properties"], *required}
        for key, layout in itertools.product(sorted(own), LAYOUTS if source == "image_files" else (None,)):
            assert key in VALUES, f"give two values of the new key {key} in VALUES"
            if VALUES[key]:
                yield source, layout, key


def made_of(found):
    """All that a dataset's keys decide: what is fetched, made or read, its conversion, the input and the target."""
    if found.spec.get("model", {}).get("channels") is None:
        conversion = [
            (file, inputs.build_shape_options(found, file), found.locate_raw("data", file)) for file in found.file_keys
        ]
        drawn = found.definition if found.definition["source"] == "synthetic" else None
    else:
        conversion = [
            (inputs.describe_image_source(found, "data", file).as_param
             if found.definition["source"] == "image_files" else None,
             inputs.build_image_options(found, file)) for file in found.file_keys
        ]  # fmt: skip
        drawn = None
        if found.definition["source"] == "synthetic_images":
            drawn = [
                synthetic.describe_images(found.definition, found.spec["model"], split, "")
                for split in ("train", "test")
            ]
    return repr((conversion, drawn, found.spec["model"], found.shape, found.origin, found.target))


@pytest.mark.case("dataset-key-without-effect", source="our own", right="refused, or it changes what is read")
@pytest.mark.parametrize(("source", "layout", "key"), list(keys()))
def test_each_key_of_a_dataset_has_an_effect_or_is_refused(source, layout, key):
    benchmark, required = SOURCES[source]
    base = {"source": source, "benchmark": benchmark, **({"layout": layout} if layout else {})}
    base |= {name: VALUES[name][0] for name in required}
    base |= {"image_size": 28} if key == "resize" else {}
    base |= {"classes": 10} if source == "synthetic_images" else {}
    found = []
    for value in VALUES[key]:
        definition = {name: each for name, each in {**base, key: value}.items() if each is not None}
        try:
            found.append(made_of(build_dataset("x", definition, "t.yaml")))
        except StudyError as error:
            assert f"datasets.x.{key}: has no effect with layout: {layout}" in str(error)
            return
    assert len(set(found)) > 1, f"{key} changes nothing"


MACHINE = """
description: a test
launcher: horovodrun
cores_per_rank: 1
gpus_per_rank: 0
power_sensors: []
time_limit_s: 300
"""
IDLE_OF_MACHINES = {
    "hosts: {a: 1, b: 1}\nnodes: 5": "nodes: 5 has no effect: each host is a node of its own",
    "hosts: {a: 1, b: 1}\nranks_per_node: 5": "ranks_per_node: 5 has no effect: hosts say how many ranks each has",
    "nodes: 1\nranks_per_node: 1\nsampling_hz: 20": "sampling_hz: 20 has no effect: there are no power_sensors",
    "nodes: 1\nranks_per_node: 1\nstall_limit_s: 900": "stall_limit_s: 900 has no effect: a run is ended before",
    "nodes: 1\nranks_per_node: 1\nenvironment: {CUDA_DEVICE_ORDER: FASTEST_FIRST}":
        "environment: CUDA_DEVICE_ORDER: has no effect: each run sets it itself",
    "nodes: 1\nranks_per_node: 1\nenvironment: {STUDY_CORE_LIMIT: '1'}": "environment: STUDY_CORE_LIMIT: has no effect",
}  # fmt: skip


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The machine of a file in a folder of one's own: ``written(text)``."""

    def write(text):
        folder = tmp_path / "config" / "machines"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.yaml").write_text(text)
        return machine.load("mine")

    monkeypatch.chdir(tmp_path)
    return write


@pytest.mark.case("machine-key-without-effect", source="our own", right="refused")
@pytest.mark.parametrize("text", IDLE_OF_MACHINES)
def test_a_machine_s_key_without_effect_is_refused(written, text):
    with pytest.raises(StudyError) as told:
        written(MACHINE + text)
    assert str(told.value).startswith(f"config/machines/mine.yaml: {IDLE_OF_MACHINES[text]}")


@pytest.mark.case("momentum-of-adam", source="our own", right="refused; it was a failed run")
def test_momentum_of_an_optimizer_that_takes_none_is_refused(monkeypatch):
    spec = {**configuration.load_named("benchmarks", "nt3"), "optimizer": "adam", "momentum": 0.9}
    monkeypatch.setattr(configuration, "load_named", lambda *_: copy.deepcopy(spec))
    with pytest.raises(StudyError) as told:
        build_dataset("nt3", {"source": "url"}, "t.yaml")
    assert "config/benchmarks/nt3.yaml: momentum: optimizer: adam does not take it" in str(told.value)


@pytest.mark.case("braces-in-storage", source="our own", right="refused in the plan")
def test_a_storage_whose_variable_has_braces_is_refused(monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/{me}")
    where = {"name": "mine", "storage": {"fast": "$SCRATCH/data", "unset": "${NOWHERE}/data"}}
    with pytest.raises(StudyError) as told:
        storage.choose_data_dir("fast", where, "data")
    assert "storage: fast: /scratch/{me}/data in config/machines/mine.yaml: Snakemake takes braces" in str(told.value)
    assert storage.choose_data_dir("unset", where, "data") == "${NOWHERE}/data", "told when runs start"


@pytest.mark.case("unmatched-without-join", source="our own", right="refused in the plan, with the file and the key")
@pytest.mark.parametrize("name", ["nt3", "p1b1", "p1b2", "lenet"])
def test_a_share_of_unmatched_rows_where_nothing_is_joined(monkeypatch, name):
    spec = {**configuration.load_named("benchmarks", name), "unmatched_at_most": {"responses": 0.1}}
    monkeypatch.setattr(configuration, "load_named", lambda kind, name, schema=None: spec)
    definition = {"source": "image_files", "layout": "folder", "train": "a", "test": "b"}
    with pytest.raises(StudyError) as told:
        build_dataset(name, definition if name == "lenet" else STUDY["datasets"]["nt3"] | {"benchmark": name}, "t.yaml")
    assert str(told.value) == (
        f"config/benchmarks/{name}.yaml: unmatched_at_most: has no effect: {name} joins no tables (joins_tables in "
        f"scripts/study/workloads/{name}/__init__.py); leave it out"
    )
