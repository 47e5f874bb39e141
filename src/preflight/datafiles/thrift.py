"""Thrift's compact protocol, as Parquet's footer has it: numbers and structs, by field number."""

from __future__ import annotations

from typing import Any, Dict

#: Deeper nesting than any footer has is no footer.
DEPTH = 32


class NotThrift(ValueError):
    """Bytes that are no struct of this protocol."""


def struct_of(data: bytes) -> Dict[int, Any]:
    """{field number: value} of one struct; raises NotThrift. Nothing but it may be in `data`."""
    try:
        at = _At(data)
        found: Dict[int, Any] = at.value(12, 0)
    except IndexError:
        raise NotThrift("it ends early") from None
    return found


class _At:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def byte(self) -> int:
        self.offset += 1
        return self.data[self.offset - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise NotThrift("a number is too long")

    def signed(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def skip(self, size: int) -> bool:
        self.offset += size
        if self.offset > len(self.data):
            raise IndexError
        return True

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEPTH:
            raise NotThrift("nested too deeply")
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.signed()
        if kind == 7:
            return self.skip(8)
        if kind == 8:
            return self.skip(self.number())
        if kind in (9, 10):
            return self._list(depth)
        if kind == 11:
            return self._map(depth)
        if kind == 12:
            return self._struct(depth)
        raise NotThrift(f"no type {kind}")

    def _list(self, depth: int) -> Any:
        head = self.byte()
        size = head >> 4
        size = self.number() if size == 15 else size
        if size > len(self.data):
            raise NotThrift("a list is longer than the footer")
        kind = head & 15
        if kind in (1, 2):
            return self.skip(size)
        return [self.value(kind, depth + 1) for _ in range(size)]

    def _map(self, depth: int) -> Any:
        size = self.number()
        if size > len(self.data):
            raise NotThrift("a map is longer than the footer")
        kinds = self.byte() if size else 0
        for _ in range(size):
            self.value(kinds >> 4, depth + 1)
            self.value(kinds & 15, depth + 1)
        return True

    def _struct(self, depth: int) -> Dict[int, Any]:
        found: Dict[int, Any] = {}
        field = 0
        while True:
            head = self.byte()
            if not head:
                return found
            step = head >> 4
            field = field + step if step else self.signed()
            found[field] = self.value(head & 15, depth + 1)
