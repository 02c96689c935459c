"""The folder in which Snakemake and libraries keep caches, where the user's own cannot be written."""

import os
import sys
import tempfile
from pathlib import Path

from study.core.errors import StudyError

VARIABLE = "XDG_CACHE_HOME"
USED = "snakemake"  # Snakemake's part of it
PROBE_BYTES = 4096
IN_STATE = Path(".snakemake", "cache")


def provide_user_cache(folder: Path = IN_STATE) -> None:
    """Have caches kept in ``folder`` where the user's cannot be written, as on compute nodes with a read-only home.

    Raises:
        StudyError: neither can be written.
    """
    usual = os.environ.get(VARIABLE) or "~/.cache"
    fault = _find_fault(Path(usual))
    if fault is None:
        return
    if _find_fault(folder):
        raise StudyError(
            f"{usual}: {fault}, so that Snakemake cannot keep its cache there, nor in {folder.absolute()}; set "
            f"{VARIABLE} to a folder that you may write to"
        )
    os.environ[VARIABLE] = str(folder.absolute())
    print(f"{usual}: {fault}; caches are kept in {folder}", file=sys.stderr)


def _find_fault(cache: Path) -> str | None:
    """Why nothing can be written to a cache; None if it can."""
    try:
        used = cache.expanduser() / USED
        used.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=used) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.strerror
    except RuntimeError as error:  # this user has no home
        return str(error)
    return None
