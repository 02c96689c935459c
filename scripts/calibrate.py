"""Time the calibration's fixed computation in this process; prints the seconds of each round as JSON."""

import argparse
import json
import sys

from study.core import number_types
from study.core.errors import exit_with_message
from study.instruments import calibration


def main() -> None:
    """Print that the process is ready, wait for a line, then time the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=number_types.parse_count, required=True)
    arguments = parser.parse_args()
    calibration.run_once()  # the first round also maps memory and starts the library's threads
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([calibration.run_once() for _ in range(arguments.rounds)]))


if __name__ == "__main__":
    exit_with_message(main)
