"""Images of a parameter server's workers: each reads its own, where Horovod's ranks would read theirs.

The chief makes the function that gives a worker its batches, and TensorFlow runs it on the worker. The part that reads
the files is Python, which stays where it is: so each worker registers a reader of its own in its process, and the chief
puts the name by which TensorFlow knows that reader into the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from study import workloads
from study.backends.tensorflow import strategy_input
from study.backends.tensorflow.images import failure, reading
from study.communication.channel import Channel
from study.core.errors import StudyError
from study.data.images.source import Images, Reader
from study.data.order import Positions
from study.data.samples import Arrays, Changes, SampleSource
from study.experiment.augmentation import augmented
from study.experiment.definition import RunDefinition
from study.instruments.counters import ReadCounter

_UNCHANGED = Arrays(np.empty(0, np.float32), np.empty(0, np.float32))  # samples of tables, which never change
OPEN, UNREADABLE = "open", "unreadable"  # what the chief asks


class Registered(NamedTuple):
    """Names by which TensorFlow knows functions of a worker.

    readers: of each file of images. drawing: gives the positions and random changes of an epoch.
    """

    readers: dict[str, str]
    drawing: str


class Shards:
    """On a worker: the order of its samples, and the run's images, registered with TensorFlow."""

    def __init__(self, run: RunDefinition, worker: int, reads: ReadCounter) -> None:
        """Open the files and load those of training, if they are kept in memory. reads: counts what is read then."""
        self._run, self._worker = run, worker
        self._graphs: list[Any] = []  # TensorFlow knows a function for as long as its graph lives
        benchmark = workloads.get(run.benchmark["name"], run.benchmark)
        opened = {} if benchmark.kind != "images" else self._opened(benchmark, reads)
        self._images = {name_of(images): images for images in opened.values()}
        self._train = augmented(benchmark.samples(opened, run.derived.seed).train, run) if opened else None
        self.readers: dict[str, str] = {}  # {file: name of its reader}; none of tables, which the chief sends
        for name, images in sorted(self._images.items()):
            read, kind = reading(images)
            self.readers[name] = self._name_of(read, [kind], ((None,),))
        self.registered = Registered(self.readers, self._name_of(self._draw, ["int64", "int64"], ((), ())))

    def _opened(self, benchmark: workloads.base.Workload, reads: ReadCounter) -> dict[str, Any]:
        run = self._run
        with reads.count():
            opened = benchmark.open(run.data, run["loader"], run.machine["cores_per_rank"], loaded=trained(run))
        for images in opened.values():
            for path in images.mapped_files:
                reads.add_mapped(path)
        return opened

    def _draw(self, number: NDArray[np.int64], epoch: NDArray[np.int64]) -> tuple[Positions, Changes]:
        """Positions and random changes of this worker's samples in an epoch."""
        chosen = strategy_input.positions(self._run, self._worker, int(number), int(epoch))
        return chosen, (self._train or _UNCHANGED).changes(chosen, int(epoch))

    def _name_of(self, function: Callable[..., Any], kinds: Sequence[Any], shapes: Sequence[Any]) -> str:
        """Register a function of int64 tensors of these shapes. kinds: of its results."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            given = [tf.compat.v1.placeholder(tf.int64, shape) for shape in shapes]
            made = tf.nest.flatten(tf.numpy_function(function, given, [tf.as_dtype(kind) for kind in kinds]))
        self._graphs.append(graph)
        return str(made[0].op.get_attr("token").decode())

    def unreadable(self) -> str | None:
        """The error of an image that could not be read or decoded here; None if there was none."""
        return next((str(found) for images in self._images.values() if (found := failure(images))), None)


def trained(run: RunDefinition) -> frozenset[str]:
    """The files of training."""
    return frozenset(file for file, form in run.benchmark["files"].items() if form["split"] == "train")


def name_of(images: Images) -> str:
    """By which chief and workers know a file of images."""
    return str(images.reader.images.folder)


def opened(channel: Channel) -> Registered:
    """On the chief: have all workers open their images; what they have registered, the same on all of them.

    Raises:
        StudyError: they differ.
    """
    found = [registered for registered in channel.ask(OPEN).values() if registered is not None]
    if any(registered != found[0] for registered in found):
        raise StudyError(f"the workers have registered their functions by different names: {found}")
    return found[0]


def read_by_workers(samples: SampleSource, readers: dict[str, str], channel: Channel) -> SampleSource:
    """The training samples as the chief hands them on: images are read by the worker that trains on them."""
    if not isinstance(samples, Images):
        return samples
    return samples.read_by(_Elsewhere(samples.reader, readers[name_of(samples)], channel))


class _Elsewhere(Reader):
    """The reader of each worker, seen from the chief."""

    def __init__(self, own: Reader, name: str, channel: Channel) -> None:
        super().__init__(own.images)
        self.remote, self._channel = name, channel

    def failure(self) -> StudyError | None:
        """The error that a worker found, as it tells it."""
        told = self._channel.ask(UNREADABLE).values()
        return next((StudyError(each) for each in told if each), None)
