"""Write an export that a study declares into a folder of its own, for another tool. Starts no run."""

import argparse
from pathlib import Path

from study.contrib.exports import EXPORTS, declared
from study.core import paths
from study.core.errors import exit_with_message
from study.experiment.expansion import load_planned


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--export", required=True, choices=list(EXPORTS))
    parser.add_argument("--study", required=True)
    parser.add_argument("--output", required=True, type=Path, help="a folder to write, in a study's folder exports")
    arguments = parser.parse_args()
    study, results = load_planned(arguments.study), paths.machine_folder(arguments.output.parent)
    for line in declared.write(arguments.export, study, results, arguments.output):
        print(line)


if __name__ == "__main__":
    exit_with_message(main)
