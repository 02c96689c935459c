"""What members predict together: files of predictions, the majority, the mean, and why there is none."""

import collections
import itertools
import json
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from study.core.files import write_json
from study.data.samples import Arrays
from study.ensembles import votes
from study.experiment.definition import Derived, RunDefinition
from study.report.tables import TABLES

CLASSES = 3
LABELS = [0, 1, 2, 1, 0]
# Probabilities of three members for five samples. By hand: members are right in 3, 2 and 3 of 5. Majority: 0, 1, 1
# (three votes apart, the first member's), 2, 0: right in 3 of 5. Mean: 0, 1, 2, 2, 0: right in 4 of 5.
OUTPUTS = [
    [[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]],
    [[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.5, 0.1, 0.4], [0.2, 0.3, 0.5], [0.1, 0.6, 0.3]],
    [[0.1, 0.1, 0.8], [0.6, 0.3, 0.1], [0.0, 0.1, 0.9], [0.1, 0.7, 0.2], [0.9, 0.0, 0.1]],
]
MEMBERS = len(OUTPUTS)


def a_run(loss="categorical_crossentropy", **changed):
    parameters = {"gpus": 3, "ensemble": 3, "measure": "train", "compute": "measured", **changed}
    derived = Derived(epochs_per_rank=1, batch_size_per_rank=2, nodes=1, seed=1)
    return RunDefinition("", parameters, derived, {"loss": loss, "model": {}}, {}, {}, {})


def samples(labels=LABELS):
    """Samples whose only feature is their number."""
    return Arrays(np.arange(len(labels), dtype=np.float32)[:, None], np.eye(CLASSES, dtype=np.float32)[labels])


def trainer(outputs):
    """A stand-in that looks its outputs up by the number of the sample, in batches of two."""
    known = np.array(outputs, np.float32)

    def predictions(samples):
        x, y = samples.arrays()
        for first in range(0, len(x), 2):
            yield y[first : first + 2], known[x[first : first + 2, 0].astype(int)]

    return SimpleNamespace(predict=predictions)


def cast(folder, outputs=OUTPUTS, labels=LABELS, run=None):
    """What the members of a run leave; the reasons why they have no vote."""
    found = (votes.make_ballot(run or a_run(), folder, member, samples(labels)) for member in range(len(outputs)))
    return [each.cast(trainer(own)) for each, own in zip(found, outputs, strict=True)]


def metrics(**of_last):
    """Of the members' ranks; of_last: what the last one tells."""
    told = {"samples_preprocessed": 1, "received_bytes": 0}
    members = [{**told, "number": number} for number in range(MEMBERS)]
    members[-1] |= of_last
    return {"ranks": [{"rank": each["number"], "member": each} for each in members]}


def test_accuracies_are_those_by_hand(tmp_path):
    assert cast(tmp_path) == [None] * MEMBERS
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"predictions-0000{n}.npy" for n in range(MEMBERS)]
    assert votes.compute_combined_accuracies(a_run(), metrics(), tmp_path) == {
        "voting_members": 3, "member_test_accuracy": pytest.approx((3 + 2 + 3) / 15), "vote_test_accuracy": 0.6,
        "mean_test_accuracy": 0.8, "ensemble_accuracy_reason": None,
    }  # fmt: skip


def test_a_majority_is_that_of_counting():
    """Against votes counted one by one, for all that four members can say of three classes."""
    every = np.array(list(itertools.product(range(3), repeat=4))).T
    for said, found in zip(every.T.tolist(), votes.find_majority(every).tolist(), strict=True):
        count = collections.Counter(said)
        tied = [each for each in said if count[each] == max(count.values())]
        assert found == tied[0], said


def test_a_thousand_members_are_joined_in_time(tmp_path):
    """It takes half as long as counting one by one."""
    classes = np.random.default_rng(1).integers(0, 1000, (1000, 512))
    begun = time.process_time()
    assert votes.find_majority(classes).shape == (512,)
    ended = time.process_time()
    for each in classes.T.tolist():
        collections.Counter(each)
    assert ended - begun < 20 * (time.process_time() - ended)


