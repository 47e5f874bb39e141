"""PNG, JPEG, WebP and GIF: walked to their end markers, without decoding."""

from __future__ import annotations

import struct
import zlib

from .reading import CHUNK, Damaged, Reader


def image(reader: Reader) -> str:
    """Chunk after chunk to the end marker. Bytes after that are nobody's business."""
    head = reader.at(0, 12)
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return _png(reader)
    if head[:2] == b"\xff\xd8":
        return _jpeg(reader)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(reader)
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(reader)
    # A decoder goes by the content, too, and may know more than these.
    raise Damaged("begins as none of PNG, JPEG, WebP and GIF", mild=True)


def _png(reader: Reader) -> str:
    at, data = 8, False
    while not reader.tired:
        if data and at + 12 > reader.size:  # decoders have all they need by then
            raise Damaged("is cut off: a PNG without its end", mild=True)
        size, kind = struct.unpack(">I4s", reader.exactly(at, 8, "a PNG chunk"))
        if at + 12 + size > reader.size:
            # Decoders have the last pixels before the sums that end the data.
            few = kind == b"IDAT" and at + 12 + size - reader.size <= 12
            raise Damaged("is cut off: a PNG chunk ends beyond the file", mild=few)
        if size < CHUNK and kind in (b"IHDR", b"IDAT", b"IEND", b"PLTE"):
            body = reader.exactly(at + 4, size + 8, "a PNG chunk")
            if zlib.crc32(body[:-4]) != struct.unpack(">I", body[-4:])[0]:
                raise Damaged(f"is damaged: its {kind.decode()} chunk has a wrong CRC")
        data |= kind == b"IDAT"
        if kind == b"IEND":
            if not data:
                raise Damaged("has no image data before IEND")
            return "PNG to IEND"
        at += 12 + size
    return "PNG, first chunks"


def _jpeg(reader: Reader) -> str:
    at, scanned = 2, False
    while not reader.tired:
        marker = reader.exactly(at, 2, "a JPEG segment")
        if marker[0] != 0xFF and not scanned:
            raise Damaged("has no JPEG marker where one has to be", mild=True)
        if marker[0] != 0xFF:  # libjpeg passes over bytes before a marker with a warning
            at = _after_scan(reader, at)
            if at < 0:
                break
            continue
        code = marker[1]
        if code == 0xFF:  # a fill byte
            at += 1
        elif code == 0xD9:
            return "JPEG to its end marker"
        elif code == 0x01 or 0xD0 <= code <= 0xD7:
            at += 2
        else:
            size = struct.unpack(">H", reader.exactly(at + 2, 2, "a JPEG segment"))[0]
            if size < 2 or at + 2 + size > reader.size:
                raise Damaged("is cut off: a JPEG segment ends beyond the file")
            at += 2 + size
            if code == 0xDA:
                scanned = True
                at = _after_scan(reader, at)
                if at < 0:
                    return "JPEG, first scan"
    return "JPEG, first segments"


def _after_scan(reader: Reader, at: int) -> int:
    """Where the next marker stands that ends the scan's data; -1 when tired. Raises Damaged."""
    while at < reader.size:
        if reader.tired:
            return -1
        data = reader.at(at, CHUNK)
        found = data.find(b"\xff")
        while 0 <= found < len(data) - 1:
            code = data[found + 1]
            if code not in (0x00, 0xFF) and not 0xD0 <= code <= 0xD7:
                return at + found
            found = data.find(b"\xff", found + (1 if code == 0xFF else 2))
        if at + len(data) >= reader.size:
            break
        at += len(data) - 1
    raise Damaged("is cut off: a JPEG without its end marker")


def _webp(reader: Reader) -> str:
    wanted = 8 + struct.unpack("<I", reader.exactly(4, 4, "its header"))[0]
    if wanted > reader.size:
        missing = wanted - reader.size  # one byte may be the padding that some leave out
        raise Damaged(f"is cut off: {missing} of {wanted} bytes are missing", mild=missing == 1)
    return "WebP to its end"


def _gif(reader: Reader) -> str:
    flags = reader.exactly(6, 7, "its header")[4]
    at, frames = 13 + _colours(flags), 0
    try:
        while not reader.tired:
            kind = reader.exactly(at, 1, "a GIF block")[0]
            if kind == 0x3B:
                break
            if kind == 0x21:
                at = _after_blocks(reader, at + 2)
            elif kind == 0x2C:
                flags = reader.exactly(at + 1, 9, "a GIF frame")[8]
                at, frames = _after_blocks(reader, at + 11 + _colours(flags)), frames + 1
            else:
                raise Damaged("is damaged: no GIF block where one has to be")
    except Damaged as error:  # decoders show the frames that are there
        raise Damaged(str(error), mild=frames > 0) from None
    if not frames and not reader.tired:
        raise Damaged("has no image before its trailer")
    return "GIF, first blocks" if reader.tired else "GIF to its trailer"


def _colours(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(reader: Reader, at: int) -> int:
    while not reader.tired:
        size = reader.exactly(at, 1, "a GIF block")[0]
        at += 1 + size
        if not size:
            break
    return at
