"""The layouts in which users have images: folders, ImageNet's TFRecords, MNIST's and CIFAR-10's files.

Each is a function from paths to the images one by one; a mistake in a file is a `StudyError` with file and record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core import file_kinds
from study.core.errors import StudyError
from study.core.registry import Registry
from study.data import file_sets, text_file
from study.data.images.codec import Codec, CodecError

IDX_IMAGES, IDX_LABELS = 0x803, 0x801  # first four bytes: unsigned bytes in three dimensions, in one
IDX_BYTES = 8  # third of them
IDX_QMNIST_LABELS = 0xC02  # 32-bit integers in two dimensions
IDX_NUMBERS = {"u1": "bytes", ">i4": "integers"}
QMNIST_NAMES = ("idx3-ubyte", "idx2-int")  # in the file of the images, in that of their labels
QMNIST_COLUMNS = 8  # numbers for each image; the first is its class
CIFAR_SIDE = 32
CIFAR_CLASSES = 10
TYPES = {"int64_list": "a list of whole numbers", "float_list": "a list of floats", "bytes_list": "bytes"}
IMAGE_SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))


@dataclass(frozen=True)
class Image:
    """One image. content: JPEG or PNG bytes. label: its class, from 0. where: file and record, for messages."""

    content: bytes
    label: int
    where: str


@dataclass(frozen=True)
class Source:
    """A file of a dataset and how to read it.

    Args:
        layout: a name in `LAYOUTS`.
        path: a file, a folder or a pattern with ``*``.
        first_label: the label of the first class, of layouts in `FIRST_LABEL`; None for the layout's usual one.
    """

    layout: str
    path: str
    first_label: int | None = None

    @property
    def as_param(self) -> dict[str, Any]:
        """The source as a rule's param, unchanged if the files read the same, so that nothing is converted again."""
        content = {"layout": self.layout, "path": self.path, "first_label": 1}
        if self.first_label is not None:
            content["first_label" if self.layout == "tfrecord" else "given_first_label"] = self.first_label
        return content

    @classmethod
    def from_param(cls, content: dict[str, Any]) -> Source:
        """The source from `as_param`."""
        name = "first_label" if content["layout"] == "tfrecord" else "given_first_label"
        return cls(content["layout"], content["path"], content.get(name))

    @property
    def paths(self) -> list[Path]:
        """The existing files, or the folder; raises `StudyError` if there is none."""
        paths = [Path(each) for each in file_sets.list_files(self.path)]
        if not paths or not all(each.exists() for each in paths):
            raise StudyError(f"{self.path}: there is no such file or folder")
        file_sets.check_file_set(self.path, paths)
        if self.layout != "folder" and paths[0].is_dir():
            raise StudyError(
                f"{paths[0]}: is a folder; give the file, or a pattern such as {paths[0] / '*'}, or layout: folder if "
                "it has one sub-folder per class"
            )
        return paths

    def check(self) -> None:
        """Raise `StudyError` if files are missing or not of the layout; no image is read."""
        if self.layout == "folder":
            _list_class_folders(self)
        elif self.layout == "mnist":
            _find_mnist_files(self)
        else:
            self.paths  # noqa: B018 - raises

    @property
    def one_path(self) -> Path:
        """The only file or folder; raises `StudyError` if there are several."""
        paths = self.paths
        if len(paths) > 1:
            raise StudyError(f"{self.path}: matches {len(paths)} files, the layout {self.layout} has one; name it")
        return paths[0]

    @property
    def folder_names(self) -> list[str] | None:
        """Names of the classes' folders, empty if there are none; None in another layout."""
        folder = Path(self.path)
        if self.layout != "folder" or not folder.is_dir():
            return None if self.layout != "folder" else []
        return sorted(path.name for path in folder.iterdir() if path.is_dir() and not file_sets.is_left_out(path.name))

    @property
    def read_files(self) -> list[str]:
        """All files and folders that are read: of the pattern or the classes, and MNIST's labels.

        Also images beside the folders of classes, which are refused.
        """
        if self.folder_names is not None:
            folder = Path(self.path)
            return [str(path) for path in (*(folder / name for name in self.folder_names), *_find_stray_images(folder))]
        paths = file_sets.list_files(self.path)
        return [*paths, *(str(_locate_labels(Path(path))) for path in paths if self.layout == "mnist")]

    def images(self, codec: Codec) -> Iterator[Image]:
        """The images in their order."""
        return LAYOUTS[self.layout](self, codec)

    def class_names(self) -> list[str] | None:
        """Names of the classes, None where the layout has none."""
        return [folder.name for folder in _list_class_folders(self)] if self.layout == "folder" else None


