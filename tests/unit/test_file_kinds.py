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
from study.data import formats
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
    "a git-annex pointer, not the file itself": [b"/annex/objects/MD5E-s5--abc.csv\n", b"../.git/annex/objects/x/y\n"],
    "a DVC pointer, not the file itself": [b"outs:\n- md5: 00\n  path: data.csv\n"],
    "a web page": [b"\n<!DOCTYPE html>\n<p>Log in\n", b"<html><head>\n"],
    "an XML error message of a server": [b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code></Error>\n'],
    "an SVG image": [b"<svg>\n", b'<?xml version="1.0"?>\n<svg>\n'],
    "an XML file": [b'<?xml version="1.0"?>\n<rows/>\n'],
    "an error message of a server": [b"404: Not Found", b"HTTP/1.1 403 Forbidden\n", b"Access Denied\n"],
    "a JSON error message of a server": [b'{"message": "Not Found"}\n'],
    "a JSON file": [b'{"a": 1}\n{"a": 2}\n', b"[[1, 2], [3, 4]]\n"],
    "encrypted": [b"-----BEGIN PGP MESSAGE-----\n", b"Salted__" + REST],
    "an R data file (.rds, .RData)": [b"RDX3\nX\n" + REST, b"X\n\0\0\0\x03" + REST],
    "a Stata file": [b"<stata_dta><header>\n", b"\x72\x02\x01\0" + REST],
    "a Python pickle": [pickle.dumps({"x": [1.0]}, protocol) for protocol in (0, 2, 4, 5)],
    "a PDF document": [b"%PDF-1.7\n" + REST],
    "a PostScript document": [b"%!PS-Adobe-3.0\n"],
    "an RTF document": [b"{\\rtf1\\ansi\n"],
    "a script": [b"#!/bin/sh\necho 1,2\n"],
    "an ARFF file of Weka": [b"% note\n\n@RELATION x\n@attribute a numeric\n@data\n1,2\n"],
    "a GCT file of GenePattern": [b"#1.2\n2\t3\nName\tDescription\ts1\n"],
    "a text file of GEO": [b'!Series_title\t"x"\n', b"^SERIES = GSE1\n"],
    "a SAS transport file (.xpt)": [b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!" + b"0" * 30 + b"\n"],
    "a FITS file": [b"SIMPLE  =                    T".ljust(5760)],
    "an error message of a download": [b"curl: (22) The requested URL returned error: 404\n"],
    "text with a line for Excel, sep=, before the table": [b"sep=,\r\n0,1,2\r\n", b"SEP=;\n0;1;2\n"],
    "compressed with gzip": [gzip.compress(gzip.compress(LINES.encode()))],
    "compressed with bzip2": [bz2.compress(LINES.encode())],
    "compressed with xz": [lzma.compress(LINES.encode())],
    "compressed with LZMA": [lzma.compress(LINES.encode(), lzma.FORMAT_ALONE)],
    "compressed with Zstandard": [b"\x28\xb5\x2f\xfd" + REST],
    "compressed with LZ4": [b"\x04\x22\x4d\x18" + REST],
    "compressed with Snappy": [b"\xff\x06\0\0sNaPpY" + REST],
    "compressed with LZO": [b"\x89LZO\0\r\n\x1a\n" + REST],
    "compressed with lzip": [b"LZIP\x01" + REST],
    "compressed with compress": [b"\x1f\x9d\x90" + REST],
    "a 7-Zip archive": [b"7z\xbc\xaf\x27\x1c" + REST],
    "a RAR archive": [b"Rar!\x1a\x07\0" + REST],
    "a tar archive": [b"data.csv".ljust(257, b"\0") + b"ustar\0" + LINES.encode()],
    "a zip archive": [_zip("data.csv")],
    "a NumPy array (.npy)": [_npy()],
    "a MATLAB file (.mat)": [b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\x01IM" + REST],
    "an HDF5 file": [b"\x89HDF\r\n\x1a\n" + REST, b"\0" * 511 + b"\x01\x89HDF\r\n\x1a\n"],
    "a NetCDF file": [b"CDF\x01" + REST],
    "a Parquet file": [b"PAR1" + REST],
    "an Arrow or Feather file": [b"ARROW1\0\0" + REST, b"FEA1" + REST],
    "an ORC file": [b"ORC\x0a" + REST],
    "an Avro file": [b"Obj\x01" + REST],
    "an SQLite data base": [b"SQLite format 3\0" + REST],
    "a SAS file": [b"\0" * 12 + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf" + REST],
    "an SPSS file": [b"$FL2@(#)" + REST],
    "a DICOM image": [b"\0" * 128 + b"DICM" + REST],
    "an Excel (.xls) or other old Office file": [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + REST],
    "an LMDB data base": [b"\0" * 16 + b"\xde\xc0\xef\xbe" + REST],
    "an LMDB data base of a big-endian machine": [b"\0" * 16 + b"\xbe\xef\xc0\xde" + REST],
    "a TFRecord file": [_record()],
    "an MXNet RecordIO file": [b"\x0a\x23\xd7\xce" + REST],
    "macOS's notes on a file, not the file itself": [b"\0\5\x16\7\0\2\0\0Mac OS X" + REST],
    "a property list of macOS": [b"bplist00" + REST],
    "a shortcut of Windows, not the file itself": [b"L\0\0\0\1\x14\2\0" + REST],
    "a safetensors file": [struct.pack("<Q", 64) + b'{"w":{"dtype":"F32"}}' + REST],
    "a JPEG image": [codec.JPEG + b"\xe0" + REST],
    "a PNG image": [IMAGE],
    "a GIF image": [b"GIF89a" + REST],
    "a BMP image": [struct.pack("<2sIIII", b"BM", 999, 0, 54, 40) + REST],
    "a TIFF image": [b"II*\0" + REST],
    "a WebP image": [b"RIFF\x24\0\0\0WEBP" + REST],
    "a HEIF or AVIF image": [b"\0\0\0\x20ftypavif" + REST],
    "a JPEG 2000 image": [b"\0\0\0\x0cjP  \r\n\x87\n" + REST],
    "a JPEG XL image": [b"\xff\x0a" + REST],
    "a Photoshop image": [b"8BPS\0\1" + REST],
    "a Netpbm image": [b"P6\n8 8\n255\n" + REST],
    "an ICO image": [b"\0\0\1\0\1\0" + REST],
    "a sound or video file": [b"RIFF\x24\0\0\0WAVEfmt " + REST, b"\0\0\0\x20ftypisom" + REST],
    "a program": [b"\x7fELF\x02" + REST],
    "an idx file, as MNIST's": [struct.pack(">IIII", 0xD03, 1, 2, 2) + bytes(16)],
    "text in UTF-32": [LINES.encode("utf-32")],
    "text in UTF-16, as Excel's 'Unicode text'": [LINES.encode("utf-16")],
    "text with a byte order mark of UTF-8": [LINES.encode("utf-8-sig")],
    "text in UTF-32 without a byte order mark": [LINES.encode("utf-32-le")],
    "text in UTF-16 without a byte order mark": [LINES.encode("utf-16-le"), LINES.encode("utf-16-be")],
    "compressed with zlib": [zlib.compress(LINES.encode())],
    UNWRITTEN: [bytes(500)],
    "an Excel file (.xlsx)": [_zip("xl/workbook.xml")],
    "an Office document": [_zip("word/document.xml")],
    "an OpenDocument file": [_zip("content.xml")],
    "a Numbers document": [_zip("Index/Document.iwa")],
    "a PyTorch file (.pt)": [_zip("model/data.pkl")],
    "a Keras file (.keras)": [_zip("model.weights.h5")],
    "a NumPy archive (.npz)": [_zip("x.npy")],
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
    **{f"format {name}": lambda folder, path, name=name: formats.read_matrix(name, path) for name in formats.FORMATS},
}  # fmt: skip
# What an input reads of its own kind, or tells as damaged.
OWN = {
    "format npy": ["a NumPy array (.npy)"],
    "image": ["a JPEG image", "a PNG image"],
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
