"""The result of each check: pass, fail or not possible, with value, unit, what was expected, and the reason."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.core.files import AnyPath, written_aside

PASS, FAIL, NOT_POSSIBLE = "pass", "fail", "not possible"
STATES = (PASS, FAIL, NOT_POSSIBLE)


class NotPossible(Exception):
    """A check cannot be made here; the message is the reason."""


@dataclass(frozen=True)
class Row:
    """One check. value is in ``unit``; reason is empty only where it passed."""

    part: str
    check: str
    status: str
    device: str = ""
    value: str = ""
    unit: str = ""
    expected: str = ""
    reason: str = ""


COLUMNS = tuple(Row.__dataclass_fields__)


class Rows(list[Row]):
    """The rows of one part. file: gets each at once as a line of JSON, so that a crash leaves those before it."""

    def __init__(self, part: str, file: Path | None = None) -> None:
        super().__init__()
        self._part, self._file = part, file

    def add(self, check: str, status: str, value: object = "", reason: str = "", **others: str) -> None:
        """Append a row. value: a float is written with four digits. others: device, unit, expected."""
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        row = Row(self._part, check, status, value=text, reason=" ".join(reason.split()), **others)
        self.append(row)
        if self._file:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def judge(self, check: str, problem: str | None, value: object = "", **others: str) -> None:
        """Append a row that passed, or failed with a problem."""
        self.add(check, FAIL if problem else PASS, value, problem or "", **others)

    def not_possible(self, check: str, reason: object, **others: str) -> None:
        """Append a row of a check that cannot be made."""
        self.add(check, NOT_POSSIBLE, reason=str(reason), **others)


def read(file: Path) -> list[Row]:
    """The whole lines of a file of `Rows`; none if it is not there."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [Row(**json.loads(line)) for line in lines]


def table_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file as texts; none if it was not made."""
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: AnyPath, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV file; None is an empty cell, floats have nine digits."""
    with written_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(row.get(name)) for name in columns])


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    return "" if value is None else value
