"""Horovod's collective operations for TensorFlow; the only module that uses Horovod, so that it can be replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from study.backends.tensorflow import precision
from study.communication import mpi
from study.communication.collectives import Broadcast, Members, RanksOnly
from study.communication.horovod import list_libraries
from study.core.errors import StudyError
from study.instruments import counters


class Horovod(RanksOnly):
    """A `Collectives` through Horovod 0.28."""

    strategy = None

    def __init__(self, static_sets: Sequence[Members] = ()) -> None:
        """static_sets: process sets that are there from the start; each of several ranks, not all."""
        import horovod.tensorflow as hvd
        import tensorflow as tf
        from horovod.tensorflow import functions, mpi_ops

        # Averages and broadcasts have no control flow on tensors; AutoGraph's search for it takes seconds of the first.
        hvd._make_subgraph = functions._make_subgraph = functools.partial(tf.function, autograph=False)
        before = counters.list_threads()
        sets = {members: hvd.ProcessSet(list(members)) for members in static_sets}
        try:
            hvd.init(process_sets=list(sets.values()) or None)
        except ValueError:
            if not sets:
                raise
            raise StudyError(
                f"Horovod does not start with the process sets {list(sets)}, and says why above; has the launcher "
                "started as many ranks as the run has, and was Horovod built for it?"
            ) from None
        self.own_threads = counters.list_threads() - before
        self._hvd = hvd
        self.libraries = list_libraries(hvd, mpi_ops._basics.MPI_LIB_CTYPES)
        self._sets: dict[Members, Any] = sets
        self.sends_sparse = False
        self._averaged: dict[int, set[Any]] = {}  # by optimizer: the variables whose gradients it averages
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def distribute_optimizer(self, optimizer: Any, compression: str = "none", backward_passes: int = 1) -> Any:
        """Wrap ``optimizer`` so that each gradient is averaged over the ranks before it is applied."""
        # As DistributedOptimizer of horovod.tensorflow.keras does, a module that also imports Keras 3 and Matplotlib.
        import tensorflow as tf
        from horovod._keras import create_distributed_optimizer

        # Horovod neither adds up sparse gradients (of embeddings) over several passes, nor compresses them.
        stays_dense = compression != "none" or backward_passes > 1
        distributed = create_distributed_optimizer(
            keras=tf.keras,
            optimizer=optimizer,
            name=None,
            device_dense="",
            device_sparse="",
            compression=getattr(self._hvd.Compression, compression),
            sparse_as_dense=stays_dense,
            gradient_predivide_factor=1.0,
            op=self._hvd.Average,
            backward_passes_per_step=backward_passes,
            average_aggregated_gradients=True,
            process_set=self._get_process_set(None),
        )
        self._note_averages(distributed, stays_dense)
        return distributed

    def _note_averages(self, optimizer: Any, stays_dense: bool) -> None:
        """Have ``optimizer`` note whose gradients it averages, and leave out variables without a gradient.

        Horovod's addition over several passes takes a variable without a gradient for a fault. A model's own training
        step may apply gradients that it has computed itself: Horovod averages those of `minimize` only, so they are
        averaged here. stays_dense: whether Horovod makes sparse gradients dense.
        """
        import tensorflow as tf

        average, apply = optimizer._allreduce, optimizer.apply_gradients
        noted = self._averaged[id(optimizer)] = set[Any]()
        waiting = set[Any]()  # variables whose averages are still to be applied, in the step that is being traced

        def apply_gradients(pairs: Any, *arguments: Any, **options: Any) -> Any:
            pairs = list(pairs)
            own = [pair for pair in pairs if pair[1].ref() not in waiting]
            if own and self.size > 1:
                averages = dict(zip([each.ref() for _, each in own], optimizer._allreduce(*zip(*own, strict=True)),
                                    strict=True))  # fmt: skip
                pairs = [(averages.get(each.ref(), gradient), each) for gradient, each in pairs]
            waiting.clear()
            return apply(pairs, *arguments, **options)

        def average_known(gradients: Any, variables: Any) -> list[Any]:
            pairs = [(gradient, each) for gradient, each in zip(gradients, variables, strict=True)]
            noted.update(each.ref() for _, each in pairs)
            waiting.update(each.ref() for _, each in pairs)
            known_pairs = [(gradient, each) for gradient, each in pairs if gradient is not None]
            if not known_pairs:
                return list(gradients)
            is_sparse = any(isinstance(gradient, tf.IndexedSlices) for gradient, _ in known_pairs)
            self.sends_sparse |= is_sparse and not stays_dense
            averages = iter(average(*zip(*known_pairs, strict=True)))
            return [None if gradient is None else next(averages) for gradient, _ in pairs]

        optimizer._allreduce, optimizer.apply_gradients = average_known, apply_gradients

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """True if each of ``variables`` went through Horovod's average when the training step was traced."""
        optimizer = precision.unwrap_loss_scale(optimizer)
        noted = self._averaged.get(id(optimizer))
        if not noted and self.size == 1:
            return None  # also of emulated ranks, which average by themselves
        return noted is not None and {each.ref() for each in variables} <= noted

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any]], None]) -> None:
        """Have each step of ``optimizer`` also call ``observe(gradients)``."""
        optimizer = precision.unwrap_loss_scale(optimizer)
        average = optimizer._allreduce

        def average_and_observe(gradients: Any, variables: Any) -> list[Any]:
            averages = average(gradients, variables)
            observe(list(gradients))
            return averages

        optimizer._allreduce = average_and_observe

    def broadcast_variables(self, variables: list[Any]) -> None:
        """Set ``variables`` on every rank to the values of the first one."""
        from horovod.tensorflow import broadcast_variables

        broadcast_variables(variables, root_rank=0)

    def gather(self, value: Any) -> list[Any]:
        """Gather ``value`` of every rank, in their order."""
        from horovod.tensorflow import allgather_object

        return allgather_object(value)

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """Gather the uint8 arrays of all members, joined in their order.

        TensorFlow gives operations outside functions no names of their own, by which Horovod tells them apart: only one
        thread may use them at a time.
        """
        import tensorflow as tf
        from horovod.tensorflow import allgather

        with tf.device("/CPU:0"):
            return allgather(tf.convert_to_tensor(sent), process_set=self._get_process_set(members)).numpy()

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """Broadcast uint8 arrays, one from each of several members, in turn, as Horovod sends them anyway."""
        import tensorflow as tf
        from horovod.tensorflow import broadcast

        with tf.device("/CPU:0"):
            return [
                broadcast(tf.convert_to_tensor(content), root, process_set=self._get_process_set(members)).numpy()
                for root, content in contents.items()
            ]

    def build_concurrent_broadcast(self) -> Broadcast:
        """Make broadcasts that several threads may do at once, by MPI, which must have started the ranks."""
        if not self._hvd.mpi_enabled():
            raise StudyError(
                "input_sharing: concurrent_broadcast needs ranks that MPI has started, and these talk over Gloo; use a "
                "machine with a launcher of MPI and Horovod built with it, or multi_broadcast"
            )
        if not self._hvd.mpi_threads_supported():
            raise StudyError(
                f"input_sharing: concurrent_broadcast needs MPI for several threads (MPI_THREAD_MULTIPLE), which "
                f"{self.libraries['mpi']} is not built for; use multi_broadcast"
            )
        from horovod.tensorflow import mpi_ops

        return mpi.Broadcasts(mpi_ops._basics.MPI_LIB_CTYPES, self.libraries["mpi"])

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """Make a function that sums a tensor of ``size`` bytes over all ranks, on the device of the gradients."""
        import tensorflow as tf
        from horovod.tensorflow import Sum, allreduce

        tensor = tf.zeros(size // 4)
        return lambda: allreduce(tensor, op=Sum, name=f"sweep.{size}")[0].numpy()  # on a GPU, waits for its end

    def close(self) -> None:
        """Shut down together: a rank that leaves early breaks the others' collective operations."""
        self._hvd.shutdown()

    def _get_process_set(self, members: Members | None) -> Any:
        """Horovod's process set of these members; the global one for None."""
        from horovod.tensorflow import global_process_set

        return self._sets.get(members, global_process_set) if members else global_process_set
