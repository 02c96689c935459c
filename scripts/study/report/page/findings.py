"""The findings of a study, as its ``findings.json`` has them, for the report."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.core.files import read_json
from study.report.page.files import FINDINGS

VERDICTS = {"yes": "Yes", "no": "No", "not_enough_runs": "Not enough runs"}


@dataclass(frozen=True)
class Finding:
    """One finding: the keys of an entry of ``findings``.

    verdict: a key of `VERDICTS`. records, and those in left_out: relative to the machine's results folder. estimate,
    low, high: in ``unit``; None if there are not enough runs. figure, table: names, or None.
    """

    name: str
    title: str
    verdict: str
    sentence: str
    quantity: str
    unit: str | None
    estimate: float | None
    low: float | None
    high: float | None
    blocks: int | None
    runs: int
    left_out: list[dict[str, str]]
    records: list[str]
    figure: str | None
    table: str | None
    look_for: str | None


def read(folder: Path) -> list[Finding]:
    """The findings in a study's folder; none if it has no such file. Raises `StudyError` for a file of another form."""
    path = folder / FINDINGS
    if not path.exists():
        return []
    found = read_json(path)
    return [_finding(each, path) for each in found.get("findings", [])]


def _finding(entry: dict[str, Any], path: Path) -> Finding:
    names = [field.name for field in fields(Finding)]
    missing = [name for name in names if name not in entry]
    if missing:
        raise StudyError(f"{path}: finding {entry.get('name', '?')!r} has no {', '.join(missing)}; make the file again")
    if entry["verdict"] not in VERDICTS:
        raise StudyError(f"{path}: finding {entry['name']!r}: verdict {entry['verdict']!r} is not one of "
                         f"{', '.join(VERDICTS)}; make the file again")  # fmt: skip
    return Finding(**{name: entry[name] for name in names})
