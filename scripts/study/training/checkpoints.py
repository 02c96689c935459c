"""Checkpoints of a run: what a restart needs to go on at an epoch's end as if nothing had happened.

Rank 0 copies weights and optimizer state at the end of an epoch; a thread writes them while the next epoch trains. A
checkpoint is one ``.npz`` file, whole or absent; the last two are kept until the run has ended well.
"""

import json
import threading
import zipfile
from pathlib import Path

import numpy as np

from study.core.files import written_aside

FOLDER = "checkpoints"  # in the run's directory
KEPT = 2


class Writer:
    """Writes a run's checkpoints, rank 0 only; each with the ``labels`` that a resuming run must have too."""

    def __init__(self, folder, every_epochs, labels):
        self._folder, self._every, self._labels = Path(folder) / FOLDER, every_epochs, labels
        self._thread = self._error = None

    def is_due(self, epoch):
        """Whether there is one after epoch number ``epoch``, from 1."""
        return self._every > 0 and epoch % self._every == 0

    def save(self, epoch, arrays, history):
        """Begin to write the state after ``epoch`` epochs. arrays: in the order they are restored; history: a row each.

        Returns before it is written; waits for the one before, and raises what went wrong with that.
        """
        self.close()
        content = {"epoch": epoch, "history": history, **self._labels}
        self._thread = threading.Thread(target=self._write, args=(epoch, list(arrays), content))
        self._thread.start()

    def close(self):
        """Wait until what was begun is written. Raises `OSError` where it could not be."""
        if self._thread:
            self._thread.join()
        if self._error:
            raise self._error

    def _write(self, epoch, arrays, content):
        told = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
        try:
            with written_aside(self._folder / f"epoch-{epoch:06d}.npz") as aside, open(aside, "wb") as handle:
                np.savez(handle, content=told, **{f"array_{index}": array for index, array in enumerate(arrays)})
            for old in sorted(self._folder.glob("epoch-*.npz"))[:-KEPT]:
                old.unlink()
        except OSError as error:
            self._error = error


def latest(folder, labels, shapes):
    """(epoch, arrays, history) of the latest checkpoint in a run's directory; None where there is none to go on from.

    One that is damaged, or has other ``labels`` or arrays than ``shapes`` (of the model and optimizer), is passed over.
    """
    for path in sorted((Path(folder) / FOLDER).glob("epoch-*.npz"), reverse=True):
        found = _read(path)
        if found is None:
            continue
        content, arrays = found
        if {name: content.get(name) for name in labels} == labels and [array.shape for array in arrays] == shapes:
            return content["epoch"], arrays, content["history"]
    return None


def _read(path):
    """(content, arrays) of a checkpoint, None for a damaged one; the archive's own checksums are verified."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            content = json.loads(archive["content"].tobytes())
            return content, [archive[f"array_{index}"] for index in range(len(archive.files) - 1)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
