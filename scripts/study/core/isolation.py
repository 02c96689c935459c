"""Whether Python reads code from outside of its own environment: folders of PYTHONPATH, and packages in the home.

They go before the installed packages. A foreign NumPy there breaks the start, or quietly changes numbers. Imports the
standard library only, so that it can be asked before any of those packages is imported.
"""

import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from study.core.errors import StudyError
from study.core.paths import ROOT, SCRIPTS, is_same, within

HOOK = "study_isolation.pth"  # among the packages; Python runs its line at each start


def problems(variables: Mapping[str, str] = os.environ, has_user_site: bool | None = False) -> list[str]:
    """What a Python with these ``variables`` reads from outside; one line each, empty if there is nothing.

    has_user_site: whether it takes packages of the home (`site.ENABLE_USER_SITE`).
    """
    found = [
        f"PYTHONPATH: {folder} goes before the packages of {sys.prefix}; unset PYTHONPATH"
        for entry, folder in _folders(variables.get("PYTHONPATH", ""))
        if not _is_own(folder)
    ]
    if variables.get("PYTHONHOME"):
        found.append(f"PYTHONHOME: {variables['PYTHONHOME']} takes the place of {sys.base_prefix}; unset PYTHONHOME")
    home = Path(site.getusersitepackages()) if has_user_site else None
    if home and home.is_dir() and any(home.iterdir()):
        found.append(f"{home}: packages there mix with those of {sys.prefix}; export PYTHONNOUSERSITE=1")
    return found


def require() -> None:
    """Raise `StudyError` if this process reads code from outside; it cannot be undone once Python has started."""
    if not sys.flags.ignore_environment and (found := problems(has_user_site=site.ENABLE_USER_SITE)):
        raise StudyError(found[0])


def require_for_scripts() -> None:
    """As `require`, with a line on standard error and exit code 1, if this process runs one of our scripts."""
    program = sys.argv[0] if hasattr(sys, "argv") and sys.argv else ""
    if program.endswith(".py") and is_same(Path(program).parent, SCRIPTS):
        try:
            require()
        except StudyError as error:
            sys.exit(f"error: {error}")


def install(folder: Path | None = None) -> None:
    """Have each Snakemake of this environment call `end_foreign` as Python starts. folder: of packages, for tests.

    Snakemake's plugins import pandas before it reads a Snakefile, which would come too late to refuse a foreign one.
    """
    (folder or Path(sysconfig.get_path("purelib"))).joinpath(HOOK).write_text(
        "import sys; any(each.endswith('/snakemake') for each in sys.orig_argv[:2]) and "
        "__import__('study.core.isolation', fromlist=['_']).end_foreign()\n",
        encoding="utf-8",
    )


def end_foreign() -> None:
    """End this process with one line if it reads code from outside; Python is starting, and would hide an exception."""
    try:
        require()
    except StudyError as error:
        os.write(2, f"error: {error}\n".encode())
        os._exit(1)


def own_entries(python_path: str) -> str:
    """A PYTHONPATH without entries that lie outside of this library's own root or this Python's environment."""
    return os.pathsep.join(str(folder) for _, folder in _folders(python_path) if _is_own(folder))


def _folders(python_path: str) -> Iterator[tuple[str, Path]]:
    """(entry, folder or archive) of each that is there; an empty entry is the folder one works in."""
    for entry in python_path.split(os.pathsep) if python_path else []:
        path = Path(entry or ".").resolve()
        if path.exists():
            yield entry, path


def _is_own(folder: Path) -> bool:
    return any(within(folder, own) is not None for own in (ROOT, sys.prefix))
