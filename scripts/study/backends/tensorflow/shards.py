"""Images of a parameter server's workers: each reads its own, where Horovod's ranks would read theirs.

The chief makes the function that gives a worker its batches, and TensorFlow runs it on the worker. The part that reads
the files is Python, which stays where it is: so each worker registers a reader of its own in its process, and the chief
puts the name by which TensorFlow knows that reader into the function.
"""

from __future__ import annotations

from typing import Any

from study import workloads
from study.communication.channel import Channel
from study.core.errors import StudyError
from study.data.images.source import Images, Reader
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.instruments.io_counters import ReadCounter

OPEN, UNREADABLE = "open", "unreadable"  # what the chief asks


class Shards:
    """On a worker: the run's images, registered with TensorFlow."""

    def __init__(self, run: RunDefinition, reads: ReadCounter) -> None:
        """Open the files and load those of training, if they are kept in memory. reads: counts what is read then."""
        benchmark = workloads.get(run.benchmark["name"], run.benchmark)
        self._images: dict[str, Images] = {}
        self.readers: dict[str, str] = {}  # {file: name of its reader}; none of tables, which the chief sends
        self._graphs: list[Any] = []  # TensorFlow knows a reader for as long as its graph lives
        if benchmark.kind != "images":
            return
        with reads.counted():
            opened = benchmark.open(run.data, run["loader"], run.machine["cores_per_rank"], loaded=trained(run))
        for images in opened.values():
            for path in images.mapped_files:
                reads.mapped(path)
        self._images = {name_of(images): images for images in opened.values()}
        self.readers = {name: self._registered(images) for name, images in sorted(self._images.items())}

    def _registered(self, images: Images) -> str:
        import tensorflow as tf

        read, kind = images.reading()
        with tf.Graph().as_default() as graph:
            made = tf.numpy_function(read, [tf.compat.v1.placeholder(tf.int64, [None])], kind)
        self._graphs.append(graph)
        return str(made.op.get_attr("token").decode())

    def unreadable(self) -> str | None:
        """The error of an image that could not be read or decoded here; None if there was none."""
        for images in self._images.values():
            if found := images.reader.error or images.reader.undecodable(images.target.channels):
                return str(found)
        return None


def trained(run: RunDefinition) -> frozenset[str]:
    """The files of training."""
    return frozenset(file for file, form in run.benchmark["files"].items() if form["split"] == "train")


def name_of(images: Images) -> str:
    """By which chief and workers know a file of images."""
    return str(images.reader.images.folder)


def opened(channel: Channel) -> dict[str, str]:
    """On the chief: have all workers open their images; {file: the name of its reader}, the same on all workers.

    Raises:
        StudyError: they differ.
    """
    found = [readers for readers in channel.ask(OPEN).values() if readers is not None]
    if any(readers != found[0] for readers in found):
        raise StudyError(f"the workers have registered their readers by different names: {found}")
    return found[0] if found else {}


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

    def undecodable(self, channels: int) -> StudyError | None:
        """The error that a worker found, as it tells it."""
        told = self._channel.ask(UNREADABLE).values()
        return next((StudyError(each) for each in told if each), None)
