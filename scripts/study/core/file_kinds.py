"""What a file is, by its first bytes, and what to do about one that is not what was expected.

Asked before a file is called damaged: one that is whole, but compressed, in another encoding or in another program's
format, need not be fetched again. Signatures are those of the formats' own specifications; most are listed in
``file(1)``'s magic database (github.com/file/file).
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from study.core.files import AnyPath

HEAD_BYTES = 4096  # of a file that are looked at
SHOWN_BYTES = 16  # of them in a message
GZIP = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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
EXPORT = "export it as comma-separated text"
SAVETXT = "write its array as text with numpy.savetxt(..., delimiter=',', fmt='%r')"
UNPICKLE = "load it with the Python that wrote it, and write its content in a documented format"
ASK_AGAIN = "fetch the file again, from where it is given out"
AS_IMAGES = "write its images as JPEG or PNG files, one folder per class, and read them with layout: folder"


def _match_at(offset: int, signature: bytes) -> Test:
    """A test for bytes with a signature at an offset."""
    return lambda head: head[offset : offset + len(signature)] == signature


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


def _match_utf16(order: int) -> Test:
    """A test for UTF-16 text without a byte order mark: every other byte of Latin text is zero."""

    def test(head: bytes) -> bool:
        zeros, others = head[1 - order :: 2][:200], head[order::2][:200]
        return len(zeros) >= 2 and zeros.count(0) >= 0.8 * len(zeros) and others.isascii() and 0 not in others

    return test


def _is_utf32(head: bytes) -> bool:
    """True if bytes are ASCII characters in UTF-32 without a byte order mark."""
    head = head[: len(head) // 4 * 4][:400]
    for encoding in ("utf-32-le", "utf-32-be"):
        try:
            text = head.decode(encoding)
        except UnicodeDecodeError:
            continue
        if len(text) >= 2 and text.isascii() and "\0" not in text:
            return True
    return False


def _is_all_zeros(head: bytes) -> bool:
    return len(head) > 0 and not head.strip(b"\0")


def _define_text(encoding: str, name: str) -> FileKind:
    """The kind of a text in another encoding. name: iconv's name of it."""
    return FileKind(f"text in {encoding}", f"write it as UTF-8: `iconv -f {name} -t UTF-8 FILE > NEW`")


def _define_compressed(name: str, command: str) -> FileKind:
    """The kind of a compressed file. command: decompresses it."""
    return FileKind(f"compressed with {name}", f"decompress it with `{command}` and give that file")


def _define_program(name: str, remedy: str = "give the text file that it was made from, or " + EXPORT) -> FileKind:
    """The kind of a file in a program's own format."""
    return FileKind(name, remedy, as_images=AS_IMAGES)


def _define_image(name: str, as_images: str = "convert it to PNG or JPEG") -> FileKind:
    """The kind of an image file, given where a table is expected."""
    return FileKind(f"{name} image", "give the right file", as_images=as_images)


_MACOS_NOTES = FileKind("macOS's notes on a file, not the file itself", "give the file of that name without ._", True)


UNWRITTEN = FileKind("zero bytes where its content should begin", "it was never written there: fetch it again")
_ZIP = FileKind("a zip archive", "unpack it with `unzip FILE` and give the file in it")

