"""What /etc/ld.so.cache and /etc/ld.so.conf say: which file ldconfig found for a library's name.

The formats are those of glibc's dl-cache.h: "ld.so-1.7.0" (old; a new one may follow it) and
"glibc-ld.so.cache1.1" (new, since glibc 2.33 with a table of glibc-hwcaps names behind it).
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..roots import Root

CACHE = "/etc/ld.so.cache"
CONF = "/etc/ld.so.conf"
CACHE_LIMIT = 32 << 20
#: Files that ld.so.conf may include, one in another.
INCLUDE_DEPTH = 4
CONF_LIMIT = 1000
#: More files than this are not read.
CONF_FILES = 200
#: A path, as the kernel has it.
PATH_LIMIT = 4096

_OLD_MAGIC, _NEW_MAGIC = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_OLD_ENTRY, _NEW_ENTRY = struct.Struct("<iII"), struct.Struct("<iIIIQ")
_OLD_HEAD, _NEW_HEAD = 16, 48
_EXTENSION_MAGIC, _EXTENSION_HWCAPS, _EXTENSION_LIMIT = 0xEAA42174, 1, 100
_BIG_ENDIAN = 3
#: Bit 62 of an entry's hwcap word, alone in the upper half but for ten bits of ISA level.
_NAMED, _LEVEL_MASK = 1 << 30, 0x3FF


class Entry(NamedTuple):
    """One line of the cache.

    `hwcaps` names the glibc-hwcaps subdirectory that the file lies in, `level` is the x86-64
    level it needs (1 is the baseline), `legacy` is set for a hwcap of the time before glibc 2.33.
    """

    path: str
    flags: int
    hwcaps: str = ""
    level: int = 1
    legacy: bool = False


Cache = Dict[str, List[Entry]]


def read_cache(root: Root, path: str = CACHE) -> Optional[Cache]:
    """The cache by library name, in its order; None when there is none that can be used."""
    try:
        return parse_cache(root.read(path, CACHE_LIMIT))
    except OSError:
        return None


def parse_cache(data: bytes) -> Optional[Cache]:
    """The cache in `data`; None where it is none, or damaged."""
    try:
        if data.startswith(_NEW_MAGIC):
            return _new(data)
        if data.startswith(_OLD_MAGIC) and len(data) > _OLD_HEAD:
            return _old(data)
    except (struct.error, _Damaged):
        pass
    return None


class _Damaged(Exception):
    pass


def _old(data: bytes) -> Cache:
    (count,) = struct.unpack_from("<I", data, 12)
    end = _OLD_HEAD + count * _OLD_ENTRY.size
    if end > len(data):
        raise _Damaged
    inner = (end + 7) // 8 * 8
    if data.startswith(_NEW_MAGIC, inner):
        return _new(data[inner:])
    found: Cache = {}
    texts = _Texts(data[end:])
    for flags, key, value in _OLD_ENTRY.iter_unpack(data[_OLD_HEAD:end]):
        _add(found, texts.at(key), Entry(texts.at(value), flags))
    return found


def _add(found: Cache, name: str, entry: Entry) -> None:
    # As glibc, which passes over an entry that points outside (ldconfig 2.36 writes such).
    if name and entry.path:
        found.setdefault(name, []).append(entry)


def _new(data: bytes) -> Cache:
    count, _, order, extension = struct.unpack_from("<IIB3xI", data, len(_NEW_MAGIC))
    end = _NEW_HEAD + count * _NEW_ENTRY.size
    if order & 3 == _BIG_ENDIAN or end > len(data):
        raise _Damaged
    found: Cache = {}
    texts = _Texts(data)
    subdirectories = _hwcaps(data, extension, texts)
    for flags, key, value, _, hwcap in _NEW_ENTRY.iter_unpack(data[_NEW_HEAD:end]):
        entry = Entry(texts.at(value), flags)
        if hwcap:
            entry = _with_hwcap(entry, hwcap, subdirectories)
        _add(found, texts.at(key), entry)
    return found


def _with_hwcap(entry: Entry, hwcap: int, subdirectories: List[str]) -> Entry:
    upper, index = hwcap >> 32, hwcap & 0xFFFFFFFF
    if upper & ~_LEVEL_MASK != _NAMED:
        return entry._replace(legacy=True)
    # An index beyond the table stands for a directory that nobody searches.
    name = subdirectories[index] if index < len(subdirectories) else "?"
    return entry._replace(hwcaps=name, level=1 + (upper & _LEVEL_MASK))


def _hwcaps(data: bytes, at: int, texts: _Texts) -> List[str]:
    """The glibc-hwcaps subdirectories by their index in the cache."""
    if not at or at % 4 or at + 8 > len(data):
        return []
    magic, count = struct.unpack_from("<II", data, at)
    if magic != _EXTENSION_MAGIC or count > _EXTENSION_LIMIT:
        return []
    for number in range(count):
        tag, _, offset, size = struct.unpack_from("<IIII", data, at + 8 + number * 16)
        if tag == _EXTENSION_HWCAPS and size <= 4 * _EXTENSION_LIMIT:
            places = struct.unpack_from(f"<{size // 4}I", data, offset)
            return [texts.at(one) for one in places]
    return []


class _Texts:
    """The strings of a cache, empty outside it; together not longer than they honestly can be."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._room = 16 * len(data)

    def at(self, offset: int) -> str:
        end = self._data.find(b"\0", offset, offset + PATH_LIMIT)
        if end < 0:
            return ""
        self._room -= end - offset
        if self._room < 0:
            raise _Damaged
        return self._data[offset:end].decode("utf-8", "surrogateescape")


