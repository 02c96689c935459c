"""A rank that only imports TensorFlow and joins the others, for performance/start.py."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow as hvd  # noqa: E402

hvd.init()
hvd.shutdown()
