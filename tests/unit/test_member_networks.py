"""Members with networks and numbers of ranks of their own: what is planned and refused, their ranks and samples."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import yaml
from fake_communicator import ThreadedCommunicator
from test_ensembles import BATCH, EPOCHS, SAMPLES, SOURCE, each_in_a_thread, expected, taken

from study.communication.subset import subset
from study.core import code_version
from study.core.errors import StudyError
from study.ensembles import members
from study.experiment import inputs
from study.experiment.definition import Derived, RunDefinition
from study.experiment.ensemble import as_text, members_of, ranks_of
from study.experiment.expansion import expand
from study.machines import machine

UNLIKE = [{"ranks": 2}, {"benchmark": "lenet_classic", "learning_rate": 0.5}]
DATASET = {"source": "synthetic_images", "train_samples": 80, "test_samples": 20, "image_size": 28, "channels": 3,
           "flip": True, "classes": 10, "seed": 1}  # fmt: skip


def planned(listed=UNLIKE, dataset=(), **changed):
    grid = {
        "benchmark": "lenet", "scaling": "weak", "epochs": 2, "ensemble": len(listed), "members": "unlike",
        "batch_size": 20, "loader": "tfrecord", "learning_rate_scaling": "none", **changed,
    }  # fmt: skip
    datasets = {grid["benchmark"]: dict(dataset) or DATASET}
    content = {"description": "", "datasets": datasets, "members": {"unlike": listed}, "runs": [grid], "tables": []}
    (run,) = expand("test", content, "test.yaml").runs
    return run


def test_ranks_and_networks_are_part_of_a_run():
    run = planned()
    assert (run.gpus, run.trained_ranks, ranks_of(run.parameters)) == (3, 2, [2, 1])
    defined = inputs.define(run, machine.load("local"), "data")
    given = yaml.safe_load(Path("config/benchmarks/lenet_classic.yaml").read_text())
    assert defined.benchmark["networks"]["lenet_classic"]["learning_rate"] == given["learning_rate"]
    first, second = (members.alone(defined, each) for each in members_of(run.parameters))
    assert (first.ranks, first.benchmark["name"], first.learning_rate) == (2, "lenet", 0.01)
    assert (second.ranks, second.benchmark["name"], second.learning_rate) == (1, "lenet_classic", 0.5)
    assert "dropout" in first.benchmark["model"] and "dropout" not in second.benchmark["model"]
    assert second.benchmark["model"]["image_size"] == 28, "the dataset's, not the 32 of its own YAML"


def test_the_definition_of_other_runs_is_as_before():
    assert "networks" not in inputs.define(planned([{}, {}]), machine.load("local"), "data").benchmark


def test_the_code_version_covers_all_networks():
    alone = {code_version.training_code(name, framework="tensorflow") for name in ("lenet", "lenet_classic")}
    both = code_version.training_code("lenet", "lenet_classic", framework="tensorflow")
    assert both not in alone and both == code_version.training_code("lenet_classic", "lenet", framework="tensorflow")


GREY = {**DATASET, "channels": 1}
NT3 = {"source": "synthetic", "train_samples": 40, "test_samples": 20, "features": 60, "seed": 1}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"listed": [{}, {"benchmark": "lenets"}]},
            "member 1: benchmark: lenets: there is no config/benchmarks/lenets",
        ),
        ({"listed": [{}, {"benchmark": "nt3"}]}, "member 1: benchmark: nt3: trains on tables, and lenet on images"),
        (
            {"listed": [{}, {"benchmark": "p1b1"}], "benchmark": "nt3", "dataset": NT3, "loader": "npy"},
            "member 1: benchmark: p1b1: makes its samples by code of its own (arrange), and members share those of nt3",
        ),
        (
            {"dataset": {k: v for k, v in DATASET.items() if k != "channels"}},
            "member 1: benchmark: lenet_classic: model.channels is 1, and 3 in lenet: members share samples of one "
            "shape; give channels in datasets.lenet",
        ),
        (
            {"dataset": {**GREY, "image_size": 12}},
            "member 1: benchmark: lenet_classic: its layers need 16 pixels (image_size), and the samples have 12",
        ),
        (
            {"listed": [{}, {"benchmark": "lenet_classic", "model": {"dropout": 0.1}}]},
            "member 1: model.dropout is no key of lenet_classic's model",
        ),
        ({"scaling": "strong"}, "the members have 2 and 1 ranks, and scaling: strong would give them different epochs"),
        ({"sharding": "by_rank"}, "the members have 2 and 1 ranks, so their parts of the samples (sharding: by_rank)"),
        (
            {"input_sharing": "tf_data_service", "preprocessing_ranks": 1},
            "input_sharing: tf_data_service is for members of one rank: its members get samples of one order",
        ),
        ({"on_member_failure": "continue"}, "ranks of a member wait for one another, so it cannot be left out"),
        (
            {"member_ranks": 2, "listed": [{"ranks": 2}, {"ranks": 1}]},
            "runs[0].member_ranks: 2 has no effect: each entry of members gives its ranks; leave it out",
        ),
        ({"gpus": 2}, "runs[0].ensemble: 2 members of different numbers of ranks need gpus: 3, but gpus is 2"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(changed, words):
    with pytest.raises(StudyError) as refused:
        planned(**changed)
    assert words in str(refused.value)
    assert str(refused.value).startswith("test.yaml: runs[0].")


def test_a_member_s_network_is_refused_what_it_is_refused_alone(monkeypatch):
    """Here its optimizer, with which no run can have LARS."""
    from study.core import configuration

    known = configuration.load_named

    def with_adam(kind, name, schema=None):
        found = known(kind, name, schema)
        if name == "lenet_classic":
            found = {key: value for key, value in found.items() if key != "momentum"} | {"optimizer": "adam"}
        return found

    monkeypatch.setattr(configuration, "load_named", with_adam)
    planned()
    with pytest.raises(StudyError) as refused:
        planned(learning_rate_by_layer="lars")
    assert "runs[0].members: member 1: benchmark: lenet_classic: learning_rate_by_layer: LARS is momentum SGD" in str(
        refused.value
    )


RANKS = [2, 1, 3]
SEED = 3


def defined(**changed):
    """A run of members of two, one and three ranks; all that streams read of it."""
    parameters = {
        "gpus": sum(RANKS), "ensemble": len(RANKS), "members": as_text([{"ranks": each} for each in RANKS]),
        "preprocessing_ranks": 0, "share_block_samples": 4, "prefetch_blocks": 3, "measure": "train",
        "compute": "measured", "on_member_lag": "wait", "on_member_failure": "end", **changed,
    }  # fmt: skip
    derived = Derived(epochs_per_rank=EPOCHS, batch_size_per_rank=BATCH, nodes=1, seed=SEED)
    return RunDefinition("", parameters, derived, {"shuffle": True, "model": {}}, {}, {}, {})


@pytest.mark.parametrize(
    ("sharing", "readers", "sets"),
    [
        ("duplicated", 0, [(0, 1), (3, 4, 5)]),
        ("all_shared", 0, [(0, 1), (3, 4, 5), (0, 2, 3), (1, 4)]),
        ("single_broadcast", 2, [(0, 1), (3, 4, 5), (0, 2, 3), (0, 2), (2, 3), (1, 4)]),
    ],
)
def test_columns_lack_the_members_without_such_a_rank(sharing, readers, sets):
    assert members.process_sets(defined(input_sharing=sharing, preprocessing_ranks=readers)) == sets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharing", "readers"),
    [("duplicated", 0), ("all_shared", 0), ("single_broadcast", 2), ("multi_broadcast", 2), ("shared_memory", 2)],
)
def test_each_rank_has_the_samples_of_that_rank_of_a_single_job(sharing, readers):
    run = defined(input_sharing=sharing, preprocessing_ranks=readers)
    right = [[x for x, _ in expected(SEED + number)] for number in range(max(RANKS))]
    rows = members._rows(run)

    def stream(every):
        number, column = members._place(rows, every.rank)
        seed = SEED + rows[number].index(every.rank)
        own = subset(every, column)
        return members.stream(run, own, SOURCE, seed, contextlib.nullcontext, [0] * len(column))

    everyone = ThreadedCommunicator.several(sum(RANKS), members.process_sets(run))
    found = each_in_a_thread(stream, everyone)
    numbers = [number for each in RANKS for number in range(each)]
    for number, batches in zip(numbers, each_in_a_thread(taken, found), strict=True):
        pairs = zip((x for x, _ in batches), right[number], strict=True)
        assert all(np.array_equal(x, each) for x, each in pairs), number
    made = sum(each.measures()["samples_preprocessed"] for each in found)
    assert made == EPOCHS * SAMPLES * (sum(RANKS) if sharing == "duplicated" else max(RANKS))
