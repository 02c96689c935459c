"""Draw one figure, as SVG and PDF, from the tidy tables of runs and loads."""

import argparse
from pathlib import Path

from study.core.errors import exit_with_message
from study.records import tidy
from study.report.figures import drawing, formats_drawing, selection, timeline, timeline_drawing
from study.report.figures.description import describe


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", required=True, help="a key of config/figures/icpp2019.yaml")
    parser.add_argument("--study", required=True, help="named above the panels")
    parser.add_argument("--runs", required=True, type=Path, help="runs.csv, in the machine's results folder")
    parser.add_argument("--loading", required=True, type=Path, help="loading.csv, beside it")
    for form in ("svg", "pdf"):
        parser.add_argument(f"--{form}", required=True, help="a file to write")
    arguments = parser.parse_args()
    description, runs = describe(arguments.figure), tidy.read_frame(arguments.runs)
    if description.is_of_formats:
        data = formats_drawing.select(description, tidy.read_frame(arguments.loading), arguments.study)
        formats_drawing.write(data, arguments.svg, arguments.pdf)
    elif description.is_timeline:
        data = timeline.select(description, runs, arguments.study, arguments.runs.parent)
        timeline_drawing.write(data, arguments.svg, arguments.pdf)
    else:
        data = selection.select(description, runs, arguments.study)
        drawing.write(data, arguments.svg, arguments.pdf)


if __name__ == "__main__":
    exit_with_message(main)
