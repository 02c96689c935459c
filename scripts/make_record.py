"""Make a run's record from its directory."""

import argparse
from pathlib import Path

from study.core.errors import exit_with_message
from study.core.files import write_sealed
from study.records.record import make_record


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outcome", type=Path, help="outcome.json in the run's directory")
    parser.add_argument("--output", required=True)
    parser.add_argument("--planned", help="the planned run's fingerprint; another run is refused")
    arguments = parser.parse_args()
    write_sealed(arguments.output, make_record(arguments.outcome.parent, arguments.planned))


if __name__ == "__main__":
    exit_with_message(main)
