"""TensorFlow's own way to share preprocessing, to compare with: the tf.data service with its cross-trainer cache.

Rank 0 runs the service's dispatcher and its worker (https://www.tensorflow.org/api_docs/python/tf/data/experimental/service).
The worker preprocesses batches as the members ask for them and keeps the last ones; a member that is too slow skips
batches. So the samples of a member, and its weights, depend on the speed of all members: runs cannot be compared bit by
bit, with others or with themselves.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from study.communication.collectives import Members
from study.core.errors import StudyError
from study.ensembles.content import Content, bytes_of
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, Place, Shared, Way

NO_END = 1 << 40  # epochs: the cross-trainer cache demands a dataset without an end
JOB = "ensemble"


@WAYS.register("tf_data_service")
class TfDataService(Way):
    """Blocks come from the service's worker, in the process of rank 0."""

    readers, reader = 1, None
    knows_threads = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import tensorflow as tf

        service = tf.data.experimental.service
        if place.communicator.local_size != place.communicator.size:
            raise StudyError("input_sharing: tf_data_service needs all ranks on one host; use another input_sharing")
        os.environ["no_grpc_proxy"] = "localhost"  # noqa: SIM112  gRPC would take the shell's web proxy, even on this host
        told = None
        if place.rank == 0:
            self._dispatcher = service.DispatchServer()
            address = self._dispatcher.target.split("://")[1]
            self._worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
            told = self._dispatcher.target, service.register_dataset(self._dispatcher.target, self._dataset())
        target, number = place.communicator.gather(told)[0]
        dataset = service.from_dataset_id(
            processing_mode=service.ShardingPolicy.OFF,
            service=target,
            dataset_id=number,
            element_spec=self._spec(),
            job_name=JOB,
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=f"rank {place.rank}"),
        )
        self._blocks = iter(dataset.prefetch(1))

    @staticmethod
    def process_sets(ranks: int, readers: int) -> list[Members]:
        """None."""
        return []

    def agree(self, blocks: int) -> None:
        """Nothing: a member that lags skips samples."""

    def end(self) -> None:
        """Nothing: its ranks do not leave by themselves."""

    def share(self, blocks: list[Block], own: Content | None) -> Shared:
        """The next block that the worker has for this member."""
        content = tuple(array.numpy() for array in next(self._blocks))
        self.received_bytes += bytes_of(content) if self.place.rank else 0
        return [(block, content) for block in blocks]

    def _spec(self) -> Any:
        import tensorflow as tf

        form = self.place.form
        return tuple(
            tf.TensorSpec((None, *shape), tf.as_dtype(kind))
            for kind, shape in zip(form.types, form.shapes, strict=True)
        )

    def _dataset(self) -> Any:
        """Preprocessed blocks without an end, all of the same size, so that any of them can follow any other."""
        import tensorflow as tf

        order, samples = self.place.order, self.place.samples

        def count(positions: np.ndarray) -> np.ndarray:
            self.samples_preprocessed += len(positions)
            return positions

        def make(positions: Any, epochs: Any) -> Any:
            counted = tf.ensure_shape(tf.numpy_function(count, [positions], tf.int64), (order.block_samples,))
            return gather(counted, epochs[0])

        with tf.device("/CPU:0"):
            gather = samples.gatherer_by_epoch()
            positions = tf.data.Dataset.range(NO_END).flat_map(
                lambda epoch: tf.data.Dataset.from_tensor_slices(order.positions(epoch)).map(lambda each: (each, epoch))
            )
            blocks = positions.batch(order.block_samples, drop_remainder=True)
            threads = max(1, samples.threads)
            return blocks.map(tf.autograph.experimental.do_not_convert(make), num_parallel_calls=threads)
