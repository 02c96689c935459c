"""Whether this environment is as `make setup` leaves it. What is not is a warning, where a study is planned or read."""

import importlib.util
from pathlib import Path

from study.core import provenance
from study.core.errors import NO_FIGURES
from study.core.files import sha256


def warn_of_outdated_packages(environment: Path, root: Path) -> list[str]:
    """A warning if `make setup` installed other packages than those locked in ``root`` now; else empty."""
    made_from, lock = environment / "requirements.sha256", root / "envs" / "requirements.lock"
    if not made_from.is_file() or not lock.is_file():  # an environment of conda, or of the site
        return []
    if made_from.read_text(encoding="utf-8", errors="replace").strip() == sha256(lock):
        return []
    return [f"the packages in {environment} are not those of {lock}, which has changed; run make setup"]


def warn_of_missing_parser() -> list[str]:
    """A warning if the parser of text tables is not compiled for this Python; else empty."""
    if provenance.find_table_parser() == "compiled":
        return []
    return [
        "the parser of text tables is not compiled here, so loader parallel is slower than the documented numbers; "
        "run make setup, which names what it lacks"
    ]


def warn_of_missing_figures() -> list[str]:
    """A warning if figures cannot be drawn here; else empty."""
    return [] if importlib.util.find_spec("matplotlib") else [NO_FIGURES]
