"""Which files are the project's: those that git tracks. Others are those of the user, as docs/extending.md has them."""

import functools
import subprocess

from study.core.paths import ROOT


@functools.cache
def tracked(*patterns):
    """The project's files, relative to the repository."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *patterns], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def ours(paths):
    """Those of the paths that are the project's, sorted."""
    known = {ROOT / name for name in tracked()}
    return sorted(path for path in paths if path in known)
