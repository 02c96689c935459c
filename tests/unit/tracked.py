"""Which files are the project's: those that git tracks. Others are those of the user, as docs/extending.md has them."""

import functools
import subprocess

from study.core.paths import ROOT


@functools.cache
def tracked(*patterns):
    """The project's files, relative to the repository."""
    # git refuses a clone that is of another user; the code of this one runs here anyway.
    line = ["git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "ls-files", *patterns]
    listed = subprocess.run(line, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def ours(paths):
    """Those of the paths that are the project's, sorted."""
    known = {ROOT / name for name in tracked()}
    return sorted(path for path in paths if path in known)