# Kinds whose files may be plain ASCII. The first that fits is right, here and below.
_TEXT_KINDS: list[tuple[Test, FileKind]] = [
    (
        b"version https://git-lfs.github.com/spec/",
        FileKind("a Git LFS pointer, not the file itself", "run `git lfs pull` in its repository", True),
    ),
    (
        re.compile(rb"(\.\./)*(/|\.git/)?annex/objects/"),
        FileKind("a git-annex pointer, not the file itself", "run `git annex get FILE`", True),
    ),
    (
        re.compile(rb"(md5: [0-9a-f]{32}\n)?outs:\s+- (md5|path|size|hash):"),
        FileKind("a DVC pointer, not the file itself", "run `dvc pull`", True),
    ),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head|body|title|script|meta)\b", re.I),
        FileKind("a web page", ASK_AGAIN + "; the server may want a log-in", True),
    ),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<(error|exception|fault|message)\b", re.I),
        FileKind("an XML error message of a server", ASK_AGAIN, True),
    ),
    (re.compile(rb"(\xef\xbb\xbf)?\s*<svg\b", re.I), _define_image("an SVG")),
    (re.compile(rb"(\xef\xbb\xbf)?\s*<\?xml[^>]*>\s*<svg\b", re.I), _define_image("an SVG")),
    (re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|!doctype|!--)", re.I), FileKind("an XML file", EXPORT)),
    (
        re.compile(
            rb"\s*(HTTP/\d(\.\d)? \d{3}|[45]\d\d: ?[A-Z]|(access denied|not found|forbidden|unauthorized|bad gateway|"
            rb"internal server error|too many requests)\b[^,\t]*$)",
            re.I,
        ),
        FileKind("an error message of a server", ASK_AGAIN, True),
    ),
    (
        re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"(message|error|errors|detail|status|statuscode|code|success)"\s*:', re.I),
        FileKind("a JSON error message of a server", ASK_AGAIN, True),
    ),
    (re.compile(rb"\xef\xbb\xbf?\s*[\[{]|\s*(\{\s*[\"}]|\[\s*([\[{\"\]]|-?\d))"), FileKind("a JSON file", EXPORT)),
    (
        re.compile(rb"-----BEGIN PGP|Salted__|age-encryption\.org/|\x8c\x0d\x04|\x85\x02\x0c"),
        FileKind("encrypted", "decrypt it"),
    ),
    (
        re.compile(rb"RD[AX][23]\n|[XAB]\n\0\0\0[\x02\x03]|A\n[23]\n\d{5,}\n"),
        _define_program(
            "an R data file (.rds, .RData)", EXPORT + ", with write.csv(..., row.names = FALSE, quote = FALSE)"
        ),
    ),
    (re.compile(rb"<stata_dta>|[\x71-\x73][\x01\x02]\x01\0"), _define_program("a Stata file")),
    (
        re.compile(rb"\((dp\d|lp\d|dp\n|i\w+\n)|c(numpy|pandas|copy_reg|collections|__builtin__)[\w.]*\n"),
        _define_program("a Python pickle", UNPICKLE),
    ),
    (b"%PDF", _define_program("a PDF document", EXPORT)),
    (b"%!PS", _define_program("a PostScript document", EXPORT)),
    (b"{\\rtf", _define_program("an RTF document", EXPORT)),
    (b"#!/", FileKind("a script", "give the right file")),
    (re.compile(rb"(%.*\n|\s)*@relation\b", re.I), _define_program("an ARFF file of Weka")),
    (re.compile(rb"#1\.[23]\r?\n\d+\t\d+"), _define_program("a GCT file of GenePattern")),
    (
        re.compile(rb"!Series_|\^(DATABASE|SERIES|PLATFORM|SAMPLE) ?="),
        _define_program("a text file of GEO"),
    ),
    (b"HEADER RECORD*******LIBRARY HEADER RECORD", _define_program("a SAS transport file (.xpt)")),
    (b"SIMPLE  =", _define_program("a FITS file")),
    (re.compile(rb"(curl|wget): "), FileKind("an error message of a download", ASK_AGAIN, True)),
    (
        re.compile(rb"sep=.\r?\n", re.I),
        FileKind("text with a line for Excel, sep=, before the table", "delete that line: `sed -i 1d FILE`"),
    ),
]

