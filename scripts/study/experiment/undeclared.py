"""Results that a study made and that its file no longer declares. They are of an earlier version of the study."""

from __future__ import annotations

from pathlib import Path

from study.core import checked, configuration
from study.core.errors import StudyError

FINDINGS = ("findings.json", "findings.md")
OF_NAMES = ("tables", "figures")  # folders of a study's results, and keys of its file


def undeclared(folder: Path) -> list[Path]:
    """The tables, figures and findings in a study's results folder that ``config/studies`` does not declare, sorted.

    None if there is no such study, as where the results were copied from another clone, or if its file is damaged.

    folder: ``results/<machine>/studies/<study>``.
    """
    declared = _declared(folder.name)
    if declared is None:
        return []
    found = [] if declared.get("findings") else [folder / name for name in FINDINGS if (folder / name).is_file()]
    for kind in OF_NAMES:
        names = declared.get(kind, [])
        there = (folder / kind).glob("*.*") if isinstance(names, list) else ()
        found += [path for path in there if path.is_file() and path.stem not in names]
    return sorted(found)


def _declared(name: str) -> dict | None:
    """The content of a study's file; None if there is none that can be read."""
    path = configuration.files("studies").get(name)
    try:
        content = checked.read(path)[0] if path else None
    except StudyError:
        return None
    return content if isinstance(content, dict) else None