# The label of the first class where a dataset may give it: 1 in ImageNet's TFRecords, also in EMNIST's letters.
FIRST_LABEL = {"tfrecord": 1, "mnist": 0}
LAYOUTS: Registry[Callable[[Source, Codec], Iterator[Image]]] = Registry("layout of images")


@LAYOUTS.register("folder")
def _read_folder(source: Source, codec: Codec) -> Iterator[Image]:
    """Yield the images of a folder with a sub-folder per class; classes and images sorted by name."""
    for label, folder in enumerate(_list_class_folders(source)):
        number = 0
        for path in file_sets.iterate_files(folder):
            number += 1
            yield Image(path.read_bytes(), label, str(path))
        if not number:
            raise StudyError(f"{folder}: the folder of this class has no images; restore them, or delete the folder")


def _list_class_folders(source: Source) -> list[Path]:
    """Folders of the classes; raises `StudyError` for images beside them, which would have no class."""
    folder = source.one_path
    if folder.is_file():
        description = file_kinds.describe_file(folder, of_images=True)
        raise StudyError(f"{folder}: is a file, a folder with one sub-folder per class is expected: {description}")
    entries = sorted(path for path in folder.iterdir() if not file_sets.is_left_out(path.name))
    for path in entries:
        if not path.exists():
            raise StudyError(f"{path}: is a link to nothing; restore what it links to, or delete it")
    class_folders = [path for path in entries if path.is_dir()]
    if not class_folders:
        raise StudyError(f"{folder}: is no folder with one sub-folder per class")
    for path in _find_stray_images(folder):
        raise StudyError(f"{path}: is in no class's folder; move it into one, or out of {folder}")
    return class_folders


def _find_stray_images(folder: Path) -> list[Path]:
    """Images beside the folders of the classes."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    named = (path for path in entries if path.suffix.lower() in IMAGE_SUFFIXES and not file_sets.is_left_out(path.name))
    return [path for path in named if path.is_file()]


@LAYOUTS.register("tfrecord")
def _read_tfrecords(source: Source, codec: Codec) -> Iterator[Image]:
    """Yield the images of ImageNet's TFRecords: ``image/encoded`` and ``image/class/label``."""
    first_label = FIRST_LABEL["tfrecord"] if source.first_label is None else source.first_label
    for path in source.paths:
        _check_tfrecord(path)
        records = codec.read_records(path, text_file.find_tfrecord_compression(path))
        for number in range(1 << 62):
            where = f"{path}: record {number}"
            try:
                record = next(records)
            except StopIteration:
                if not number:
                    raise StudyError(f"{path}: has no records; restore it") from None
                break
            except CodecError as error:
                raise StudyError(f"{where}: the file is cut off or damaged: {error}; restore it") from None
            try:
                features = codec.parse_features(record)
            except CodecError as error:
                raise StudyError(f"{where}: {error}") from None
            content, label = _read_example(features, where)
            yield Image(content, label - first_label, where)


def _read_example(features: Mapping[str, tuple[str, Sequence[Any]]], where: str) -> tuple[bytes, int]:
    """(encoded image, label) of one record."""
    return _read_only_value(features, "image/encoded", "bytes_list", where), _read_only_value(
        features, "image/class/label", "int64_list", where
    )


