"""Make the records of a study's finished runs again where they are missing or of older code, all in one process."""

import argparse
from pathlib import Path

from study.core import paths
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.wording import counted
from study.experiment.expansion import load_planned
from study.records import renewal


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument(
        "--output", required=True, type=Path, help="a file, in a study's folder logs, named by the code"
    )
    arguments = parser.parse_args()
    results, output = paths.machine_folder(arguments.output.parent), arguments.output
    ended = [paths.record(results, run.directory) for run in load_planned(arguments.study).runs]
    made = renewal.update(filter(renewal.has_ended, ended))
    if made:
        print(f"{counted(made, 'record')} made again by this version of the code; nothing was trained")
    for earlier in output.parent.glob(f"{output.stem.rpartition('_')[0]}_*"):
        earlier.unlink()  # so that a return to an older version is noticed
    write_text(output, f"{made}\n")


if __name__ == "__main__":
    exit_with_message(main)