def lookup(
    cache: Cache,
    name: str,
    flags: int,
    hwcaps: Mapping[str, int],
    level: int,
    legacy: Tuple[str, ...],
) -> Optional[str]:
    """The path that glibc's search_cache takes for `name`; None when the cache has none.

    `flags` is the architecture's; `hwcaps` the glibc-hwcaps subdirectories in use, each with its
    rank; `level` the x86-64 level of the processor; `legacy` the older subdirectories in use.
    """
    best: Optional[str] = None
    best_rank = 0
    for entry in cache.get(name, ()):
        if entry.flags != flags:
            continue
        if entry.hwcaps:
            rank = hwcaps.get(entry.hwcaps)
            if rank is None or entry.level > level or (best is not None and rank >= best_rank):
                continue
            best, best_rank = entry.path, rank
        elif best is not None:
            break  # entries with a named subdirectory come first
        elif not entry.legacy or _in_use(entry.path, legacy):
            return entry.path
    return best


def _in_use(path: str, legacy: Tuple[str, ...]) -> bool:
    return path.rpartition("/")[0].endswith(tuple("/" + one.rstrip("/") for one in legacy))


def conf_directories(root: Root, path: str = CONF) -> List[str]:
    """The directories that /etc/ld.so.conf and what it includes name, in order."""
    found: List[str] = []
    for one in _conf(root, path, 0, set()):
        found.append(one)
        if len(found) >= CONF_LIMIT:
            break
    return found


def _conf(root: Root, path: str, depth: int, seen: Set[str]) -> Iterator[str]:
    if path in seen or len(seen) > CONF_FILES:  # files that include each other
        return
    seen.add(path)
    try:
        lines = root.text(path).splitlines()
    except OSError:
        return
    for line in lines:
        words = line.partition("#")[0].split()
        if words[:1] == ["include"] and depth < INCLUDE_DEPTH:
            for pattern in words[1:]:
                for one in _glob(root, pattern):
                    yield from _conf(root, one, depth + 1, seen)
        elif words and words[0].startswith("/"):
            yield words[0].rstrip("/")


def _glob(root: Root, pattern: str) -> List[str]:
    from fnmatch import fnmatch

    directory, _, last = pattern.rpartition("/")
    directory = directory if directory.startswith("/") else "/etc/" + directory
    return [f"{directory}/{name}" for name in root.names(directory) if fnmatch(name, last)]
