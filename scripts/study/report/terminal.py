"""Answers, findings and failures as lines for a terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import rank_answer
from study.core import validation
from study.core.csv_files import read_rows
from study.core.errors import StudyError
from study.core.wording import format_count
from study.records import failures
from study.report.findings.outcome import VERDICTS
from study.report.tables import TABLES

WIDTH = 100
MOST_FAILURES = 10
# The columns of runs.csv that are read here.
COLUMNS = ("may_fail", "failure_kind", "failure_phase", "failure_message", "record", "status")


def format_scaling(runs: pd.DataFrame) -> list[str]:
    """A line for each rank count of a study's runs: runtime, speedup, efficiency, and energy if measured."""
    rows = TABLES["scaling"].make(runs, pd.DataFrame()).frame
    columns = {
        "ranks": [f"{ranks}" for ranks in rows["gpus"]],
        "runs": [_count_runs(row) for _, row in rows.iterrows()],
        "runtime": _format_cells(rows["runtime_s"], "{:.2f} s"),
        "speedup": _format_cells(rows["speedup"], "{:.2f}"),
        "95 % interval": [
            f"{low:.2f} to {high:.2f}" if pd.notna(low) else ""
            for low, high in zip(rows["speedup_low"], rows["speedup_high"], strict=True)
        ],
        "efficiency": _format_cells(100 * rows["efficiency"], "{:.0f} %"),
        "energy": _format_cells(rows["energy_job_j"], "{:.0f} J"),
    }
    shown = {name: cells for name, cells in columns.items() if name != "energy" or any(cells)}
    widths = {name: max(map(len, (name, *cells))) for name, cells in shown.items()}
    lines = [list(shown), *zip(*shown.values(), strict=True)]
    return [
        "  " + "  ".join(text.rjust(width) for text, width in zip(line, widths.values(), strict=True)) for line in lines
    ]


def _count_runs(row: pd.Series) -> str:
    return f"{row['repeats_ok']}" + (f" ({row['repeats_failed']} failed)" if row.get("repeats_failed") else "")


def _format_cells(numbers: pd.Series, form: str) -> list[str]:
    return [form.format(number) if pd.notna(number) else "" for number in numbers.astype(float)]


def format_answers(answers: Iterable[rank_answer.Answer], shows_rule: bool = True) -> Iterator[str]:
    """How many ranks each job deserves, with the rule; nothing without an answer."""
    for index, each in enumerate(answers):
        if not index and shows_rule:
            yield "\nHow many ranks each job deserves:"
            yield _indent(rank_answer.RULE, "  ", "  ")
        yield _indent(f"{each.series}: {each.headline} {each.sentence}", "\n  ", "    ")


def format_findings(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Each finding, an entry of findings.json, with its verdict and sentence."""
    for each in found:
        yield f"\n  {each['title']}: {VERDICTS[each['verdict']].lower()}"
        yield _indent(each["sentence"], "    ", "    ")


def print_findings(study: str, file: Path, is_stale: bool = False) -> None:
    """Print the findings in findings.json. is_stale: whether the study no longer declares any."""
    is_used = file.exists() and not is_stale
    declared = validation.load_valid_json(file, "study_findings")["findings"] if is_used else []
    print(f"\nFindings of study {study}:" if declared else f"\nStudy {study} declares no findings.")
    if is_stale:
        print(f"{validation.shorten_path(file)} is of an earlier version of the study, and is not used; delete it.")
    for line in format_findings(declared):
        print(line)


def print_failures(runs_csv: Path, results: str) -> None:
    """Print which runs are unproven or failed, and why. results: the folder that records are named from."""
    rows = read_outcomes(runs_csv)
    if unproven := [row["unproven"] for row in rows if row.get("unproven")]:
        print(f"\n{format_count(len(unproven), 'unproven run')}: {'; '.join(dict.fromkeys(unproven))}")
    failed = [row for row in rows if row["status"] != "ok"]
    if not failed:
        print("\nNo run failed." if rows else "\nThe study has no runs.")
        return
    print(f"\n{format_count(len(failed), 'run')} failed:")
    for row in failed[:MOST_FAILURES]:
        expected = " (expected)" if row["may_fail"] else ""
        message = failures.message(row["failure_message"])
        print(f"  {row['failure_kind']} in {row['failure_phase'] or 'the start'}{expected}: {message}")
        print(f"    {results}/{row['record']}")
    if len(failed) > MOST_FAILURES:
        print(f"  and {len(failed) - MOST_FAILURES} more, see runs.csv")


def require_a_success(study: str, rows: Iterable[Mapping[str, str]]) -> None:
    """Raise `StudyError` if there are runs that should succeed, and none did. rows: of `read_outcomes`."""
    due = [row for row in rows if not row["may_fail"]]
    if due and all(row["status"] != "ok" for row in due):
        which = "the only run" if len(due) == 1 else f"all {len(due)} runs"
        raise StudyError(f"{which} of study {study} failed; see the reasons above")


def read_outcomes(runs_csv: Path) -> list[dict[str, str]]:
    """The rows of runs.csv, {column: text}; none of a study without runs."""
    return read_rows(runs_csv, COLUMNS) if runs_csv.read_bytes().strip() else []


def _indent(text: str, first: str, others: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=others)
