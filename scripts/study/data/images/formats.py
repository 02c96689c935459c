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
from study.core.file_kinds import recognize_file
from study.core.registry import Registry
from study.data import matrix_file
from study.data.images.codec import Codec, Pixels, find_extension
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
class CheckedImage:
    """An image that was decoded. pixels: uint8 (height, width, channels), scaled to the dataset's size if asked for."""

    content: bytes
    label: int
    pixels: Pixels | None


class Format(ABC):
    """A converted folder of images in one format. Registered by the name of the loader."""

    has_pixels = False  # whether it holds pixels and not encoded images
    has_examples = False  # whether what it stores of an image is a record of `Codec.example`
    columns: ClassVar[Mapping[str, str]] = {}  # of the index, besides label and bytes: {name: kinds of its type}

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index

    def close(self) -> None:  # noqa: B027 - some formats keep nothing open
        """Close what is open; it is opened again when it is needed."""

    def keep_open(self) -> bool:
        """Open all files for good, so that their names can be removed; False if there are too many."""
        return True

    @property
    def mapped_files(self) -> list[Path]:
        """Files that are mapped, whose reads the kernel does not count as such."""
        return []

    @staticmethod
    @abstractmethod
    def write(folder: Path, images: Iterator[CheckedImage], codec: Codec) -> Index:
        """Write all images into an empty folder; returns what the index has besides labels and sizes."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StudyError` if the folder is not the one that was written."""

    def read(self, positions: Positions) -> NDArray[Any]:
        """The stored bytes of the images at these positions, an array of objects."""
        contents = np.empty(len(positions), dtype=object)
        for place, position in enumerate(positions):
            contents[place] = self.read_record(int(position))
        return contents

    @abstractmethod
    def read_record(self, position: int) -> bytes:
        """The stored bytes of one image; raises `StudyError` with file and record."""

    def describe_place(self, position: int) -> str:
        """The file and record of an image, for messages."""
        return f"{self.folder}: record {position}"

    def pixels(self) -> NDArray[np.uint8]:
        """The pixels of all images, of a format that `has_pixels`."""
        raise TypeError(f"{type(self).__name__} holds encoded images")


FORMATS: Registry[type[Format]] = Registry("image format")


def _make_damage_error(where: str, why: str) -> StudyError:
    """The error about a damaged folder."""
    return StudyError(f"{where}: {why}; delete the folder, and Snakemake converts it again")


def _describe_other_kind(path: Path, own: str) -> str:
    """The kind of a file if it is another than ``own``, as the end of a sentence; else empty."""
    kind = recognize_file(path)
    return "" if kind is None or kind.name == own else f"; {kind.to_sentence()}"


@FORMATS.register("tfrecord")
class TFRecords(Format):
    """Shards of TFRecords with ImageNet's features, read by the position of each record in its shard."""

    has_examples = True
    columns: ClassVar[Mapping[str, str]] = {"shard": "i", "offset": "i", "length": "i"}

    @staticmethod
    def write(folder: Path, images: Iterator[CheckedImage], codec: Codec) -> Index:
        """Write shards of `SHARD_RECORDS` images."""
        shards: list[int] = []
        offsets: list[int] = []
        lengths: list[int] = []
        for shard, batch in enumerate(_split_into_batches(images, SHARD_RECORDS)):
            offset = 0
            with codec.open_record_writer(_locate_shard(folder, shard)) as write:
                for image in batch:
                    record = codec.make_example(image.content, image.label + 1)
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
        """Raise `StudyError` unless all shards have the size that the index gives them."""
        for shard in np.unique(self.index["shard"]):
            (last,) = np.flatnonzero(self.index["shard"] == shard)[-1:]
            expected = int(self.index["offset"][last] + FRAME_BYTES + self.index["length"][last] + 4)
            path = _locate_shard(self.folder, int(shard))
            size = path.stat().st_size if path.exists() else 0
            if size != expected:
                where = f"; it is cut off at record {self._first_beyond(int(shard), size)}" if size < expected else ""
                raise _make_damage_error(
                    str(path),
                    f"has {size} bytes, {expected} were written{_describe_other_kind(path, TFRECORD_FILE) or where}",
                )

    def _first_beyond(self, shard: int, size: int) -> int:
        """The first record of a shard that does not fit into so many bytes."""
        ends = self.index["offset"] + FRAME_BYTES + self.index["length"] + 4
        beyond = np.flatnonzero((self.index["shard"] == shard) & (ends > size))
        return int(beyond[0] if len(beyond) else np.flatnonzero(self.index["shard"] == shard)[-1] + 1)

    def read_record(self, position: int) -> bytes:
        """One image as a serialised ``tf.train.Example``."""
        shard, length = int(self.index["shard"][position]), int(self.index["length"][position])
        content = os.pread(self._open_shard(shard), FRAME_BYTES + length, int(self.index["offset"][position]))
        if len(content) != FRAME_BYTES + length or struct.unpack("<Q", content[:8])[0] != length:
            raise _make_damage_error(self.describe_place(position), f"the record does not have its {length} bytes")
        return content[FRAME_BYTES:]

    def _open_shard(self, shard: int) -> int:
        """The descriptor of a shard, which stays open."""
        if shard not in self._open:
            self._open[shard] = _open_file(_locate_shard(self.folder, shard))
        return self._open[shard]

    def keep_open(self) -> bool:
        """Open all shards."""
        for shard in np.unique(self.index["shard"]):
            self._open_shard(int(shard))
        return True

    def describe_place(self, position: int) -> str:
        """Shard and record."""
        return f"{_locate_shard(self.folder, int(self.index['shard'][position]))}: record {position}"


