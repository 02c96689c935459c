"""One rank of a training run; started by the machine's launcher, see scripts/launch_training.py."""

import time

STARTED = time.time_ns(), time.monotonic_ns()  # before the imports, which are part of the startup phase

import argparse  # noqa: E402
import cProfile  # noqa: E402
from pathlib import Path  # noqa: E402

import yaml  # noqa: E402

from study.core.errors import exit_with_message  # noqa: E402
from study.core.files import written_aside  # noqa: E402
from study.instruments import heartbeats  # noqa: E402
from study.training.communicator import Horovod  # noqa: E402
from study.training.rank import run_rank  # noqa: E402


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the run's directory, holding run.yaml")
    folder = parser.parse_args().folder
    signs = heartbeats.watched(folder / "ranks")
    run = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8"))
    if not run["parameters"]["profile"]:
        run_rank(run, folder, STARTED, Horovod, signs)
        return
    profiler = cProfile.Profile()  # on every rank, so that none waits for slower ones; one is kept
    if profiler.runcall(run_rank, run, folder, STARTED, Horovod, signs) == 0:
        with written_aside(folder / "profile.pstats") as aside:
            profiler.dump_stats(aside)


if __name__ == "__main__":
    exit_with_message(main)