# Kinds of binary files and of texts in other encodings: a table may begin with their letters ("PAR1"), and goes on in
# ASCII. Those with a longer signature stand before the others.
_BINARY_KINDS: list[tuple[Test, FileKind]] = [
    (GZIP, _define_compressed("gzip", "gunzip FILE.gz")),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), _define_compressed("bzip2", "bunzip2 FILE.bz2")),
    (b"\xfd7zXZ\0", _define_compressed("xz", "unxz FILE.xz")),
    (
        re.compile(rb"\x5d\0\0..\xff\xff|\x5d\0\0[\x00-\xff]{2}\0{6}", re.S),
        _define_compressed("LZMA", "unlzma FILE.lzma"),
    ),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _define_compressed("Zstandard", "unzstd FILE.zst")),
    (re.compile(rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18"), _define_compressed("LZ4", "unlz4 FILE.lz4")),
    (b"\xff\x06\0\0sNaPpY", _define_compressed("Snappy", "snzip -d FILE.sz")),
    (b"\x89LZO\0\r\n\x1a\n", _define_compressed("LZO", "lzop -d FILE.lzo")),
    (b"LZIP\x01", _define_compressed("lzip", "lzip -d FILE.lz")),
    (re.compile(rb"\x1f[\x9d\xa0]"), _define_compressed("compress", "uncompress FILE.Z")),
    (b"7z\xbc\xaf\x27\x1c", FileKind("a 7-Zip archive", "unpack it with `7z x FILE` and give the file in it")),
    (b"Rar!\x1a\x07", FileKind("a RAR archive", "unpack it with `unrar x FILE` and give the file in it")),
    (_match_at(257, b"ustar"), FileKind("a tar archive", "unpack it with `tar -xf FILE` and give the file in it")),
    (re.compile(rb"PK(\x03\x04|\x05\x06|\x07\x08)"), _ZIP),
    (b"\x93NUMPY", _define_program("a NumPy array (.npy)", SAVETXT)),
    (re.compile(rb"MATLAB 7\.3|MATLAB 5\.0"), _define_program("a MATLAB file (.mat)", EXPORT + ", with writematrix")),
    (b"\x89HDF\r\n\x1a\n", _define_program("an HDF5 file")),
    (_match_at(512, b"\x89HDF\r\n\x1a\n"), _define_program("an HDF5 file")),
    (re.compile(rb"CDF[\x01\x02\x05]"), _define_program("a NetCDF file")),
    (
        re.compile(rb"PAR[1E]"),
        _define_program("a Parquet file", "write it as text with pandas.read_parquet(...).to_csv(..., index=False)"),
    ),
    (
        re.compile(rb"ARROW1|FEA1|\xff\xff\xff\xff..\0\0\x10\0\0\0", re.S),
        _define_program(
            "an Arrow or Feather file", "write it as text with pandas.read_feather(...).to_csv(..., index=False)"
        ),
    ),
    (re.compile(rb"ORC[\x0a\x08]"), _define_program("an ORC file")),
    (b"Obj\x01", _define_program("an Avro file")),
    (b"SQLite format 3\0", _define_program("an SQLite data base")),
    (_match_at(12, b"\xc2\xea\x81\x60\xb3\x14\x11\xcf"), _define_program("a SAS file")),
    (re.compile(rb"\$FL[23]"), _define_program("an SPSS file")),
    (_match_at(128, b"DICM"), _define_image("a DICOM")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _define_program("an Excel (.xls) or other old Office file", EXPORT)),
    (_match_at(16, b"\xde\xc0\xef\xbe"), _define_program("an LMDB data base")),
    (_match_at(16, b"\xbe\xef\xc0\xde"), _define_program("an LMDB data base of a big-endian machine")),
    (is_tfrecord, _define_program("a TFRecord file")),
    (b"\x0a\x23\xd7\xce", _define_program("an MXNet RecordIO file")),
    (
        re.compile(rb"\x80[\x02-\x05](\x95.{8}|[}\](\x8ac])|\x80\x02\x8a\x0alF\xf9", re.S),
        _define_program("a Python pickle", UNPICKLE),
    ),
    (b"\0\5\x16\7", _MACOS_NOTES),
    (b"bplist00", _define_program("a property list of macOS")),
    (b"L\0\0\0\1\x14\2\0", FileKind("a shortcut of Windows, not the file itself", "give the file", True)),
    (re.compile(rb".{8}\{\"(__metadata__|[^\"]+\":\{\"dtype)", re.S), _define_program("a safetensors file")),
    (b"\xff\xd8\xff", _define_image("a JPEG", "read it with layout: folder, in the folder of its class")),
    (b"\x89PNG\r\n\x1a\n", _define_image("a PNG", "read it with layout: folder, in the folder of its class")),
    (re.compile(rb"GIF8[79]a"), _define_image("a GIF")),
    (re.compile(rb"BM.{4}\0{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.S), _define_image("a BMP")),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), _define_image("a TIFF")),
    (re.compile(rb"RIFF.{4}WEBP", re.S), _define_image("a WebP")),
    (re.compile(rb".{4}ftyp(avif|avis|mif1|msf1|hei[cxms]|hev[cx])", re.S), _define_image("a HEIF or AVIF")),
    (re.compile(rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"), _define_image("a JPEG 2000")),
    (re.compile(rb"\0\0\0\x0cJXL |\xff\x0a"), _define_image("a JPEG XL")),
    (b"8BPS", _define_image("a Photoshop")),
    (re.compile(rb"P[4-7]\s+(#|\d+\s|WIDTH)"), _define_image("a Netpbm")),
    (b"\0\0\x01\0", _define_image("an ICO")),
    (
        re.compile(rb"RIFF.{4}WAVE|ID3|OggS|fLaC|.{4}ftyp", re.S),
        FileKind("a sound or video file", "give the right file"),
    ),
    (b"\x7fELF", FileKind("a program", "give the right file")),
    (is_idx, FileKind("an idx file, as MNIST's", "give the right file", as_images="read it with layout: mnist")),
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), _define_text("UTF-32", "UTF-32")),
    (re.compile(rb"\xff\xfe|\xfe\xff"), _define_text("UTF-16, as Excel's 'Unicode text'", "UTF-16")),
    (
        BYTE_ORDER_MARK,
        FileKind("text with a byte order mark of UTF-8", "remove it: `sed -i '1s/^\\xEF\\xBB\\xBF//' FILE`"),
    ),
    (_is_utf32, _define_text("UTF-32 without a byte order mark", "UTF-32LE")),
    (_match_utf16(0), _define_text("UTF-16 without a byte order mark", "UTF-16LE")),
    (_match_utf16(1), _define_text("UTF-16 without a byte order mark", "UTF-16BE")),
    (
        is_zlib,
        FileKind(
            "compressed with zlib",
            "decompress it with `zlib-flate -uncompress < FILE > NEW`, or Python's zlib module, and give that file",
        ),
    ),
    (_is_all_zeros, UNWRITTEN),
]

# What a zip archive holds, by the name of one of its members.
_ZIP_KINDS: list[tuple[re.Pattern[str], FileKind]] = [
    (re.compile(r"xl/"), _define_program("an Excel file (.xlsx)", EXPORT)),
    (re.compile(r"(word|ppt)/"), _define_program("an Office document", EXPORT)),
    (re.compile(r"content\.xml|mimetype"), _define_program("an OpenDocument file", EXPORT)),
    (re.compile(r"Index/.*\.iwa"), _define_program("a Numbers document", EXPORT)),
    (
        re.compile(r".*data\.pkl|.*/data/0"),
        _define_program("a PyTorch file (.pt)", "write its content in a documented format"),
    ),
    (
        re.compile(r"(config|metadata)\.json|model\.weights\.h5"),
        _define_program("a Keras file (.keras)", "give the data"),
    ),
    (re.compile(r".*\.npy"), _define_program("a NumPy archive (.npz)", SAVETXT)),
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
    for test, kind in _TEXT_KINDS if PLAIN.fullmatch(head) else (*_TEXT_KINDS, *_BINARY_KINDS):
        if _fits(test, head):
            return (_recognize_zip_head(head) or kind) if kind is _ZIP else kind
    return None


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
    if kind is _ZIP:
        return _recognize_zip(path) or kind
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


def _recognize_zip(path: AnyPath) -> FileKind | None:
    """The kind of a zip archive by the names of its members; None if unknown or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _recognize_members(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None


def _recognize_zip_head(head: bytes) -> FileKind | None:
    """The kind of a zip archive by the names in its first bytes; None if unknown."""
    names = [match[1].decode("utf-8", "backslashreplace") for match in
             re.finditer(rb"PK\x03\x04.{22}..\0?.?([\x20-\x7e]{1,80})", head, re.S)]  # fmt: skip
    return _recognize_members(names)


def _recognize_members(names: list[str]) -> FileKind | None:
    """The kind of a zip archive with members of these names; None if unknown."""
    for pattern, kind in _ZIP_KINDS:
        if any(pattern.match(name) for name in names):
            return kind
    return None


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
