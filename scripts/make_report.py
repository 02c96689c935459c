"""Make a study's report, one HTML page that needs no network, from what is in the study's results folder."""

import argparse
from pathlib import Path

from study.core.errors import exit_with_message
from study.core.files import written_with_checksum
from study.experiment.expansion import load_planned
from study.machines import machine
from study.report.page.page import page


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--output", required=True, help="the page, in the study's results folder")
    arguments = parser.parse_args()
    study, settings = load_planned(arguments.study), machine.load(arguments.machine)
    text = page(study, settings, Path(arguments.output).parent)
    with written_with_checksum(arguments.output) as aside:
        aside.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    exit_with_message(main)
