"""Reading a few places of a large file, within a budget of bytes and time."""

from __future__ import annotations

import os
import time
from typing import Iterator

#: From one file not more than this is read for its check; larger ones are looked at in part.
BYTES = 64 << 20
#: At once.
CHUNK = 1 << 20


class Damaged(Exception):
    """A file that is not whole: the message goes after its name.

    `mild`: readers that do not look at the end go on without a word.
    """

    def __init__(self, problem: str, mild: bool = False) -> None:
        super().__init__(problem)
        self.mild = mild


class Reader:
    """An open regular file of a known size."""

    def __init__(self, handle: int, budget: int = BYTES, deadline: float = 0.0) -> None:
        self.size = os.fstat(handle).st_size
        self._handle = handle
        self._left = budget
        self._deadline = deadline

    @property
    def tired(self) -> bool:
        """Whether the budget is used up: what is not read by now is left unread."""
        return self._left <= 0 or bool(self._deadline and time.monotonic() > self._deadline)

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer where the file ends. Raises OSError."""
        size = min(size, CHUNK, max(0, self.size - offset))
        if size <= 0 or offset < 0:
            return b""
        data = os.pread(self._handle, size, offset)
        while len(data) < size:
            more = os.pread(self._handle, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        self._left -= max(len(data), 4096)
        return data

    def exactly(self, offset: int, size: int, what: str) -> bytes:
        """`size` bytes, at most CHUNK; raises Damaged where the file ends before."""
        data = self.at(offset, size)
        if len(data) < size:
            raise Damaged(f"ends within {what}, at byte {self.size}")
        return data

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        """The bytes from `offset` on, until the end or until tired."""
        while not self.tired:
            data = self.at(offset, CHUNK)
            if not data:
                return
            yield data
            offset += len(data)
