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
from study.backends.tensorflow.images import find_failure, make_reader
from study.communication.channel import Channel
from study.core.errors import StudyError
from study.data.images.source import Images, Reader
from study.data.order import Positions
from study.data.samples import Arrays, Changes, SampleSource
from study.experiment.augmentation import augment_samples
from study.experiment.definition import RunDefinition
from study.instruments.counters import ReadCounter

_UNCHANGED = Arrays(np.empty(0, np.float32), np.empty(0, np.float32))  # samples of tables, which never change
OPEN, UNREADABLE = "open", "unreadable"  # requests of the chief


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
        benchmark = workloads.load_workload(run.benchmark["name"], run.benchmark)
        opened = {} if benchmark.kind != "images" else self._open_images(benchmark, reads)
        self._images = {name_images(images): images for images in opened.values()}
        self._train = augment_samples(benchmark.samples(opened, run.derived.seed).train, run) if opened else None
        self.readers: dict[str, str] = {}  # {file: name of its reader}; none of tables, which the chief sends
        for name, images in sorted(self._images.items()):
            read, kind = make_reader(images)
            self.readers[name] = self._register(read, [kind], ((None,),))
        self.registered = Registered(self.readers, self._register(self._draw_positions, ["int64", "int64"], ((), ())))

    def _open_images(self, benchmark: workloads.base.Workload, reads: ReadCounter) -> dict[str, Any]:
        """Open the images of each file, and load those of training that are kept in memory."""
        run = self._run
        with reads.count():
            opened = benchmark.open(
                run.data, run["loader"], run.machine["cores_per_rank"], loaded=list_training_files(run)
            )
        for images in opened.values():
            for path in images.mapped_files:
                reads.add_mapped(path)
        return opened

    def _draw_positions(self, number: NDArray[np.int64], epoch: NDArray[np.int64]) -> tuple[Positions, Changes]:
        """Draw the positions and random changes of this worker's samples in an epoch."""
        chosen = strategy_input.draw_positions(self._run, self._worker, int(number), int(epoch))
        return chosen, (self._train or _UNCHANGED).changes(chosen, int(epoch))

    def _register(self, function: Callable[..., Any], kinds: Sequence[Any], shapes: Sequence[Any]) -> str:
        """Register a function of int64 tensors of these shapes; returns its name. kinds: types of its results."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            arguments = [tf.compat.v1.placeholder(tf.int64, shape) for shape in shapes]
            results = tf.nest.flatten(tf.numpy_function(function, arguments, [tf.as_dtype(kind) for kind in kinds]))
        self._graphs.append(graph)
        return str(results[0].op.get_attr("token").decode())

    def find_unreadable(self) -> str | None:
        """The error of an image that could not be read or decoded here; None if there was none."""
        return next((str(failure) for images in self._images.values() if (failure := find_failure(images))), None)


def list_training_files(run: RunDefinition) -> frozenset[str]:
    """The benchmark's files, by their keys, that hold training samples."""
    return frozenset(file for file, form in run.benchmark["files"].items() if form["split"] == "train")


def name_images(images: Images) -> str:
    """The name by which chief and workers know a file of images."""
    return str(images.reader.images.folder)


def open_on_workers(channel: Channel) -> Registered:
    """Have all workers open their images, on the chief; returns the names they registered, equal on all of them.

    Raises:
        StudyError: the names differ.
    """
    registrations = [registered for registered in channel.ask(OPEN).values() if registered is not None]
    if any(registered != registrations[0] for registered in registrations):
        raise StudyError(f"the workers have registered their functions by different names: {registrations}")
    return registrations[0]


def hand_to_workers(samples: SampleSource, readers: dict[str, str], channel: Channel) -> SampleSource:
    """The chief's training samples with images left to be read by the worker that trains on them."""
    if not isinstance(samples, Images):
        return samples
    return samples.read_by(_WorkerReader(samples.reader, readers[name_images(samples)], channel))


class _WorkerReader(Reader):
    """The reader of each worker, seen from the chief."""

    def __init__(self, own: Reader, name: str, channel: Channel) -> None:
        super().__init__(own.images)
        self.remote, self._channel = name, channel

    def failure(self) -> StudyError | None:
        """The first error of reading that a worker reports; None if there is none."""
        errors = self._channel.ask(UNREADABLE).values()
        return next((StudyError(each) for each in errors if each), None)
