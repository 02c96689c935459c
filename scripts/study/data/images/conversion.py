"""Convert a file of an image dataset into the format from which a run reads it; every image is decoded once.

An image that cannot be decoded, or has an unknown class, ends the conversion with file and record, and no output.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from study.core.errors import StudyError
from study.core.file_kinds import describe_beginning, recognize_bytes
from study.core.files import write_sealed
from study.data import source_state
from study.data.images import damage
from study.data.images.codec import Codec, CodecError, find_extension, has_16_bits
from study.data.images.formats import FORMATS, INDEX, CheckedImage
from study.data.images.layouts import FIRST_LABEL, Source

CONVERTER_VERSION = 1


MOST_PIXELS = 200_000_000  # of an image, 600 MB of colours
MOST_ELONGATED = 100  # longer side / shorter side of an image


@dataclass(frozen=True)
class Options:
    """What a dataset's images become. side: of the square to which they are scaled. classes: their number."""

    classes: int
    channels: int
    side: int


@dataclass
class _ImageFacts:
    """Facts about the images for index and sidecar, gathered as they pass."""

    labels: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)


def convert(
    source: Source,
    name: str,
    folder: str | Path,
    sidecar: str | Path,
    options: Options,
    codec: Codec,
    samples: int | None = None,
    token: str | None = None,
) -> None:
    """Convert the images of ``source`` to the format ``name``: ``folder`` and its ``sidecar``, whole or not at all.

    codec: that reads and decodes the images. samples: the expected number, None if unknown. token: of
    `study.data.source_state`, for the sidecar.

    Raises:
        StudyError: a file is damaged, an image cannot be decoded, a class is unknown, or the number is another.
    """
    before = source_state.read_state(source.read_files)
    names = source.class_names()
    if names is not None and len(names) != options.classes:
        raise StudyError(f"{source.path}: has {len(names)} sub-folders, but the dataset has {options.classes} classes")
    folder, facts = Path(folder), _ImageFacts()
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    aside.mkdir(parents=True)
    try:
        index = FORMATS[name].write(
            aside, _check_images(source, options, facts, FORMATS[name].has_pixels, codec), codec
        )
        _check_number(source, len(facts.labels), samples)
        source_note = source_state.make_note(before, source.read_files, token)
        labels, sizes = np.array(facts.labels, np.int64), np.array(facts.sizes, np.int64)
        np.savez(aside / INDEX, label=labels, bytes=sizes, **index)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    write_sealed(
        sidecar,
        {
            "schema_version": 1,
            **describe_conversion(source, options),
            "format": name,
            "shape": [len(labels), options.side**2 * options.channels],
            "classes": options.classes,
            "class_names": names,
            # All images and labels in their order: equal for all formats of a dataset.
            source_state.NOTE: source_note,
            "source": {"name": Path(source.path).name, "bytes": int(sizes.sum()), "sha256": facts.digest.hexdigest()},
        },
    )


def describe_conversion(source: Source, options: Options) -> dict[str, Any]:
    """The converter's version and definition, as the sidecar of images has them."""
    first_label = FIRST_LABEL.get(source.layout) if source.first_label is None else source.first_label
    read = {**asdict(options), "layout": source.layout, "first_label": first_label}
    return {"converter_version": CONVERTER_VERSION, "definition": read}


def _check_images(
    source: Source, options: Options, facts: _ImageFacts, with_pixels: bool, codec: Codec
) -> Iterator[CheckedImage]:
    """Yield each image once its label is checked and it is decoded; adds to ``facts``."""
    for image in tqdm(source.images(codec), unit="image", desc=Path(source.path).name, mininterval=1):
        if not 0 <= image.label < options.classes:
            hint = "; if labels begin with 0, give first_label: 0" if image.label == -1 else ""
            raise StudyError(
                f"{image.where}: its class is {image.label}, but there are {options.classes} classes, from 0{hint}"
            )
        pixels = decode_image(image.content, image.where, options.channels, codec)
        facts.labels.append(image.label)
        facts.sizes.append(len(image.content))
        facts.digest.update(b"%d %d\n" % (image.label, len(image.content)))
        facts.digest.update(image.content)
        scaled = codec.cut_square(pixels, options.side) if with_pixels else None
        yield CheckedImage(image.content, image.label, scaled)


def decode_image(content: bytes, where: str, channels: int, codec: Codec) -> Any:
    """The decoded pixels of one image; raises `StudyError` if it is none or damaged. where: for the message."""
    if find_extension(content) is None:
        kind = recognize_bytes(content)
        reason = kind.to_sentence(of_images=True) if kind else f"{describe_beginning(content)}; give JPEG or PNG files"
        raise StudyError(f"{where}: is neither JPEG nor PNG: {reason}")
    if has_16_bits(content):
        raise StudyError(
            f"{where}: has 16 bits per channel, of which only the upper 8 would be used; convert it to 8 bits, with "
            "the range of values that matters"
        )
    if size := damage.read_size(content):
        _refuse_size(*size, where)
    try:
        pixels, damaged = damage.decode_and_check(content, channels, codec)
    except CodecError as error:
        raise StudyError(f"{where}: cannot be decoded: {error}") from None
    if damaged:
        raise StudyError(f"{where}: cannot be decoded completely: {damaged}; restore the image")
    return pixels


def _refuse_size(height: int, width: int, where: str) -> None:
    """Raise `StudyError` for an image whose pixels would fill the memory: a small file may tell any size."""
    if height * width > MOST_PIXELS:
        raise StudyError(f"{where}: has {width} x {height} pixels, more than {MOST_PIXELS:,}; scale it down")
    if max(height, width) > MOST_ELONGATED * min(height, width):
        raise StudyError(
            f"{where}: has {width} x {height} pixels: scaled to the network's side, its longer one would be more than "
            f"{MOST_ELONGATED} times as long; crop the image, or leave it out"
        )


def _check_number(source: Source, found: int, expected: int | None) -> None:
    """Raise `StudyError` if the number of images is not the expected one."""
    if not found or expected not in (None, found):
        raise StudyError(f"{source.path}: has {found} images, {expected or 'at least one'} expected; is it whole?")
