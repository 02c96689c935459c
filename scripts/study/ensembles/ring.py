"""A ring of blocks in memory that all ranks of a node share: written once, read by every member at its own place.

The memory has no name in any file system, so nothing remains of it, however the ranks end. The ranks see one another's
progress by polling 64-bit counters: a writer waits for the slowest member, a member for the next block. On x86-64, the
only architecture that is supported, stores of one processor are seen by others in their order; so a block is complete
when its number is there.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from study.communication.collectives import Collectives, Members
from study.core.errors import StudyError
from study.ensembles.buffer import HAS_ENDED, Buffer, Lost
from study.ensembles.content import ALIGNMENT, Content, Form
from study.ensembles.order import Block

POLL_S = 0.0002, 0.004  # between two polls: at first, and at most
CHECK_INTERVAL_S = 0.5  # between two checks that the other processes live
ENDED_CURSOR = np.int64(1) << 62  # the place of a member that has ended: nobody waits for it


class Ring(Buffer):
    """The ring of a node, seen from one of its ranks."""

    def __init__(
        self,
        memory: mmap.mmap,
        form: Form,
        slots: int,
        samples: Sequence[int],
        node: tuple[int, int, int],
    ) -> None:
        """Use memory of `compute_size_bytes` bytes, which is all zero at first.

        Args:
            memory: that the ranks of the node share.
            form: of a sample.
            slots: how many blocks it holds.
            samples: of each block of an epoch; the first is a full one.
            node: the number of its members; how many of them preprocess, the first ones; which of them this rank is.
        """
        members, readers, own = node
        self._places, slot_bytes = form.compute_offsets(samples[0])
        counters = np.frombuffer(memory, np.int64, 1 + slots + 2 * members)
        self._failed, self._ready = counters[:1], counters[1 : 1 + slots]
        # Of each member, the number of the block that it reads next.
        self._cursors, self._processes = counters[1 + slots :].reshape(2, members)
        self._processes[own] = os.getpid()
        self._slots, self._own, self._readers, self._form = slots, own, readers, form
        bytes_ = np.frombuffer(memory, np.uint8)
        begin = _compute_header_bytes(slots, members)
        self._memory = [bytes_[begin + n * slot_bytes : begin + (n + 1) * slot_bytes] for n in range(slots)]
        self._error: BaseException | None = None
        self._is_closed = False
        self._bytes = len(bytes_) if own == 0 else 0
        self._sizes = samples

    def put(self, block: Block, content: Content) -> None:
        """Write a block into its slot, after the slowest member has read the block that was there."""
        for is_check_due in _poll_until(lambda: self._cursors.min() > block.number - self._slots):
            self._raise_if_failed()
            if is_check_due:
                self._forget_ended()
        target = self._view_block(block.number, block.samples)
        for array, values in zip(target, content, strict=True):
            array[:] = values
        self._ready[block.number % self._slots] = block.number + 1

    def get(self) -> Content:
        """Copy the next block: TensorFlow may read, or write to, an array long after the step that got it."""
        self._raise_if_closed()
        number = int(self._cursors[self._own])
        writer = number % len(self._sizes) % self._readers
        for is_check_due in _poll_until(lambda: self._ready[number % self._slots] == number + 1):
            self._raise_if_failed()
            self._raise_if_closed()
            if is_check_due and _has_process_ended(self._processes[writer]):
                raise Lost(f"rank {writer} of this node, which writes the next block, has ended")
        block = self._view_block(number, self._sizes[number % len(self._sizes)])
        content = tuple(array.copy() for array in block)
        self._raise_if_closed()  # once it is closed, the block may have been overwritten meanwhile
        self._cursors[self._own] = number + 1
        if self._is_closed:  # by another thread, just now
            self._cursors[self._own] = ENDED_CURSOR
        return content

    def fail(self, error: BaseException) -> None:
        """Make all ranks of the node fail: they cannot go on without this one's blocks."""
        self._error = error
        self._failed[0] = 1

    def close(self) -> None:
        """End reading: no writer waits for this member any more."""
        self._is_closed = True
        self._cursors[self._own] = ENDED_CURSOR

    @property
    def fill(self) -> float:
        """Share of the slots with blocks that this member has not read, 0 to 1."""
        return float((self._ready > self._cursors[self._own]).sum() / self._slots)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the shared memory on the first rank of the node, 0 on the others."""
        return self._bytes

    def _view_block(self, number: int, samples: int) -> Content:
        """Views of a block's arrays in its slot of the ring."""
        memory, arrays = self._memory[number % self._slots], []
        for place, kind, shape in zip(self._places, self._form.types, self._form.shapes, strict=True):
            size = samples * kind.itemsize * int(np.prod(shape, dtype=np.int64))
            arrays.append(memory[place : place + size].view(kind).reshape((samples, *shape)))
        return tuple(arrays)

    def _raise_if_closed(self) -> None:
        """Raise `Lost` if this member has ended."""
        if self._is_closed:
            raise Lost(HAS_ENDED)

    def _raise_if_failed(self) -> None:
        """Raise the error of sharing, of this rank or as `Lost` of another one."""
        if self._error:
            raise self._error
        if self._failed[0]:
            raise Lost("another rank of this node, which writes blocks, has failed")

    def _forget_ended(self) -> None:
        """Stop waiting for members whose processes have ended."""
        for member, process in enumerate(self._processes):
            if _has_process_ended(process):
                self._cursors[member] = ENDED_CURSOR


def _poll_until(is_there: Callable[[], bool]) -> Iterator[bool]:
    """Wait until a condition holds; yields before each pause, True when ended processes should be looked for."""
    last_check, (pause, longest) = time.monotonic(), POLL_S
    while not is_there():
        is_check_due = time.monotonic() - last_check > CHECK_INTERVAL_S
        if is_check_due:
            last_check = time.monotonic()
        yield is_check_due
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _has_process_ended(process: int) -> bool:
    """True if a process has ended; False for 0, a process that has not registered yet."""
    if not process:
        return False
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def compute_size_bytes(form: Form, slots: int, samples: int, members: int) -> int:
    """Compute the bytes of a ring's shared memory."""
    return _compute_header_bytes(slots, members) + slots * form.compute_offsets(samples)[1]


def _compute_header_bytes(slots: int, members: int) -> int:
    """Compute the bytes of the counters before the first block, aligned."""
    return -(-8 * (1 + slots + 2 * members) // ALIGNMENT) * ALIGNMENT


def map_shared_memory(communicator: Collectives, node: Members, length: int) -> mmap.mmap:
    """Map ``length`` bytes of zeroed memory that the ranks of a node share; all ranks of the communicator must call.

    node: the ranks of this rank's node.

    Raises:
        StudyError: the ranks cannot see one another's memory.
    """
    descriptor, identity = None, None
    if communicator.rank == node[0]:
        descriptor = os.memfd_create("ring")
        os.ftruncate(descriptor, length)
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        identity = path, _read_file_identity(path)
    path, expected = communicator.gather(identity)[node[0]]
    memory: Any = None
    if Path(path).exists() and _read_file_identity(path) == expected:
        with open(path, "r+b") as handle:
            memory = mmap.mmap(handle.fileno(), length)
    communicator.gather(None)  # before the first rank closes it
    if descriptor is not None:
        os.close(descriptor)
    if memory is None:
        raise StudyError(
            f"rank {communicator.rank} does not see the memory of rank {node[0]}, as where each rank has a container "
            "of its own; use another input_sharing"
        )
    return memory


def _read_file_identity(path: str) -> tuple[int, int]:
    """(device, inode) of a file, which tell whether two ranks see the same memory."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino
