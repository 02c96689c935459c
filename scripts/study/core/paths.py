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
    """True if two paths lead to the same existing file or folder."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def find_relative_path(path: str | Path, folder: str | Path) -> Path | None:
    """``path`` relative to ``folder``, links resolved if need be; None if it is not inside."""
    for inner, outer in itertools.product(*((Path(each), _resolve_links(each)) for each in (path, folder))):
        if inner.is_relative_to(outer):
            return inner.relative_to(outer)
    return None


def _resolve_links(path: str | Path) -> Path:
    """A path without links; unchanged if they cannot be resolved."""
    try:
        return Path(os.path.realpath(path))  # noqa: PTH118, PTH119  `Path.resolve` fails of a loop of links
    except (OSError, ValueError):  # ValueError: a null character
        return Path(path)


def make_absolute(path: str | Path) -> Path:
    """``path`` from the root, without ``..``; links stay, since a machine's folder may link to another disk."""
    return Path(os.path.abspath(path))  # noqa: PTH100  `Path.absolute` keeps .., `Path.resolve` follows links


def list_published_files(root: str | Path) -> list[str]:
    """Files of published values, relative to the working directory, wherever the repository is."""
    folder = Path(root) / "config" / "papers"
    return sorted(os.path.relpath(file) for name in ("*.csv", "claims.yaml") for file in folder.glob(f"*/{name}"))


def locate_run(folder: str | Path, directory: str) -> str:
    """Path of a run's folder. folder: ``results/<machine>``; directory: of a `study.experiment.study.PlannedRun`."""
    return f"{folder}/runs/{directory}"


def locate_record(folder: str | Path, directory: str) -> str:
    """Path of a run's record."""
    return f"{locate_run(folder, directory)}/record.json"


def locate_outcome(folder: str | Path, directory: str) -> str:
    """Path of the file that a run writes last."""
    return f"{locate_run(folder, directory)}/{OUTCOME}"


def locate_loading(folder: str | Path, directory: str) -> str:
    """Path of a loading measurement. directory: of a `study.experiment.study.LoadingMeasurement`."""
    return f"{folder}/loading/{directory}/loading.json"


def locate_study(folder: str | Path, study: str) -> str:
    """Path of a study's results: tidy tables, tables, figures and report."""
    return f"{folder}/studies/{study}"


def find_machine_folder(tidy_table: str | Path) -> Path:
    """The folder ``results/<machine>`` that holds a study's ``runs.csv`` or ``loading.csv``.

    Raises `StudyError` if there are fewer folders above the file.
    """
    folders = Path(tidy_table).parents
    if len(folders) < 3:
        raise StudyError(f"{folders[0]}: is no folder of a study's results, results/<machine>/studies/<study>")
    return folders[2]


def check_folders(folders: Mapping[str, str]) -> None:
    """Raise `StudyError` if a path cannot be a folder. folders: {key that names it: path}."""
    for key, folder in folders.items():
        if set("{}") & set(str(folder)):
            raise StudyError(f"{key}: {folder}: Snakemake takes braces for its own; give a folder without them")
        try:
            places = [place for place in (Path(folder), *Path(folder).parents) if place.exists()]
        except OSError as error:
            raise StudyError(f"{key}: {folder}: {error.strerror}; give another folder") from None
        if not places[0].is_dir():
            raise StudyError(f"{key}: {places[0]} is a file; give a folder")


def locate_other_machine(folder: str | Path, machine: str) -> Path:
    """Path of another machine's results. folder: one machine's, ``results/<machine>``."""
    return Path(folder).parent / machine


def find_machine_name(folder: str | Path) -> str:
    """Name of the machine of ``results/<machine>`` or ``results/<machine>/versions/<version>``."""
    folder = make_absolute(folder)
    return folder.parents[1].name if folder.parent.name == VERSIONS else folder.name
