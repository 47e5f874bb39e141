"""Files that the user names: read whole, within limits, and never waited for without end."""

from __future__ import annotations

import os
import select
import stat
import time
from typing import List

LIMIT = 1 << 20
SECONDS = 5.0


def read_named(path: str, limit: int = LIMIT, seconds: float = SECONDS) -> bytes:
    """The bytes of a file, or of a pipe (`<(...)` of a shell); raises OSError.

    One byte more than `limit` at most. A pipe that nobody writes to ends after `seconds`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            with os.fdopen(os.dup(handle), "rb") as stream:
                return stream.read(limit + 1)
        return _pipe(handle, limit, time.monotonic() + seconds)
    finally:
        os.close(handle)


def _pipe(handle: int, limit: int, deadline: float) -> bytes:
    read: List[bytes] = []
    size = 0
    while size <= limit:
        ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(0, "nothing comes out of this pipe")
        try:
            part = os.read(handle, 1 << 16)
        except BlockingIOError:
            continue
        if not part and not read and time.monotonic() < deadline:
            time.sleep(0.01)  # a FIFO whose writer has not come yet reads as ended
            continue
        if not part:
            if not read:
                raise TimeoutError(0, "nothing comes out of this pipe")
            break
        read.append(part)
        size += len(part)
    return b"".join(read)
