"""The only module that touches Horovod, so that it can be replaced."""

import functools
import os
from pathlib import Path

import numpy as np

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Horovod 0.28 does not work with Keras 3


BLOCK = 1 << 24  # values of a matrix that are broadcast at once


def _threads():
    """The numbers of this process's threads."""
    return frozenset(int(path.name) for path in Path("/proc/self/task").iterdir())


class Horovod:
    """The ranks of a run, through Horovod."""

    def __init__(self, in_groups=False):
        """in_groups: whether some of the ranks will speak among themselves, see `split`."""
        import horovod.tensorflow
        import horovod.tensorflow.keras as hvd
        import tensorflow as tf

        # Averaging gradients has no control flow on tensors; to look for some takes seconds of the first step.
        horovod.tensorflow._make_subgraph = functools.partial(tf.function, autograph=False)
        before = _threads()
        hvd.init(process_sets="dynamic" if in_groups else None)
        self.threads = _threads() - before  # Horovod's own, which are never quite idle
        self._hvd, self._sets = hvd, {}
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def distributed_optimizer(self, optimizer):
        """``optimizer``, with each gradient averaged over the ranks before it is applied."""
        return self._hvd.DistributedOptimizer(optimizer)

    def broadcast(self, variables):
        """Set ``variables`` (a list of TensorFlow variables) on every rank to rank 0's values."""
        from horovod.tensorflow import broadcast_variables

        broadcast_variables(variables, root_rank=0)

    def split(self, groups):
        """Let the ranks of each group speak among themselves. groups: lists of ranks, the same on all ranks."""
        for members in groups:
            if 1 < len(members) < self.size:
                self._sets[tuple(members)] = self._hvd.add_process_set(members)

    def broadcast_matrix(self, matrix, members):
        """Fill ``matrix``, float32 in C order, on each of the ranks ``members`` with that of the first of them.

        members: all ranks, or a group that was told to `split`. It goes in blocks, so that memory grows by one.
        """
        if len(members) == 1:
            return
        import tensorflow as tf
        from horovod.tensorflow import broadcast, global_process_set

        group = self._sets.get(tuple(members), global_process_set)
        values = np.ascontiguousarray(matrix).reshape(-1)
        for first in range(0, values.size, BLOCK):
            block = values[first : first + BLOCK]
            with tf.device("/CPU:0"):
                sent = broadcast(tf.convert_to_tensor(block), members[0], name="staging", process_set=group)
            if self.rank != members[0]:
                block[:] = sent.numpy()

    def gather(self, value):
        """A list with ``value`` of every rank, by rank; any object that can be pickled. Waits for all ranks."""
        from horovod.tensorflow import allgather_object

        return allgather_object(value)

    def close(self):
        """Leave together: a rank that leaves early breaks the others' collectives."""
        self._hvd.shutdown()
