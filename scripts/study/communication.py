"""The only module that touches Horovod, so that it can be replaced."""

import functools
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Horovod 0.28 does not work with Keras 3


class Horovod:
    """The ranks of a run, through Horovod."""

    def __init__(self):
        import horovod.tensorflow
        import horovod.tensorflow.keras as hvd
        import tensorflow as tf

        # Averaging gradients has no control flow on tensors; to look for some takes seconds of the first step.
        horovod.tensorflow._make_subgraph = functools.partial(tf.function, autograph=False)
        hvd.init()
        self._hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def distributed_optimizer(self, optimizer):
        """``optimizer``, with each gradient averaged over the ranks before it is applied."""
        return self._hvd.DistributedOptimizer(optimizer)

    def broadcast(self, variables):
        """Set ``variables`` (a list of TensorFlow variables) on every rank to rank 0's values."""
        from horovod.tensorflow import broadcast_variables

        broadcast_variables(variables, root_rank=0)

    def gather(self, value):
        """A list with ``value`` of every rank, by rank; any object that can be pickled. Waits for all ranks."""
        from horovod.tensorflow import allgather_object

        return allgather_object(value)

    def close(self):
        """Leave together: a rank that leaves early breaks the others' collectives."""
        self._hvd.shutdown()
