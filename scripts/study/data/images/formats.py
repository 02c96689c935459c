"""The formats from which training reads images: TFRecord shards, LMDB, JPEG files, and pixels in memory.

A format is a folder with the images and ``index.npz``: each image's label, its size, and where it is. All formats
give the images at any positions, so that the order of the samples, and with it the training, is the same from each.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import resource
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.file_kinds import kind_of
from study.core.registry import Registry
from study.data import matrix_file
from study.data.images.codec import Codec, Pixels, extension
from study.data.lmdb_file import open_whole

SHARD_RECORDS = 1250  # as in ImageNet's 1,024 shards of 1,281,167 images
FRAME_BYTES = 8 + 4  # of a TFRecord, before its data: length, checksum of the length
ALIGNMENT = 64  # bytes, with which TensorFlow uses an array's memory without a copy
LMDB_FILE, TFRECORD_FILE = "an LMDB data base", "a TFRecord file"  # names of kinds
LMDB_ROOM = 1 << 40  # of addresses, not of disk
LMDB_BATCH = 1000  # images in a transaction
INDEX = "index.npz"
Positions = NDArray[np.int64]
Index = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checked:
    """An image that was decoded. pixels: uint8 (height, width, channels), scaled to the dataset's size if asked for."""

    content: bytes
    label: int
    pixels: Pixels | None


class Format(ABC):
    """One format; an object reads one folder. Registered by the name of the loader."""

    has_pixels = False  # whether it holds pixels and not encoded images
    has_examples = False  # whether what it stores of an image is a record of `Codec.example`
    columns: ClassVar[Mapping[str, str]] = {}  # of the index, besides label and bytes: {name: kinds of its type}

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index

    def close(self) -> None:  # noqa: B027 - some formats keep nothing open
        """Close what is open; it is opened again when it is needed."""

    def keep_open(self) -> bool:
        """Open all files until the process ends, so that their names can be removed; False if there are too many."""
        return True

    @property
    def mapped_files(self) -> list[Path]:
        """Files that are mapped, whose reads the kernel does not count as such."""
        return []

    @staticmethod
    @abstractmethod
    def write(folder: Path, images: Iterator[Checked], codec: Codec) -> Index:
        """Write all images into an empty folder; returns what the index has besides labels and sizes."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StudyError` if the folder is not the one that was written."""

    def read(self, positions: Positions) -> NDArray[Any]:
        """The stored bytes of the images at these positions, an array of objects."""
        found = np.empty(len(positions), dtype=object)
        for place, position in enumerate(positions):
            found[place] = self.record(int(position))
        return found

    @abstractmethod
    def record(self, position: int) -> bytes:
        """The stored bytes of one image; raises `StudyError` with file and record."""

    def where(self, position: int) -> str:
        """File and record of an image, for messages."""
        return f"{self.folder}: record {position}"

    def pixels(self) -> NDArray[np.uint8]:
        """The pixels of all images, of a format that `has_pixels`."""
        raise TypeError(f"{type(self).__name__} holds encoded images")


FORMATS: Registry[type[Format]] = Registry("image format")


def _damaged(where: str, why: str) -> StudyError:
    return StudyError(f"{where}: {why}; delete the folder, and Snakemake converts it again")


def _instead(path: Path, own: str) -> str:
    """What a file is, if that is another kind than ``own``."""
    kind = kind_of(path)
    return "" if kind is None or kind.name == own else f"; {kind.sentence()}"


