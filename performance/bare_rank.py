"""A rank that only imports the framework and joins the others, for performance/start.py.

Arguments: the framework, and a new file that the ranks of PyTorch meet by.
"""

import os
import sys


def join_by_horovod():
    """Join the other ranks by TensorFlow on Horovod."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import horovod.tensorflow as hvd

    hvd.init()
    hvd.shutdown()


def join_by_process_group(file):
    """Join the other ranks by PyTorch on Gloo."""
    from torch import distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rank, size = (int(os.environ[name]) for name in ("HOROVOD_RANK", "HOROVOD_SIZE"))
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "pytorch":
        join_by_process_group(sys.argv[2])
    else:
        join_by_horovod()
