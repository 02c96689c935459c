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
from study.ensembles.content import Content, count_bytes
from study.ensembles.sharing import Way
from study.instruments import counters
from study.instruments.phases import now
from study.instruments.queue_usage import Usage

ErrorContext = Callable[[], contextlib.AbstractContextManager[None]]


class Stream(SampleSource):
    """Samples in the order of the ensemble; batches are taken within `share_in_background`."""

    can = Can.STREAMED
    is_streamed = True

    def __init__(
        self,
        way: Way,
        reading_errors: ErrorContext = contextlib.nullcontext,
        skipped_blocks: int = 0,
    ) -> None:
        """Share blocks.

        Args:
            way: in which they are shared.
            reading_errors: makes a block in which errors of reading become a `StudyError`.
            skipped_blocks: number of blocks at the beginning that training had before a restart and does not take.
        """
        self._samples, self._way, self._reading_errors = way.place.samples, way, reading_errors
        self._buffer, self._skipped_blocks = way.buffer, skipped_blocks
        self._thread = threading.Thread(target=self._run_sharing_thread, daemon=True)
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
        self._cpu_s = self._preprocessing_cpu_s = self._sharing_cpu_s = 0.0
        self._library_cpu_s: float | None = 0.0
        self.batches_taken = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's input."""
        return self._samples.shape

    def __len__(self) -> int:
        return len(self._samples)

    def rows(self, chosen: Any) -> SampleSource:
        """Raise TypeError: a stream gives its samples in its own order only."""
        raise TypeError("a stream has no random access")

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """Raise TypeError: a stream gives its samples in its own order only."""
        raise TypeError("a stream has no random access")

    def _start(self) -> None:
        """Start preprocessing and the thread that shares blocks."""
        way = self._way
        if way.reader is not None:
            self._own = self._start_preprocessing(way.reader, way.readers)
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
    def share_in_background(self) -> Iterator[None]:
        """Share blocks while the ``with`` block takes batches, and after it until no other member needs them."""
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
        """Return the error with which sharing has failed, or None."""
        return self._error

    @property
    def taken(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """(type, shape of one sample) of each array that `take` returns."""
        form = self._way.place.form
        return list(zip(form.types, form.shapes, strict=True))

    @property
    def is_ready(self) -> bool:
        """True if the buffer is full, or nothing more will come."""
        return self._buffer.fill >= 1 or not self._thread.is_alive()

    def get_measurements(self) -> dict[str, Any]:
        """The measurements made within `share_in_background`.

        Returns:
            samples_preprocessed: by this rank. received_bytes: payload from other ranks. cpu_s: processor time of this
            rank and its children. preprocessing_cpu_s, communication_cpu_s: parts of it, of the threads that preprocess
            and of those that share; the first is None where its threads are not known. queue_fill: mean share of the
            buffer that was full when a block was taken; None if none was.
            memory_bytes: the most bytes of blocks that the rank had ready, and of the block that training used.
            begun_monotonic_ns, ended_monotonic_ns: of the member's training.
        """
        return {
            "samples_preprocessed": self._samples_preprocessed,
            "received_bytes": self._way.received_bytes,
            "cpu_s": self._cpu_s,
            "preprocessing_cpu_s": self._preprocessing_cpu_s,
            "communication_cpu_s": None if self._library_cpu_s is None else self._sharing_cpu_s + self._library_cpu_s,
            "queue_fill": self.usage.queue_fill,
            "memory_bytes": self._buffer.memory_bytes + self._most_used,
            "begun_monotonic_ns": self._begun[1],
            "ended_monotonic_ns": self._ended[1],
        }

    def take(self, samples: int) -> Content:
        """The next ``number`` samples; a batch may have parts of several blocks."""
        parts: list[Content] = []
        while self._next < self._skipped_blocks:
            self._take_block()
        while samples:
            if self._block is None:
                self.usage.note_block(self._buffer.fill)
                self._block, self._used = self._take_block(), 0
                self._most_used = max(self._most_used, count_bytes(self._block))
            unused = len(self._block[0]) - self._used
            count = min(samples, unused)
            parts.append(tuple(array[self._used : self._used + count] for array in self._block))
            samples, self._used = samples - count, self._used + count
            if count == unused:
                self._block = None
        self.batches_taken += 1
        return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))

    def _take_block(self) -> Content:
        """Take the next block out of the buffer."""
        if self._next >= self._way.place.order.blocks:  # TensorFlow asks for a batch more than is taken
            raise Lost("there are no more blocks")
        block = self._buffer.get()
        self._next += 1
        return block

    def _start_preprocessing(self, reader: int, readers: int) -> Iterator[Any]:
        """Start the pipeline of a reader's blocks, and note the threads that run it."""
        before = counters.list_threads()
        blocks = self._way.place.backend.make_blocks(self._samples, self._way.place.order, reader, readers)
        self._preprocessors |= counters.list_threads() - before
        return blocks

    def _preprocess_block(self, blocks: Iterator[Any]) -> Content:
        """Preprocess this rank's next block, and update the CPU time that this takes."""
        block = next(blocks)
        self._samples_preprocessed += len(block[0])
        self._preprocessing_cpu_s = counters.sum_thread_cpu_s(self._preprocessors)
        return block

    def _run_sharing_thread(self) -> None:
        """Share all blocks; an error is kept and passed to the reader."""
        try:
            with self._reading_errors():
                self._share_all()
        except BaseException as error:
            self._error = error
            self._buffer.fail(error)

    def _share_all(self) -> None:
        """Share all rounds: preprocess the own block of each, share, and fill the buffer."""
        way, buffer = self._way, self._buffer
        for blocks in way.place.order.iterate_rounds(way.readers):
            if self._has_ended and not way.has_others:
                break
            has_own = way.reader is not None and way.reader < len(blocks)
            own = self._preprocess_block(self._own) if has_own else None
            begun = time.thread_time()
            for block, content in way.share(blocks, own):
                buffer.put(block, content)
            self._sharing_cpu_s += time.thread_time() - begun