@FORMATS.register("tfrecord")
class TFRecords(Format):
    """Shards of TFRecords with ImageNet's features, read by the position of each record in its shard."""

    has_examples = True
    columns: ClassVar[Mapping[str, str]] = {"shard": "i", "offset": "i", "length": "i"}

    @staticmethod
    def write(folder: Path, images: Iterator[Checked], codec: Codec) -> Index:
        """One file per `SHARD_RECORDS` images."""
        shards: list[int] = []
        offsets: list[int] = []
        lengths: list[int] = []
        for shard, batch in enumerate(_batched(images, SHARD_RECORDS)):
            offset = 0
            with codec.record_writer(_shard(folder, shard)) as write:
                for image in batch:
                    record = codec.example(image.content, image.label + 1)
                    write(record)
                    shards.append(shard)
                    offsets.append(offset)
                    lengths.append(len(record))
                    offset += FRAME_BYTES + len(record) + 4
        return {"shard": np.array(shards), "offset": np.array(offsets), "length": np.array(lengths)}

    def __init__(self, folder: Path, index: Index) -> None:
        super().__init__(folder, index)
        self._open: dict[int, int] = {}

    def close(self) -> None:
        """Close the shards."""
        while self._open:
            os.close(self._open.popitem()[1])

    def check(self) -> None:
        """The shards are there, and have the size that the index gives them."""
        for shard in np.unique(self.index["shard"]):
            (last,) = np.flatnonzero(self.index["shard"] == shard)[-1:]
            expected = int(self.index["offset"][last] + FRAME_BYTES + self.index["length"][last] + 4)
            path = _shard(self.folder, int(shard))
            found = path.stat().st_size if path.exists() else 0
            if found != expected:
                where = f"; it is cut off at record {self._first_beyond(int(shard), found)}" if found < expected else ""
                raise _damaged(
                    str(path), f"has {found} bytes, {expected} were written{_instead(path, TFRECORD_FILE) or where}"
                )

    def _first_beyond(self, shard: int, size: int) -> int:
        """The first record of a shard that does not fit into so many bytes."""
        ends = self.index["offset"] + FRAME_BYTES + self.index["length"] + 4
        beyond = np.flatnonzero((self.index["shard"] == shard) & (ends > size))
        return int(beyond[0] if len(beyond) else np.flatnonzero(self.index["shard"] == shard)[-1] + 1)

    def record(self, position: int) -> bytes:
        """One serialised ``tf.train.Example``."""
        shard, length = int(self.index["shard"][position]), int(self.index["length"][position])
        found = os.pread(self._opened_shard(shard), FRAME_BYTES + length, int(self.index["offset"][position]))
        if len(found) != FRAME_BYTES + length or struct.unpack("<Q", found[:8])[0] != length:
            raise _damaged(self.where(position), f"the record does not have its {length} bytes")
        return found[FRAME_BYTES:]

    def _opened_shard(self, shard: int) -> int:
        if shard not in self._open:
            self._open[shard] = _opened_file(_shard(self.folder, shard))
        return self._open[shard]

    def keep_open(self) -> bool:
        """Open all shards."""
        for shard in np.unique(self.index["shard"]):
            self._opened_shard(int(shard))
        return True

    def where(self, position: int) -> str:
        """Shard and record."""
        return f"{_shard(self.folder, int(self.index['shard'][position]))}: record {position}"


def _opened_file(path: Path) -> int:
    """The descriptor of a file, which stays open. The soft limit of open files, often 1024, is raised if need be."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise StudyError(f"{path}: cannot be opened: {error.strerror}") from None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # another thread may have done so in the meantime
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StudyError(
            f"{path}: cannot be opened: {error.strerror}; a process may have {hard} open files here; see `ulimit -Hn`"
        ) from None


def _shard(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.tfrecord"


@FORMATS.register("lmdb")
class LMDB(Format):
    """One LMDB database; the key is the position in ten digits, the value the encoded image."""

    @staticmethod
    def write(folder: Path, images: Iterator[Checked], codec: Codec) -> Index:
        """In transactions of `LMDB_BATCH` images, in the order of the keys."""
        import lmdb

        position = 0
        with lmdb.open(str(folder / "images.lmdb"), subdir=False, lock=False, map_size=LMDB_ROOM) as environment:
            for batch in _batched(images, LMDB_BATCH):
                with environment.begin(write=True) as transaction:
                    for image in batch:
                        transaction.put(_key(position), image.content, append=True)
                        position += 1
        return {}

    @property
    def _database(self) -> Any:
        import lmdb

        path = self.folder / "images.lmdb"
        try:
            return _opened(str(path.resolve()))
        except lmdb.Error as error:
            raise _damaged(
                str(path), f"cannot be opened as an LMDB database: {error}{_instead(path, LMDB_FILE)}"
            ) from None

    @property
    def mapped_files(self) -> list[Path]:
        """The database."""
        return [self.folder / "images.lmdb"]

    def close(self) -> None:
        """Close the database, whose mapped pages would stay in memory."""
        _opened(str((self.folder / "images.lmdb").resolve())).close()
        _opened.cache_clear()

    def check(self) -> None:
        """The database has as many entries as the index, with our keys. One that has not is closed again."""
        database = self._database
        try:
            self._check_entries(database)
        except StudyError:
            self.close()
            raise

    def _check_entries(self, database: Any) -> None:
        import lmdb

        path, number = self.folder / "images.lmdb", len(self.index["label"])
        try:
            with database.begin() as transaction:
                entries = transaction.stat()["entries"]
                first = next(iter(transaction.cursor().iternext(values=False)), b"")
        except lmdb.Error as error:
            raise _damaged(str(path), f"cannot be read as an LMDB database: {error}") from None
        if entries != number or first != _key(0):
            raise _damaged(
                str(path),
                f"holds {entries} entries from key {first[:40]!r}, {number} images from key {_key(0)!r} were written: "
                "it is another program's database",
            )

    def record(self, position: int) -> bytes:
        """One encoded image."""
        with self._database.begin() as transaction:
            found = transaction.get(_key(position))
        if found is None:
            raise _damaged(self.where(position), f"there is no key {_key(position)!r}")
        return bytes(found)


@functools.cache
def _opened(path: str) -> Any:
    """A database, open until the process ends: LMDB refuses to open one twice."""
    return open_whole(path, max_spare_txns=8)


def _key(position: int) -> bytes:
    return b"%010d" % position


@FORMATS.register("jpeg_files")
class Files(Format):
    """One file per image in one folder per class; of lossless datasets PNG files."""

    columns: ClassVar[Mapping[str, str]] = {"is_png": "b"}

    @staticmethod
    def write(folder: Path, images: Iterator[Checked], codec: Codec) -> Index:
        """``<class>/<position>.jpg``."""
        is_png = []
        for position, image in enumerate(images):
            is_png.append(extension(image.content) == "png")
            path = _file(folder, position, image.label, is_png[-1])
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(image.content)
        return {"is_png": np.array(is_png)}

    def check(self) -> None:
        """The first and the last file are there; each is checked when it is read, since there may be millions."""
        for position in (0, len(self.index["label"]) - 1):
            if not self._path(position).exists():
                raise _damaged(self.where(position), "is missing")

    def keep_open(self) -> bool:
        """A file is opened whenever its image is read."""
        return False

    def _path(self, position: int) -> Path:
        return _file(self.folder, position, int(self.index["label"][position]), bool(self.index["is_png"][position]))

    def record(self, position: int) -> bytes:
        """The file's content."""
        try:
            found = self._path(position).read_bytes()
        except OSError as error:
            raise _damaged(self.where(position), f"cannot be read: {error.strerror}") from None
        if len(found) != self.index["bytes"][position]:
            raise _damaged(
                self.where(position), f"has {len(found)} bytes, {self.index['bytes'][position]} were written"
            )
        return found

    def where(self, position: int) -> str:
        """The file."""
        return str(self._path(position))


