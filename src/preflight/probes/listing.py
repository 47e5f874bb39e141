"""Counting and weighing what lies in a directory, within time and memory."""

from __future__ import annotations

import bisect
import os
import posixpath
import re
import stat
import time
from fnmatch import translate
from typing import Callable, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..roots import Root

#: More entries than this are not listed, more directories than that not entered.
ENTRIES, FOLDERS = 2_000_000, 200_000
#: So many names are kept, spread over all of them.
KEPT = 4_000
FIRST, EMPTIES = 5, 5
#: As often something is said, and the clock is looked at.
EVERY = 2_000


class Wanted(NamedTuple):
    """What to count: names by a pattern, below or not, until when, and which may not be empty."""

    glob: str
    recursive: bool
    until: float
    cannot_be_empty: Callable[[str], bool]


class Listing:
    """What was counted so far."""

    def __init__(self) -> None:
        self.files = 0
        self.entries = 0
        self.size = 0
        self.all_listed = True
        self.all_weighed = True
        self.names: List[str] = []
        self.first: List[str] = []
        self.empties: List[str] = []
        self.empty_count = 0
        self.note = ""
        self._stride = 1

    def add(self, name: str) -> None:
        """Count a file, and keep its name where it is one of those that are kept."""
        if self.files % self._stride == 0:
            self.names.append(name)
            if len(self.names) >= 2 * KEPT:
                del self.names[1::2]
                self._stride *= 2
        self.files += 1
        if len(self.first) < FIRST or name < self.first[-1]:
            bisect.insort(self.first, name)
            del self.first[FIRST:]


def has_entries(root: Root, path: str) -> bool:
    """Whether anything lies in a directory; raises OSError where it cannot be listed."""
    with os.scandir(root.on_host(path)) as entries:
        return next(entries, None) is not None


def read(root: Root, path: str, wanted: Wanted, more: Callable[[Listing], None]) -> Listing:
    """What lies at `path`; raises OSError where not even that can be listed.

    Sizes cost a question a file on network storage: where the time is half over, the rest is
    counted only.
    """
    found = Listing()
    matches = _pattern(wanted.glob)
    weigh_until = (time.monotonic() + wanted.until) / 2
    todo: List[Tuple[str, str]] = [(root.on_host(path), "")]
    seen: Set[Tuple[int, int]] = set()
    while todo:
        where, below = todo.pop()
        try:
            if _again(where, seen):
                continue
            entries = os.scandir(where)
        except OSError as error:
            if not below:
                raise
            _note(found, f"{below}: {error.strerror}")
            continue
        with entries:
            for entry in entries:
                found.entries += 1
                if found.entries % EVERY == 0:
                    if time.monotonic() > wanted.until or found.entries >= ENTRIES:
                        _stopped(found)
                        return found
                    if found.all_weighed and time.monotonic() > weigh_until:
                        found.all_weighed = False
                        found.note = (
                            found.note or f"only the first {found.files} files were weighed"
                        )
                    more(found)
                name = posixpath.join(below, entry.name)
                folder = _one(root, path, entry, name, wanted, matches, found)
                if folder and wanted.recursive:
                    todo.append((folder, name))
        if len(seen) > FOLDERS or (todo and time.monotonic() > wanted.until):
            _stopped(found)
            return found
    return found


def _one(
    root: Root,
    path: str,
    entry: os.DirEntry[str],
    name: str,
    wanted: Wanted,
    matches: Callable[[str], object],
    found: Listing,
) -> str:
    """Count a file; of a directory where it lies."""
    try:
        if not entry.is_symlink():
            if entry.is_dir(follow_symlinks=False):
                return entry.path
            if not entry.is_file(follow_symlinks=False) or not matches(name):
                return ""
            size = entry.stat(follow_symlinks=False).st_size if found.all_weighed else -1
        else:
            info = root.stat(posixpath.join(path, name))
            if stat.S_ISDIR(info.st_mode):
                return root.on_host(posixpath.join(path, name))
            if not stat.S_ISREG(info.st_mode) or not matches(name):
                return ""
            size = info.st_size
    except OSError as error:
        _note(found, f"{name}: {error.strerror}")
        return ""
    found.add(name)
    found.size += max(0, size)
    if size == 0 and wanted.cannot_be_empty(name):
        found.empty_count += 1
        if len(found.empties) < EMPTIES:
            found.empties.append(name)
    return ""


def _pattern(glob: str) -> Callable[[str], object]:
    """By the name alone where the pattern has no slash, else by the path below."""
    if not glob:
        return lambda _name: True
    matches = re.compile(translate(glob)).match
    if "/" in glob:
        return matches
    return lambda name: matches(name.rpartition("/")[2])


def _again(where: str, seen: Set[Tuple[int, int]]) -> bool:
    """Whether a directory was entered before: symlinks may lead in a circle."""
    info = os.stat(where)
    if (info.st_dev, info.st_ino) in seen:
        return True
    seen.add((info.st_dev, info.st_ino))
    return False


def _note(found: Listing, words: str) -> None:
    if not found.note:
        found.note = words.encode("utf-8", "backslashreplace").decode()
    found.all_listed = found.all_weighed = False


def _stopped(found: Listing) -> None:
    _note(found, f"the listing stopped after {found.entries} entries")
    found.note = f"the listing stopped after {found.entries} entries"


def newest(root: Root, base: str, pattern: str, until: float) -> Optional[Tuple[str, float]]:
    """(name, time) of what was written last in `base`, by the pattern below it."""
    best: Optional[Tuple[str, float]] = None
    for name in _matching(root, base, pattern.split("/") if pattern else ["*"], until):
        try:
            when = root.stat(posixpath.join(base, name)).st_mtime
        except OSError:  # a symlink to nothing, or just removed
            continue
        if best is None or (when, name) > (best[1], best[0]):
            best = name, when
    return best


def _matching(root: Root, base: str, parts: List[str], until: float) -> Iterator[str]:
    matches = re.compile(translate(parts[0])).match
    hidden = parts[0].startswith(".")
    with os.scandir(root.on_host(base)) as entries:
        for number, entry in enumerate(entries):
            if number >= ENTRIES or (number % EVERY == 0 and time.monotonic() > until):
                return
            if not matches(entry.name) or (entry.name.startswith(".") and not hidden):
                continue
            if len(parts) == 1:
                yield entry.name
            elif root.is_dir(posixpath.join(base, entry.name)):
                try:
                    inner = list(
                        _matching(root, posixpath.join(base, entry.name), parts[1:], until)
                    )
                except OSError:
                    continue
                yield from (posixpath.join(entry.name, one) for one in inner)
