"""Draw one figure, as SVG and PDF, from the tidy tables of runs and loads."""

import argparse

from study.core import paths
from study.core.errors import exit_with_message
from study.records import tidy
from study.report.figures.description import describe
from study.report.figures.kinds import KINDS, Inputs


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", required=True, help="a figure of config/figures.yaml or config/papers")
    parser.add_argument("--study", required=True, help="named above the panels")
    parser.add_argument("--runs", required=True, help="the study's runs.csv")
    parser.add_argument("--loading", required=True, help="the study's loading.csv")
    for form in ("svg", "pdf"):
        parser.add_argument(f"--{form}", required=True, help="a file to write")
    arguments = parser.parse_args()
    runs, loading = tidy.read_runs(arguments.runs), tidy.read_loading(arguments.loading)
    description = describe(arguments.figure)
    inputs = Inputs(runs, loading, arguments.study, paths.machine_folder(arguments.runs))
    KINDS[description.kind].draw(description, inputs, arguments.svg, arguments.pdf)


if __name__ == "__main__":
    exit_with_message(main)
