"""The commit that a result is of, and whether a result of an earlier one still counts."""

import subprocess
from pathlib import Path

from study.core import provenance

ROOT = Path(__file__).resolve().parents[1]
CHANGED = "-changed"
MEASURED = [".", ":!performance/*.csv", ":!docs", ":!*.md"]  # all but results and documents


def current():
    """The commit's short name, with `CHANGED` if a file of `MEASURED` differs from it; empty without git."""
    name = _git("rev-parse", "--short=10", "HEAD") or ""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return name + CHANGED if name and changed else name


def last_change():
    """The last commit that changed a file of `MEASURED`; empty without git, or while one is changed."""
    return "" if current().endswith(CHANGED) else _git("log", "-1", "--format=%H", "--", *MEASURED) or ""


def is_since(commit, since):
    """Whether a result's commit is ``since`` or a later one; never where files were changed or it is not known."""
    if not commit or not since or commit.endswith(CHANGED):
        return False
    return _git("merge-base", "--is-ancestor", since, commit) is not None


def _git(*arguments):
    """What git says of this clone; None if it refuses, or without git."""
    try:
        return provenance.run_git(ROOT, *arguments).strip()
    except (OSError, subprocess.SubprocessError):
        return None