def _open_file(path: Path) -> int:
    """The descriptor of a file, which stays open; raises the soft limit of open files, often 1024, if need be."""
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


def _locate_shard(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.tfrecord"


@FORMATS.register("lmdb")
class LMDB(Format):
    """One LMDB database; the key is the position in ten digits, the value the encoded image."""

    @staticmethod
    def write(folder: Path, images: Iterator[CheckedImage], codec: Codec) -> Index:
        """Write the images in transactions of `LMDB_BATCH`, in the order of the keys."""
        import lmdb

        position = 0
        with lmdb.open(str(folder / "images.lmdb"), subdir=False, lock=False, map_size=LMDB_ROOM) as environment:
            for batch in _split_into_batches(images, LMDB_BATCH):
                with environment.begin(write=True) as transaction:
                    for image in batch:
                        transaction.put(_make_key(position), image.content, append=True)
                        position += 1
        return {}

    @property
    def _database(self) -> Any:
        import lmdb

        path = self.folder / "images.lmdb"
        try:
            return _open_database(str(path.resolve()))
        except lmdb.Error as error:
            raise _make_damage_error(
                str(path), f"cannot be opened as an LMDB database: {error}{_describe_other_kind(path, LMDB_FILE)}"
            ) from None

    @property
    def mapped_files(self) -> list[Path]:
        """The database."""
        return [self.folder / "images.lmdb"]

    def close(self) -> None:
        """Close the database, whose mapped pages would stay in memory."""
        _open_database(str((self.folder / "images.lmdb").resolve())).close()
        _open_database.cache_clear()

    def check(self) -> None:
        """Raise `StudyError` unless the database has the index's entries with our keys; a wrong one is closed again."""
        database = self._database
        try:
            self._check_entries(database)
        except StudyError:
            self.close()
            raise

    def _check_entries(self, database: Any) -> None:
        """Raise `StudyError` unless a database has the index's number of entries and our first key."""
        import lmdb

        path, number = self.folder / "images.lmdb", len(self.index["label"])
        try:
            with database.begin() as transaction:
                entries = transaction.stat()["entries"]
                first = next(iter(transaction.cursor().iternext(values=False)), b"")
        except lmdb.Error as error:
            raise _make_damage_error(str(path), f"cannot be read as an LMDB database: {error}") from None
        if entries != number or first != _make_key(0):
            raise _make_damage_error(
                str(path),
                f"holds {entries} entries from key {first[:40]!r}, {number} images from key {_make_key(0)!r} were "
                "written: it is another program's database",
            )

    def read_record(self, position: int) -> bytes:
        """One encoded image."""
        with self._database.begin() as transaction:
            content = transaction.get(_make_key(position))
        if content is None:
            raise _make_damage_error(self.describe_place(position), f"there is no key {_make_key(position)!r}")
        return bytes(content)


@functools.cache
def _open_database(path: str) -> Any:
    """A database that stays open until the process ends: LMDB refuses to open one twice."""
    return open_whole(path, max_spare_txns=8)


def _make_key(position: int) -> bytes:
    """The LMDB key of an image."""
    return b"%010d" % position


@FORMATS.register("jpeg_files")
class Files(Format):
    """One file per image in one folder per class; of lossless datasets PNG files."""

    columns: ClassVar[Mapping[str, str]] = {"is_png": "b"}

    @staticmethod
    def write(folder: Path, images: Iterator[CheckedImage], codec: Codec) -> Index:
        """Write each image to ``<class>/<position>.jpg``."""
        is_png = []
        for position, image in enumerate(images):
            is_png.append(find_extension(image.content) == "png")
            path = _locate_file(folder, position, image.label, is_png[-1])
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(image.content)
        return {"is_png": np.array(is_png)}

    def check(self) -> None:
        """Raise `StudyError` if the first or last file is missing; each is checked when it is read."""
        for position in (0, len(self.index["label"]) - 1):
            if not self._path(position).exists():
                raise _make_damage_error(self.describe_place(position), "is missing")

    def keep_open(self) -> bool:
        """False: a file is opened whenever its image is read."""
        return False

    def _path(self, position: int) -> Path:
        return _locate_file(
            self.folder, position, int(self.index["label"][position]), bool(self.index["is_png"][position])
        )

    def read_record(self, position: int) -> bytes:
        """The file's content."""
        try:
            content = self._path(position).read_bytes()
        except OSError as error:
            raise _make_damage_error(self.describe_place(position), f"cannot be read: {error.strerror}") from None
        if len(content) != self.index["bytes"][position]:
            raise _make_damage_error(
                self.describe_place(position), f"has {len(content)} bytes, {self.index['bytes'][position]} were written"
            )
        return content

    def describe_place(self, position: int) -> str:
        """The file."""
        return str(self._path(position))


def _locate_file(folder: Path, position: int, label: int, is_png: bool) -> Path:
    return folder / f"{label:05d}" / f"{position:09d}.{'png' if is_png else 'jpg'}"


@FORMATS.register("memory")
class Memory(Format):
    """The decoded, scaled pixels of all images in one file, which each rank reads into its memory before training."""

    has_pixels = True
    columns: ClassVar[Mapping[str, str]] = {"shape": "i"}

    @staticmethod
    def write(folder: Path, images: Iterator[CheckedImage], codec: Codec) -> Index:
        """Write the pixels, uint8, image by image; all have one shape."""
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
        """Raise `StudyError` unless the file has the size of its images."""
        path = self.folder / "pixels.bin"
        size = path.stat().st_size if path.exists() else 0
        if size != self._size():
            raise _make_damage_error(str(path), f"has {size} bytes, {self._size()} were written")

    def pixels(self) -> NDArray[np.uint8]:
        """All pixels, uint8 (images, height, width, channels), in memory that TensorFlow can use as it is."""
        buffer = np.empty(self._size() + ALIGNMENT, np.uint8)
        begin = -buffer.ctypes.data % ALIGNMENT
        pixels = buffer[begin : begin + self._size()]
        with open(self.folder / "pixels.bin", "rb") as handle:
            if handle.readinto(pixels.data) != self._size():
                raise _make_damage_error(str(self.folder / "pixels.bin"), "is shorter than it was")
        return pixels.reshape(-1, *self.index["shape"])

    def read_record(self, position: int) -> bytes:
        """The pixels of one image, from the file."""
        size = int(np.prod(self.index["shape"]))
        with open(self.folder / "pixels.bin", "rb") as handle:
            return os.pread(handle.fileno(), size, position * size)


def open_format(name: str, folder: str | Path, samples: int, classes: int | None = None) -> Format:
    """The images of a converted folder, checked. samples: number in its sidecar. classes: of used labels."""
    path = Path(folder) / INDEX
    try:
        index = matrix_file.read_arrays(path)
    except (OSError, StudyError) as error:
        raise _make_damage_error(str(path), f"cannot be read: {error}") from None
    _check_index(path, index, FORMATS[name].columns, samples)
    if samples and classes is not None and index["label"].max() >= classes:
        raise _make_damage_error(
            str(path), f"has the label {index['label'].max()}, but there are {classes} classes, from 0"
        )
    image_format = FORMATS[name](Path(folder), index)
    image_format.check()
    return image_format


def _check_index(path: Path, index: Index, columns: Mapping[str, str], samples: int) -> None:
    """Raise `StudyError` unless the index has each column with a whole number of at least 0 for each image."""
    for column, kinds in {"label": "i", "bytes": "i", **columns}.items():
        values = index.get(column)
        if values is None or values.ndim != 1 or values.dtype.kind not in kinds or values.dtype.byteorder == ">":
            raise _make_damage_error(str(path), f"has no list of numbers {column!r}")
        if column != "shape" and len(values) != samples:
            raise _make_damage_error(str(path), f"does not have the {samples} images of its sidecar in {column!r}")
        if (values < 0).any():
            raise _make_damage_error(str(path), f"has a number below 0 in {column!r}")


def _split_into_batches(images: Iterator[CheckedImage], number: int) -> Iterator[Iterator[CheckedImage]]:
    """Yield the images in batches, each to be used up before the next."""
    for first in images:
        yield itertools.chain([first], itertools.islice(images, number - 1))
