"""Locations of the repository, its configuration and a machine's results; used by rules and scripts."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from study.core.errors import StudyError

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
CONFIG = ROOT / "config"
OUTCOME = "outcome.json"  # in a run's folder: how it ended; written last, never overwritten
TIMED_OUT = "timed_out.json"  # in a run's folder: the outcome of an attempt that reached an estimated time limit
CHECKPOINTS = "checkpoints"  # in a run's folder, until the run has ended
VERSIONS = "versions"  # in a machine's results folder: runs of other versions of the code
REPLACED = "replaced"  # in a machine's results folder: finished runs in whose place others were trained
ATTEMPTS = "attempts"  # in a machine's results folder: runs that were disturbed and run again, in a folder per attempt


def is_same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths are one file or folder, whatever links they go through; False if one does not exist."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def within(path: str | Path, folder: str | Path) -> Path | None:
    """``path`` relative to ``folder``, whatever links they go through; None if it is not inside."""
    for inner, outer in itertools.product(*((Path(each), _without_links(each)) for each in (path, folder))):
        if inner.is_relative_to(outer):
            return inner.relative_to(outer)
    return None


def _without_links(path: str | Path) -> Path:
    try:
        return Path(os.path.realpath(path))  # noqa: PTH118, PTH119  `Path.resolve` fails of a loop of links
    except (OSError, ValueError):  # ValueError: a null character
        return Path(path)


def absolute(path: str | Path) -> Path:
    """``path`` from the root, without ``..``; links stay, since a machine's folder may be a link to another disk."""
    return Path(os.path.abspath(path))  # noqa: PTH100  `Path.absolute` keeps .., `Path.resolve` follows links


def published(root: str | Path) -> list[str]:
    """Files of published values, relative to Snakemake's working directory: independent of where the repository is."""
    folder = Path(root) / "config" / "papers"
    return sorted(os.path.relpath(file) for name in ("*.csv", "claims.yaml") for file in folder.glob(f"*/{name}"))


def run_folder(folder: str | Path, directory: str) -> str:
    """A run's directory. folder: ``results/<machine>``; directory: of a `study.experiment.study.PlannedRun`."""
    return f"{folder}/runs/{directory}"


def record(folder: str | Path, directory: str) -> str:
    """A run's record."""
    return f"{run_folder(folder, directory)}/record.json"


def outcome(folder: str | Path, directory: str) -> str:
    """The file that a run writes last, below the machine's results folder."""
    return f"{run_folder(folder, directory)}/{OUTCOME}"


def loading(folder: str | Path, directory: str) -> str:
    """A loading measurement. directory: of a `study.experiment.study.LoadingMeasurement`."""
    return f"{folder}/loading/{directory}/loading.json"


def study_folder(folder: str | Path, study: str) -> str:
    """The folder of a study's results: its tidy tables, tables, figures and report."""
    return f"{folder}/studies/{study}"


def machine_folder(tidy_table: str | Path) -> Path:
    """The folder ``results/<machine>`` that contains a study's ``runs.csv`` or ``loading.csv``.

    Raises `StudyError` if there are fewer folders above the file.
    """
    folders = Path(tidy_table).parents
    if len(folders) < 3:
        raise StudyError(f"{folders[0]}: is no folder of a study's results, results/<machine>/studies/<study>")
    return folders[2]


def check_folders(folders: Mapping[str, str]) -> None:
    """Raise `StudyError` where a path cannot be a folder's. folders: by the keys that name them."""
    for key, folder in folders.items():
        if set("{}") & set(str(folder)):
            raise StudyError(f"{key}: {folder}: Snakemake takes braces for its own; give a folder without them")
        try:
            places = [place for place in (Path(folder), *Path(folder).parents) if place.exists()]
        except OSError as error:
            raise StudyError(f"{key}: {folder}: {error.strerror}; give another folder") from None
        if not places[0].is_dir():
            raise StudyError(f"{key}: {places[0]} is a file; give a folder")


def beside(folder: str | Path, machine: str) -> Path:
    """The results folder of another machine. folder: of a machine, ``results/<machine>``."""
    return Path(folder).parent / machine


def machine_of(folder: str | Path) -> str:
    """The machine of a results folder: ``results/<machine>``, or ``results/<machine>/versions/<version>``."""
    folder = absolute(folder)
    return folder.parents[1].name if folder.parent.name == VERSIONS else folder.name
