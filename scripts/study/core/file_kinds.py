"""What a file is, by its first bytes, and what to do about one that is not what was expected.

Asked before a file is called damaged: one that is whole, but compressed, in another encoding or in another program's
format, need not be fetched again. Known are the kinds that people give by mistake most often; `file FILE` tells all
others.
"""

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from study.core.files import AnyPath

HEAD_BYTES = 4096  # of a file that are looked at
SHOWN_BYTES = 16  # of them in a message
GZIP = b"\x1f\x8b"
MOST_DIMENSIONS = 8  # of an idx file
CASTAGNOLI = 0x82F63B78  # polynomial of CRC-32C, reversed
CIFAR_PIXELS = 3 * 32**2
PLAIN = re.compile(rb"[\t\n\f\r\x20-\x7e]*")


@dataclass(frozen=True)
class FileKind:
    """What a file is.

    Args:
        name: such as "a zip archive".
        remedy: what makes of it a file that can be read, such as a command with FILE in place of its name.
        is_answer: whether it came in place of the file: a server's page or error, a pointer to where the file is.
        as_images: what to do instead where images are expected, and not a table of numbers.
    """

    name: str
    remedy: str
    is_answer: bool = False
    as_images: str | None = None

    def to_sentence(self, of_images: bool = False) -> str:
        """Kind and remedy as a sentence: "it is a zip archive; unpack it ...". of_images: if images are expected."""
        return f"it is {self.name}; {(of_images and self.as_images) or self.remedy}"


Test = bytes | re.Pattern[bytes] | Callable[[bytes], bool]
AS_TEXT = "give the text file that it was made from, or export it as comma-separated text"
ASK_AGAIN = "fetch the file again, from where it is given out"
AS_IMAGES = "write its images as JPEG or PNG files, one folder per class, and read them with layout: folder"


def is_zlib(head: bytes) -> bool:
    """True if bytes begin a zlib stream (RFC 1950); they are decompressed, since a text may begin alike."""
    if len(head) < 2 or head[0] != 0x78 or (head[0] << 8 | head[1]) % 31:
        return False
    try:
        return bool(zlib.decompressobj().decompress(head)) or len(head) < 64
    except zlib.error:
        return False


def is_tfrecord(head: bytes) -> bool:
    """True if bytes begin with a TFRecord's length and the right checksum of it."""
    if len(head) < 12:
        return False
    checksum = compute_crc32c(head[:8])
    masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.unpack("<I", head[8:12])[0] == masked


def compute_crc32c(content: bytes) -> int:
    """CRC-32C of a few bytes (RFC 3720, appendix B.4)."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (CASTAGNOLI if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def is_idx(head: bytes) -> bool:
    """True if bytes begin an idx file: two zeros, a type, a number of dimensions (yann.lecun.com/exdb/mnist)."""
    return (
        len(head) >= 8 and head[:2] == b"\0\0" and head[2] in (8, 9, 11, 12, 13, 14) and 0 < head[3] <= MOST_DIMENSIONS
    )


def _is_lmdb(head: bytes) -> bool:
    return head[16:20] in (b"\xde\xc0\xef\xbe", b"\xbe\xef\xc0\xde")


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _is_all_zeros(head: bytes) -> bool:
    return len(head) > 0 and not head.strip(b"\0")


def _define_program(name: str, remedy: str = AS_TEXT) -> FileKind:
    """The kind of a file in a program's own format."""
    return FileKind(name, remedy, as_images=AS_IMAGES)


UNWRITTEN = FileKind("zero bytes where its content should begin", "it was never written there: fetch it again")

# The first that fits is right. Those of `_TEXT_KINDS` may be plain ASCII.
_TEXT_KINDS: list[tuple[Test, FileKind]] = [
    (
        b"version https://git-lfs.github.com/spec/",
        FileKind("a Git LFS pointer, not the file itself", "run `git lfs pull` in its repository", True),
    ),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|head|body|title|script|meta|\?xml|error|message|svg)\b", re.I),
        FileKind("a web page or XML file", ASK_AGAIN + "; the server may want a log-in", True),
    ),
    (
        re.compile(
            rb"\s*(HTTP/\d(\.\d)? \d{3}|[45]\d\d: ?[A-Z]|(access denied|not found|forbidden|unauthorized)\b)", re.I
        ),
        FileKind("an error message of a server", ASK_AGAIN, True),
    ),
    (
        re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"(message|error|errors|detail|status|statuscode|code|success)"\s*:', re.I),
        FileKind("a JSON error message of a server", ASK_AGAIN, True),
    ),
    (
        re.compile(rb"\xef\xbb\xbf?\s*[\[{]|\s*(\{\s*[\"}]|\[\s*([\[{\"\]]|-?\d))"),
        FileKind("a JSON file", "export it as comma-separated text"),
    ),
]

