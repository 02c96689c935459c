"""Members of two ranks on real ranks: they end as a single job of two ranks does, in every way of sharing."""

import pandas as pd
import pytest
from project import copy_of_project

pytestmark = pytest.mark.long

COMMON = "benchmark: nt3, scaling: weak, epochs: 2, batch_size: 10, loader: npy"
PLAIN = f"{COMMON}, learning_rate_scaling: none"
DIVIDED = f"{COMMON}, sharding: by_rank"
SAMPLES, EPOCHS, RANKS = 60, 2, 2
STUDY = f"""
description: a test
datasets:
  nt3: {{source: synthetic, train_samples: {SAMPLES}, test_samples: 20, features: 60, seed: 1}}
members:
  second: [{{seed: 1}}]
  fast: [{{learning_rate: 1.0}}]
  second_is_worst: [{{learning_rate: 1.0}}, {{seed: 1, learning_rate: 1.0e-9}}]
runs:
  - {{{PLAIN}, gpus: {RANKS}}}
  - {{{PLAIN}, ensemble: 1, member_ranks: {RANKS}}}
  - {{{PLAIN}, ensemble: 1, member_ranks: {RANKS}, members: [second, fast]}}
  - {{{PLAIN}, ensemble: 2, member_ranks: {RANKS}, input_sharing: all_shared}}
  - {{{PLAIN}, ensemble: 2, member_ranks: {RANKS}, input_sharing: [single_broadcast, shared_memory],
     preprocessing_ranks: 1, share_block_samples: 8}}
  - {{{PLAIN}, ensemble: 2, member_ranks: {RANKS}, members: second_is_worst, input_sharing: all_shared,
     halving_epochs: 1}}
  - {{{DIVIDED}, gpus: {RANKS}}}
  - {{{DIVIDED}, ensemble: 2, member_ranks: {RANKS}, input_sharing: all_shared}}
tables: [scaling]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The study, run once: its rows, with the rows of ``members.csv`` of each run that is an ensemble."""
    project = copy_of_project(tmp_path_factory.mktemp("member_ranks") / "project")
    project.add_study("member_ranks", STUDY)
    project.snakemake(study="member_ranks")
    found = pd.read_csv(project.made / "runs.csv")
    assert (found.status == "ok").all(), found.failure_message.tolist()
    files = [(project.results / record).with_name("members.csv") for record in found.record]
    found["found"] = [pd.read_csv(file, index_col="member") if file.exists() else None for file in files]
    return found


def weights(runs):
    """The weights of the single job, the runs of one member by itself, and those of two whole members."""
    (single,) = runs[runs.member_ranks == 1].final_weights_crc32
    pairs = runs[(runs.ensemble == 2) & (runs.halving_epochs == "none")]
    return single, runs[(runs.ensemble == 1) & (runs.member_ranks == RANKS)], pairs


def of_rate(alone, rate):
    """Those of the runs of one member that train at a learning rate."""
    return alone[[run.found.learning_rate[0] == rate for run in alone.itertuples()]]


def test_a_member_ends_with_the_weights_of_a_single_job(runs):
    single, alone, pairs = weights(runs[runs.sharding == "none"])
    usual = of_rate(alone, 0.001)
    first, second = (
        usual[usual.members.eq("none") == is_first].final_weights_crc32.item() for is_first in (True, False)
    )
    assert first == single, "one member is the single job"
    assert len(pairs) == 3
    for pair in pairs.itertuples():
        assert pair.found.weights_crc32.tolist() == [first, second], pair.input_sharing
    assert first != second
    assert alone.ranks_agree.all()
    assert pairs.ranks_agree.all()


def test_both_ranks_of_the_worse_member_stop(runs):
    """The better one ends as it does alone, with samples that the ranks of the other one go on preprocessing."""
    _, alone, _ = weights(runs[runs.sharding == "none"])
    (run,) = runs[runs.halving_epochs != "none"].itertuples()
    assert run.found.epochs.tolist() == [EPOCHS, 1]
    assert run.found.ended_after_epoch[1] == 1
    assert run.found.weights_crc32[0] == of_rate(alone, 1.0).final_weights_crc32.item()
    assert run.ranks_agree
    assert run.samples_preprocessed == RANKS * EPOCHS * SAMPLES


def test_members_divide_their_samples_as_a_single_job_does(runs):
    """With the linear scaling rule over the ranks of a member, not over all."""
    single, _, pairs = weights(runs[runs.sharding == "by_rank"])
    (pair,) = pairs.itertuples()
    assert pair.found.weights_crc32[0] == single
    assert pair.samples_preprocessed == EPOCHS * SAMPLES


def test_samples_and_bytes_are_those_of_the_groups_that_share(runs):
    """Each sample goes to one other rank; gradients do not count."""
    _, _, pairs = weights(runs[runs.sharding == "none"])
    sample_mb = 4 * (60 + 2) / 1e6
    for pair in pairs.itertuples():
        assert pair.samples_preprocessed == pair.found.samples_preprocessed.sum() == RANKS * EPOCHS * SAMPLES
        epochs_mb = 0 if pair.input_sharing == "shared_memory" else RANKS * EPOCHS * SAMPLES * sample_mb
        assert pair.shared_mb == pytest.approx(epochs_mb, rel=0.01)
        assert pair.found["rank"].tolist() == [0, RANKS]
