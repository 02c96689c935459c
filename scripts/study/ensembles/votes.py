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
from study.core import validation
from study.core.errors import StudyError
from study.core.files import write_aside, write_json
from study.data.matrix_file import RowWriter, read_matrix
from study.data.samples import SampleSource
from study.ensembles import consumption
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import is_ensemble

LOSS = "categorical_crossentropy"  # of networks whose outputs are probabilities of classes
MOST_BYTES = 8 * 2**30  # of the probabilities of all members; without them there is a vote, and no mean
LABEL, CLASS, FIRST = 0, 1, 2  # columns of a file: the right class, the predicted one, and the first probability
TOLERANCE = 1e-3  # by which the sum of a sample's probabilities may differ from 1
SAMPLES_AT_ONCE = 512  # that are joined
Matrix = NDArray[np.float32]


class _NoClasses(Exception):
    """Raised if a model's outputs are not probabilities of classes."""


@dataclass(frozen=True)
class Ballot:
    """The file in which a member leaves its predictions.

    Args:
        path: of its file, float32 (test samples, 2 + classes); without probabilities (test samples, 2).
        samples: of the test set.
        members: of the ensemble.
    """

    path: Path
    samples: SampleSource
    members: int

    def cast(self, trainer: Trainer) -> str | None:
        """Predict the class of each test sample and write the file, whole or not at all.

        Returns the reason why the model predicts no classes; None if it does. Raises OSError for a full disk.
        """
        rows: RowWriter | None = None
        try:
            with write_aside(self.path) as aside, contextlib.ExitStack() as opened:
                for y, outputs in trainer.predict(self.samples):
                    batch_rows = self._make_rows(y, outputs)
                    rows = rows or opened.enter_context(RowWriter(aside, batch_rows.shape[1]))
                    rows.append(batch_rows)
        except _NoClasses as error:
            return str(error)
        return None

    def _make_rows(self, y: Any, outputs: Any) -> Matrix:
        """Make the file's rows of a batch: label, predicted class and, if they fit, probabilities."""
        if not isinstance(outputs, np.ndarray) or outputs.ndim != 2 or outputs.shape != y.shape:
            raise _NoClasses("its outputs have another shape than the labels")
        if not (np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all()):
            raise _NoClasses("its labels are not of one class each")
        columns = [y.argmax(axis=1)[:, None], outputs.argmax(axis=1)[:, None]]
        is_small = 4 * len(self.samples) * outputs.shape[1] * self.members <= MOST_BYTES
        return np.hstack([*columns, outputs] if is_small else columns).astype(np.float32)


def make_ballot(run: RunDefinition, ranks: Path, member: int, samples: SampleSource) -> Ballot | None:
    """Make the ballot of a member; None if the ensemble has no vote.

    run: the whole ensemble's. ranks: the folder of the ranks' files. samples: of the test set.
    """
    return None if _explain_no_vote(run) else Ballot(_get_predictions_path(ranks, member), samples, run["ensemble"])


def write_combined_accuracies(folder: Path, run: RunDefinition) -> None:
    """Add ``combined`` to the ``metrics.json`` of a run's directory, from its members' predictions in ``ranks``.

    Nothing for a run that is no ensemble, or that did not come to its end.
    """
    path = folder / "metrics.json"
    if not is_ensemble(run.parameters) or not path.exists():
        return
    metrics = validation.load_valid_json(path, "metrics")
    write_json(path, metrics | {"combined": compute_combined_accuracies(run, metrics, folder / "ranks")})


def compute_combined_accuracies(run: RunDefinition, metrics: Mapping[str, Any], ranks: Path) -> dict[str, Any]:
    """Compute the accuracies of the members together on the test set, 0 to 1.

    Returns:
        voting_members: how many members vote. member_test_accuracy: the mean of their accuracies.
        vote_test_accuracy: by majority; a tie is decided by the first of the members that voted for one of the tied
        classes. mean_test_accuracy: of the class with the highest mean probability.
        ensemble_accuracy_reason: why one of these is None.
    """
    try:
        voters = _list_voters(run, metrics)
        return _compute_accuracies(voters, [_map_predictions(ranks, member) for member in voters])
    except StudyError as error:
        return _make_empty_row(str(error))