def _read_only_value(features: Mapping[str, tuple[str, Sequence[Any]]], name: str, kind: str, where: str) -> Any:
    """The one value of a feature; raises `StudyError` if it is missing, of another type or not single."""
    if name not in features:
        raise StudyError(f"{where}: has no feature {name}; its features: {', '.join(sorted(features)) or 'none'}")
    found_kind, values = features[name]
    if found_kind != kind:
        raise StudyError(f"{where}: {name} is {TYPES[found_kind]}, {TYPES[kind]} is expected; write it as such")
    if len(values) != 1:
        raise StudyError(f"{where}: {name} has {len(values)} values, one is expected: an image has one class")
    return values[0]


def _check_tfrecord(path: Path) -> None:
    """Raise `StudyError` for a file that does not begin as TFRecords do, compressed or not.

    A file of a few bytes is none with no records to TensorFlow.
    """
    head = file_kinds.read_first_bytes(path)
    if not head or file_kinds.is_tfrecord(file_kinds.decompress_head(head)):
        return
    kind = file_kinds.recognize_file(path)
    if kind is not None and kind.name != text_file.COMPRESSED:
        raise StudyError(f"{path}: is no TFRecord file: {kind.to_sentence(of_images=True)}")
    raise StudyError(
        f"{path}: record 0: is no TFRecord file, or damaged at its begin: {file_kinds.describe_beginning(head)}"
    )


@LAYOUTS.register("mnist")
def _read_mnist(source: Source, codec: Codec) -> Iterator[Image]:
    """Yield the images of MNIST's idx files, whose labels' file has ``labels-idx1`` for ``images-idx3``.

    QMNIST's labels, ``labels-idx2-int``, have eight integers for each image, of which the first is its class. Sources
    of the formats: yann.lecun.com/exdb/mnist, github.com/facebookresearch/qmnist.
    """
    path, other = _find_mnist_files(source)
    images, labels = _read_idx(path, IDX_IMAGES, 3), _read_labels(other)
    if len(images) != len(labels):
        raise StudyError(f"{path}: has {len(images)} images, but {other.name} has {len(labels)} labels")
    first = source.first_label or FIRST_LABEL["mnist"]
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        yield Image(codec.encode_png(pixels[..., None]), int(label) - first, f"{path}: record {number}")


def _find_mnist_files(source: Source) -> tuple[Path, Path]:
    """(file of images, file of labels); raises `StudyError` if one is missing."""
    path = source.one_path
    other = _locate_labels(path)
    if other == path:
        raise StudyError(f"{path}: its name has no `images` where that of its labels would have `labels`; rename both")
    if not other.exists():
        raise StudyError(f"{path}: there is no file of its labels, {other.name}, beside it")
    return path, other


def _locate_labels(path: Path) -> Path:
    """Path of the labels' file beside the images'; QMNIST's only if there is no other."""
    name = path.name.replace("images", "labels")
    usual, of_qmnist = (path.with_name(name.replace("idx3", "idx1")), path.with_name(name.replace(*QMNIST_NAMES)))
    return of_qmnist if of_qmnist != path and of_qmnist.exists() and not usual.exists() else usual


def _read_labels(path: Path) -> NDArray[Any]:
    """Labels in an idx file, one per image."""
    if QMNIST_NAMES[1] not in path.name:
        return _read_idx(path, IDX_LABELS, 1)
    rows = _read_idx(path, IDX_QMNIST_LABELS, 2, ">i4")
    if rows.shape[1] != QMNIST_COLUMNS:
        raise StudyError(f"{path}: has {rows.shape[1]} numbers for each image; QMNIST's labels have {QMNIST_COLUMNS}")
    return rows[:, 0]


