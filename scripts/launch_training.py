"""Start the ranks of one training run under the machine's launcher and record how it ended.

A run by hand, as a study made it: launch_training.py --run results/.../run.yaml --folder /tmp/again
"""

import argparse
from pathlib import Path

import yaml

from study.errors import exit_with_message
from study.launch import launch


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="the run's definition: a YAML file, or JSON text")
    parser.add_argument("--folder", required=True, type=Path, help="the run's directory; emptied first")
    parser.add_argument("--time-limit-s", type=float, default=3600, help="seconds after which the run is ended")
    arguments = parser.parse_args()
    text = arguments.run
    run = yaml.safe_load(text if text.startswith("{") else Path(text).read_text(encoding="utf-8"))
    launch(run, arguments.folder, arguments.time_limit_s)


if __name__ == "__main__":
    exit_with_message(main)
