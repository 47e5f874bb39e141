"""A root: the file system that is looked at, and the rule that nothing escapes it.

Paths are given and returned as the root sees them ("/usr/lib/..."). In a directory root every
symlink is resolved inside the directory, as a process chrooted there would; ``..`` cannot climb
above it. Only regular files are read, without blocking on FIFOs or devices, and only up to a
limit. Nothing in a root is ever executed.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice
from typing import Iterable, Iterator, List, Optional, Tuple

#: Files read whole are small texts; more than this is refused rather than truncated silently.
TEXT_LIMIT = 4 << 20
#: A directory with more entries than this is not listed (site-packages has some thousands).
LIST_LIMIT = 200_000
#: As the kernel: more symlinks than this on one path is a loop.
SYMLINK_LIMIT = 40
#: As the kernel: a longer path is refused.
PATH_LIMIT = 4096


class Root:
    """The running machine's own file system, when `path` is "/"; else the directory `path`."""

    def __init__(self, path: str = "/") -> None:
        self.path = os.path.abspath(path)
        self.live = self.path == "/"
        self._base = "" if self.live else self.path

    def resolve(self, path: str) -> str:
        """`path` with every symlink followed, as seen inside the root.

        Raises OSError: ENOENT when a component is missing, ENOTDIR when one is a file, ELOOP
        on too many symlinks.
        """
        _check(path)
        todo = _parts(path)[::-1]
        done = ""
        in_directory = True
        links = 0
        while todo:
            part = todo.pop()
            if not in_directory:
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = self._base + done + "/" + part
            mode = os.lstat(here).st_mode
            if not stat.S_ISLNK(mode):
                done += "/" + part
                in_directory = stat.S_ISDIR(mode)
                continue
            links += 1
            if links > SYMLINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(here)
            if target.startswith("/"):
                done = ""
            todo.extend(_parts(target)[::-1])
        return done or "/"

    def on_host(self, path: str) -> str:
        """Where the file behind `path` really lies, for callers that map it into memory."""
        return self._base + self.resolve(path)

    def stat(self, path: str) -> os.stat_result:
        """`os.stat` of what `path` resolves to inside the root."""
        return os.stat(self._to_open(path), follow_symlinks=self.live)

    def exists(self, path: str) -> bool:
        """Whether `path` resolves to anything at all; False also when it may not be looked at."""
        return self._mode(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether `path` resolves to a directory."""
        return stat.S_ISDIR(self._mode(path) or 0)

    def is_file(self, path: str) -> bool:
        """Whether `path` resolves to a regular file."""
        return stat.S_ISREG(self._mode(path) or 0)

    def read(self, path: str, limit: int = TEXT_LIMIT) -> bytes:
        """The bytes of a regular file; raises OSError for anything else or above `limit` bytes."""
        data = self.head(path, limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)
        return data

    def head(self, path: str, size: int) -> bytes:
        """The first `size` bytes of a regular file, fewer when it is shorter; raises OSError."""
        handle = self._open(path)
        try:
            chunks: List[bytes] = []
            while size > 0:
                chunk = os.read(handle, min(1 << 20, size))
                if not chunk:
                    break
                chunks.append(chunk)
                size -= len(chunk)
            return b"".join(chunks)
        finally:
            os.close(handle)

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """A regular file from beginning to end, `size` bytes at a time; raises OSError."""
        handle = self._open(path)
        try:
            chunk = os.read(handle, size)
            while chunk:
                yield chunk
                chunk = os.read(handle, size)
        finally:
            os.close(handle)

    def open(self, path: str) -> int:
        """A descriptor of a regular file, to read from; raises OSError for anything else."""
        return self._open(path)

    def text(self, path: str, limit: int = TEXT_LIMIT) -> str:
        """The file as text; bytes that are no UTF-8 become U+FFFD. Raises OSError as `read`."""
        return self.read(path, limit).decode("utf-8", "replace")

    def first_text(self, paths: Iterable[str]) -> Optional[Tuple[str, str]]:
        """(path, text) of the first of `paths` that can be read, else None."""
        for path in paths:
            try:
                return path, self.text(path)
            except OSError:
                continue
        return None

    def listing(self, path: str) -> List[str]:
        """Sorted names in a directory; raises OSError when it cannot be listed or is too large."""
        with os.scandir(self._to_open(path)) as entries:
            found = [entry.name for entry in islice(entries, LIST_LIMIT + 1)]
        if len(found) > LIST_LIMIT:
            raise OSError(errno.EFBIG, f"more than {LIST_LIMIT} entries", path)
        return sorted(found)

    def names(self, path: str) -> List[str]:
        """Sorted names in a directory; empty when there is none or it cannot be listed."""
        try:
            return self.listing(path)
        except OSError:
            return []

    def _mode(self, path: str) -> Optional[int]:
        try:
            return self.stat(path).st_mode
        except OSError:
            return None

    def _to_open(self, path: str) -> str:
        """A path for the kernel: on the live machine it follows symlinks itself, and faster."""
        if self.live:
            _check(path)
            return path if path.startswith("/") else "/" + path
        return self.on_host(path)

    def _open(self, path: str) -> int:
        """A descriptor of a regular file. Nothing else is opened: opening a device can act."""
        where = self._to_open(path)
        _regular(os.stat(where, follow_symlinks=self.live), path)
        stay = 0 if self.live else os.O_NOFOLLOW
        handle = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | stay)
        try:
            _regular(os.fstat(handle), path)
        except OSError:
            os.close(handle)
            raise
        return handle


def _regular(info: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def _check(path: str) -> None:
    """Raises OSError for what no file can be called, where the kernel's calls would ValueError."""
    try:
        size = len(os.fsencode(path))
    except ValueError:
        raise OSError(errno.EINVAL, "not a possible file name", path) from None
    if "\0" in path:
        raise OSError(errno.EINVAL, "not a possible file name", path)
    if size > PATH_LIMIT:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
