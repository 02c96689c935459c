"""Draw one figure, as SVG and PDF, from the tidy table of runs."""

import argparse

from study import collection
from study.errors import exit_with_message
from study.figures.description import describe
from study.figures.drawing import write
from study.figures.selection import select


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", required=True, help="a key of config/figures/icpp2019.yaml")
    parser.add_argument("--study", required=True, help="named above the panels")
    parser.add_argument("--runs", required=True, help="runs.csv")
    for form in ("svg", "pdf"):
        parser.add_argument(f"--{form}", required=True, help="a file to write")
    arguments = parser.parse_args()
    description = describe(arguments.figure)
    data = select(description, collection.read_frame(arguments.runs), arguments.study)
    write(data, arguments.svg, arguments.pdf)


if __name__ == "__main__":
    exit_with_message(main)
