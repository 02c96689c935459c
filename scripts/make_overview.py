"""Make the report's first page from the tidy tables."""

import argparse
from pathlib import Path

from study.core import configuration
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.experiment import grid
from study.records import tidy
from study.report.overview import overview


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--runs", required=True, type=Path, help="runs.csv")
    parser.add_argument("--loading", required=True, help="loading.csv")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    machine = {"name": arguments.machine, **configuration.load_named("machines", arguments.machine)}
    runs, loading = (tidy.read_frame(path) for path in (arguments.runs, arguments.loading))
    write_text(
        arguments.output, overview(grid.load_study(arguments.study), machine, runs, loading, arguments.runs.parent)
    )


if __name__ == "__main__":
    exit_with_message(main)
