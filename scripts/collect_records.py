"""Collect a study's run records and loading measurements into two tidy tables, runs.csv and loading.csv."""

import argparse
import sys
from pathlib import Path

from study import code_version, grid, paths
from study.collection import loading_frame, runs_frame
from study.errors import exit_with_message
from study.files import written_aside


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--folder", required=True, type=Path, help="the machine's results folder")
    arguments = parser.parse_args()
    study = grid.load_study(arguments.study)
    records = [paths.record(arguments.folder, run.directory) for run in study.runs]
    measurements = [paths.loading(arguments.folder, measurement.dataset) for measurement in study.loading]
    code = {name: code_version.training_code(name) for name in grid.benchmarks_of(study)}
    runs = runs_frame(records, code, arguments.folder)
    for frame, name in ((runs, "runs.csv"), (loading_frame(measurements), "loading.csv")):
        with written_aside(arguments.folder / name) as aside:
            frame.to_csv(aside, index=False)
    _report(runs)


def _report(runs):
    if len(runs) == 0:
        return
    failed, old = (runs["status"] != "ok").sum(), (~runs["code_is_current"]).sum()
    print(f"{len(runs)} runs, {failed} failed", file=sys.stderr)
    if old:
        print(
            f"note: {old} of {len(runs)} runs were made by another version of the training code "
            "(code_is_current in runs.csv); snakemake --forcerun train makes them anew",
            file=sys.stderr,
        )


if __name__ == "__main__":
    exit_with_message(main)
