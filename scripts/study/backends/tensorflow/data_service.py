"""The tf.data service with its cross-trainer cache: preprocessing that several processes share.

Rank 0 runs the service's dispatcher and its worker (https://www.tensorflow.org/api_docs/python/tf/data/experimental/service).
The worker preprocesses batches as the ranks ask for them and keeps the last ones; a rank that is too slow skips some.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import BlockOrder
from study.backends.tensorflow import input
from study.backends.tensorflow.gathering import make_gatherer
from study.communication.collectives import Collectives
from study.data.samples import SampleSource

NO_END = 1 << 40  # epochs: the cross-trainer cache demands a dataset without an end
JOB = "ensemble"


class DataService:
    """The service, seen from one rank; all ranks make theirs together, on one host.

    Args:
        ranks: that share.
        samples: of an epoch.
        order: of the samples.
        form: of each array of a block, its type and the shape of one sample.
        count: is called with the number of samples that this process is about to preprocess.
    """

    def __init__(
        self,
        ranks: Collectives,
        samples: SampleSource,
        order: BlockOrder,
        form: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
        count: Callable[[int], None],
    ) -> None:
        import tensorflow as tf

        service = tf.data.experimental.service
        os.environ["no_grpc_proxy"] = "localhost"  # noqa: SIM112  gRPC would take the shell's web proxy, even on this host
        registered = None
        if ranks.rank == 0:
            self._dispatcher = service.DispatchServer()
            target = self._dispatcher.target
            self._worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=target.split("://")[1]))
            registered = target, service.register_dataset(target, self._make_dataset(samples, order, count))
        target, number = ranks.gather(registered)[0]
        dataset = service.from_dataset_id(
            processing_mode=service.ShardingPolicy.OFF,
            service=target,
            dataset_id=number,
            element_spec=tuple(tf.TensorSpec((None, *shape), tf.as_dtype(kind)) for kind, shape in form),
            job_name=JOB,
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=f"rank {ranks.rank}"),
        )
        self._blocks = iter(dataset.prefetch(1))

    def next_block(self) -> tuple[NDArray[Any], ...]:
        """The next block that the worker has for this rank."""
        return tuple(array.numpy() for array in next(self._blocks))

    @staticmethod
    def _make_dataset(samples: SampleSource, order: BlockOrder, count: Callable[[int], None]) -> Any:
        """Make an endless dataset of preprocessed blocks, all of one size, so that any can follow any other."""
        import tensorflow as tf

        def note(positions: NDArray[np.int64]) -> NDArray[np.int64]:
            count(len(positions))
            return positions

        def make(positions: Any, *changes: Any) -> Any:
            counted = tf.ensure_shape(tf.numpy_function(note, [positions], tf.int64), (order.block_samples,))
            return gather(counted, *changes)

        with tf.device("/CPU:0"):
            gather, draw_epoch = (
                make_gatherer(samples),
                input.make_epoch_drawing(samples, lambda epoch: (order.positions(epoch), epoch)),
            )
            samples_of_epochs = input.join_epochs(tf.data.Dataset.range(NO_END), draw_epoch, None)
            blocks = samples_of_epochs.batch(order.block_samples, drop_remainder=True)
            threads = max(1, samples.threads)
            return blocks.map(tf.autograph.experimental.do_not_convert(make), num_parallel_calls=threads)
