"""Make the report's first page from the tidy tables."""

import argparse

from study.core import paths
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.experiment.expansion import load_study
from study.machines import machine
from study.records import tidy
from study.report.overview import overview


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--runs", required=True, help="runs.csv")
    parser.add_argument("--loading", required=True, help="loading.csv")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    study, on = load_study(arguments.study), machine.load(arguments.machine)
    runs, loading = tidy.read_runs(arguments.runs), tidy.read_loading(arguments.loading)
    write_text(arguments.output, overview(study, on, runs, loading, paths.machine_folder(arguments.runs)))


if __name__ == "__main__":
    exit_with_message(main)
