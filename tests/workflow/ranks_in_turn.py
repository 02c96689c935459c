"""Scripts of this folder, one after the other in the same ranks: to import TensorFlow takes longer than what they do.

``ranks_in_turn.py SCRIPT ARGUMENT ... -- SCRIPT ARGUMENT ...``. One that fails is the last one.
"""

import itertools
import runpy
import sys
from pathlib import Path

from study.backends.tensorflow.horovod import Horovod

# Horovod goes on until the processes end. If it started once more, a rank could meet another one's former address.
Horovod.close = lambda self: None
turns = [list(words) for is_end, words in itertools.groupby(sys.argv[1:], "--".__eq__) if not is_end]
for script, *arguments in turns:
    path = str(Path(__file__).with_name(script))
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
