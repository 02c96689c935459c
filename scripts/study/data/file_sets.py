"""Which files a path of a user names, what in a folder is no data, and whether the shards of a set are all there."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from study.core.errors import StudyError

# What systems and editors put into folders. Names that begin with a dot are hidden as well.
LEFT_OUT = frozenset(
    ("__macosx", "__pycache__", "thumbs.db", "ehthumbs.db", "desktop.ini", "lost+found", "@eadir", "#recycle",
     "#snapshot", "$recycle.bin", "system volume information", "icon\r")
)  # fmt: skip
DESCRIPTIONS = frozenset(
    (".crc", ".md5", ".sha1", ".sha256", ".sha512", ".asc", ".sig", ".idx", ".index", ".json", ".txt", ".md")
)
UNFINISHED = frozenset((".part", ".partial", ".crdownload", ".download", ".incomplete", ".filepart", ".tmp", ".aria2"))
COPIES = frozenset((".bak", ".orig", ".old", ".swp", ".save"))
SHARD_OF_N = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<middle>[-_]of[-_])(?P<total>\d+)(?P<after>.*)")
NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<after>\D*)")
PADDED = 3  # digits, from which on numbers are those of shards also if most of them are missing
CIFAR_BATCH = re.compile(r"(?P<before>data_batch_)(?P<number>\d+)(?P<after>\.bin)")
CIFAR_BATCHES = 5  # of the training images (cs.toronto.edu/~kriz/cifar.html)
COMPRESSED = frozenset((".gz", ".zlib", ".z"))


def is_left_out(name: str) -> bool:
    """True if a file's or folder's name shows that it is no data: hidden, or made by a system or an editor."""
    return name.startswith(".") or name.lower() in LEFT_OUT


def list_files(path: str) -> list[str]:
    """Files that match a pattern, sorted; an existing path, or one without wildcards, alone.

    Also a pattern's leading folders that exist are taken as they are named; ``**`` stands for any number of folders.
    Another path alone if it is no pattern.
    """
    if not glob.has_magic(path) or os.path.lexists(path):
        return [path]
    return [match for match in _list_matches(path) if not _is_description(match)]


def _list_matches(path: str) -> list[str]:
    """Paths that match a pattern, sorted, without those that `is_left_out`."""
    folder, parts = Path(), list(Path(path).parts)
    while parts and os.path.lexists(folder / parts[0]):
        folder /= parts.pop(0)
    pattern = os.path.join(glob.escape(str(folder)), *parts)  # noqa: PTH118 - may be absolute
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
    matches = [each for each in matches if not any(map(is_left_out, Path(each).relative_to(folder).parts))]
    return matches if str(folder) != "." or path.startswith("./") else [each.removeprefix("./") for each in matches]


def _is_description(path: str) -> bool:
    """True if a file describes others, such as checksums or an index."""
    return Path(path).suffix.lower() in DESCRIPTIONS


def iterate_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its sub-folders by name, without those that `is_left_out`.

    Links to folders are followed. Raises `StudyError` for a link that leads back to a folder above it, or to nothing.
    """
    return (Path(entry.path) for entry in iterate_entries(str(folder)))


