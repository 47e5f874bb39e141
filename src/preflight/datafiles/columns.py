"""Files whose header or footer says where everything else lies: Parquet, safetensors, NumPy's."""

from __future__ import annotations

import ast
import json
import re
import struct
from typing import Any, List

from .reading import CHUNK, Damaged, Reader
from .thrift import NotThrift, struct_of

#: As the safetensors library: a longer header is refused.
HEADER = 100_000_000
#: A larger footer or header than this is not parsed here.
PARSED = 32 << 20


def parquet(reader: Reader) -> str:
    """PAR1 at both ends, the footer between them, and every column chunk before the footer."""
    head, tail = reader.at(0, 4), reader.at(reader.size - 8, 8)
    if head == b"PARE" or tail[4:] == b"PARE":
        return "both ends (encrypted)"
    if head != b"PAR1":
        raise Damaged("is no Parquet file: it does not begin with PAR1")
    if len(tail) < 8 or tail[4:] != b"PAR1" or reader.size < 12:
        raise Damaged("is cut off: it does not end with PAR1")
    length = struct.unpack("<I", tail[:4])[0]
    start = reader.size - 8 - length
    if start < 4 or not length:
        raise Damaged(f"is damaged: its footer of {length} bytes does not fit")
    if length > PARSED:
        return "both ends"
    try:
        footer = struct_of(_span(reader, start, length))
    except NotThrift as error:
        raise Damaged(f"is damaged: its footer cannot be read ({error})") from None
    _chunks_before(footer, start)
    return f"footer and {len(_list(footer.get(4)))} row groups"


def _chunks_before(footer: Any, start: int) -> None:
    """FileMetaData 4: row groups; RowGroup 1: columns; ColumnChunk 3: meta data, 1: its file."""
    for number, group in enumerate(_list(footer.get(4)), 1):
        for column in _list(group.get(1)) if isinstance(group, dict) else []:
            meta = column.get(3) if isinstance(column, dict) else None
            if not isinstance(meta, dict) or column.get(1):
                continue
            size, data, dictionary = meta.get(7), meta.get(9), meta.get(11)
            first = min([one for one in (data, dictionary) if isinstance(one, int) and one > 0],
                        default=0)  # fmt: skip
            if first and isinstance(size, int) and first + size > start:
                raise Damaged(f"is damaged: row group {number} lies beyond its end")


def _list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else []


def safetensors(reader: Reader) -> str:
    """The header's length and JSON, and the tensors, which fill the rest of the file exactly."""
    size = struct.unpack("<Q", reader.exactly(0, 8, "its header's length"))[0]
    if size > HEADER:
        raise Damaged(f"is no safetensors file: a header of {size} bytes")
    if 8 + size > reader.size:
        raise Damaged(f"ends within its header of {size} bytes")
    if size > PARSED:
        return "header's length"
    try:
        header = json.loads(_span(reader, 8, size).decode())
        ends = [
            (int(one["data_offsets"][0]), int(one["data_offsets"][1]), str(name))
            for name, one in header.items()
            if name != "__metadata__"
        ]
    except RecursionError:
        raise Damaged("is no safetensors file: its header is nested too deeply") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise Damaged("is no safetensors file: its header cannot be read") from None
    wanted = 8 + size + max((end for _begin, end, _name in ends), default=0)
    if any(begin < 0 or end < begin for begin, end, _name in ends):
        raise Damaged("is damaged: a tensor ends before it begins")
    if wanted > reader.size:
        raise Damaged(f"is cut off: it has {reader.size} bytes, its tensors need {wanted}")
    if wanted < reader.size:
        raise Damaged(f"has {reader.size - wanted} bytes after its last tensor")
    return f"{len(ends)} tensors"


_ITEM = re.compile(r"[<>|=]?([a-zA-Z])(\d*)\Z")


def npy(reader: Reader) -> str:
    """The header, and as many bytes after it as its shape and type need."""
    head = reader.exactly(0, 10, "its header")
    if head[:6] != b"\x93NUMPY":
        raise Damaged("is no NumPy file: it does not begin with its magic")
    if head[6] == 1:
        start, size = 10, struct.unpack("<H", head[8:10])[0]
    else:
        start, size = 12, struct.unpack("<I", reader.exactly(8, 4, "its header"))[0]
    if size > CHUNK:
        return "beginning"
    text = reader.exactly(start, size, "its header").decode("latin-1")
    try:
        said = ast.literal_eval(text.strip())
        shape, kind = said["shape"], said["descr"]
        items = 1
        for one in shape:
            items *= int(one)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
        raise Damaged("is no NumPy file: its header cannot be read") from None
    plain = _ITEM.match(kind) if isinstance(kind, str) else None
    if not plain or plain.group(1) in "OV" and not plain.group(2):
        return "header"
    each = int(plain.group(2) or 1) * (4 if plain.group(1) == "U" else 1)
    wanted = start + size + items * each
    if wanted > reader.size:
        raise Damaged(f"is cut off: it has {reader.size} bytes, its array needs {wanted}")
    return "all its bytes"


def _span(reader: Reader, start: int, size: int) -> bytes:
    parts = []
    while size > 0:
        part = reader.exactly(start, min(size, CHUNK), "its header")
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)
