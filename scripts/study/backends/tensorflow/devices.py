"""The cores and the GPU that TensorFlow uses in a process."""

from __future__ import annotations

import os

from study.backends.base import choose_gpu_index
from study.experiment.definition import RunDefinition
from study.instruments.gpus import list_visible_gpus


def limit_threads(compute: int, operations: int = 1) -> None:
    """Limit TensorFlow's threads: for one operation, and operations at once. Call before using TensorFlow."""
    os.environ["OMP_NUM_THREADS"] = str(compute)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(compute)
    tf.config.threading.set_inter_op_parallelism_threads(operations)


def pin_device(run: RunDefinition, local_rank: int) -> str | None:
    """Give the rank its GPU, by its local rank, with memory allocated as needed; none on a machine without GPUs.

    Returns the GPU's UUID; None without a GPU, or if the UUID is unknown.
    """
    import tensorflow as tf

    if run.machine["gpus_per_rank"] == 0:
        tf.config.set_visible_devices([], "GPU")
        return None
    gpus = tf.config.list_physical_devices("GPU")
    index = choose_gpu_index("TensorFlow", len(gpus), local_rank)
    tf.config.set_visible_devices(gpus[index], "GPU")
    tf.config.experimental.set_memory_growth(gpus[index], True)
    uuids = list_visible_gpus()
    # With MIG, CUDA shows one instance and no other GPU: then TensorFlow's GPUs are not those of the list.
    return uuids[index] if uuids and len(uuids) == len(gpus) else None
