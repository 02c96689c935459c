"""Collect a study's run records and loading measurements into two tidy tables, runs.csv and loading.csv."""

import argparse
import sys
from pathlib import Path

from study.core import code_version, paths
from study.core.errors import exit_with_message
from study.core.files import written_aside
from study.experiment import grid
from study.records.tidy import loading_frame, runs_frame


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--folder", required=True, type=Path, help="the machine's results folder")
    arguments = parser.parse_args()
    study = grid.load_study(arguments.study)
    measurements = [paths.loading(arguments.folder, measurement.dataset) for measurement in study.loading]
    code = {name: code_version.training_code(name) for name in grid.benchmarks_of(study)}
    runs = runs_frame(study.runs, code, arguments.folder)
    loading = loading_frame(measurements, code_version.loading_code(), arguments.folder)
    _remove_results_of_others(study, arguments.folder)
    for frame, name in ((runs, "runs.csv"), (loading, "loading.csv")):
        with written_aside(arguments.folder / name) as aside:
            frame.to_csv(aside, index=False)
    _report(runs, loading, arguments.folder)


def _remove_results_of_others(study, folder):
    """Results that only another study has are of runs that runs.csv no longer lists; that study makes them again."""
    kinds = {
        "tables": (study.tables, (".csv", ".md", ".tex", ".html")),
        "figures": (study.figures, (".svg", ".pdf")),
    }
    for kind, (names, suffixes) in kinds.items():
        for path in sorted((folder / kind).glob("*")):
            if path.suffix in suffixes and path.stem not in names:
                path.unlink()
                print(f"removed {path}, of another study", file=sys.stderr)


def _report(runs, loading, folder):
    for _, run in runs[runs["status"] != "ok"].iterrows() if len(runs) else []:
        where = (folder / run["record"]).parent
        print(f"failed, {run['failure_kind']}: {run['failure_message']}. See {where}/train.log", file=sys.stderr)
    if len(runs) and (runs["ranks_agree"] == False).any():  # noqa: E712  (None for failed runs)
        print("warning: some runs' ranks ended with different weights (ranks_agree in runs.csv)", file=sys.stderr)
    for frame, what, rule in ((runs, "runs", "train"), (loading, "loads", "measure_loading")):
        old = int((~frame["code_is_current"].astype(bool)).sum()) if len(frame) else 0
        if old:
            print(
                f"note: {old} of {len(frame)} {what} were made by another version of their code "
                f"(column code_is_current); snakemake --forcerun {rule} makes them anew",
                file=sys.stderr,
            )


if __name__ == "__main__":
    exit_with_message(main)
