"""Checkpoints of a run: the state from which a restarted run continues exactly, at the end of an epoch.

Rank 0 copies weights and optimizer state at the end of an epoch; a thread writes them while the next epoch trains. A
checkpoint is one ``.npz`` file, whole or absent; the last two are kept until the run has succeeded.
"""

import json
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from study.core.files import written_aside

FOLDER = "checkpoints"  # in the run's directory
KEPT = 2


class Writer:
    """Writes a run's checkpoints, on rank 0 only; each with the ``labels`` that a resuming run must match."""

    def __init__(self, folder: str | Path, every_epochs: int, labels: dict[str, Any]) -> None:
        self._folder, self._every, self._labels = Path(folder) / FOLDER, every_epochs, labels
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def is_due(self, epoch: int) -> bool:
        """Whether to write a checkpoint after epoch number ``epoch``, from 1."""
        return self._every > 0 and epoch % self._every == 0

    def save(self, epoch: int, arrays: Iterable[np.ndarray], history: list[dict[str, Any]]) -> None:
        """Begin to write the state after ``epoch`` epochs. arrays: in restoring order; history: one row per epoch.

        Returns before it is written; waits for the previous checkpoint, and raises its error if it failed.
        """
        self.close()
        content = {"epoch": epoch, "history": history, **self._labels}
        self._thread = threading.Thread(target=self._write, args=(epoch, list(arrays), content))
        self._thread.start()

    def close(self) -> None:
        """Wait until the last checkpoint is written. Raises `OSError` if that failed."""
        if self._thread:
            self._thread.join()
        if self._error:
            raise self._error

    def _write(self, epoch: int, arrays: list[np.ndarray], content: dict[str, Any]) -> None:
        told = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
        try:
            with written_aside(self._folder / f"epoch-{epoch:06d}.npz") as aside, open(aside, "wb") as handle:
                np.savez(handle, content=told, **{f"array_{index}": array for index, array in enumerate(arrays)})
            for old in sorted(self._folder.glob("epoch-*.npz"))[:-KEPT]:
                old.unlink()
        except OSError as error:
            self._error = error


def latest(
    folder: str | Path, labels: dict[str, Any], shapes: list[tuple[int, ...]]
) -> tuple[int, list[np.ndarray], list[dict[str, Any]]] | None:
    """(epoch, arrays, history) of the latest usable checkpoint in a run's directory; None if there is none.

    A checkpoint is skipped if it is damaged or if its ``labels``, or the ``shapes`` of its arrays (model and
    optimizer), differ.
    """
    for path in sorted((Path(folder) / FOLDER).glob("epoch-*.npz"), reverse=True):
        found = _read(path)
        if found is None:
            continue
        content, arrays = found
        if {name: content.get(name) for name in labels} == labels and [array.shape for array in arrays] == shapes:
            return content["epoch"], arrays, content["history"]
    return None


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """(content, arrays) of a checkpoint, None if it is damaged; the archive's own checksums are verified."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            content = json.loads(archive["content"].tobytes())
            return content, [archive[f"array_{index}"] for index in range(len(archive.files) - 1)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
