"""Horovod's own launcher, without its check whether Horovod was built with Gloo.

For this check horovodrun imports TensorFlow in a separate process, which takes three seconds before any rank starts.
The set-up checks once, and a rank without Gloo reports the problem itself.
"""

import sys

from horovod.runner import launch

launch.gloo_built = lambda verbose=False: True

if __name__ == "__main__":
    sys.exit(launch.run_commandline())
