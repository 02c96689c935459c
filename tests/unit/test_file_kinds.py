"""Every kind of file that is known, given as every kind of input: read, or refused as what it is, in one line."""

import bz2
import gzip
import io
import lzma
import pickle
import struct
import zipfile
import zlib

import numpy as np
import pytest

from study.backends.tensorflow import image_codec
from study.core import file_kinds
from study.core.errors import StudyError
from study.data.conversion import convert
from study.data.images import codec, conversion
from study.data.images.formats import open_format
from study.data.images.layouts import Source
from study.data.tabular import Form
from study.instruments.timeline import summarize_timeline

LINES = "".join(f"{row % 2},{row * 1.5},2\n" for row in range(40))
IMAGE = image_codec.encode_png(np.zeros((8, 8, 3), np.uint8))


def _zip(member):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(member, "1,2\n")
    return held.getvalue()


def _npy():
    held = io.BytesIO()
    np.save(held, np.ones((2, 2)))
    return held.getvalue()


def _record():
    """One record of a TFRecord file, framed by hand."""
    body, masked = image_codec.make_example(IMAGE, 1), []
    for part in (struct.pack("<Q", len(body)), body):
        found = file_kinds.compute_crc32c(part)
        masked.append(struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF))
    return struct.pack("<Q", len(body)) + masked[0] + body + masked[1]


UNWRITTEN = file_kinds.UNWRITTEN.name
REST = bytes(range(256)) * 4  # what follows a signature in a binary file
# {name of the kind: files of it}
FILES = {
    "a Git LFS pointer, not the file itself": [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"],
    "a web page or XML file": [b"\n<!DOCTYPE html>\n<p>Log in\n", b'<?xml version="1.0"?>\n<rows/>\n', b"<svg>\n"],
    "an error message of a server": [b"404: Not Found", b"HTTP/1.1 403 Forbidden\n", b"Access Denied\n"],
    "a JSON error message of a server": [b'{"message": "Not Found"}\n'],
    "a JSON file": [b'{"a": 1}\n{"a": 2}\n', b"[[1, 2], [3, 4]]\n"],
    "compressed with gzip": [gzip.compress(gzip.compress(LINES.encode()))],
    "compressed (bzip2, xz, Zstandard, LZ4 or 7-Zip)": [
        bz2.compress(LINES.encode()), lzma.compress(LINES.encode()), b"\x28\xb5\x2f\xfd" + REST,
        b"\x04\x22\x4d\x18" + REST, b"7z\xbc\xaf\x27\x1c" + REST],
    "a tar archive": [b"data.csv".ljust(257, b"\0") + b"ustar\0" + LINES.encode()],
    "a zip archive": [_zip("data.csv"), _zip("xl/workbook.xml")],
    "a NumPy array (.npy)": [_npy()],
    "an HDF5 file": [b"\x89HDF\r\n\x1a\n" + REST],
    "a Parquet, Arrow or Feather file": [b"PAR1" + REST, b"ARROW1\0\0" + REST, b"FEA1" + REST],
    "an LMDB data base": [b"\0" * 16 + b"\xde\xc0\xef\xbe" + REST],
    "a TFRecord file": [_record()],
    "a Python pickle": [pickle.dumps({"x": [1.0]}, protocol) for protocol in (2, 4, 5)],
    "a JPEG or PNG image": [codec.JPEG + b"\xe0" + REST, IMAGE],
    "a GIF, BMP, TIFF or WebP image": [
        b"GIF89a" + REST, struct.pack("<2sIIII", b"BM", 999, 0, 54, 40) + REST, b"II*\0" + REST,
        b"RIFF\x24\0\0\0WEBP" + REST],
    "an idx file, as MNIST's": [struct.pack(">IIII", 0xD03, 1, 2, 2) + bytes(16)],
    "text in UTF-16, as Excel's 'Unicode text'": [LINES.encode("utf-16")],
    "text with a byte order mark of UTF-8": [LINES.encode("utf-8-sig")],
    "compressed with zlib": [zlib.compress(LINES.encode())],
    UNWRITTEN: [bytes(500)],
}  # fmt: skip


def as_table(folder, path):
    form = Form.from_spec({"header": False, "codes": [{"column": 0, "values": [0, 1]}]})
    convert(path, folder / "m.npy", folder / "m.json", form)


def as_images(layout):
    return lambda folder, path: [image.label for image in Source(layout, str(path)).images(image_codec)]


def as_one_image(folder, path):
    conversion.decode_image(path.read_bytes(), str(path), 3, image_codec)


def as_stored_lmdb(folder, path):
    """In place of the database that was made for a run."""
    stored = folder / "converted.lmdb"
    stored.mkdir(exist_ok=True)
    np.savez(stored / "index.npz", label=np.zeros(1, np.int64), bytes=np.zeros(1, np.int64))
    (stored / "images.lmdb").write_bytes(path.read_bytes())
    open_format("lmdb", stored, 1)


INPUTS = {
    "table": as_table, "image": as_one_image, "timeline": lambda folder, path: summarize_timeline(path),
    "stored lmdb": as_stored_lmdb,
    **{layout: as_images(layout) for layout in ("tfrecord", "mnist", "cifar10", "folder")},
}  # fmt: skip
# What an input reads of its own kind, or tells as damaged.
OWN = {
    "image": ["a JPEG or PNG image"],
    "tfrecord": ["a TFRecord file"],
    "stored lmdb": ["an LMDB data base"],
    "timeline": ["a JSON file", "a JSON error message of a server", "compressed with gzip", UNWRITTEN],
    "mnist": ["an idx file, as MNIST's"],
    "cifar10": [UNWRITTEN],
}  # fmt: skip


@pytest.mark.parametrize("given", INPUTS)
def test_every_kind_as_every_input(tmp_path, given):
    """A message names the kind, is one line, has what to do, and does not advise what is done already."""
    wrong = []
    for number, (name, files) in enumerate(FILES.items()):
        for part, content in enumerate(files):
            path = tmp_path / f"{number}-{part}-images-idx3"
            path.write_bytes(content)
            path.with_name(path.name.replace("images-idx3", "labels-idx1")).write_bytes(content)
            try:
                INPUTS[given](tmp_path, path)
                said = "read"
            except StudyError as error:
                said = str(error)
            except Exception as error:  # noqa: BLE001 - a traceback for a user
                said = f"{type(error).__name__}: {error}"
            is_named = name in said or ("CIFAR" in said and "binary version" in said)
            if name not in OWN.get(given, ()) and not (is_named and "; " in said and "\n" not in said):
                wrong.append(f"{name}: {said}")
    assert wrong == []


@pytest.mark.parametrize("name", FILES)
def test_first_bytes_cut_off_anywhere_are_looked_at_without_an_error(name):
    for content in FILES[name]:
        for size in range(min(len(content), 300)):
            file_kinds.recognize_bytes(content[:size])