@pytest.mark.parametrize(
    ("run", "told", "reason"),
    [
        (a_run(loss="mse"), {}, "the members predict no classes: their loss is mse"),
        (a_run(ensemble=1, members="[{}]"), {}, "one member"),
        (a_run(measure="peak_throughput"), {}, "nothing is trained"),
        (a_run(), {"no_vote": "its outputs have another shape"}, "member 2: its outputs have another shape"),
    ],
    ids=str,
)
def test_without_a_vote_there_is_a_reason(run, told, reason, tmp_path):
    cast(tmp_path)
    found = votes.compute_combined_accuracies(run, metrics(**told), tmp_path)
    assert found.pop("ensemble_accuracy_reason") == reason
    assert set(found.values()) == {None}


def test_outputs_that_are_no_probabilities_have_a_vote_only(tmp_path):
    logits = [OUTPUTS[0], OUTPUTS[1], (20 * np.array(OUTPUTS[2]) - 10).tolist()]
    cast(tmp_path, logits)
    found = votes.compute_combined_accuracies(a_run(), metrics(), tmp_path)
    assert (found["vote_test_accuracy"], found["mean_test_accuracy"]) == (0.6, None)
    assert found["ensemble_accuracy_reason"] == "no mean: the outputs of member 2 are no probabilities"


def test_outputs_that_are_no_classes_leave_nothing(tmp_path):
    ballot = votes.make_ballot(a_run(), tmp_path, 0, samples())
    two = trainer([[0.5, 0.5]] * len(LABELS))
    assert ballot.cast(two) == "its outputs have another shape than the labels"
    numbers = Arrays(np.arange(5, dtype=np.float32)[:, None], np.full((5, CLASSES), 0.5, np.float32))
    assert votes.make_ballot(a_run(), tmp_path, 0, numbers).cast(trainer(OUTPUTS[0])) == (
        "its labels are not of one class each"
    )
    assert not list(tmp_path.iterdir())


def test_probabilities_beyond_the_bound_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(votes, "MOST_BYTES", 4 * len(LABELS) * CLASSES * MEMBERS - 1)
    cast(tmp_path)
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {128 + 4 * len(LABELS) * 2}
    found = votes.compute_combined_accuracies(a_run(), metrics(), tmp_path)
    assert (found["vote_test_accuracy"], found["mean_test_accuracy"]) == (0.6, None)
    assert found["ensemble_accuracy_reason"].startswith("no mean: the probabilities of all members have more than")


def test_what_is_joined_stands_in_the_metrics(tmp_path):
    cast(tmp_path / "ranks")
    votes.write_combined_accuracies(tmp_path, a_run())
    assert not (tmp_path / "metrics.json").exists(), "a failed run has none"
    write_json(tmp_path / "metrics.json", {"test": {}, **metrics()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes.validation, "load_valid_json", lambda path, schema: json.loads(path.read_text()))
        votes.write_combined_accuracies(tmp_path, a_run())
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["combined"]["mean_test_accuracy"] == 0.8 and "ranks" in found


def test_the_table_has_gains_of_the_same_run(ensembles):
    runs = ensembles(
        {"voting_members": 4, "member_test_accuracy": [0.5, 0.6], "vote_test_accuracy": [0.6, 0.7],
         "mean_test_accuracy": [0.7, 0.8]},
        {"benchmark": "p1b1", "ensemble_accuracy_reason": "the members predict no classes: their loss is mse"},
        {"ensemble": 1, "gpus": 1, "members": "[{}]"},
    )  # fmt: skip
    table = TABLES["ensemble_accuracy"].make(runs, pd.DataFrame())
    rows = table.frame.set_index("benchmark")
    assert len(rows) == 2
    assert (rows.loc["nt3"].vote_gain, rows.loc["nt3"].mean_gain) == (pytest.approx(0.1), pytest.approx(0.2))
    assert rows.loc["nt3"].vote_gain_ci95 == pytest.approx(0, abs=1e-9), "of each run's own members"
    assert rows.loc["p1b1"].ensemble_accuracy_reason.endswith("mse") and "loss is mse" in table.markdown()
