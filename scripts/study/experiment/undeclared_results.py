"""Results of an earlier version of a study, which its file no longer declares."""

from __future__ import annotations

from pathlib import Path

from study.core import configuration, validation
from study.core.errors import StudyError

FINDINGS = ("findings.json", "findings.md")
OF_NAMES = ("tables", "figures")  # folders of a study's results, and keys of its file


def list_undeclared_results(folder: Path) -> list[Path]:
    """The tables, figures and findings in a study's results folder that ``config/studies`` does not declare, sorted.

    [] if there is no such study, as where the results were copied from another clone, or if its file is damaged.

    folder: ``results/<machine>/studies/<study>``.
    """
    content = _read_study_file(folder.name)
    if content is None:
        return []
    paths = [] if content.get("findings") else [folder / name for name in FINDINGS if (folder / name).is_file()]
    for kind in OF_NAMES:
        names = content.get(kind, [])
        files = (folder / kind).glob("*.*") if isinstance(names, list) else ()
        paths += [path for path in files if path.is_file() and path.stem not in names]
    return sorted(paths)


def _read_study_file(name: str) -> dict | None:
    """Read the file of a study; None if there is none that can be read."""
    path = configuration.list_files("studies").get(name)
    try:
        content = validation.read_yaml_with_tree(path)[0] if path else None
    except StudyError:
        return None
    return content if isinstance(content, dict) else None
