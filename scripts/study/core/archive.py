"""Archives that are the same, bit by bit, whenever they are made of the same files."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from study.core.files import AnyPath, write_aside

CHECKSUMS = "SHA256SUMS"  # in each archive; `sha256sum --check` reads it


def write_archive(path: AnyPath, top: str, members: Mapping[str, Path | bytes]) -> None:
    """Write a tar.gz file of ``members`` and their checksums. Times, owners and the order of files do not enter.

    Args:
        path: of the archive.
        top: the folder in it that holds everything.
        members: {path in that folder: a file, or its content}.

    Raises:
        OSError: a file cannot be read, or the archive not written.
    """
    sums = {}
    with (
        write_aside(path) as aside,
        open(aside, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, member in sorted(members.items()):
            content = member if isinstance(member, bytes) else member.read_bytes()
            sums[name] = hashlib.sha256(content).hexdigest()
            _add_member(archive, f"{top}/{name}", content)
        _add_member(archive, f"{top}/{CHECKSUMS}", format_checksums(sums).encode())


def format_checksums(sums: Mapping[str, str]) -> str:
    """Checksums as lines that ``sha256sum --check`` reads. sums: {name: SHA-256 in hexadecimal}.

    As sha256sum does, a line begins with a backslash if its name has one, or an end of line, which could forge a line.
    """
    lines = []
    for name, value in sorted(sums.items()):
        escaped_name = name.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"{'' if escaped_name == name else chr(92)}{value}  {escaped_name}\n")
    return "".join(lines)


def _add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file with this content to an archive, without time and owner."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
