"""Checkpoints of a run: the state from which a restarted run continues exactly, at the end of an epoch.

Rank 0 copies weights and optimizer state at the end of an epoch; a thread writes them while the next epoch trains. In
an ensemble the first rank of each member does so. A checkpoint is one ``.npz`` file, whole or absent; the last two are
kept until the run has succeeded.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from study.backends.base import State, Trainer
from study.core import validation
from study.core.errors import StudyError
from study.core.files import parse_json, write_aside
from study.core.paths import CHECKPOINTS
from study.data import matrix_file
from study.experiment.definition import RunDefinition

FOLDER = CHECKPOINTS  # in the run's directory
KEPT_FILES = 2
# Of a checkpoint's header; its labels are compared.
CONTENT = {
    "type": "object",
    "required": ["epoch", "history", "names"],
    "properties": {
        "names": {"type": "array", "items": {"type": "string"}},
        "epoch": {"type": "integer", "minimum": 1},
        "history": {"type": "array", "items": {"type": "object"}},
    },
}


def locate_folder(run: str | Path, member: int | None = None) -> Path:
    """The folder of a run's checkpoints, or of one ensemble member's. run: the run's directory."""
    return Path(run) / FOLDER / ("" if member is None else f"member-{member:05d}")


def make_labels(run: RunDefinition) -> dict[str, Any]:
    """The labels that a checkpoint must have in common with the run that resumes from it."""
    return {"fingerprint": run.fingerprint}


class Writer:
    """Writes checkpoints into a folder, on one rank only; each with the ``labels`` that a resuming run must match."""

    def __init__(self, folder: str | Path, every_epochs: int, labels: dict[str, Any]) -> None:
        """folder: of `locate_folder`. every_epochs: 0 for no checkpoints."""
        self._folder, self._every, self._labels = Path(folder), every_epochs, labels
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self.is_used = every_epochs > 0
        self.writes: list[dict[str, float]] = []  # of each checkpoint: seconds of its thread, and MB of its file

    def is_due(self, epoch: int) -> bool:
        """True if a checkpoint is written after epoch number ``epoch``, from 1."""
        return self._every > 0 and epoch % self._every == 0

    def save(self, epoch: int, state: State, history: list[dict[str, Any]]) -> None:
        """Begin to write the state after ``epoch`` epochs. history: one row per epoch.

        Returns before it is written; waits for the previous checkpoint, and raises its error if it failed.
        """
        self.close()
        content = {"epoch": epoch, "history": history, "names": list(state), **self._labels}
        self._thread = threading.Thread(target=self._write, args=(epoch, list(state.values()), content))
        self._thread.start()

    def close(self) -> None:
        """Wait until the last checkpoint is written. Raises `OSError` if that failed."""
        if self._thread:
            self._thread.join()
        if self._error:
            raise self._error

    def _write(self, epoch: int, arrays: list[np.ndarray], content: dict[str, Any]) -> None:
        """Write a checkpoint, and remove all but the last two; an `OSError` is kept for `close`."""
        header = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
        path, begun = self._folder / f"epoch-{epoch:06d}.npz", time.perf_counter()
        try:
            with write_aside(path) as aside, open(aside, "wb") as handle:
                np.savez(handle, content=header, **{f"array_{index}": array for index, array in enumerate(arrays)})
            self.writes.append({"write_s": time.perf_counter() - begun, "file_mb": path.stat().st_size / 1e6})
            for old in sorted(self._folder.glob("epoch-*.npz"))[:-KEPT_FILES]:
                old.unlink()
        except OSError as error:
            self._error = error


def read_latest(
    folder: str | Path, labels: dict[str, Any], shapes: dict[str, tuple[int, ...]] | None = None
) -> tuple[int, State, list[dict[str, Any]]] | None:
    """(epoch, state, history) of the latest usable checkpoint in a folder; None if there is none.

    A checkpoint is skipped if it is damaged or if its ``labels``, or the names and ``shapes`` of its state, differ.
    folder: as `locate_folder` gives. shapes: None for any.
    """
    for path in sorted(Path(folder).glob("epoch-*.npz"), reverse=True):
        checkpoint = _read_checkpoint(path)
        if checkpoint is None:
            continue
        content, arrays = checkpoint
        state = dict(zip(content["names"], arrays, strict=True))
        fits = shapes is None or {name: array.shape for name, array in state.items()} == shapes
        if fits and {name: content.get(name) for name in labels} == labels:
            return content["epoch"], state, content["history"]
    return None


def measure_cost(
    folder: str | Path,
    labels: dict[str, Any],
    trainer: Trainer,
    writes: list[dict[str, float]],
    validation_loss: Callable[[], float],
) -> dict[str, Any] | None:
    """Measure the cost of a run's checkpoints, ``checkpoints`` in its ``metrics.json``; None if it wrote none.

    The last one is restored into ``trainer``, from the page cache, and the loss of the restored model compared with
    that of the epoch in which it was written.

    Args:
        folder: of `locate_folder`.
        labels: of `make_labels`.
        trainer: whose checkpoints they are; it keeps the restored state.
        writes: of the `Writer`.
        validation_loss: evaluates the model.

    Returns:
        number: of checkpoints. write_s: mean time to write one. file_mb: of the last. state_mb: of weights and
        optimizer slots. restore_s: to read and assign. restored_loss_error: difference of the losses, relative.
    """
    if not writes:
        return None
    begun = time.perf_counter()
    checkpoint = read_latest(folder, labels, trainer.get_shapes())
    if checkpoint is None:
        return None
    epoch, state, rows = checkpoint
    trainer.load_state(state)
    restore_s = time.perf_counter() - begun
    loss_when_written = rows[epoch - 1]["val_loss"]
    return {
        "number": len(writes),
        "write_s": sum(each["write_s"] for each in writes) / len(writes),
        "file_mb": writes[-1]["file_mb"],
        "state_mb": sum(array.nbytes for array in state.values()) / 1e6,
        "restore_s": restore_s,
        "restored_loss_error": abs(validation_loss() - loss_when_written) / abs(loss_when_written)
        if loss_when_written
        else None,
    }


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """(header, arrays) of a checkpoint; None if it is damaged. The archive's own checksums are verified."""
    try:
        archive = matrix_file.read_arrays(path)
        content = parse_json(archive["content"].tobytes().decode())
        validation.validate(content, CONTENT, str(path))
        arrays = [archive[f"array_{index}"] for index in range(len(archive) - 1)]
        return (content, arrays) if len(arrays) == len(content["names"]) else None
    except (OSError, StudyError, ValueError, KeyError, RecursionError):
        return None
