"""Sample sources: the samples that a model trains on, one rank's part of them, and batches."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data.order import Positions

Batch = tuple[NDArray[Any], NDArray[Any]]  # inputs and outputs of samples, along the first axis
Changes = NDArray[np.int64]


class Can(enum.Flag):
    """What a sample source can do."""

    RANDOM_ACCESS = enum.auto()  # give the samples at any positions
    IN_MEMORY = enum.auto()  # hand over all its samples as arrays
    MAPPED = enum.auto()  # its arrays are mapped files, whose pages are loaded when they are used
    STREAMED = enum.auto()  # give the samples in its own order only


class SampleSource(ABC):
    """Samples, each an input of any number of dimensions and an output. ``can`` declares the source's capabilities."""

    can: Can

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's input, as the model takes it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, chosen: np.ndarray | slice) -> SampleSource:
        """The samples at the positions or slice ``chosen``; arrays are shared. Needs `Can.RANDOM_ACCESS`."""

    @abstractmethod
    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """The samples at the positions ``chosen``; for an autoencoder twice the same array. Needs `Can.RANDOM_ACCESS`.

        changes: of `changes`, for training.
        """

    def changes(self, chosen: Positions, epoch: int) -> Changes:
        """Random changes of the samples at these positions in an epoch of training, a row for each.

        chosen: of any shape. The rows are empty if the samples never change.
        """
        return np.empty((*chosen.shape, 0), np.int64)

    @property
    def is_streamed(self) -> bool:
        """True if samples are read or decoded during training, so that the model may have to wait."""
        return False

    @property
    def threads(self) -> int:
        """Number of batches made at once; 0 for one after the other on the framework's threads."""
        return 0

    def keep_in_memory(self) -> SampleSource:
        """The same samples, each kept in memory once it is read."""
        return self

    def change_augmentation(self, kind: str, light_from: int | None = None) -> SampleSource:
        """The same samples with another augmentation in training, where they have one; see the grid key.

        light_from: the epoch, from 0, from which on it is light; None for never.
        """
        return self

    def take(self, number: int) -> tuple[NDArray[Any], ...]:
        """The next ``number`` samples as arrays. Needs `Can.STREAMED`."""
        raise TypeError(f"{type(self).__name__} has no order of its own")

    @property
    def taken(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of one sample in each array that `take` gives. Needs `Can.STREAMED`."""
        raise TypeError(f"{type(self).__name__} has no order of its own")

    def failure(self) -> BaseException | None:
        """The error in reading, which a framework may wrap in its own; None if there is none."""
        return None

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of all samples in their order. Needs `Can.IN_MEMORY`."""
        raise TypeError(f"{type(self).__name__} cannot be handed over as arrays")


@dataclass(frozen=True)
class Arrays(SampleSource):
    """Samples in arrays, in memory or in a mapped file.

    x: float32, samples along the first axis. y: likewise; the same object as x for an autoencoder. order: positions of
    the samples in the arrays, None for all in their order; with it a part of a mapped file needs no copy.
    """

    x: np.ndarray
    y: np.ndarray
    order: np.ndarray | None = None

    @property
    def can(self) -> Can:  # type: ignore[override]
        """Capabilities, with `Can.MAPPED` if the arrays are mapped files."""
        mapped = Can.MAPPED if isinstance(_find_memory_owner(self.x), np.memmap) else Can(0)
        return Can.RANDOM_ACCESS | Can.IN_MEMORY | mapped

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's input."""
        return self.x.shape[1:]

    def __len__(self) -> int:
        return len(self.x) if self.order is None else len(self.order)

    def rows(self, chosen: np.ndarray | slice) -> Arrays:
        """The samples at the positions or slice ``chosen``; the arrays are shared."""
        order = np.arange(len(self.x)) if self.order is None else self.order
        return Arrays(self.x, self.y, order[chosen])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of the samples in their order; copied if ``order`` is given."""
        if self.order is None:
            return self.x, self.y
        x = self.x[self.order]
        return x, x if self.y is self.x else self.y[self.order]

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """The samples at the positions ``chosen``, copied."""
        chosen = chosen if self.order is None else self.order[chosen]
        x = self.x[chosen]
        return x, x if self.y is self.x else self.y[chosen]


@dataclass(frozen=True)
class Joined(SampleSource):
    """Samples that are joined from tables one batch at a time, so that the joined matrix is never in memory.

    values: float32 (samples, k), the samples' own inputs. tables: float32 matrices (rows, features). keys: for each
    table an integer array (samples,), the row of each sample. y: float32 (samples, outputs). A sample's input is its
    rows of all tables, followed by its values.
    """

    values: np.ndarray
    tables: tuple[np.ndarray, ...]
    keys: tuple[np.ndarray, ...]
    y: np.ndarray
    can = Can.RANDOM_ACCESS

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's input."""
        return (sum(table.shape[1] for table in self.tables) + self.values.shape[1],)

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, chosen: np.ndarray | slice) -> Joined:
        """The samples at the positions or slice ``chosen``; the tables are shared."""
        return Joined(self.values[chosen], self.tables, tuple(key[chosen] for key in self.keys), self.y[chosen])

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """The samples at the positions ``chosen``, joined on request."""
        rows = [table[key[chosen]] for table, key in zip(self.tables, self.keys, strict=True)]
        return np.concatenate([*rows, self.values[chosen]], axis=1), self.y[chosen]


def _find_memory_owner(array: np.ndarray) -> Any:
    """The array or mapping that owns the memory of a view."""
    while isinstance(array.base, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array


def select_part(samples: SampleSource, rank: int, size: int) -> SampleSource:
    """One rank's part under ``sharding: by_rank``: every ``size``-th sample, as many on all ranks.

    The remainder, fewer than ``size`` samples at the end, is left out. So all ranks make the same number of steps, and
    none waits for a gradient that is never sent.
    """
    each = count_samples_per_rank(len(samples), size)
    return samples.rows(slice(rank, each * size, size))


def count_samples_per_rank(samples: int, size: int) -> int:
    """Number of samples in each rank's part."""
    return samples // size
