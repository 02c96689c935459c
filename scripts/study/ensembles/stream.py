"""The stream of samples that a member of an ensemble trains on: a thread shares blocks, training takes batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from study.data.order import Positions
from study.data.samples import Batch, Can, Changes, SampleSource
from study.ensembles.buffer import Lost
from study.ensembles.content import Content, bytes_of
from study.ensembles.sharing import Way
from study.instruments import counters
from study.instruments.phases import now
from study.instruments.queue_usage import Usage

Errors = Callable[[], contextlib.AbstractContextManager[None]]


class Stream(SampleSource):
    """Samples in the order of the ensemble. Batches are taken while it is `flowing`."""

    can = Can.STREAMED
    is_streamed = True

    def __init__(
        self,
        way: Way,
        reading_errors: Errors = contextlib.nullcontext,
        passed_over: int = 0,
    ) -> None:
        """Share blocks.

        Args:
            way: in which they are shared.
            reading_errors: makes a block in which errors of reading become a `StudyError`.
            passed_over: number of blocks at the beginning that training does not take: it had them before a restart.
        """
        self._samples, self._way, self._reading_errors = way.place.samples, way, reading_errors
        self._buffer, self._passed_over = way.buffer, passed_over
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._error: BaseException | None = None
        self._own: Iterator[Any] = iter(())
        self._preprocessors: frozenset[int] = frozenset()
        self._next = 0  # number of the block that training takes next
        self._block: Content | None = None
        self._has_ended = False
        self._most_used = 0  # bytes of the largest block that training had out of the buffer
        self._used = 0  # samples of the block that are in batches already
        self.usage = Usage()
        self._samples_preprocessed = 0
        self._begun = self._ended = (0, 0)  # (wall, monotonic) ns
        self._cpu_s = self._preprocessing_cpu_s = self._sharing_cpu_s = self._library_cpu_s = 0.0
        self.batches_taken = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's input."""
        return self._samples.shape

    def __len__(self) -> int:
        return len(self._samples)

    def rows(self, chosen: Any) -> SampleSource:
        """Refused: a stream gives its samples in its own order only."""
        raise TypeError("a stream has no random access")

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """Refused: a stream gives its samples in its own order only."""
        raise TypeError("a stream has no random access")

    def _start(self) -> None:
        """Begin to preprocess and to share."""
        way = self._way
        if way.reader is not None:
            self._own = self._preprocessed(way.reader, way.readers)
        self._thread.start()

    def _finish(self) -> None:
        """Wait until all blocks are shared: other members may still need this one's. Call when no more are taken.

        Raises:
            Exception: the one with which sharing has failed.
        """
        self._has_ended = True
        self._buffer.close()
        self._thread.join()
        if self._error:
            raise self._error

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        """A block that takes batches: blocks are shared while it runs, and after it until no member needs them."""
        self._begun, cpu = now(), counters.read_process_cpu_s()
        library = counters.read_thread_cpu_s(self._way.place.communicator.own_threads)
        self.usage.begin()
        self._start()
        yield
        self._ended = now()
        self.usage.end()
        self._finish()
        self.usage.end()
        self._cpu_s, self._library_cpu_s = counters.read_process_cpu_s() - cpu, counters.compute_cpu_s_since(library)

    def failure(self) -> BaseException | None:
        """The error with which sharing has failed; None if it has not."""
        return self._error

    @property
    def taken(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """Of each array that `take` gives, its type and the shape of one sample."""
        form = self._way.place.form
        return list(zip(form.types, form.shapes, strict=True))

    @property
    def is_ready(self) -> bool:
        """Whether the buffer is full, or nothing more will come."""
        return self._buffer.fill >= 1 or not self._thread.is_alive()

    def measures(self) -> dict[str, Any]:
        """What was measured while it was `flowing`.

        Returns:
            samples_preprocessed: by this rank. received_bytes: payload from other ranks. cpu_s: processor time of this
            rank and its children. preprocessing_cpu_s, communication_cpu_s: parts of it, of the threads that preprocess
            and of those that share; the first is None where its threads are not known. queue_fill: mean share of the
            buffer that was full when a block was taken; None if none was.
            memory_bytes: the most bytes of blocks that the rank had ready, and of the block that training used.
            begun_monotonic_ns, ended_monotonic_ns: of the member's training.
        """
        return {
            "samples_preprocessed": self._samples_preprocessed + self._way.samples_preprocessed,
            "received_bytes": self._way.received_bytes,
            "cpu_s": self._cpu_s,
            "preprocessing_cpu_s": self._preprocessing_cpu_s if self._way.knows_threads else None,
            "communication_cpu_s": self._sharing_cpu_s + self._library_cpu_s,
            "queue_fill": self.usage.queue_fill,
            "memory_bytes": self._buffer.memory_bytes + self._most_used,
            "begun_monotonic_ns": self._begun[1],
            "ended_monotonic_ns": self._ended[1],
        }

    def take(self, number: int) -> Content:
        """The next ``number`` samples; a batch may have parts of several blocks."""
        parts: list[Content] = []
        while self._next < self._passed_over:
            self._taken()
        while number:
            if self._block is None:
                self.usage.note_block(self._buffer.fill)
                self._block, self._used = self._taken(), 0
                self._most_used = max(self._most_used, bytes_of(self._block))
            left = len(self._block[0]) - self._used
            taken = min(number, left)
            parts.append(tuple(array[self._used : self._used + taken] for array in self._block))
            number, self._used = number - taken, self._used + taken
            if taken == left:
                self._block = None
        self.batches_taken += 1
        return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))

    def _taken(self) -> Content:
        """The next block."""
        if self._next >= self._way.place.order.blocks:  # TensorFlow asks for a batch more than is taken
            raise Lost("there are no more blocks")
        block = self._buffer.get()
        self._next += 1
        return block

    def _preprocessed(self, reader: int, readers: int) -> Iterator[Any]:
        """The blocks of one reader; counts the threads that make them."""
        before = counters.list_threads()
        blocks = self._way.place.backend.blocks(self._samples, self._way.place.order, reader, readers)
        self._preprocessors |= counters.list_threads() - before
        return blocks

    def _made(self, blocks: Iterator[Any]) -> Content:
        """The next of the blocks that this rank preprocesses."""
        own = next(blocks)
        self._samples_preprocessed += len(own[0])
        self._preprocessing_cpu_s = counters.sum_thread_cpu_s(self._preprocessors)
        return own

    def _produce(self) -> None:
        try:
            with self._reading_errors():
                self._share_all()
        except BaseException as error:
            self._error = error
            self._buffer.fail(error)

    def _share_all(self) -> None:
        way, buffer = self._way, self._buffer
        for blocks in way.place.order.rounds(way.readers):
            if self._has_ended and not way.has_others:
                break
            has_own = way.reader is not None and way.reader < len(blocks)
            own = self._made(self._own) if has_own else None
            begun = time.thread_time()
            for block, content in way.share(blocks, own):
                buffer.put(block, content)
            self._sharing_cpu_s += time.thread_time() - begun