def _read_idx(path: Path, magic: int, dimensions: int, number: str = "u1") -> NDArray[Any]:
    """Numbers of an idx file. number: NumPy's name of their type, which ``magic`` stands for."""
    raw = text_file.read_content(path).tobytes()
    begin = 4 + 4 * dimensions
    if len(raw) < begin or struct.unpack(">I", raw[:4])[0] != magic:
        raise StudyError(
            f"{path}: is no idx file of {IDX_NUMBERS[number]} in {dimensions} dimensions, it does not begin with "
            f"{magic}: {_describe_other_idx(path, raw[:4])}"
        )
    shape = struct.unpack(f">{dimensions}I", raw[4:begin])
    record_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(number).itemsize
    expected = begin + shape[0] * record_bytes
    if len(raw) != expected:
        record = (len(raw) - begin) // max(1, record_bytes)
        raise StudyError(f"{path}: record {record}: the file has {len(raw)} bytes, not {expected}; restore it")
    return np.frombuffer(raw, number, offset=begin).reshape(shape)


def _describe_other_idx(path: Path, begin: bytes) -> str:
    """What a file is, for a message that another idx file is expected."""
    if file_kinds.is_idx(begin + bytes(4)):
        kind = "bytes" if begin[2] == IDX_BYTES else "other numbers than bytes"
        return f"it is an idx file of {kind}, with {begin[3]} dimensions; give that of images, with labels beside it"
    return file_kinds.describe_file(path, of_images=True)


def _explain_unlike_cifar10(path: Path, size: int) -> str | None:
    """What kind of file is given in place of CIFAR-10's, and the remedy; None if it may be cut off."""
    is_label = file_kinds.read_first_bytes(path, 1) < bytes([CIFAR_CLASSES])  # which other kinds may begin with
    kind = None if is_label else file_kinds.recognize_file(path)
    if kind is not None and kind.name != text_file.COMPRESSED and file_kinds.recognize_cifar(size) != "CIFAR-10":
        expected_file = (
            "the file in it of the archive cifar-10-binary.tar.gz" if "archive" in kind.name else "the binary version"
        )
        return f"{kind.name}; give {expected_file} (data_batch_1.bin)"
    if file_kinds.recognize_cifar(size) == "CIFAR-100":
        return "CIFAR-100's, with two labels a record (3,074 bytes); drop the first label of each record"
    return None


def _suggest_other_file(path: Path, raw: NDArray[np.uint8]) -> str:
    """Words about what else a file of a wrong size may be, for CIFAR-10's message."""
    kind = file_kinds.recognize_file(path)
    if len(raw) and raw[0] >= CIFAR_CLASSES:
        return (
            f", or give another file: its first byte is no class, {file_kinds.describe_beginning(raw[:16].tobytes())}"
        )
    return (
        f", unless {kind.to_sentence(of_images=True)}" if kind is not None and kind is not file_kinds.UNWRITTEN else ""
    )


@LAYOUTS.register("cifar10")
def _read_cifar10(source: Source, codec: Codec) -> Iterator[Image]:
    """Yield the images of CIFAR-10's binary version: a label byte, then 1,024 bytes each of red, green, blue.

    Source of the format: cs.toronto.edu/~kriz/cifar.html.
    """
    record_bytes = 1 + 3 * CIFAR_SIDE**2
    for path in source.paths:
        raw = text_file.read_content(path)
        if unlike := _explain_unlike_cifar10(path, len(raw)):
            raise StudyError(f"{path}: is no binary file of CIFAR-10: it is {unlike}")
        if not len(raw) or len(raw) % record_bytes:
            raise StudyError(
                f"{path}: record {len(raw) // record_bytes}: the file is cut off: {len(raw)} bytes are no multiple of "
                f"{record_bytes}; restore it{_suggest_other_file(path, raw)}"
            )
        for number, record in enumerate(raw.reshape(-1, record_bytes)):
            pixels = record[1:].reshape(3, CIFAR_SIDE, CIFAR_SIDE).transpose(1, 2, 0)
            yield Image(codec.encode_png(pixels), int(record[0]), f"{path}: record {number}")
