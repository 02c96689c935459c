"""Read a traced run's timeline; write a summary of the run's communication, and its activity over time."""

import argparse
from pathlib import Path

from study.core.errors import exit_with_message
from study.core.files import write_json, written_aside
from study.instruments.timeline.run import communication_of


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outcome", type=Path, help="outcome.json in the run's directory")
    parser.add_argument("--communication", required=True, help="JSON file to write")
    parser.add_argument("--activity", required=True, help="CSV file to write")
    arguments = parser.parse_args()
    found = communication_of(arguments.outcome.parent)
    with written_aside(arguments.activity) as aside:
        found.activity.to_csv(aside, index=False)
    write_json(arguments.communication, found.summary)


if __name__ == "__main__":
    exit_with_message(main)
