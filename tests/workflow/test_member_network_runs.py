"""An ensemble of different networks on real ranks, of which one member has two: each ends as it does alone.

What they predict together is counted again, from what the models give for all test samples at once.
"""

import collections

import numpy as np
import pandas as pd
import pytest
from project import copy_of_project

pytestmark = pytest.mark.long

COMMON = "scaling: weak, epochs: 2, batch_size: 20, learning_rate_scaling: none, loader: tfrecord"
IMAGES = """source: synthetic_images, train_samples: 80, test_samples: 40, image_size: 28, resize: 32, channels: 1,
    flip: true, classes: 10, seed: 1"""
STUDY = f"""
description: a test
datasets:
  lenet: {{{IMAGES}}}
  classic: {{benchmark: lenet_classic, {IMAGES}}}
members:
  pair: [{{ranks: 2}}, {{benchmark: lenet_classic, seed: 0, batch_size: 16, learning_rate: 0.05}}]
  three: [{{ranks: 2}}, {{benchmark: lenet_classic, seed: 0, batch_size: 16, learning_rate: 0.05}}, {{seed: 7}}]
  one: [{{ranks: 2}}]
runs:
  - {{benchmark: lenet, {COMMON}, ensemble: 2, members: pair, share_block_samples: 8, input_sharing: all_shared}}
  - {{benchmark: lenet, {COMMON}, ensemble: 3, members: three, share_block_samples: 8, preprocessing_ranks: 1,
     input_sharing: shared_memory}}
  - {{benchmark: lenet, {COMMON}, ensemble: 1, members: one}}
  - {{benchmark: lenet, {COMMON}, gpus: 2}}
  - {{benchmark: lenet_classic, dataset: classic, {COMMON.replace("batch_size: 20", "batch_size: 16")}, gpus: 1,
     base_learning_rate: 0.05}}
tables: [ensemble_accuracy]
"""
# The first rank of each member also leaves what its model gives for all test samples at once.
TOLD = """import numpy, os
from study.ensembles.members import MemberJob
from study.backends.tensorflow.input import gatherer
evaluated = MemberJob.evaluate
def evaluate(self, evaluate):
    found = evaluated(self, evaluate)
    if self._ballot:
        samples = self._ballot.samples
        x, y = gatherer(samples)(numpy.arange(len(samples)))
        file = f"{folder}/{{os.environ['HOROVOD_SIZE']}}-{{self._member.number}}.npz"
        numpy.savez(file, outputs=self._trainer.model(x, training=False), labels=y)
    return found
MemberJob.evaluate = evaluate
"""
TEST_SAMPLES = 40
# By their layers at 28 x 28 x 1 pixels and 10 classes. LeNet: convolutions of 5 x 5 with 32 and 64 filters that keep
# the size, poolings to 7 x 7, then 1,024 units. LeNet-5: 6 and 16 filters without padding, to 4 x 4; 120 and 84 units.
PARAMETERS = {
    "lenet": (25 * 32 + 32) + (25 * 32 * 64 + 64) + (7 * 7 * 64 * 1024 + 1024) + (1024 * 10 + 10),
    "lenet_classic": (25 * 6 + 6) + (25 * 6 * 16 + 16) + (256 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The project after the study's only run, its runs, and the folder with the outputs of each member."""
    folder = tmp_path_factory.mktemp("networks")
    project = copy_of_project(folder / "project")
    project.add_study("networks", STUDY)
    project.in_ranks(TOLD.format(folder=folder))
    project.snakemake(study="networks")
    runs = pd.read_csv(project.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    return project, runs, folder


def members_of(project, run):
    return pd.read_csv((project.results / run.record).with_name("members.csv"), index_col="member")


def ensembles_of(runs):
    return [run for run in runs.itertuples() if run.ensemble > 1]


def test_each_member_ends_as_it_does_alone(made):
    project, runs, _ = made
    lenet = runs[(runs.benchmark == "lenet") & (runs.ensemble == 1)].final_weights_crc32
    (classic,) = runs[runs.benchmark == "lenet_classic"].final_weights_crc32
    assert len(lenet) == 2 and lenet.nunique() == 1, "the member alone, and the ordinary run of two ranks"
    for run in ensembles_of(runs):
        found = members_of(project, run)
        assert found.benchmark.tolist()[:2] == ["lenet", "lenet_classic"]
        assert found.parameters.tolist()[:2] == [PARAMETERS["lenet"], PARAMETERS["lenet_classic"]]
        assert found.ranks.tolist()[:2] == [2, 1] and found["rank"].tolist()[:2] == [0, 2]
        assert found.weights_crc32.tolist()[:2] == [lenet.iloc[0], classic], run.input_sharing
        assert found.weights_crc32.nunique() == len(found) and run.ranks_agree


def test_samples_are_preprocessed_once_for_each_column_of_ranks(made):
    """Two columns: the first ranks of all members share, and the second rank of the first member has no other."""
    _, runs, _ = made
    assert {run.samples_preprocessed for run in ensembles_of(runs)} == {2 * 2 * 80}


def test_the_vote_and_the_mean_are_those_counted_again(made):
    project, runs, folder = made
    for run in ensembles_of(runs):
        given = [np.load(folder / f"{run.gpus}-{member}.npz") for member in range(run.ensemble)]
        labels = given[0]["labels"].argmax(axis=1)
        assert len(labels) == TEST_SAMPLES and all((each["labels"].argmax(axis=1) == labels).all() for each in given)
        said = [each["outputs"].argmax(axis=1).tolist() for each in given]
        right = [np.mean(np.array(each) == labels) for each in said]
        assert members_of(project, run).test_accuracy.tolist() == pytest.approx(right, abs=1e-6)
        votes = [collections.Counter(of_sample).most_common(1)[0][0] for of_sample in zip(*said, strict=True)]
        mean = sum(each["outputs"].astype(float) for each in given).argmax(axis=1)
        assert (run.voting_members, run.member_test_accuracy) == (run.ensemble, pytest.approx(np.mean(right)))
        assert run.vote_test_accuracy == pytest.approx(np.mean(np.array(votes) == labels))
        assert run.mean_test_accuracy == pytest.approx(np.mean(mean == labels))
        assert pd.isna(run.ensemble_accuracy_reason)


def test_one_member_says_why_it_has_no_vote(made):
    project, runs, _ = made
    (one,) = runs[runs.members.str.startswith("[{") & runs.ensemble.eq(1)].itertuples()
    assert one.ensemble_accuracy_reason == "one member" and np.isnan(one.vote_test_accuracy)
    table = pd.read_csv(project.made / "tables" / "ensemble_accuracy.csv")
    assert sorted(table.ensemble) == [2, 3] and table.vote_test_accuracy.notna().all()


def test_nothing_is_left_behind_and_nothing_runs_again(made):
    project, runs, _ = made
    for run in ensembles_of(runs):
        assert not (project.results / run.record).with_name("ranks").exists()
    assert project.plan(study="networks") == {}
