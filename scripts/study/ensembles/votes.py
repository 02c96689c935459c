"""What the members of an ensemble predict together on the test set: by majority vote, and by their mean probabilities.

The first rank of each member leaves its predictions in a file. The launching process joins
these files after the run, and puts the accuracies into ``metrics.json``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import Trainer
from study.core import checked
from study.core.errors import StudyError
from study.core.files import write_json, written_aside
from study.data.matrix_file import Rows, load
from study.data.samples import SampleSource
from study.ensembles import consumption
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import is_ensemble

LOSS = "categorical_crossentropy"  # of networks whose outputs are probabilities of classes
MOST_BYTES = 8 * 2**30  # of the probabilities of all members; without them there is a vote, and no mean
LABEL, CLASS, FIRST = 0, 1, 2  # columns of a file: the right class, the predicted one, and the first probability
MOST_OFF = 1e-3  # by which the sum of a sample's probabilities may differ from 1
SAMPLES_AT_ONCE = 512  # that are joined
Matrix = NDArray[np.float32]


class _NoClasses(Exception):
    """The outputs are not of classes."""


@dataclass(frozen=True)
class Ballot:
    """Where a member leaves its predictions.

    Args:
        path: of its file, float32 (test samples, 2 + classes); without probabilities (test samples, 2).
        samples: of the test set.
        members: of the ensemble.
    """

    path: Path
    samples: SampleSource
    members: int

    def cast(self, trainer: Trainer) -> str | None:
        """Predict the class of each test sample, and leave the file, whole or not at all.

        Returns the reason why the model predicts no classes; None if it does. Raises OSError for a full disk.
        """
        rows: Rows | None = None
        try:
            with written_aside(self.path) as aside, contextlib.ExitStack() as opened:
                for y, outputs in trainer.predictions(self.samples):
                    found = self._of_batch(y, outputs)
                    rows = rows or opened.enter_context(Rows(aside, found.shape[1]))
                    rows.append(found)
        except _NoClasses as error:
            return str(error)
        return None

    def _of_batch(self, y: Any, outputs: Any) -> Matrix:
        """The rows of a batch."""
        if not isinstance(outputs, np.ndarray) or outputs.ndim != 2 or outputs.shape != y.shape:
            raise _NoClasses("its outputs have another shape than the labels")
        if not (np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all()):
            raise _NoClasses("its labels are not of one class each")
        columns = [y.argmax(axis=1)[:, None], outputs.argmax(axis=1)[:, None]]
        is_small = 4 * len(self.samples) * outputs.shape[1] * self.members <= MOST_BYTES
        return np.hstack([*columns, outputs] if is_small else columns).astype(np.float32)


def ballot(run: RunDefinition, ranks: Path, member: int, samples: SampleSource) -> Ballot | None:
    """The ballot of a member; None if the ensemble has no vote.

    run: the whole ensemble's. ranks: the folder of the ranks' files. samples: of the test set.
    """
    return None if _without_vote(run) else Ballot(_file(ranks, member), samples, run["ensemble"])


def join(folder: Path, run: RunDefinition) -> None:
    """Put ``combined`` into the ``metrics.json`` of a run's directory, from what its members left in ``ranks``.

    Nothing for a run that is no ensemble, or that did not come to its end.
    """
    path = folder / "metrics.json"
    if not is_ensemble(run.parameters) or not path.exists():
        return
    metrics = checked.load_json(path, "metrics")
    write_json(path, metrics | {"combined": combined(run, metrics, folder / "ranks")})


def combined(run: RunDefinition, metrics: Mapping[str, Any], ranks: Path) -> dict[str, Any]:
    """The accuracies of the members together on the test set, 0 to 1.

    Returns:
        voting_members: how many members vote. member_test_accuracy: the mean of
        their accuracies. vote_test_accuracy: by majority; a tie is decided by the first of the members that voted for
        one of the tied classes. mean_test_accuracy: of the class with the highest mean probability.
        ensemble_accuracy_reason: why one of these is None.
    """
    try:
        voters = _voters(run, metrics)
        return _accuracies(voters, [_table(ranks, member) for member in voters])
    except StudyError as error:
        return _nothing(str(error))


def _file(ranks: Path, member: int) -> Path:
    return ranks / f"predictions-{member:05d}.npy"


def _table(ranks: Path, member: int) -> Matrix:
    """The predictions of a member, mapped."""
    try:
        return load(_file(ranks, member), mmap_mode="c")
    except (StudyError, OSError) as error:
        raise StudyError(f"member {member}: its predictions cannot be read ({error})") from None


def _nothing(reason: str) -> dict[str, Any]:
    names = ("voting_members", "member_test_accuracy", "vote_test_accuracy", "mean_test_accuracy")
    return {**dict.fromkeys(names), "ensemble_accuracy_reason": reason}


def _without_vote(run: RunDefinition) -> str | None:
    """Why an ensemble has no vote whatever its members do."""
    if not consumption.trains(run):
        return "nothing is trained"
    if run["ensemble"] == 1:
        return "one member"
    loss = run.benchmark["loss"]  # of all members
    return None if loss == LOSS else f"the members predict no classes: their loss is {loss}"


def _voters(run: RunDefinition, metrics: Mapping[str, Any]) -> list[int]:
    """The numbers of the members that vote; raises `StudyError` with the reason if there is no vote."""
    if reason := _without_vote(run):
        raise StudyError(reason)
    members = [rank["member"] for rank in metrics["ranks"]]
    for each in members:
        if each.get("no_vote"):
            raise StudyError(f"member {each['number']}: {each['no_vote']}")
    return [each["number"] for each in members]


def _accuracies(voters: Sequence[int], tables: Sequence[Matrix]) -> dict[str, Any]:
    """As `combined`. tables: of the voters, in their order."""
    labels = np.array(tables[0][:, LABEL])
    for member, table in zip(voters, tables, strict=True):
        if not np.array_equal(table[:, LABEL], labels):
            raise StudyError(f"member {member} was tested on other samples than member {voters[0]}")
    reason = _without_mean(voters, tables)
    parts = [slice(first, first + SAMPLES_AT_ONCE) for first in range(0, len(labels), SAMPLES_AT_ONCE)]
    votes = np.concatenate([majority(np.stack([each[part, CLASS] for each in tables]).astype(int)) for part in parts])
    means = [] if reason else [_class_of_mean([each[part, FIRST:] for each in tables]) for part in parts]
    return {
        "voting_members": len(voters),
        "member_test_accuracy": float(np.mean([np.mean(each[:, CLASS] == labels) for each in tables])),
        "vote_test_accuracy": float(np.mean(votes == labels)),
        "mean_test_accuracy": float(np.mean(np.concatenate(means) == labels)) if means else None,
        "ensemble_accuracy_reason": reason,
    }


def majority(classes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """The class of each sample that most members predict. classes: (members, samples).

    A tie is decided by the first of the members that predict one of the tied classes.
    """
    members, samples = classes.shape
    counts = np.zeros((samples, classes.max() + 1), int)
    of_samples = np.arange(samples)
    for each in classes:
        counts[of_samples, each] += 1
    most = counts.max(axis=1)
    first = (counts[of_samples, classes] == most).argmax(axis=0)
    return classes[first, of_samples]


def _class_of_mean(probabilities: Sequence[Matrix]) -> NDArray[np.integer[Any]]:
    """The class of each sample with the highest mean probability; of equal ones the lower number."""
    total = np.zeros(probabilities[0].shape, np.float64)
    for each in probabilities:
        total += each
    return total.argmax(axis=1)


def _without_mean(voters: Sequence[int], tables: Sequence[Matrix]) -> str | None:
    """Why the members' outputs cannot be averaged."""
    if any(table.shape[1] <= FIRST for table in tables):
        return f"no mean: the probabilities of all members have more than {MOST_BYTES / 2**30:g} GiB"
    for member, table in zip(voters, tables, strict=True):
        sums = table[:, FIRST:].sum(axis=1, dtype=np.float64)
        if not (table[:, FIRST:].min() >= 0 and abs(sums - 1).max() <= MOST_OFF):  # not a number is neither
            return f"no mean: the outputs of member {member} are no probabilities"
    return None
