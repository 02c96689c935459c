"""Write files whole or not at all (to a temporary name, then renamed); checksums."""

import contextlib
import glob
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core import locks
from study.core.errors import StudyError

AnyPath = str | os.PathLike[str]
LARGEST = 1e300  # of a number; a float holds 1e308
LONGEST_INTEGER = 300  # digits
SEAL = "checksum"  # key of a sealed file
AT_END = re.compile(rb'\n  "checksum": "([0-9a-f]{64})"\n\}\n?\Z')  # of one that `write_sealed` has written
END_BYTES = 100
SMALL = 2**16  # bytes of a file that is read at once
PIECE_BYTES = 1 << 20  # of a file that is copied


@contextlib.contextmanager
def write_aside(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place when the block ends without an error.

    A file that exists under its own name is therefore whole. On an error the temporary file is removed; those that
    killed processes left of the same file are removed before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    lock = os.open(aside, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
    try:
        with name_file_in_errors(path):
            locks.try_lock(lock)  # where there are no locks, those that killed processes left stay
            yield aside
            with open(aside, "rb") as handle:
                os.fsync(handle.fileno())
            os.replace(aside, path)
    finally:
        os.close(lock)
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def name_file_in_errors(path: AnyPath) -> Iterator[None]:
    """Context in which an `OSError` that names no file, such as from a full disk, gets the name ``path``."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of ``path`` that no process holds; where locks are missing, they stay."""
    locks.remove_unheld(path.parent.glob(f".{glob.escape(path.name)}.*.part"), os.O_RDWR, Path.unlink)


def find_target_name(aside: Path) -> str | None:
    """The name of the file that a temporary file of `write_aside` would have become; None for any other file.

    A process that is killed leaves its temporary file behind.
    """
    match = re.fullmatch(r"\.(.+)\.\d+\.part", aside.name)
    return match and match[1]


def copy_checked(source: AnyPath, target: AnyPath) -> str:
    """Copy a file, whole or not at all, and compare the copy as it is stored; returns the SHA-256 of the content.

    Raises:
        StudyError: the copy has another content than was read of the source.
    """
    digest = hashlib.sha256()
    with write_aside(target) as aside:
        with open(source, "rb") as original, open(aside, "wb") as copy:
            for piece in iter(lambda: original.read(PIECE_BYTES), b""):
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            os.fdatasync(copy.fileno())
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if sha256(aside) != digest.hexdigest():
            raise StudyError(f"{target}: the copy has another content than {source}; check this storage")
    return digest.hexdigest()


def write_text(path: AnyPath, text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: AnyPath, value: object) -> None:
    """Write ``value`` as indented JSON with a final newline, whole or not at all. NaN is refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_sealed(path: AnyPath, value: dict[str, Any]) -> None:
    """Write JSON as `write_json`, with a checksum of the content by which `read_json` notices a change."""
    as_read = json.loads(json.dumps(value, allow_nan=False))  # whose keys are text
    write_json(path, {**value, SEAL: _compute_seal(as_read)})


def _verify_seal(content: Any, path: AnyPath) -> Any:
    """Content without its checksum, once that is verified; raises `StudyError` if the content was changed."""
    if not isinstance(content, dict) or SEAL not in content:
        return content
    bare = {key: value for key, value in content.items() if key != SEAL}
    if content[SEAL] != _compute_seal(bare):
        raise StudyError(f"{path}: was changed after it was written; restore it, or delete it to have it made again")
    return bare


def read_seal(path: AnyPath) -> str | None:
    """The checksum stored in a sealed file; None if there is none or the file cannot be read."""
    try:
        content = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content.get(SEAL) if isinstance(content, dict) else None


def read_seal_at_end(path: AnyPath) -> str | None:
    """The checksum of a sealed file that `read_json` has accepted, found without parsing it where possible.

    `write_sealed` puts the checksum last. In JSON nothing but the end of the whole object can follow it like this.
    """
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - END_BYTES))
            match = AT_END.search(handle.read())
    except OSError:
        return None
    return match[1].decode() if match else read_seal(path)


def _compute_seal(as_read: dict[str, Any]) -> str:
    """The checksum of JSON content."""
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def write_with_checksum(
    path: AnyPath, begin_ns: int | None = None, sealed_inputs: Mapping[AnyPath, str | None] | None = None
) -> Iterator[Path]:
    """Write as `write_aside`, and keep the file's checksum beside it in a hidden file, for `has_changed`.

    begin_ns: wall time before the first of the files from which it is made was read, for `find_changed_since_read`.
    sealed_inputs: those files with the checksum of each (`read_seal`), for `find_replaced_since_read`.
    """
    path = Path(path)
    checksum_file = _locate_checksum_file(path)
    checksum_file.unlink(missing_ok=True)  # of the file before
    with write_aside(path) as aside:
        yield aside
        checksum = sha256(aside)
    input_lines = "".join(
        f"{seal}  {os.path.relpath(each, path.parent)}\n" for each, seal in (sealed_inputs or {}).items() if seal
    )
    write_text(checksum_file, f"{checksum}  {path.name}\n{input_lines}")
    if begin_ns is not None:
        os.utime(checksum_file, ns=(begin_ns, begin_ns))


def has_changed(path: AnyPath) -> bool:
    """True if a file was changed since `write_with_checksum`; False if it is missing or has no checksum."""
    path = Path(path)
    checksum_file = _locate_checksum_file(path)
    return (
        path.exists()
        and checksum_file.exists()
        and checksum_file.read_text(errors="replace").split()[:1] != [sha256(path)]
    )


def find_changed_since_read(paths: Iterable[AnyPath], output: AnyPath) -> list[Path]:
    """Those of ``paths`` that changed after ``output`` began to be made of them; none without ``output``.

    They may be older than ``output`` all the same, so that Snakemake takes it for up to date.
    """
    checksum_file = _locate_checksum_file(Path(output))
    if not (Path(output).exists() and checksum_file.exists()):
        return []
    begun_ns = checksum_file.stat().st_mtime_ns
    existing_paths = (path for path in map(Path, paths) if path.exists())
    return [path for path in existing_paths if read_last_change_ns(path) > begun_ns]


def find_replaced_since_read(changed: Iterable[AnyPath], output: AnyPath) -> list[Path]:
    """Those of the files from `find_changed_since_read` whose content differs from the noted one.

    None of files that ``output`` has no note of.
    """
    output = Path(output)
    lines = _locate_checksum_file(output).read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    noted = {name: seal for seal, _, name in (line.partition("  ") for line in lines)}
    replaced = []
    for path in map(Path, changed):
        seal = noted.get(os.path.relpath(path, output.parent))
        if seal is not None and seal != read_seal(path):
            replaced.append(path)
    return replaced


def read_last_change_ns(path: AnyPath) -> int:
    """Time when a file was last written or moved into place, ns since 1970.

    A file that is put in another's place may bring an older time along (cp -p, rsync -t, tar); its status change has
    the time at which that happened.
    """
    status = os.stat(path)  # noqa: PTH116  of thousands of runs, `Path.stat` takes longer than the file system
    return max(status.st_mtime_ns, status.st_ctime_ns)


def _locate_checksum_file(path: Path) -> Path:
    """The hidden file with a file's checksum."""
    return path.with_name(f".{path.name}.sha256")


def read_text(path: AnyPath) -> str:
    """The text in a file that the study wrote. Raises `StudyError` if it cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise StudyError(f"{path}: is no text: {error}; restore it, or delete it to have it made again") from None


def read_json(path: AnyPath) -> Any:
    """The content of a JSON file.

    Raises `StudyError` if it cannot be read, is not JSON (see `parse_json`), or was changed after `write_sealed`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a null character in the path
        raise StudyError(f"{path}: cannot be read: {error}") from None
    return parse_json_file(data, path)


def parse_json_file(data: bytes, path: AnyPath) -> Any:
    """The content of a JSON file from its bytes; raises `StudyError` as `read_json`. path: named in messages."""
    try:
        return _verify_seal(parse_json(data.decode()), path)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path}: not valid JSON: {error}; restore it, or delete it to have it made again") from None


def parse_accepted_json(data: bytes) -> Any:
    """The content of bytes that `parse_json_file` has accepted before, without its checks."""
    content = json.loads(data)
    return {key: value for key, value in content.items() if key != SEAL} if isinstance(content, dict) else content


def parse_json(text: str) -> Any:
    """The content of a JSON text.

    Raises ValueError also for what readers of JSON understand differently: a key given twice, a number that no float
    holds, half of a surrogate pair.
    """
    content = json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_float=_parse_float,
        parse_int=_parse_int,
        object_pairs_hook=_refuse_repeated_keys,
    )
    if "\\ud" in text.lower():
        json.dumps(content, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return content


def _refuse_constant(constant: str) -> None:
    """Raise ValueError for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{constant} is no number of JSON")


def _parse_float(text: str) -> float:
    """A float; raises ValueError if it would be rounded to infinity or to zero."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError(f"the number {text[:40]} is too small")
    return value


def _parse_int(text: str) -> int:
    """An integer; raises ValueError if no float holds it."""
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"the number {text[:40]}... is too large")
    return int(text)


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of pairs; raises ValueError if a key is given twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"the key {twice[:40]!r} is given twice")
    return content


