"""Members of several ranks: what is refused, their process sets, and that each column of ranks has its own samples."""

import contextlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from fake_communicator import ThreadedCommunicator
from test_ensembles import BATCH, EPOCHS, SAMPLES, SOURCE, SOURCE_BYTES, each_in_a_thread, expected, planned, taken

from study.communication.subset import Alone, Subset, subset
from study.core.errors import StudyError
from study.ensembles import members, results
from study.experiment.definition import Derived, RunDefinition
from study.experiment.ensemble import is_ensemble, members_of
from study.records.record import _ranks_agree

MEMBERS, RANKS = 2, 3  # ranks of each member
SEED = 3


def defined(**changed):
    """A run of the ensemble; all that the stream reads of it."""
    parameters = {
        "gpus": MEMBERS * RANKS, "ensemble": MEMBERS, "member_ranks": RANKS, "preprocessing_ranks": 0,
        "share_block_samples": 4, "prefetch_blocks": 3, "measure": "train", "compute": "measured",
        "on_member_lag": "wait", "on_member_failure": "end", **changed,
    }  # fmt: skip
    derived = Derived(epochs_per_rank=EPOCHS, batch_size_per_rank=BATCH, nodes=1, seed=SEED)
    return RunDefinition("", parameters, derived, {"shuffle": True, "model": {}}, {}, {}, {})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gpus": 2}, "runs[0].ensemble: 2 members of 2 ranks need gpus: 4, but gpus is 2"),
        (
            {"input_sharing": "tf_data_service", "preprocessing_ranks": 1},
            "runs[0].member_ranks: 2: input_sharing: tf_data_service is for members of one rank",
        ),
        (
            {"input_sharing": "concurrent_broadcast", "preprocessing_ranks": 1},
            "runs[0].member_ranks: 2: input_sharing: concurrent_broadcast is for members of one rank",
        ),
        ({"measure": "peak_throughput"}, "runs[0].member_ranks: 2: rates are those of members of one rank"),
        ({"on_member_failure": "continue"}, "runs[0].member_ranks: 2: ranks of a member wait for one another"),
        ({"warmup_epochs": 1, "learning_rate_scaling": "linear"}, "an ensemble cannot be combined with warmup_epochs"),
        (
            {"input_sharing": "multi_broadcast", "preprocessing_ranks": 3},
            "runs[0].preprocessing_ranks: 3 is more than the 2 members",
        ),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(changed, words):
    with pytest.raises(StudyError) as refused:
        planned(member_ranks=2, **changed)
    assert words in str(refused.value)


def test_a_member_s_batch_is_of_its_ranks_samples():
    changed = {"member_ranks": 2, "sharding": "by_rank", "members": "large"}
    with pytest.raises(StudyError, match="member 1: batch_size: 60 is larger than the 40 samples of a rank"):
        planned(**changed)
    planned(**{**changed, "sharding": "none"})


def test_the_ranks_of_a_member_train_as_those_of_a_single_job():
    (run,) = planned(member_ranks=2, learning_rate_scaling="linear", sharding="by_rank", scaling="strong")
    assert (run.gpus, run.trained_ranks, run.epochs_per_rank, run.samples_per_rank) == (4, 2, 1, 40)
    (one,) = planned(ensemble=1, member_ranks=2)
    assert (one.gpus, is_ensemble(one.parameters)) == (2, True)
    alone = members.alone(defined(), members_of(defined().parameters)[1])
    assert (alone.ranks, alone.ranks_together, alone.derived.seed) == (RANKS, RANKS, SEED + 1)


@pytest.mark.parametrize(
    ("sharing", "readers", "sets"),
    [
        ("duplicated", 0, [(0, 1, 2), (3, 4, 5)]),
        ("all_shared", 0, [(0, 1, 2), (3, 4, 5), (0, 3), (1, 4), (2, 5)]),
        ("single_broadcast", 1, [(0, 1, 2), (3, 4, 5), (0, 3), (1, 4), (2, 5)]),
    ],
)
def test_process_sets_are_rows_and_columns(sharing, readers, sets):
    assert members.process_sets(defined(input_sharing=sharing, preprocessing_ranks=readers)) == sets


