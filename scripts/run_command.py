"""One process of a run that is given by a command; started by a launcher, see scripts/launch_training.py."""

import time

STARTED = time.time_ns(), time.monotonic_ns()  # before the imports: they belong to the startup phase

from study.core import cores  # noqa: E402

cores.limit_cores()  # before the program, which inherits it

import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from study.instruments.power import sampling  # noqa: E402

# First of all, so that power is sampled from the start. Not in a process that imports this one.
SAMPLING = sampling.join_sampling(Path(sys.argv[-1]) / "ranks") if __name__ == "__main__" else None

import argparse  # noqa: E402

from study.core.errors import exit_with_message  # noqa: E402
from study.experiment.definition import RunDefinition  # noqa: E402
from study.training.program import Program  # noqa: E402


def main() -> None:
    """Run one process of the run in the folder on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the run's directory, holding run.yaml")
    folder = parser.parse_args().folder
    with SAMPLING or sampling.NOT_SAMPLED:
        Program(RunDefinition.read(folder / "run.yaml"), folder, STARTED).run()


if __name__ == "__main__":
    exit_with_message(main)
