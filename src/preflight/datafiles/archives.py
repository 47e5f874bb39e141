"""tar, gzip and zip: the walk over the headers, and what has to stand at the end."""

from __future__ import annotations

import struct
import zlib
from typing import Callable, Iterator, Optional, Tuple, Union

from .reading import Damaged, Reader

BLOCK = 512
#: bzip2, xz, zstd: not decompressed here.
_PACKED = (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
#: Decompressed at once.
PART = 1 << 20
#: Long names and extended headers that say something of the member after them.
_PAX, _SPARSE, _ABOUT = b"x", b"S", b"xgLK"
#: Links, devices, directories: no data follows, whatever size they say.
_BARE = b"123456"


def tar(reader: Reader) -> str:
    """Every header's checksum and every member's end, and the two blocks of zeros at the end.

    What is cut off between members is mild: Python's tarfile, and so WebDataset, ends there.
    """
    head = reader.at(0, 6)
    if head[:2] == b"\x1f\x8b":
        return _tar_in_gzip(reader)
    if head.startswith(_PACKED):
        return "nothing: it is compressed otherwise than by gzip"
    walked = _walk(_Plain(reader), lambda: reader.tired)
    if walked is not None:
        return walked
    if reader.size % BLOCK:
        raise Damaged(f"is cut off: {reader.size} bytes are no whole number of blocks", mild=True)
    if reader.at(reader.size - 2 * BLOCK, 2 * BLOCK) != bytes(2 * BLOCK):
        raise Damaged("has no end-of-archive blocks at its end", mild=True)
    return "first members and the end"


class _Plain:
    """A tar as it lies in the file: what is no header is skipped unread."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.offset = 0

    def take(self, size: int) -> bytes:
        data = self.reader.at(self.offset, size)
        self.offset += len(data)
        return data

    def skip(self, size: int) -> int:
        there = min(size, self.reader.size - self.offset)
        self.offset += there
        return there


class _Inflated:
    """A tar inside gzip: everything is decompressed on the way, chunk by chunk."""

    def __init__(self, reader: Reader) -> None:
        self.parts = inflated(reader)
        self.held = b""
        self.offset = 0

    def take(self, size: int) -> bytes:
        while len(self.held) < size:
            part = next(self.parts, b"")
            if not part:
                break
            self.held += part
        data, self.held = self.held[:size], self.held[size:]
        self.offset += len(data)
        return data

    def skip(self, size: int) -> int:
        left = size
        while left:
            data = self.take(min(left, len(self.held) or 1))
            if not data:
                break
            left -= len(data)
        return size - left


Source = Union[_Plain, _Inflated]


def _walk(source: Source, tired: Callable[[], bool]) -> Optional[str]:
    """What was looked at; None when tired before the end. Raises Damaged."""
    members = 0
    size_said: Optional[int] = None
    while not tired():
        block = source.take(BLOCK)
        if len(block) < BLOCK and tired():
            break
        if not block:
            raise Damaged(f"has no end-of-archive after its {members} members", mild=members > 0)
        if len(block) < BLOCK:
            raise Damaged(f"ends within a header, after {members} members", mild=members > 0)
        if not any(block):
            if len(source.take(BLOCK)) < BLOCK and not tired():
                raise Damaged(f"ends within its end-of-archive, after {members} members", True)
            return f"{members} members and the end"
        size, kind = _header(block, members)
        if size_said is not None and kind not in _ABOUT:
            size, size_said = size_said, None
        padded = -(-size // BLOCK) * BLOCK
        if kind == _PAX and size <= 1 << 20:
            data = source.take(padded)
            size_said = _pax_size(data[:size])
            there = len(data)
        else:
            if kind == _SPARSE:
                _skip_sparse(source, block)
            there = source.skip(padded)
        if there < padded and tired():
            break
        if there < padded:
            name = block[:100].split(b"\0")[0].decode("utf-8", "replace")
            raise Damaged(f"ends within member {members + 1} ({name})")
        members += kind not in _ABOUT
    return None


def _header(block: bytes, members: int) -> Tuple[int, bytes]:
    said = block[148:156].split(b"\0")[0].strip()
    try:
        wanted = int(said or b"0", 8)
    except ValueError:
        wanted = -1
    plain = block[:148] + b" " * 8 + block[156:]
    signed = sum(struct.unpack("512b", plain))  # as some old writers summed
    if wanted not in (sum(plain), signed):
        where = f"after {members} members" if members else "at its beginning"
        raise Damaged(f"has no tar header {where} (wrong checksum)", mild=members > 0)
    kind = block[156:157]
    return 0 if kind in _BARE else _number(block[124:136]), kind


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # base 256, of more than 8 GiB
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else 0
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise Damaged("has a header whose size is no number") from None


def _pax_size(data: bytes) -> Optional[int]:
    """The size that an extended header gives the next member."""
    while data:
        length, space, _rest = data.partition(b" ")
        if not space or not length.isdigit() or not 0 < int(length) <= len(data):
            return None
        name, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        if name == b"size" and value.isdigit():
            return int(value)
        data = data[int(length) :]
    return None


def _skip_sparse(source: Source, block: bytes) -> None:
    """GNU's sparse members have more blocks of map before their data."""
    more = block[482]
    while more:
        block = source.take(BLOCK)
        if len(block) < BLOCK:
            raise Damaged("ends within a sparse member's map")
        more = block[504]


def _tar_in_gzip(reader: Reader) -> str:
    source = _Inflated(reader)
    walked = _walk(source, lambda: reader.tired)
    if walked is None:
        return "first members"
    while source.skip(1 << 20) and not reader.tired:
        pass  # to the end, where the sum stands
    return walked


def gzip_end(reader: Reader) -> str:
    """Decompressed to its end, where length and CRC-32 stand."""
    for _part in inflated(reader):
        pass
    return "first bytes" if reader.tired else "all of it"


def inflated(reader: Reader) -> Iterator[bytes]:
    """What comes out of a gzip file, member after member, in parts of at most 1 MiB.

    Raises Damaged where it ends early; ends without a word when the reader is tired.
    """
    engine = zlib.decompressobj(31)
    for chunk in reader.chunks():
        while chunk:
            if engine.eof:
                if not chunk.strip(b"\0"):  # padding after the last member
                    break
                engine = zlib.decompressobj(31)
            yield from _out_of(engine, chunk)
            if reader.tired:
                return
            chunk = engine.unused_data if engine.eof else b""
    if not reader.tired and not engine.eof:
        raise Damaged(f"ends within its compressed data, at byte {reader.size}")


def _out_of(engine: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    """All that a chunk becomes, a part at a time: a small file may hold very much."""
    while chunk:
        try:
            part = engine.decompress(chunk, PART)
        except zlib.error as error:
            raise Damaged(f"cannot be decompressed: {error}") from None
        if part:
            yield part
        if engine.eof:
            return
        chunk = engine.unconsumed_tail
    while True:
        part = engine.decompress(b"", PART)
        if not part:
            return
        yield part


def zip_file(reader: Reader) -> str:
    """The directory lies where the file's end says, and that end is the outermost archive's."""
    if reader.at(0, 4) not in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        _found_end(reader)  # a program may stand before it
    tail, end = _found_end(reader)
    at = reader.size - len(tail) + end
    count, size, offset = struct.unpack("<HII", tail[end + 10 : end + 20])
    count, size, offset, at = _zip64(reader, at, (count, size, offset))
    shift = at - size - offset  # what stands before the archive
    if shift < 0:
        raise Damaged("has its directory beyond its end")
    if shift and reader.at(0, 4) == b"PK\x03\x04":  # what ends here is a zip stored within
        raise Damaged("is cut off: its own central directory is missing")
    if count and reader.exactly(at - size, 4, "its directory") != b"PK\x01\x02":
        raise Damaged("has no directory where its end says it is")
    return f"directory of {count} entries"


def _found_end(reader: Reader) -> Tuple[bytes, int]:
    tail = reader.at(max(0, reader.size - (1 << 16) - 22), (1 << 16) + 22)
    end = tail.rfind(b"PK\x05\x06")
    while end >= 0:
        record = tail[end : end + 22]
        if len(record) == 22:
            if end + 22 + struct.unpack("<H", record[20:])[0] > len(tail):
                raise Damaged("ends within its comment", mild=True)
            return tail, end
        end = tail.rfind(b"PK\x05\x06", 0, end)
    raise Damaged("has no end of central directory: it is cut off")


def _zip64(reader: Reader, at: int, plain: Tuple[int, int, int]) -> Tuple[int, int, int, int]:
    """The same of the 64-bit directory where there is one: torch.save always writes it."""
    locator = reader.at(at - 20, 20)
    if locator[:4] != b"PK\x06\x07":
        return (*plain, at)
    size_of_record = 56
    record = reader.at(at - 20 - size_of_record, size_of_record)
    if record[:4] != b"PK\x06\x06":
        where = struct.unpack("<Q", locator[8:16])[0]
        record = reader.at(where, size_of_record)
        if record[:4] != b"PK\x06\x06":
            raise Damaged("has no end of its 64-bit directory where it says")
        return (*struct.unpack("<QQQ", record[32:56]), where)
    return (*struct.unpack("<QQQ", record[32:56]), at - 20 - size_of_record)
