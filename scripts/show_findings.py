"""Print the findings of a finished study, what failed, and where its results are."""

import argparse
from pathlib import Path

from study.core import checked, command_line, paths
from study.core.csv_files import read_rows
from study.core.errors import StudyError, exit_with_message
from study.core.wording import counted
from study.experiment.undeclared import undeclared
from study.records import failures, tidy
from study.report import answer, terminal

MOST_FAILURES = 10
SHOWN = ("may_fail", "failure_kind", "failure_phase", "failure_message", "record")  # columns of runs.csv


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    arguments = command_line.parsed(parser)
    results = Path(arguments.results_dir, arguments.machine)
    folder = Path(paths.study_folder(results, arguments.study))
    runs_csv = folder / "runs.csv"
    if not runs_csv.exists():
        command_line.check_machine(arguments.machine, arguments.results_dir)
        how = command_line.how_to_run(arguments.study, arguments.machine)
        raise StudyError(f"{checked.shown(runs_csv)} is not there; run the study first: {how}")
    for line in terminal.answers(answer.answers(tidy.read_runs(runs_csv))):
        print(line)
    findings = folder / "findings.json"
    is_stale = findings in undeclared(folder)
    _print_findings(arguments.study, findings, is_stale)
    _print_failures(runs_csv, checked.shown(results))
    shown = checked.shown(folder)
    print(f"\nWhere to look, in {shown}/:")
    print("  report.html   one page: findings with their figures, failures, the machine, tables, every run")
    if findings.exists() and not is_stale:
        print("  findings.md   the findings with the runs behind each")
    print("  tables/       every table as CSV, Markdown, LaTeX and HTML; figures/ as SVG and PDF")
    print("  runs.csv      one row per run; the column record names its folder")
    _require_a_success(arguments.study, _rows(runs_csv))


def _print_findings(study: str, path: Path, is_stale: bool = False) -> None:
    """Print the findings in the file. is_stale: whether the study no longer declares any."""
    is_used = path.exists() and not is_stale
    found = checked.load_json(path, "study_findings")["findings"] if is_used else []
    print(f"\nFindings of study {study}:" if found else f"\nStudy {study} declares no findings.")
    if is_stale:
        print(f"{checked.shown(path)} is of an earlier version of the study, and is not used; delete it.")
    for line in terminal.findings(found):
        print(line)


def _rows(runs_csv: Path) -> list[dict[str, str]]:
    """Its rows, {column: text}; none of a study without runs."""
    return read_rows(runs_csv, (*SHOWN, "status")) if runs_csv.read_bytes().strip() else []


def _require_a_success(study: str, rows: list[dict[str, str]]) -> None:
    """Raise `StudyError` if there are runs that should succeed, and none did."""
    due = [row for row in rows if not row["may_fail"]]
    if due and all(row["status"] != "ok" for row in due):
        which = "the only run" if len(due) == 1 else f"all {len(due)} runs"
        raise StudyError(f"{which} of study {study} failed; see the reasons above")


def _print_failures(runs_csv: Path, results: str) -> None:
    rows = _rows(runs_csv)
    failed = [row for row in rows if row["status"] != "ok"]
    if not failed:
        print("\nNo run failed." if rows else "\nThe study has no runs.")
        return
    print(f"\n{counted(len(failed), 'run')} failed:")
    for row in failed[:MOST_FAILURES]:
        expected = " (expected)" if row["may_fail"] else ""
        message = failures.message(row["failure_message"])
        print(f"  {row['failure_kind']} in {row['failure_phase'] or 'the start'}{expected}: {message}")
        print(f"    {results}/{row['record']}")
    if len(failed) > MOST_FAILURES:
        print(f"  and {len(failed) - MOST_FAILURES} more, see runs.csv")


if __name__ == "__main__":
    exit_with_message(main)
