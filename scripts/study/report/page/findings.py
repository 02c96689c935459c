"""The findings of a study, as its ``findings.json`` has them, for the report."""

from pathlib import Path

from study.core import checked
from study.report.findings.outcome import VERDICTS, Outcome
from study.report.page.files import FINDINGS

__all__ = ["VERDICTS", "Outcome", "read"]


def read(folder: Path) -> list[Outcome]:
    """The findings in a study's folder; none if it has no such file. Raises `StudyError` for a file of another form."""
    path = folder / FINDINGS
    if not path.exists():
        return []
    return [Outcome(**entry) for entry in checked.load_json(path, "study_findings")["findings"]]
