"""Start the processes of a run with TensorFlow's own strategies: chief, workers and parameter servers on this host.

strategyrun.py STRATEGY WORKERS SERVERS FOLDER PROGRAM...        FOLDER: the run's directory
"""

import sys
from pathlib import Path

from study.launch.processes import run_all
from study.training.roles import roles

if __name__ == "__main__":
    strategy, workers, servers, folder, *program = sys.argv[1:]
    sys.exit(run_all(roles(strategy, int(workers), int(servers)), Path(folder), program))