def _file(folder: Path, position: int, label: int, is_png: bool) -> Path:
    return folder / f"{label:05d}" / f"{position:09d}.{'png' if is_png else 'jpg'}"


@FORMATS.register("memory")
class Memory(Format):
    """The decoded, scaled pixels of all images in one file, which each rank reads into its memory before training."""

    has_pixels = True
    columns: ClassVar[Mapping[str, str]] = {"shape": "i"}

    @staticmethod
    def write(folder: Path, images: Iterator[Checked], codec: Codec) -> Index:
        """uint8, image by image; all have one shape."""
        shape: tuple[int, ...] = ()
        with open(folder / "pixels.bin", "wb") as handle:
            for image in images:
                if image.pixels is None:
                    raise TypeError("the format memory needs pixels")
                shape = image.pixels.shape
                handle.write(image.pixels.tobytes())
        return {"shape": np.array(shape)}

    def _size(self) -> int:
        return len(self.index["label"]) * int(np.prod(self.index["shape"]))

    def check(self) -> None:
        """The file has the size of its images."""
        path = self.folder / "pixels.bin"
        found = path.stat().st_size if path.exists() else 0
        if found != self._size():
            raise _damaged(str(path), f"has {found} bytes, {self._size()} were written")

    def pixels(self) -> NDArray[np.uint8]:
        """uint8 (images, height, width, channels), in memory that TensorFlow can use as it is."""
        buffer = np.empty(self._size() + ALIGNMENT, np.uint8)
        begin = -buffer.ctypes.data % ALIGNMENT
        found = buffer[begin : begin + self._size()]
        with open(self.folder / "pixels.bin", "rb") as handle:
            if handle.readinto(found.data) != self._size():
                raise _damaged(str(self.folder / "pixels.bin"), "is shorter than it was")
        return found.reshape(-1, *self.index["shape"])

    def record(self, position: int) -> bytes:
        """The pixels of one image, from the file."""
        size = int(np.prod(self.index["shape"]))
        with open(self.folder / "pixels.bin", "rb") as handle:
            return os.pread(handle.fileno(), size, position * size)


def open_format(name: str, folder: str | Path, samples: int, classes: int | None = None) -> Format:
    """A converted folder, checked. samples: the number in its sidecar. classes: of the dataset, if labels are used."""
    path = Path(folder) / INDEX
    try:
        index = matrix_file.arrays(path)
    except (OSError, StudyError) as error:
        raise _damaged(str(path), f"cannot be read: {error}") from None
    _check_index(path, index, FORMATS[name].columns, samples)
    if samples and classes is not None and index["label"].max() >= classes:
        raise _damaged(str(path), f"has the label {index['label'].max()}, but there are {classes} classes, from 0")
    found = FORMATS[name](Path(folder), index)
    found.check()
    return found


def _check_index(path: Path, index: Index, columns: Mapping[str, str], samples: int) -> None:
    """Raise `StudyError` unless the index has each column with a whole number for each image, none below 0."""
    for column, kinds in {"label": "i", "bytes": "i", **columns}.items():
        values = index.get(column)
        if values is None or values.ndim != 1 or values.dtype.kind not in kinds or values.dtype.byteorder == ">":
            raise _damaged(str(path), f"has no list of numbers {column!r}")
        if column != "shape" and len(values) != samples:
            raise _damaged(str(path), f"does not have the {samples} images of its sidecar in {column!r}")
        if (values < 0).any():
            raise _damaged(str(path), f"has a number below 0 in {column!r}")


def _batched(images: Iterator[Checked], number: int) -> Iterator[Iterator[Checked]]:
    """The images in groups, each to be used up before the next; streamed."""
    for first in images:
        yield itertools.chain([first], itertools.islice(images, number - 1))
