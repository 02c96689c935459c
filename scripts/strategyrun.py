"""Start the processes of a run with TensorFlow's own strategies: chief, workers and parameter servers.

strategyrun.py STRATEGY WORKERS SERVERS SPOTS FOLDER PROGRAM...

SPOTS: where they run, from `study.launch.spots.as_text`; an empty list is this host. FOLDER: the run's directory.
"""

import sys
from pathlib import Path

from study.core.errors import exit_with_message
from study.launch.processes import run_all
from study.launch.spots import from_text
from study.machines.run_layout import list_roles


def main() -> None:
    """Run all processes and exit with the run's exit code."""
    strategy, workers, servers, spots, folder, *program = sys.argv[1:]
    sys.exit(run_all(list_roles(strategy, int(workers), int(servers)), Path(folder), program, from_text(spots)))


if __name__ == "__main__":
    exit_with_message(main)
