"""Ranks through TensorFlow's MultiWorkerMirroredStrategy: every worker has the weights, gradients are averaged."""

from __future__ import annotations

from typing import Any

from study.backends.tensorflow.devices import pin_device
from study.backends.tensorflow.gradient_averaging import OfStrategy
from study.communication.channel import Channel
from study.communication.collectives import Members, RanksOnly
from study.communication.roles import Place
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.instruments.traffic import Traffic
from study.machines.process_roles import MIRRORED


class MultiWorkerMirrored(RanksOnly, OfStrategy):
    """A `study.communication.collectives.Collectives`; the strategy's ring allreduce (gRPC) averages the gradients.

    TensorFlow's guide: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
    """

    own_threads: frozenset[int] = frozenset()
    name = MIRRORED

    def __init__(self, run: RunDefinition, with_process_sets: bool = False) -> None:
        """Wait for the other workers. The strategy must exist before anything else uses TensorFlow."""
        import tensorflow as tf

        self._channel = Channel(Place.own())
        self.rank, self.size = self._channel.place.number, self._channel.place.size
        place = self._channel.place
        self.local_rank, self.local_size = place.number_on_host(self.rank), place.hosts.count(place.hosts[self.rank])
        self.libraries = {"tensorflow": tf.__version__, "controller": "grpc"}
        pin_device(run, self.local_rank)
        kind = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=kind.NCCL if run.machine["gpus_per_rank"] else kind.RING
        )
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """``value`` of every worker, in their order."""
        try:
            return self._channel.gather(value)
        except (EOFError, OSError):
            raise StudyError("another worker has ended") from None

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic(self._channel.sockets())

    def close(self) -> None:
        """Leave together."""
        self.gather(None)
        self._channel.close()
