"""The layouts in which users have images: folders, ImageNet's TFRecords, MNIST's and CIFAR-10's files.

Each is a function from paths to the images one by one; a mistake in a file is a `StudyError` with file and record.
"""

from __future__ import annotations

import glob
import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from study.core.errors import StudyError
from study.core.registry import Registry
from study.data.images.codec import Pixels, encode_png

IDX_IMAGES, IDX_LABELS = 0x803, 0x801  # first four bytes: unsigned bytes in three dimensions, in one
GZIP = b"\x1f\x8b"
CIFAR_SIDE = 32


@dataclass(frozen=True)
class Image:
    """One image. content: JPEG or PNG bytes. label: its class, from 0. where: file and record, for messages."""

    content: bytes
    label: int
    where: str


@dataclass(frozen=True)
class Source:
    """Where a file of a dataset is, and how to read it.

    Args:
        layout: a name in `LAYOUTS`.
        path: a file, a folder or a pattern with ``*``.
        first_label: the label of the first class in TFRecords: 1 in ImageNet's.
    """

    layout: str
    path: str
    first_label: int = 1

    @property
    def paths(self) -> list[Path]:
        """The files, or the folder; raises `StudyError` if there is none."""
        found = listed(self.path)
        if not found or not all(Path(each).exists() for each in found):
            raise StudyError(f"{self.path}: there is no such file or folder")
        return [Path(each) for each in found]

    def images(self) -> Iterator[Image]:
        """The images in their order."""
        return LAYOUTS[self.layout](self)

    def class_names(self) -> list[str] | None:
        """The names of the classes, where the layout has them."""
        return [folder.name for folder in _classes(self)] if self.layout == "folder" else None


def listed(path: str) -> list[str]:
    """The files of a pattern, in the order of their names; another path alone, whether or not it exists."""
    return sorted(glob.glob(path)) if glob.has_magic(path) else [path]  # noqa: PTH207 - the pattern may be absolute


LAYOUTS: Registry[Callable[[Source], Iterator[Image]]] = Registry("layout of images")


@LAYOUTS.register("folder")
def _folder(source: Source) -> Iterator[Image]:
    """A folder with one sub-folder per class; classes and images in the order of their names."""
    for label, folder in enumerate(_classes(source)):
        for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
            yield Image(path.read_bytes(), label, str(path))


def _classes(source: Source) -> list[Path]:
    (folder,) = source.paths
    found = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not found:
        raise StudyError(f"{folder}: is no folder with one sub-folder per class")
    return found


@LAYOUTS.register("tfrecord")
def _tfrecord(source: Source) -> Iterator[Image]:
    """Records as TensorFlow's scripts write ImageNet: ``image/encoded`` and ``image/class/label``."""
    import tensorflow as tf

    for path in source.paths:
        records = iter(tf.data.TFRecordDataset(str(path)))
        for number in range(1 << 62):
            where = f"{path}: record {number}"
            try:
                record = next(records).numpy()
            except StopIteration:
                break
            except tf.errors.OpError as error:
                raise StudyError(f"{where}: the file is cut off or damaged: {error.message}; restore it") from None
            content, label = _example(record, where)
            yield Image(content, label - source.first_label, where)


def _example(record: bytes, where: str) -> tuple[bytes, int]:
    """Encoded image and label of one record."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        feature = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise StudyError(f"{where}: is no tf.train.Example") from None
    values = feature["image/encoded"].bytes_list.value, feature["image/class/label"].int64_list.value
    if not all(len(each) == 1 for each in values):
        names = ", ".join(sorted(name for name in feature if feature[name].WhichOneof("kind"))) or "none"
        raise StudyError(f"{where}: needs image/encoded and image/class/label; its features: {names}")
    return values[0][0], values[1][0]


@LAYOUTS.register("mnist")
def _mnist(source: Source) -> Iterator[Image]:
    """MNIST's idx files, compressed or not; the labels' file has ``labels-idx1`` where the images' has ``images-idx3``.

    Source of the format: yann.lecun.com/exdb/mnist.
    """
    (path,) = source.paths
    other = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if other == path or not other.exists():
        raise StudyError(f"{path}: there is no file of its labels, {other.name}, beside it")
    images, labels = _idx(path, IDX_IMAGES, 3), _idx(other, IDX_LABELS, 1)
    if len(images) != len(labels):
        raise StudyError(f"{path}: has {len(images)} images, but {other.name} has {len(labels)} labels")
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        yield Image(encode_png(pixels[..., None]), int(label), f"{path}: record {number}")


def _idx(path: Path, magic: int, dimensions: int) -> Pixels:
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if raw.startswith(GZIP) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise StudyError(f"{path}: cannot be decompressed: {error}; restore it") from None
    begin = 4 + 4 * dimensions
    if len(raw) < begin or struct.unpack(">I", raw[:4])[0] != magic:
        raise StudyError(f"{path}: is no idx file of bytes in {dimensions} dimensions: it does not begin with {magic}")
    shape = struct.unpack(f">{dimensions}I", raw[4:begin])
    expected = begin + int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        record = (len(raw) - begin) // max(1, int(np.prod(shape[1:], dtype=np.int64)))
        raise StudyError(f"{path}: record {record}: the file has {len(raw)} bytes, not {expected}; restore it")
    return np.frombuffer(raw, np.uint8, offset=begin).reshape(shape)


@LAYOUTS.register("cifar10")
def _cifar10(source: Source) -> Iterator[Image]:
    """CIFAR-10's binary version: a label byte, then 1,024 bytes each of red, green and blue.

    Source of the format: cs.toronto.edu/~kriz/cifar.html.
    """
    record_bytes = 1 + 3 * CIFAR_SIDE**2
    for path in source.paths:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
        if not len(raw) or len(raw) % record_bytes:
            raise StudyError(
                f"{path}: record {len(raw) // record_bytes}: the file is cut off: {len(raw)} bytes are no multiple of "
                f"{record_bytes}; restore it"
            )
        for number, record in enumerate(raw.reshape(-1, record_bytes)):
            pixels = record[1:].reshape(3, CIFAR_SIDE, CIFAR_SIDE).transpose(1, 2, 0)
            yield Image(encode_png(pixels), int(record[0]), f"{path}: record {number}")
