"""Whether the files of a dataset are those that were fetched and converted.

A file is read for this only if it was written, or put in its place, after its sidecar, so that the check costs nothing
as a rule, and does not bring files into the page cache. A copy in another storage is always read: its time says nothing
about its content. Scaled matrices and folders of images are not checked here, but when they are copied.
"""

from collections.abc import Mapping
from pathlib import Path

from study.core.errors import StudyError
from study.core.files import AnyPath, read_last_change_ns, sha256
from study.data.loaders import read_sidecar


def check_source(source: Path, current_checksum: str, checksum: AnyPath | None) -> None:
    """Raise `StudyError` if a fetched file was changed before its conversion.

    found: its SHA-256 now. checksum: the file with the one that it had, which need not exist.
    """
    if checksum is None or not Path(checksum).exists():
        return
    recorded = Path(checksum).read_text(encoding="utf-8", errors="replace").split()[:1]
    if recorded != [current_checksum]:
        raise StudyError(
            f"{source}: was changed after it was fetched (its SHA-256 is not that in {checksum}); "
            "delete it to have it fetched again; if it is right, delete the file with the checksum"
        )


def check_data(data: Mapping[str, Mapping[str, str]], are_copies: bool = False) -> None:
    """Raise `StudyError` if a file that a run reads was changed after its conversion.

    data: {file of the dataset: its paths}, with ``path`` and ``sidecar``. are_copies: of a storage, which are all read.
    """
    for paths in data.values():
        path, sidecar = Path(paths["path"]), Path(paths["sidecar"])
        if "codes" in paths or not path.is_file():
            continue
        if not are_copies and read_last_change_ns(path) <= read_last_change_ns(sidecar):
            continue
        if sha256(path) != find_recorded_checksum(path, sidecar):
            raise StudyError(f"{path}: was changed after its conversion; delete it to have it made again")


def find_recorded_checksum(path: Path, sidecar: Path) -> str:
    """The SHA-256 that a sidecar records for its raw or its converted file."""
    described = read_sidecar(sidecar)
    checksum: str = described["sha256"] if path.suffix == ".npy" else described["source"]["sha256"]
    return checksum