# Kinds of binary files and of texts in other encodings: a table may begin with their letters ("PAR1"), and goes on in
# ASCII.
_BINARY_KINDS: list[tuple[Test, FileKind]] = [
    (GZIP, FileKind("compressed with gzip", "decompress it with `gunzip FILE.gz` and give that file")),
    (
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|7z\xbc\xaf\x27\x1c"),
        FileKind("compressed (bzip2, xz, Zstandard, LZ4 or 7-Zip)", "decompress it, or compress it with gzip instead"),
    ),
    (_is_tar, FileKind("a tar archive", "unpack it with `tar -xf FILE` and give the file in it")),
    (
        re.compile(rb"PK(\x03\x04|\x05\x06|\x07\x08)"),
        FileKind("a zip archive", "unpack it with `unzip FILE` and give the file in it; export one of Excel as CSV"),
    ),
    (b"\x93NUMPY", _define_program("a NumPy array (.npy)", "write its array with numpy.savetxt(..., delimiter=',')")),
    (b"\x89HDF\r\n\x1a\n", _define_program("an HDF5 file")),
    (re.compile(rb"PAR[1E]|ARROW1|FEA1"), _define_program("a Parquet, Arrow or Feather file")),
    (_is_lmdb, _define_program("an LMDB data base")),
    (is_tfrecord, _define_program("a TFRecord file")),
    (re.compile(rb"\x80[\x02-\x05](\x95|[}\](\x8ac])", re.S), _define_program("a Python pickle")),
    (
        re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n"),
        FileKind("a JPEG or PNG image", "give the right file", as_images="read it with layout: folder"),
    ),
    (
        re.compile(rb"GIF8[79]a|BM.{4}\0{4}.{4}\x28\0\0\0|II[*+]\0|MM\0[*+]|RIFF.{4}WEBP", re.S),
        FileKind("a GIF, BMP, TIFF or WebP image", "give the right file", as_images="convert it to PNG or JPEG"),
    ),
    (is_idx, FileKind("an idx file, as MNIST's", "give the right file", as_images="read it with layout: mnist")),
    (
        re.compile(rb"\xff\xfe|\xfe\xff"),
        FileKind(
            "text in UTF-16, as Excel's 'Unicode text'", "write it as UTF-8: `iconv -f UTF-16 -t UTF-8 FILE > NEW`"
        ),
    ),
    (
        b"\xef\xbb\xbf",
        FileKind("text with a byte order mark of UTF-8", "remove it: `sed -i '1s/^\\xEF\\xBB\\xBF//' FILE`"),
    ),
    (is_zlib, FileKind("compressed with zlib", "decompress it with Python's zlib module, and give that file")),
    (_is_all_zeros, UNWRITTEN),
]


def read_first_bytes(path: AnyPath, number: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file; none if it is no regular file or cannot be read."""
    try:
        if not Path(path).is_file():
            return b""
        with open(path, "rb", buffering=0) as handle:  # a buffer would read more than these, which counts as a read
            return handle.read(number)
    except OSError:
        return b""


def recognize_bytes(head: bytes) -> FileKind | None:
    """The kind of a file with these first bytes; None if unknown, as for plain text."""
    kinds = _TEXT_KINDS if PLAIN.fullmatch(head) else (*_TEXT_KINDS, *_BINARY_KINDS)
    return next((kind for test, kind in kinds if _fits(test, head)), None)


def _fits(test: Test, head: bytes) -> bool:
    """True if the first bytes of a file pass a test."""
    if isinstance(test, bytes):
        return head.startswith(test)
    return bool(test.match(head) if isinstance(test, re.Pattern) else test(head))


def recognize_file(path: AnyPath) -> FileKind | None:
    """The kind of a file; None if unknown, as for plain text.

    One that is compressed with gzip and holds something else than text is called both.
    """
    head = read_first_bytes(path)
    kind = recognize_bytes(head)
    inner = recognize_bytes(decompress_head(head)) if kind is not None and head.startswith(GZIP) else None
    if kind is not None and inner is not None:
        as_images = inner.as_images and f"{kind.remedy}; then {inner.as_images}"
        remedy = f"{kind.remedy}; then {inner.remedy}"
        return FileKind(f"{kind.name}, and in it {inner.name}", remedy, inner.is_answer, as_images)
    return kind


def decompress_head(head: bytes) -> bytes:
    """The first decompressed bytes of a gzip or zlib file, none if damaged; ``head`` itself if it is neither."""
    is_gzip = head.startswith(GZIP)
    if not is_gzip and (is_tfrecord(head) or not is_zlib(head)):
        return head
    try:
        return zlib.decompressobj(wbits=(16 if is_gzip else 0) + zlib.MAX_WBITS).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def recognize_cifar(size: int) -> str | None:
    """The CIFAR dataset whose binary files may have this size: "CIFAR-10", "CIFAR-100" or None.

    Source: cs.toronto.edu/~kriz/cifar.html.
    """
    if size > 0:
        for name, labels in (("CIFAR-10", 1), ("CIFAR-100", 2)):
            if size % (labels + CIFAR_PIXELS) == 0:
                return name
    return None


def describe_file(path: AnyPath, of_images: bool = False) -> str:
    """The kind of a file, else its first bytes, for a message about a file that cannot be read."""
    kind = recognize_file(path)
    return describe_beginning(read_first_bytes(path, SHOWN_BYTES)) if kind is None else kind.to_sentence(of_images)


def describe_beginning(head: bytes) -> str:
    """The first bytes of a file in words."""
    return f"it begins with {head[:SHOWN_BYTES]!r}" if head else "it is empty"
