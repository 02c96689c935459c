"""The commit of a result, and checks if the result of an earlier one still counts."""

import subprocess
from pathlib import Path

from study.core import provenance

ROOT = Path(__file__).resolve().parents[1]
CHANGED = "-changed"
MEASURED = [".", ":!performance/*.csv", ":!docs", ":!*.md"]  # all but results and documents


def describe_commit():
    """Describe the commit: its short name, with `CHANGED` if a file of `MEASURED` differs; empty without git."""
    name = _run_git("rev-parse", "--short=10", "HEAD") or ""
    changed = _run_git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return name + CHANGED if name and changed else name


def find_last_change():
    """Find the last commit that changed a file of `MEASURED`; empty without git, or while one is changed."""
    return "" if describe_commit().endswith(CHANGED) else _run_git("log", "-1", "--format=%H", "--", *MEASURED) or ""


def is_since(commit, since):
    """True if a result's commit is ``since`` or a later one; False for unknown commits and changed files."""
    if not commit or not since or commit.endswith(CHANGED):
        return False
    return _run_git("merge-base", "--is-ancestor", since, commit) is not None


def _run_git(*arguments):
    """Run git in this clone; returns its output, or None if it fails or there is no git."""
    try:
        return provenance.run_git(ROOT, *arguments).strip()
    except (OSError, subprocess.SubprocessError):
        return None
