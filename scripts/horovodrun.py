"""Horovod's own launcher, without its question whether Horovod has Gloo.

To answer it horovodrun imports TensorFlow in a process that it then ends: three seconds before any rank starts. The
set-up asks once, and a rank of a Horovod without Gloo says so itself.
"""

import sys

from horovod.runner import launch

launch.gloo_built = lambda verbose=False: True

if __name__ == "__main__":
    sys.exit(launch.run_commandline())