def iterate_entries(folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[os.DirEntry[str]]:
    """Yield directory entries as `iterate_files` does paths, fast. above: device and inode of the folders above."""
    status = os.stat(folder)  # noqa: PTH116 - a Path for each is most of the time
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise StudyError(f"{folder}: is a link to a folder above it; delete the link")
    with os.scandir(folder) as entries:
        sorted_entries = sorted(
            (entry for entry in entries if not is_left_out(entry.name)), key=lambda entry: entry.name
        )
    for entry in sorted_entries:
        if entry.is_dir():
            yield from iterate_entries(entry.path, (*above, here))
        elif entry.is_file():
            yield entry
        elif entry.is_symlink():
            raise StudyError(f"{entry.path}: is a link to nothing; restore what it links to, or delete it")


def check_file_set(pattern: str, paths: Sequence[Path]) -> None:
    """Raise `StudyError` for files of a set that are missing, empty, unfinished, duplicate or folders.

    Only files that the pattern would match are missing: a pattern may choose some shards of a set.
    """
    _check_different(paths)
    for path in paths:
        if len(paths) > 1 and path.is_dir():
            raise StudyError(f"{path}: is a folder, where others are files; give a pattern that leaves it out")
        suffix = path.suffix.lower()
        if suffix in UNFINISHED:
            raise StudyError(f"{path}: looks like an unfinished download; finish or delete it, or give another pattern")
        if len(paths) > 1 and (suffix in COPIES or path.name.endswith("~")):
            raise StudyError(f"{path}: looks like a copy of another file; delete it, or give another pattern")
        if path.is_file() and not path.stat().st_size:
            raise StudyError(f"{path}: is empty (0 bytes); restore it")
    names: dict[Path, list[str]] = {}
    for path in paths:
        names.setdefault(path.parent, []).append(path.name)
    for folder, here in names.items():
        _check_shards(pattern, folder, here)


def _check_different(paths: Sequence[Path]) -> None:
    """Raise `StudyError` if two paths are one file, or a file and its compressed copy."""
    path_by_file: dict[tuple[int, int], Path] = {}
    for path in paths:
        status = path.stat()
        other = path_by_file.setdefault((status.st_dev, status.st_ino), path)
        if other is not path:
            raise StudyError(f"{path}: is the same file as {other}; delete the link, or give another pattern")
    here = set(paths)
    for path in paths:
        if path.suffix.lower() in COMPRESSED and path.with_suffix("") in here:
            raise StudyError(
                f"{path}: looks like {path.stem} once more, compressed; delete one, or give another pattern"
            )


def _check_shards(pattern: str, folder: Path, names: list[str]) -> None:
    """Raise `StudyError` if shards of the sets in a folder are missing or there twice."""
    sets: dict[str, list[re.Match[str]]] = {}
    for name in names:
        if match := SHARD_OF_N.fullmatch(name):
            sets.setdefault(match["before"], []).append(match)
    for shards in sets.values():
        totals = {int(shard["total"]): shard for shard in shards}
        if len(totals) > 1:
            one, other = list(totals.values())[:2]
            raise StudyError(
                f"{folder / one[0]} and {other[0]} are shards of two sets, of {one['total']} and {other['total']} "
                "files; give a pattern that names one of them"
            )
        (total,) = totals
        _check_numbers(pattern, folder, shards, total)
    others = [name for name in names if not SHARD_OF_N.fullmatch(name)]
    for kind in (CIFAR_BATCH, NUMBERED):
        of_kind: dict[tuple[str, str], list[re.Match[str]]] = {}
        for match in filter(None, map(kind.fullmatch, others)):
            of_kind.setdefault((match["before"], match["after"]), []).append(match)
        for shards in of_kind.values():
            if kind is CIFAR_BATCH:
                _check_numbers(pattern, folder, shards, None, 1, CIFAR_BATCHES)
            elif _is_series(shards):
                _check_numbers(pattern, folder, shards, None)


def _is_series(shards: list[re.Match[str]]) -> bool:
    """True if numbers in names count shards from 0 or 1: padded, or more present than missing."""
    numbers = {int(shard["number"]) for shard in shards}
    if len(shards) < 2 or min(numbers) > 1:
        return False
    is_padded = all(len(shard["number"]) >= PADDED for shard in shards)
    return is_padded or (len(numbers) > 2 and 2 * len(numbers) > max(numbers) - min(numbers) + 1)


def _check_numbers(
    pattern: str,
    folder: Path,
    shards: list[re.Match[str]],
    total: int | None,
    first: int | None = None,
    last: int = 0,
) -> None:
    """Raise `StudyError` unless each number of a set of shards is there once.

    total: if the names state it. first, last: numbers that the set has, if that is known.
    """
    by_number: dict[int, re.Match[str]] = {}
    for shard in shards:
        number = int(shard["number"])
        if number in by_number:
            raise StudyError(
                f"{folder / shard[0]}: is shard {number}, as {by_number[number][0]} is; delete the one that is a copy"
            )
        by_number[number] = shard
    begin = min(min(by_number), 1) if first is None else first
    if total is not None:
        begin = 1 if total in by_number and 0 not in by_number else 0
    end = begin + total if total is not None else max(last, *by_number) + 1
    if beyond := [number for number in by_number if not begin <= number < end]:
        raise StudyError(f"{folder / by_number[beyond[0]][0]}: its number is not one of {begin} to {end - 1}")
    model = shards[0]
    missing = [
        name for number in range(begin, end) if number not in by_number
        if _is_match(pattern, name := _name_shard(model, number))
    ]  # fmt: skip
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StudyError(f"{folder / missing[0]}{more}: is missing; restore it, or give a pattern that leaves it out")


def _name_shard(shard: re.Match[str], number: int) -> str:
    """The name of the shard with this number in a shard's set."""
    begin, end = shard.span("number")
    return f"{shard.string[:begin]}{number:0{end - begin}d}{shard.string[end:]}"


def _is_match(pattern: str, name: str) -> bool:
    """True if a file name matches a pattern's last part."""
    return fnmatch.fnmatchcase(name, Path(pattern).name)
