"""Which file ld.so would pick for a library asked for by bare name, as dlopen("libcuda.so.1").

The order (ld.so(8)): LD_LIBRARY_PATH, then /etc/ld.so.cache, then the default directories. Where
an image has no cache, the directories of /etc/ld.so.conf stand in for it.
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..roots import Root

DEFAULTS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
#: e_machine of an ELF header (gABI): EM_X86_64 and EM_AARCH64.
MACHINES = {"x86_64": 62, "aarch64": 183}
CACHE = "/etc/ld.so.cache"
CACHE_LIMIT = 32 << 20
#: Each file is read once, and no more than this many.
INCLUDE_LIMIT = 200
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
#: Cache entry flags of 64-bit libraries (glibc dl-cache.h): ELF libc6 with x86-64 or AArch64.
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}


class Found(NamedTuple):
    """A library file as the root sees it, before symlinks, and what found it."""

    path: str
    found_by: str


def find(root: Root, env: Mapping[str, str], soname: str, arch: str) -> Optional[Found]:
    """The file ld.so would pick for `soname`, None when there is none."""
    for directory in search_path(env):
        path = directory.rstrip("/") + "/" + soname
        if _fits(root, path, arch):
            return Found(path, "ld-library-path")
    for path, by in _behind_the_path(root, soname, arch):
        if _fits(root, path, arch):
            return Found(path, by)
    return None


def search_path(env: Mapping[str, str]) -> List[str]:
    """The directories of LD_LIBRARY_PATH; empty entries (the working directory) are left out."""
    text = env.get("LD_LIBRARY_PATH", "").replace(";", ":")
    return [one for one in text.split(":") if one.startswith("/")]


def _behind_the_path(root: Root, soname: str, arch: str) -> Iterator[Tuple[str, str]]:
    cached = _cache(root)
    if cached is None:
        for directory in conf_directories(root):
            yield directory + "/" + soname, "ld-cache"
    else:
        for name, path, flags in cached:
            if name == soname and flags in (_FLAGS.get(arch, flags), 3):
                yield path, "ld-cache"
    triplet = MULTIARCH.get(arch)
    for directory in DEFAULTS:
        if triplet:
            yield f"{directory}/{triplet}/{soname}", "default"
        yield f"{directory}/{soname}", "default"


def _cache(root: Root) -> Optional[List[Tuple[str, str, int]]]:
    """(soname, path, flags) of /etc/ld.so.cache in its order; None when there is no usable one."""
    try:
        data = root.read(CACHE, CACHE_LIMIT)
    except OSError:
        return None
    start = data.find(_NEW_MAGIC)
    if start < 0 or start + 48 > len(data):
        return None
    count, texts = struct.unpack_from("<II", data, start + 20)
    if start + 48 + count * 24 > len(data):
        return None
    found = []
    for number in range(count):
        flags, key, value = struct.unpack_from("<iII", data, start + 48 + number * 24)
        found.append((_text(data, start + key), _text(data, start + value), flags))
    return found


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at:end].decode("utf-8", "replace") if end >= 0 else ""


def conf_directories(
    root: Root, path: str = "/etc/ld.so.conf", seen: Optional[Set[str]] = None
) -> List[str]:
    """The directories that /etc/ld.so.conf and what it includes name, in order."""
    found: List[str] = []
    seen = set() if seen is None else seen
    if path in seen or len(seen) >= INCLUDE_LIMIT:
        return found
    seen.add(path)
    try:
        lines = root.text(path).splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                for one in _glob(root, pattern):
                    found += conf_directories(root, one, seen)
        elif words and words[0].startswith("/"):
            found.append(words[0].rstrip("/"))
    return found


def _glob(root: Root, pattern: str) -> List[str]:
    from fnmatch import fnmatch

    directory, _, last = pattern.rpartition("/")
    directory = directory if directory.startswith("/") else "/etc/" + directory
    return [f"{directory}/{name}" for name in root.names(directory) if fnmatch(name, last)]


def _fits(root: Root, path: str, arch: str) -> bool:
    """Whether ld.so would take the file: 64 bits, and this processor's; others are passed over."""
    try:
        real = root.on_host(path)
        if not root.is_file(path):
            return False
        with open(real, "rb") as stream:
            head = stream.read(20)
    except (OSError, ValueError):
        return False
    machine = int.from_bytes(head[18:20], "little")
    return head[:5] == b"\x7fELF\x02" and machine == MACHINES.get(arch, machine)
