"""Sections and notes of 64-bit little-endian ELF files (x86-64, aarch64), read by mmap.

Layout by the System V ABI (gABI 4.1, chapters "Object Files" and "Note Section"). Every offset,
size and count of the file is checked against the file before it is used.
"""

from __future__ import annotations

import mmap
import struct
from typing import Iterator, NamedTuple, Optional

#: More section headers than this is garbage (libtorch_cuda.so has about 40).
SECTION_LIMIT = 10_000
#: A note is a few hundred bytes.
NOTE_LIMIT = 1 << 20

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


class BadElf(ValueError):
    """Not an ELF file this module reads; the message says why."""


class Section(NamedTuple):
    """A section header with its name resolved."""

    name: bytes
    kind: int
    offset: int
    size: int


def note(host_path: str, section: str, owner: bytes) -> Optional[bytes]:
    """The first note of `owner` in a named section; None when there is none.

    Raises BadElf for a file that is no such ELF, OSError when it cannot be read.
    """
    with open(host_path, "rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise BadElf("empty file") from None
    with data:
        for one in sections(data):
            if one.name == section.encode():
                return _note(data[one.offset : one.offset + min(one.size, NOTE_LIMIT)], owner)
    return None


def sections(data: mmap.mmap) -> Iterator[Section]:
    """The sections of a mapped ELF file; raises BadElf where headers point outside it."""
    if len(data) < _HEADER.size:
        raise BadElf("shorter than an ELF header")
    head = _HEADER.unpack_from(data)
    magic, bits, order = head[0], head[1], head[2]
    if magic != b"\x7fELF" or bits != 2 or order != 1:
        raise BadElf("not a 64-bit little-endian ELF file")
    start, size, count, names = head[11], head[16], head[17], head[18]
    if not start or not count:
        return
    if size != _SECTION.size or count > SECTION_LIMIT or names >= count:
        raise BadElf("section headers make no sense")
    if start + size * count > len(data):
        raise BadElf("section headers lie outside the file")
    rows = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
    texts_start, texts_size = (min(one, len(data)) for one in rows[names][4:6])
    for row in rows:
        inside = row[0] < texts_size and texts_start + row[0] < len(data)
        end = data.find(b"\0", texts_start + row[0], texts_start + texts_size) if inside else -1
        name = data[texts_start + row[0] : end] if end >= 0 else b""
        if row[4] + row[5] <= len(data) or row[1] == 8:  # SHT_NOBITS takes no room in the file
            yield Section(name, row[1], row[4], row[5])


def _note(data: bytes, owner: bytes) -> Optional[bytes]:
    at = 0
    while at + 12 <= len(data):
        name_size, body_size, _kind = struct.unpack_from("<III", data, at)
        name_end = at + 12 + name_size
        body = at + 12 + (name_size + 3) // 4 * 4
        if body + body_size > len(data):
            return None
        if data[at + 12 : name_end].rstrip(b"\0") == owner:
            return data[body : body + body_size]
        at = body + (body_size + 3) // 4 * 4
    return None
