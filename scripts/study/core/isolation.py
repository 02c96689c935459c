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
from study.core.paths import ROOT, SCRIPTS, find_relative_path, is_same

HOOK = "study_isolation.pth"  # among the packages; Python runs its line at each start


def find_problems(variables: Mapping[str, str] = os.environ, has_user_site: bool | None = False) -> list[str]:
    """What a Python with these ``variables`` would read from outside its environment, one line each.

    has_user_site: whether it takes packages of the home (`site.ENABLE_USER_SITE`).
    """
    problems = [
        f"PYTHONPATH: {folder} goes before the packages of {sys.prefix}; unset PYTHONPATH"
        for entry, folder in _list_folders(variables.get("PYTHONPATH", ""))
        if not _is_own(folder)
    ]
    if variables.get("PYTHONHOME"):
        problems.append(f"PYTHONHOME: {variables['PYTHONHOME']} takes the place of {sys.base_prefix}; unset PYTHONHOME")
    home = Path(site.getusersitepackages()) if has_user_site else None
    if home and home.is_dir() and any(home.iterdir()):
        problems.append(f"{home}: packages there mix with those of {sys.prefix}; export PYTHONNOUSERSITE=1")
    return problems


def require_isolation() -> None:
    """Raise `StudyError` if this process reads code from outside, which cannot be undone once Python runs."""
    if not sys.flags.ignore_environment and (problems := find_problems(has_user_site=site.ENABLE_USER_SITE)):
        raise StudyError(problems[0])


def require_isolation_of_scripts() -> None:
    """End this process with a message if it runs one of our scripts and reads code from outside."""
    program = sys.argv[0] if hasattr(sys, "argv") and sys.argv else ""
    if program.endswith(".py") and is_same(Path(program).parent, SCRIPTS):
        try:
            require_isolation()
        except StudyError as error:
            sys.exit(f"error: {error}")


def install(folder: Path | None = None) -> None:
    """Make each Snakemake of this environment call `end_foreign` at its start. folder: of packages, for tests.

    Snakemake's plugins import pandas before it reads a Snakefile, which would come too late to refuse a foreign one.
    """
    (folder or Path(sysconfig.get_path("purelib"))).joinpath(HOOK).write_text(
        "import sys; any(each.endswith('/snakemake') for each in sys.orig_argv[:2]) and "
        "__import__('study.core.isolation', fromlist=['_']).end_foreign()\n",
        encoding="utf-8",
    )


def end_foreign() -> None:
    """End this process with one line if it reads code from outside, or has no place for Snakemake's cache.

    An exception would be hidden at Python's start.
    """
    from study.core.user_cache import provide_user_cache

    try:
        require_isolation()
        provide_user_cache()
    except StudyError as error:
        os.write(2, f"error: {error}\n".encode())
        os._exit(1)


def keep_own_entries(python_path: str) -> str:
    """A PYTHONPATH reduced to entries inside this repository or this Python's environment."""
    return os.pathsep.join(str(folder) for _, folder in _list_folders(python_path) if _is_own(folder))


def _list_folders(python_path: str) -> Iterator[tuple[str, Path]]:
    """Yield (entry, path) of each existing entry; an empty entry is the working directory."""
    for entry in python_path.split(os.pathsep) if python_path else []:
        path = Path(entry or ".").resolve()
        if path.exists():
            yield entry, path


def _is_own(folder: Path) -> bool:
    """True if a folder is inside this repository or this Python's environment."""
    return any(find_relative_path(folder, own) is not None for own in (ROOT, sys.prefix))
