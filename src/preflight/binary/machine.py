"""What decides the loader's search besides paths: glibc's build and the processor.

Read from the loader's own file (its default directories, which subdirectories it knows) and from
/proc/cpuinfo. Rules: glibc's sysdeps/x86_64/dl-hwcap_subdirs.c, elf/dl-hwcaps.c (2.33 to 2.36
also search the older subdirectories; 2.37 stopped) and sysdeps/x86/cpu-features.c.
"""

from __future__ import annotations

import os
import re
from typing import FrozenSet, Iterator, List, NamedTuple, Sequence, Tuple

from ..roots import Root

DEFAULTS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
INTERPRETERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
CPUINFO = "/proc/cpuinfo"
#: The loader's file has some 200 kB, the first processor's lines in /proc/cpuinfo two.
LOADER_LIMIT = 8 << 20
CPUINFO_SIZE = 16 << 10

#: What glibc asks of a processor for each x86-64 level, in the words of /proc/cpuinfo.
_LEVELS = (
    frozenset(("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")),
    frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
_HASWELL = frozenset(("avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt"))
_XEON_PHI = frozenset(("avx512cd", "avx512er", "avx512pf"))
_AVX512_1 = frozenset(("avx512cd", "avx512bw", "avx512dq", "avx512vl"))

_SYSTEM_DIRECTORIES = re.compile(rb"(?:(?:/[A-Za-z0-9_.+-]+)+/\0){2,}")
_AROUND = 512


class Cpu(NamedTuple):
    """A processor: its vendor and its features, as /proc/cpuinfo spells them."""

    vendor: str = ""
    features: FrozenSet[str] = frozenset()

    @property
    def level(self) -> int:
        """The x86-64 level, 1 to 4."""
        level = 1
        for needed in _LEVELS:
            if not needed <= self.features:
                break
            level += 1
        return level


class Machine(NamedTuple):
    """What the loader knows before it searches. Directories have no slash at their end."""

    arch: str
    directories: Tuple[str, ...]
    #: What $LIB and $PLATFORM stand for.
    lib: str
    platform: str
    #: Names below glibc-hwcaps/, the first searched first; older subdirectories likewise.
    hwcaps: Tuple[str, ...] = ()
    legacy: Tuple[str, ...] = ()
    level: int = 1
    #: Before glibc 2.30, a versioned reference is sought no further than the file it names.
    ends_at_named_file: bool = False
    #: The process ends when a versioned reference meets its symbol in the named file, without
    #: versions (an assertion in check_match, in every glibc so far that is built with them).
    asserts_versions: bool = False

    @property
    def subdirectories(self) -> Tuple[str, ...]:
        """What is searched in each directory before the directory itself, each with a slash."""
        named = tuple(f"glibc-hwcaps/{name}/" for name in self.hwcaps)
        return named + tuple(name + "/" for name in self.legacy)


def read_cpu(root: Root) -> Cpu:
    """The processor of this machine (also for an image: it will run on one much like it)."""
    for place in (root, Root("/")):
        try:
            text = place.head(CPUINFO, CPUINFO_SIZE).decode("ascii", "replace")
        except OSError:
            continue
        fields = dict(_cpu_fields(text))
        features = fields.get("flags") or fields.get("Features", "")
        return Cpu(fields.get("vendor_id", ""), frozenset(features.split()))
    return Cpu()


def _cpu_fields(text: str) -> Iterator[Tuple[str, str]]:
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()


def read_machine(root: Root, interpreter: str, arch: str, cpu: Cpu) -> Machine:
    """What the loader `interpreter` does on `cpu`; a common glibc where it cannot be read."""
    try:
        data = root.read(interpreter, LOADER_LIMIT)
    except OSError:
        data = b"glibc-hwcaps"
    directories = _directories(data) or _usual(root, arch)
    hwcaps: List[str] = []
    if b"glibc-hwcaps" in data and arch == "x86_64":
        hwcaps = [f"x86-64-v{level}" for level in range(cpu.level, 1, -1)]
    platform = _platform(data, arch, cpu)
    legacy: Sequence[str] = ()
    if b"glibc-hwcaps" not in data or b"Legacy HWCAP" in data:
        legacy = _legacy([*_older_hwcaps(data, arch, cpu), platform])
    lib = directories[0].lstrip("/") if directories[0].startswith("/lib") else "lib64"
    level = cpu.level if arch == "x86_64" else 1
    return Machine(
        arch,
        directories,
        lib,
        platform,
        tuple(hwcaps),
        tuple(legacy),
        level,
        ends_at_named_file=b"with link time reference" in data,
        asserts_versions=b"_dl_name_match_p (version->filename" in data,
    )


def _directories(data: bytes) -> Tuple[str, ...]:
    """The default directories, which glibc has compiled in one behind the other."""
    at = data.find(b"/lib")
    while at >= 0:
        start = max(0, data.rfind(b"\0\0", max(0, at - _AROUND), at))
        found = _SYSTEM_DIRECTORIES.search(data, start, at + _AROUND)
        if found and b"/lib" in found.group():
            parts = found.group().split(b"\0")
            return tuple(os.fsdecode(one).rstrip("/") for one in parts if one)
        at = data.find(b"/lib", at + 1)
    return ()


def _usual(root: Root, arch: str) -> Tuple[str, ...]:
    triplet = MULTIARCH.get(arch, "")
    if triplet and root.is_dir("/usr/lib/" + triplet):
        return f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib", "/usr/lib"
    return DEFAULTS


def _platform(data: bytes, arch: str, cpu: Cpu) -> str:
    """AT_PLATFORM, which glibc 2.26 to 2.36 replaced on processors of Intel."""
    if arch == "x86_64" and cpu.vendor == "GenuineIntel" and b"haswell" in data:
        if cpu.features >= _XEON_PHI:
            return "xeon_phi"
        if cpu.features >= _HASWELL:
            return "haswell"
    return arch


def _older_hwcaps(data: bytes, arch: str, cpu: Cpu) -> List[str]:
    """The hwcap names in use, the least important first."""
    if arch == "aarch64":
        return ["atomics"] if b"atomics" in data and "atomics" in cpu.features else []
    if arch != "x86_64" or b"avx512_1" not in data:
        return []
    intel = cpu.vendor == "GenuineIntel" and cpu.features >= _AVX512_1
    return ["x86_64", "avx512_1"] if intel else ["x86_64"]


def _legacy(names: Sequence[str]) -> List[str]:
    """All combinations of tls and `names`, the more important first (glibc 2.36, dl-hwcaps.c)."""
    names = [*names, "tls"]
    found: List[str] = []
    for mask in range((1 << len(names)) - 1, 0, -1):
        chosen = [name for bit, name in enumerate(names) if mask >> bit & 1]
        path = "/".join(reversed(chosen))
        if path not in found:
            found.append(path)
    return found
