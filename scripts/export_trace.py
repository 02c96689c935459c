"""Write one run as a trace for Perfetto: phases, epochs, operations, communication and power on one time axis.

Open the file in https://ui.perfetto.dev or chrome://tracing. The run may have failed, or go on. Starts no run.
"""

import argparse
from pathlib import Path

from study.contrib.exports import EXPORTS
from study.core.errors import StudyError, exit_with_message


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the directory of a run, such as results/local/runs/nt3/DATASET/POINT")
    parser.add_argument("--output", type=Path, help="a file, compressed if it ends with .gz; by default trace.json.gz")
    arguments = parser.parse_args()
    if not arguments.run.is_dir():
        raise StudyError(f"{arguments.run} is no folder; give the directory of a run, which has run.yaml")
    kind = EXPORTS["perfetto"]
    output = arguments.output or Path(kind.file)
    if output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a file is expected")
    made = kind.write(arguments.run, output)
    print(f"{output}: {made.size}")
    for part, why in made.absent.items():
        print(f"without {part}: {why}")


if __name__ == "__main__":
    exit_with_message(main)