def to_finite_or_none(value: float | None) -> float | None:
    """``value`` as a float; None if it is missing, not finite, which JSON cannot represent, or beyond `LARGEST`."""
    return float(value) if value is not None and abs(value) < LARGEST else None


def check_links_inside(folder: AnyPath, root: AnyPath) -> None:
    """Raise `StudyError` for a link in ``folder``, or to it, that leaves ``root``, and for pipes and devices.

    Whoever made the folder chooses its links: what is published of it would show any file of the one who publishes. A
    pipe would be waited for. Nothing tells a hard link from a file.
    """
    _check_inside(folder, root)
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(where, name)  # noqa: PTH118 - a Path for each is most of the time
            if os.path.islink(path):  # noqa: PTH114
                _check_inside(path, root)
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112, PTH113
                raise StudyError(f"{path}: is neither a file nor a folder; delete it")


def _check_inside(path: AnyPath, root: AnyPath) -> None:
    """Raise `StudyError` if a path leads out of ``root``."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise StudyError(f"{path}: leads to {real}, which is not in {root}; delete the link, or copy what it means")


def sha256(path: AnyPath) -> str:
    """Hex SHA-256 of a file's content."""
    with open(path, "rb", buffering=0) as handle:
        if os.fstat(handle.fileno()).st_size <= SMALL:  # most files of a run, for which a buffer takes longer
            return hashlib.sha256(handle.read()).hexdigest()
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_checksum_file(path: AnyPath) -> str | None:
    """The SHA-256 in a file written by sha256sum; None without the file. Raises `StudyError` if it has none."""
    if not Path(path).exists():
        return None
    match = re.match(r"[0-9a-f]{64}(?!\S)", read_text(path))
    if not match:
        raise StudyError(
            f"{path}: does not begin with a SHA-256; delete it and the file that it is of, and start again"
        )
    return match[0]