def _get_predictions_path(ranks: Path, member: int) -> Path:
    """Return the path of a member's predictions."""
    return ranks / f"predictions-{member:05d}.npy"


def _map_predictions(ranks: Path, member: int) -> Matrix:
    """Map a member's file of predictions into memory."""
    try:
        return read_matrix(_get_predictions_path(ranks, member), mmap_mode="c")
    except (StudyError, OSError) as error:
        raise StudyError(f"member {member}: its predictions cannot be read ({error})") from None


def _make_empty_row(reason: str) -> dict[str, Any]:
    """Make the result without accuracies, with the reason."""
    names = ("voting_members", "member_test_accuracy", "vote_test_accuracy", "mean_test_accuracy")
    return {**dict.fromkeys(names), "ensemble_accuracy_reason": reason}


def _explain_no_vote(run: RunDefinition) -> str | None:
    """Say why an ensemble has no vote, whatever its members do; None if it has one."""
    if not consumption.has_training(run):
        return "nothing is trained"
    if run["ensemble"] == 1:
        return "one member"
    loss = run.benchmark["loss"]  # of all members
    return None if loss == LOSS else f"the members predict no classes: their loss is {loss}"


def _list_voters(run: RunDefinition, metrics: Mapping[str, Any]) -> list[int]:
    """List the numbers of the members that vote; raises `StudyError` with the reason if there is no vote."""
    if reason := _explain_no_vote(run):
        raise StudyError(reason)
    members = [rank["member"] for rank in metrics["ranks"]]
    for each in members:
        if each.get("no_vote"):
            raise StudyError(f"member {each['number']}: {each['no_vote']}")
    return [each["number"] for each in members]


def _compute_accuracies(voters: Sequence[int], tables: Sequence[Matrix]) -> dict[str, Any]:
    """Compute the accuracies of `compute_combined_accuracies`. tables: of the voters, in their order."""
    labels = np.array(tables[0][:, LABEL])
    for member, table in zip(voters, tables, strict=True):
        if not np.array_equal(table[:, LABEL], labels):
            raise StudyError(f"member {member} was tested on other samples than member {voters[0]}")
    reason = _explain_no_mean(voters, tables)
    parts = [slice(first, first + SAMPLES_AT_ONCE) for first in range(0, len(labels), SAMPLES_AT_ONCE)]
    votes = np.concatenate(
        [find_majority(np.stack([each[part, CLASS] for each in tables]).astype(int)) for part in parts]
    )
    means = [] if reason else [_find_mean_class([each[part, FIRST:] for each in tables]) for part in parts]
    return {
        "voting_members": len(voters),
        "member_test_accuracy": float(np.mean([np.mean(each[:, CLASS] == labels) for each in tables])),
        "vote_test_accuracy": float(np.mean(votes == labels)),
        "mean_test_accuracy": float(np.mean(np.concatenate(means) == labels)) if means else None,
        "ensemble_accuracy_reason": reason,
    }


def find_majority(classes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Find the class of each sample that most members predict. classes: (members, samples).

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


def _find_mean_class(probabilities: Sequence[Matrix]) -> NDArray[np.integer[Any]]:
    """Find the class of each sample with the highest mean probability; of equal ones the lower number."""
    total = np.zeros(probabilities[0].shape, np.float64)
    for each in probabilities:
        total += each
    return total.argmax(axis=1)


def _explain_no_mean(voters: Sequence[int], tables: Sequence[Matrix]) -> str | None:
    """Say why the members' outputs cannot be averaged; None if they can."""
    if any(table.shape[1] <= FIRST for table in tables):
        return f"no mean: the probabilities of all members have more than {MOST_BYTES / 2**30:g} GiB"
    for member, table in zip(voters, tables, strict=True):
        sums = table[:, FIRST:].sum(axis=1, dtype=np.float64)
        if not (table[:, FIRST:].min() >= 0 and abs(sums - 1).max() <= TOLERANCE):  # not a number is neither
            return f"no mean: the outputs of member {member} are no probabilities"
    return None
