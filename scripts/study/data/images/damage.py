"""Whether an encoded image is whole: decoders fill lost parts with grey or with what came before, without an error."""

from __future__ import annotations

import re
import struct
import zlib
from typing import Any

from study.data.images.codec import JPEG, PNG, Codec

END = b"\xff\xd9"  # of a JPEG (ITU-T T.81, table B.1)
SCAN, ARITHMETIC = 0xDA, range(0xC9, 0xD0)  # start of scan; start of frame of arithmetic coding
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # starts of frames, which have the size
BARE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
# In the coded data of a scan: a marker that ends them, no stuffed byte, restart or fill byte.
ENDS_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
# libjpeg's warnings (jerror.h) of data that it made up, skipped or read wrongly.
MADE_UP = re.compile(rb"(Corrupt JPEG data: .*|Premature end of JPEG file.*|Inconsistent progression.*)")
SURPLUS = re.compile(rb"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9")
READ_AHEAD = 16  # bytes that libjpeg may have fetched beyond those that it needs, and does not count as extraneous
PNG_PIXELS = frozenset((b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"IEND"))


def decode_and_check(content: bytes, channels: int, codec: Codec) -> tuple[Any, str | None]:
    """(pixels, damage or None) of an encoded image; raises `CodecError`.

    Bytes after the image's end, and padding before it, are no damage.
    """
    if not content.startswith(JPEG):
        damage = _find_png_damage(content) if content.startswith(PNG) else None
        return (None, damage) if damage else (codec.decode_png(content, channels), None)
    end = _find_end(content)
    if end is None:
        return None, "it is cut off: there is no end-of-image marker"
    pixels, warning = codec.decode_jpeg(content, channels)
    return pixels, _find_jpeg_damage(content, end, channels, warning, codec)


def read_size(content: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG or PNG by its header, before any pixel is decoded; None if it does not tell them."""
    if content.startswith(PNG):
        width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))
        return height, width
    position = 2
    while position + 9 <= len(content) and content[position] == 0xFF:
        marker, length = content[position + 1], struct.unpack(">H", content[position + 2 : position + 4])[0]
        if marker in FRAMES:
            height, width = struct.unpack(">HH", content[position + 5 : position + 9])
            return height, width
        position += 1 if marker == 0xFF else 2 if marker in BARE else 2 + length
    return None


def _find_jpeg_damage(content: bytes, end: int, channels: int, warning: bytes, codec: Codec) -> str | None:
    """Damage of a JPEG by libjpeg's first warning, or by surplus data in the last scan; None if whole."""
    decoder_warning = MADE_UP.search(warning)
    surplus = SURPLUS.search(warning)
    if decoder_warning and not surplus:
        return decoder_warning[0].decode("ascii", "replace")
    if _is_arithmetic(content) or (warning and not decoder_warning):
        return None  # such a decoder reads on beyond its data; another warning hides those that follow
    unused = _count_unused_bytes(content, end, channels, int(surplus[1]) if surplus else 0, codec)
    coded = content[:end]
    if unused and (len(set(coded[-unused:])) > 1 or coded[-unused - 1] == coded[-1]):
        return f"Corrupt JPEG data: {unused} bytes of the scan belong to no block"
    return None


def _count_unused_bytes(content: bytes, end: int, channels: int, least: int, codec: Codec) -> int:
    """Number of bytes at the end of the coded data that decoding does not need."""
    for number in range(least, least + READ_AHEAD):
        _, warning = codec.decode_jpeg(content[: end - number - 1] + END, channels, ratio=8)
        if b"premature end of data segment" in warning:
            return number
    return least + READ_AHEAD


def _find_end(content: bytes) -> int | None:
    """Position of the end-of-image marker; None if the image stops before."""
    position = 2
    while position + 2 <= len(content):
        if content[position] != 0xFF:
            next_marker = content.find(b"\xff", position)  # decoders skip what stands between segments
            if next_marker < 0:
                return None
            position = next_marker
            continue
        marker = content[position + 1]
        if marker == END[1]:
            return position
        if marker in (0xFF, 0x00) or marker in BARE:
            position += 1 if marker == 0xFF else 2
            continue
        if position + 4 > len(content):
            return None
        position += 2 + struct.unpack(">H", content[position + 2 : position + 4])[0]
        if marker == SCAN:
            found_end = ENDS_SCAN.search(content, position)
            if found_end is None:
                return None
            position = found_end.start()
    return None


def _is_arithmetic(content: bytes) -> bool:
    """True if a JPEG uses arithmetic coding."""
    return any(b"\xff" + bytes([marker]) in content for marker in ARITHMETIC if marker != 0xCC)


def _find_png_damage(content: bytes) -> str | None:
    """The first damaged chunk of a PNG that decides pixels, or None; libpng does not read to the end."""
    position = len(PNG)
    while position + 12 <= len(content):
        length, kind = struct.unpack(">I4s", content[position : position + 8])
        end = position + 12 + length
        if end > len(content):
            return f"it is cut off in its chunk {kind.decode('ascii', 'replace')}"
        (checksum,) = struct.unpack(">I", content[end - 4 : end])
        if kind in PNG_PIXELS and zlib.crc32(content[position + 4 : end - 4]) != checksum:
            return f"its chunk {kind.decode('ascii', 'replace')} has another checksum"
        if kind == b"IEND":
            return None
        position = end
    return "it is cut off: there is no end chunk (IEND)"
