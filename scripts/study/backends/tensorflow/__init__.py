"""TensorFlow with Keras 2, averaged by Horovod or with a parameter server."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Horovod 0.28 does not work with Keras 3
