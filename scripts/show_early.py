"""While a study runs: print the findings of its complete blocks, and write the report of what has ended."""

import argparse
import dataclasses
import sys
import time
from pathlib import Path

from study.core import number_types, paths
from study.core.errors import exit_with_message
from study.core.files import write_text, written_with_checksum
from study.experiment.expansion import load_planned
from study.experiment.study import Study
from study.machines import machine

LEAST_S = 60.0  # between two reports: each takes seconds, in which no run starts


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument(
        "--block", required=True, type=number_types.whole, help="the last block whose runs have all ended"
    )
    parser.add_argument("--report", required=True, type=Path, help="the page, in the study's results folder")
    parser.add_argument("--output", required=True, type=Path, help="a file that tells that it was done")
    arguments = parser.parse_args()
    if not _is_recent(arguments.report):
        _show(load_planned(arguments.study), arguments.machine, arguments.block, arguments.report)
    write_text(arguments.output, "")


def _is_recent(report: Path) -> bool:
    return report.exists() and 0 <= time.time() - report.stat().st_mtime < LEAST_S


def _show(study: Study, name: str, block: int, report: Path) -> None:
    from study.records.table_inputs import gather  # with pandas, which a skipped report does not need
    from study.report import terminal
    from study.report.findings import outcome
    from study.report.page.page import SoFar, page

    results = paths.machine_folder(report)
    measured = tuple(each for each in study.loading if Path(paths.loading(results, each.directory)).exists())
    ended = dataclasses.replace(study, loading=measured)
    runs, loading = gather(ended, results, lambda run: run.repeat <= block, uses_loading=True, reads_targets=True)
    found = outcome.outcomes(study, runs)
    told = [dataclasses.asdict(each) for each in found if each.verdict != outcome.NOT_ENOUGH]
    if told:
        blocks = max(run.repeat for run in study.runs)
        print(f"\nAfter {block} of {blocks} blocks, which may change:", file=sys.stderr)
        print(*terminal.findings(told), "", sep="\n", file=sys.stderr)
    text = page(study, machine.load(name), report.parent, SoFar(runs, loading, found))
    with written_with_checksum(report) as aside:
        aside.write_text(text, encoding="utf-8")
    print(f"The report of what has ended: {report}", file=sys.stderr)


if __name__ == "__main__":
    exit_with_message(main)
