"""Write files whole or not at all (to a temporary name, then renamed); checksums."""

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study.core.errors import StudyError

AnyPath = str | os.PathLike[str]
LONGEST_INTEGER = 300  # digits; a float holds 308


@contextlib.contextmanager
def written_aside(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place when the block ends without an error.

    A file that exists under its own name is therefore whole. On an error the temporary file is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        with open(aside, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(aside, path)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # such as from a full disk
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        aside.unlink(missing_ok=True)


def meant_for(aside: Path) -> str | None:
    """The name of the file that a temporary file of `written_aside` was to become; None for any other file.

    A process that is killed leaves its temporary file behind.
    """
    found = re.fullmatch(r"\.(.+)\.\d+\.part", aside.name)
    return found and found[1]


def write_text(path: AnyPath, text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: AnyPath, value: object) -> None:
    """Write ``value`` as indented JSON with a final newline, whole or not at all. NaN is refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_text(path: AnyPath) -> str:
    """The text in a file that the study wrote. Raises `StudyError` if it cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise StudyError(f"{path}: is no text: {error}; restore it, or delete it to have it made again") from None


def read_json(path: AnyPath) -> Any:
    """The content of a JSON file. Raises `StudyError` if it cannot be read or is not JSON; see `parsed_json`."""
    try:
        return parsed_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path}: not valid JSON: {error}; restore it, or delete it to have it made again") from None


def parsed_json(text: str) -> Any:
    """The content of a JSON text.

    Raises ValueError also for what readers of JSON understand differently: a key given twice, a number that no float
    holds, half of a surrogate pair.
    """
    content = json.loads(
        text, parse_constant=_refuse, parse_float=_float, parse_int=_int, object_pairs_hook=_without_repeated_keys
    )
    if "\\ud" in text.lower():
        json.dumps(content, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _int(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"the number {text[:40]}... is too large")
    return int(text)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"the key {twice[:40]!r} is given twice")
    return content


def number_or_none(value: float | None) -> float | None:
    """``value`` as a float; None if it is missing or not finite, which JSON cannot represent."""
    return float(value) if value is not None and math.isfinite(value) else None


def sha256(path: AnyPath) -> str:
    """Hex SHA-256 of a file's content."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def noted_checksum(path: AnyPath) -> str | None:
    """The SHA-256 in a file as sha256sum writes it; None without the file. Raises `StudyError` if it has none."""
    if not Path(path).exists():
        return None
    found = re.match(r"[0-9a-f]{64}(?!\S)", read_text(path))
    if not found:
        raise StudyError(
            f"{path}: does not begin with a SHA-256; delete it and the file that it is of, and start again"
        )
    return found[0]
