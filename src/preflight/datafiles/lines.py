"""Files of records one after another: TFRecord and JSON lines."""

from __future__ import annotations

import json
import struct
from typing import List, Optional

from .archives import inflated
from .reading import CHUNK, Damaged, Reader

#: Records whose data is summed too: in plain Python that is slow, and lengths show a truncation.
SUMMED = 1 << 16
#: A JSON line that is longer than this is not parsed.
LINE = 16 << 20


def tfrecord(reader: Reader) -> str:
    """Every record's length with its CRC-32C, the first records' data with theirs, and the end."""
    if reader.at(0, 2) == b"\x1f\x8b":
        return _tfrecord_in_gzip(reader)
    offset, records, summed = 0, 0, 0
    while offset < reader.size:
        if reader.tired:
            return f"first {records} records"
        length = _length(reader.exactly(offset, 12, f"record {records + 1}"), records)
        if offset + 16 + length > reader.size:
            raise Damaged(f"ends within record {records + 1}, at byte {reader.size}")
        if summed + length <= SUMMED:
            body = reader.exactly(offset + 12, length + 4, f"record {records + 1}")
            _sum(body, records)
            summed += length
        offset += 16 + length
        records += 1
    return f"{records} records"


def begins(head: bytes) -> bool:
    """Whether a file begins as a TFRecord: nobody else has that sum there by chance."""
    return len(head) >= 12 and masked_crc32c(head[:8]) == struct.unpack("<I", head[8:12])[0]


def _tfrecord_in_gzip(reader: Reader) -> str:
    held, records, skip, summed = bytearray(), 0, 0, 0
    for part in inflated(reader):
        held += part
        while True:
            if skip:
                gone = min(skip, len(held))
                del held[:gone]
                skip -= gone
            if skip or len(held) < 12:
                break
            length = _length(bytes(held[:12]), records)
            if summed + length <= SUMMED:
                if len(held) < 16 + length:
                    break
                _sum(bytes(held[12 : 16 + length]), records)
                summed += length
            skip = 16 + length
            records += 1
    if reader.tired:
        return f"first {records} records"
    if held or skip:
        raise Damaged(f"ends within record {records + bool(held)}")
    return f"{records} records"


def _length(head: bytes, records: int) -> int:
    length, wanted = struct.unpack("<QI", head)
    if masked_crc32c(head[:8]) != wanted:
        what = f"record {records + 1}'s length has a wrong CRC" if records else "is no TFRecord"
        raise Damaged(what if not records else f"is damaged: {what}")
    return int(length)


def _sum(body: bytes, records: int) -> None:
    if masked_crc32c(body[:-4]) != struct.unpack("<I", body[-4:])[0]:
        raise Damaged(f"is damaged: record {records + 1}'s data has a wrong CRC")


def _table() -> List[int]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        rows.append(value)
    return rows


_CRC: List[int] = []


def masked_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) as TFRecord writes it: rotated, and a constant added."""
    if not _CRC:
        _CRC.extend(_table())
    table, value = _CRC, 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def jsonl(reader: Reader) -> str:
    """The first and the last line are JSON; of a compressed file to its end."""
    if reader.at(0, 2) == b"\x1f\x8b":
        return _jsonl_in_gzip(reader)
    first = _first_line(reader)
    if first is not None:
        _parsed(first, "its first line")
    last = _last_line(reader)
    if last is not None:
        _parsed(last, "its last line")
    if first is None or last is None:
        return "first or last line, the other is too long"
    return "first and last line"


def _first_line(reader: Reader) -> Optional[bytes]:
    held = b""
    for chunk in reader.chunks():
        line, end, _rest = (held + chunk).partition(b"\n")
        if end and line.strip():
            return line
        held = line if not end else _rest
        if len(held) > LINE:
            return None
    return held if not reader.tired else None


def _last_line(reader: Reader) -> Optional[bytes]:
    held, at = b"", reader.size
    while at > 0 and not reader.tired and len(held) <= LINE:
        size = min(CHUNK, at)
        at -= size
        held = (reader.at(at, size) + held).rstrip(b" \t\r\n")
        cut = held.rfind(b"\n")
        if cut >= 0:
            return held[cut + 1 :]
    return held if at == 0 and len(held) <= LINE else None


def _jsonl_in_gzip(reader: Reader) -> str:
    held, parsed = b"", False
    for part in inflated(reader):
        held += part
        *whole, rest = held.split(b"\n")
        full = [one for one in whole if one.strip()]
        if full and not parsed:
            _parsed(full[0], "its first line")
            parsed = True
        held = rest if rest.strip() or not full else full[-1] + b"\n" + rest
        if len(held) > LINE:
            return "first bytes, its lines are long"
    if reader.tired:
        return "first line"
    last = held.strip().rpartition(b"\n")[2]
    _parsed(last, "its last line")
    return "first and last line"


def _parsed(line: bytes, what: str) -> None:
    try:
        json.loads(line.decode("utf-8-sig"))
    except RecursionError:
        pass  # nested deeper than we parse is no damage
    except ValueError:
        raise Damaged(f"is cut off or no JSON lines: {what} does not parse") from None