def test_process_sets_within_columns_and_of_one_member():
    of_three = defined(ensemble=3, gpus=6, member_ranks=2, input_sharing="single_broadcast", preprocessing_ranks=2)
    assert members.process_sets(of_three) == [
        *[(0, 1), (2, 3), (4, 5)], *[(0, 2, 4), (0, 2), (2, 4)], *[(1, 3, 5), (1, 3), (3, 5)]
    ]  # fmt: skip
    assert members.process_sets(defined(ensemble=1, gpus=3, input_sharing="duplicated")) == []


def test_a_subset_numbers_its_ranks_from_0():
    every = ThreadedCommunicator.several(4, [(1, 3)])
    assert subset(every[1], (0, 1, 2, 3)) is every[1]
    assert isinstance(subset(every[2], (2,)), Alone)

    def talk(number):
        own = Subset(every[number], (1, 3))
        sent = np.full(2, number, np.uint8)
        (received,) = own.broadcast_bytes({1: sent})
        return own.rank, own.size, own.gather(number), own.gather_bytes(sent).tolist(), received.tolist()

    assert each_in_a_thread(talk, [1, 3]) == [(rank, 2, [1, 3], [1, 1, 3, 3], [3, 3]) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharing", "readers"),
    [("duplicated", 0), ("all_shared", 0), ("single_broadcast", 1), ("multi_broadcast", 2), ("shared_memory", 1)],
)
def test_each_rank_has_the_samples_of_that_rank_of_a_single_job(sharing, readers):
    """Ranks with one number share them, and bytes and samples are those of the formulas for each such group."""
    run = defined(input_sharing=sharing, preprocessing_ranks=readers)
    right = [[x for x, _ in expected(SEED + number)] for number in range(RANKS)]

    def stream(every):
        column = subset(every, members._place(members._rows(run), every.rank)[1])
        seed = SEED + every.rank % RANKS
        return members.stream(run, column, SOURCE, seed, contextlib.nullcontext, [0] * MEMBERS)

    everyone = ThreadedCommunicator.several(MEMBERS * RANKS, members.process_sets(run))
    found = each_in_a_thread(stream, everyone)
    for rank, batches in enumerate(each_in_a_thread(taken, found)):
        pairs = zip((x for x, _ in batches), right[rank % RANKS], strict=True)
        assert all(np.array_equal(x, each) for x, each in pairs), rank
    measured = [each.measures() for each in found]
    made = sum(each["samples_preprocessed"] for each in measured)
    assert made == RANKS * EPOCHS * SAMPLES * (MEMBERS if sharing == "duplicated" else 1)
    sent = 0 if sharing in ("duplicated", "shared_memory") else RANKS * EPOCHS * SOURCE_BYTES
    assert sum(each["received_bytes"] for each in measured) == sent


def test_the_first_rank_of_a_member_decides_for_all():
    """Its ranks stop after the same epoch, or one would wait for the others' gradients for ever."""
    every = ThreadedCommunicator.several(2)
    decisions = {0: False, 1: True}

    def goes_on(rank):
        job = members.MemberJob.__new__(members.MemberJob)
        job.communicator, job._ended_after = every[rank], None
        job._member = SimpleNamespace(number=0)
        job._halving = SimpleNamespace(goes_on=lambda epoch, loss: decisions[rank])
        return job.goes_on(3, 0.5), job._ended_after

    assert each_in_a_thread(goes_on, [0, 1]) == [(False, 3)] * 2


def rank_of(member, rank, weights=7, **told):
    own = {"number": member, "samples_preprocessed": 10, "received_bytes": 100, "failure": None}
    return {"rank": rank, "final_weights_crc32": weights, "member": {**own, "alone_from_block": None, **told}}


def test_what_the_ranks_of_a_member_tell_becomes_one_row():
    ranks = [rank_of(member, rank) for rank, member in enumerate(itertools.chain([0] * 2, [1] * 2))]
    ranks[3] = rank_of(1, 3, alone_from_block=5, failure="the loss is not finite")
    first, second = map(results.of_member, results.by_member(ranks))
    assert (first["samples_preprocessed"], first["received_bytes"], first["failure"]) == (20, 200, None)
    assert (second["alone_from_block"], second["failure"]) == (5, "the loss is not finite")
    assert _ranks_agree({"ranks": ranks}) is True
    assert _ranks_agree({"ranks": [*ranks[:3], rank_of(1, 3, weights=8)]}) is False
    assert _ranks_agree({"ranks": ranks[1:3]}) is None, "one rank each: nothing to compare"
