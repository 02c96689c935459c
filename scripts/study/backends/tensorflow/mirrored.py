"""Ranks through TensorFlow's MultiWorkerMirroredStrategy: every worker has the weights, gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from study.backends.tensorflow.devices import pin_device
from study.communication.channel import Channel
from study.communication.collectives import Members
from study.communication.roles import Place
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.instruments.traffic import Traffic


class MultiWorkerMirrored:
    """A `study.communication.collectives.Communicator`; the strategy's ring allreduce (gRPC) averages the gradients.

    TensorFlow's guide: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
    """

    own_threads: frozenset[int] = frozenset()
    sends_sparse = False

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

    def create_process_sets(self, sets: list[Members]) -> None:
        """Refused: the strategy averages over all workers."""
        raise StudyError("strategy: multi_worker_mirrored has no process sets")

    def distributed_optimizer(
        self, optimizer: Any, members: Members | None = None, compression: str = "none", backward_passes: int = 1
    ) -> Any:
        """``optimizer`` as it is: made in the strategy's scope, it sums the workers' gradients of the mean loss."""
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """None: the strategy averages inside the optimizer's step."""
        return None

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any], list[Any]], None]) -> None:
        """Refused: the averaging is inside the optimizer's step."""
        raise StudyError("strategy: multi_worker_mirrored does not show its gradients")

    def broadcast_variables(self, variables: list[Any], members: Members | None = None) -> None:
        """Nothing: each worker has set its variables to the same values, see `local_replica`."""

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Refused: data are not broadcast."""
        raise StudyError("strategy: multi_worker_mirrored does not broadcast data")

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """``value`` of every worker, in their order."""
        try:
            return self._channel.gather(value)
        except (EOFError, OSError):
            raise StudyError("another worker has ended") from None

    def time_allreduce(self, size: int, repeats: int) -> list[float]:
        """Refused: the sweep times Horovod's allreduces."""
        raise StudyError("strategy: multi_worker_mirrored has no allreduce sweep")

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic(self._channel.sockets())

    def collect(self, mine: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(``mine`` of every worker, no other processes)."""
        return self.gather(mine), []

    def close(self) -> None:
        """Leave together."""
        self.gather(None)
        self._channel.close()
