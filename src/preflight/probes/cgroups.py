"""What the cgroups of this process allow it: memory and CPU time, by version 1 and 2.

A limit counts wherever it is set between the process's own cgroup and the top of what is mounted
here: the smallest one holds. /proc/self/cgroup says which cgroup it is, /proc/self/mountinfo where
its files are (man 7 cgroups; Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
"""

from __future__ import annotations

import posixpath
import re
from typing import Iterator, List, NamedTuple, Optional

from .. import snapshot as s
from ..roots import Root

OWN = "/proc/self/cgroup"
MOUNTS = "/proc/self/mountinfo"
#: v1 writes "unlimited" as the largest multiple of a page below 2**63.
UNLIMITED = 1 << 60
LEVELS = 64

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Group(NamedTuple):
    """Where the files of a controller are: of our cgroup, and the topmost one that is mounted."""

    version: str  # v1, v2
    directory: str
    top: str


class Memory(NamedTuple):
    """The smallest memory limit, and what is used of it; None where there is none."""

    limit: Optional[int]
    used: Optional[int]
    source: str


def group(root: Root, controller: str) -> Optional[Group]:
    """Where `controller` limits us; None when no mounted hierarchy does."""
    own, mounts = root.first_text((OWN,)), root.first_text((MOUNTS,))
    if not own or not mounts:
        return None
    unified: Optional[Group] = None
    for line in own[1].splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names == "" and number == "0":
            unified = _mounted(root, mounts[1], "cgroup2", "", path)
        elif controller in names.split(","):
            found = _mounted(root, mounts[1], "cgroup", controller, path)
            if found:
                return found
    return unified if unified and _delegated(root, unified, controller) else None


def _delegated(root: Root, unified: Group, controller: str) -> bool:
    """Whether version 2 has this controller at all: in a hybrid it may be with version 1."""
    found = root.first_text((unified.top + "/cgroup.controllers",))
    return bool(found) and controller in (found or ("", ""))[1].split()


def _mounted(root: Root, mounts: str, kind: str, controller: str, path: str) -> Optional[Group]:
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        words, tail = left.split(), right.split()
        if len(words) < 5 or len(tail) < 3 or tail[0] != kind:
            continue
        if controller and controller not in tail[2].split(","):
            continue
        top = _plain(words[4])
        return Group("v2" if kind == "cgroup2" else "v1", _inside(root, words[3], top, path), top)
    return None


def _inside(root: Root, shown: str, top: str, path: str) -> str:
    """The directory of cgroup `path` where `shown` (of the hierarchy) is mounted at `top`.

    In a container without a cgroup namespace the path is the host's and only its own part is
    mounted: then that part is ours.
    """
    shown = _plain(shown).rstrip("/")
    if path == shown or path.startswith(shown + "/"):
        here = posixpath.normpath(top + path[len(shown) :])
        if here.startswith(top) and root.is_dir(here):
            return here
    return top


def _plain(text: str) -> str:
    """mountinfo writes blanks, tabs, newlines and backslashes in octal."""
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), text)


def _levels(found: Group) -> Iterator[str]:
    """Our cgroup and those above it, as far as they are mounted."""
    here = found.directory
    for _ in range(LEVELS):
        yield here
        if here == found.top or not here.startswith(found.top):
            return
        here = posixpath.dirname(here)


def memory(root: Root) -> Optional[Memory]:
    """The memory that our cgroups leave us; None when no memory cgroup can be seen."""
    found = group(root, "memory")
    if not found:
        return None
    names = _V2 if found.version == "v2" else _V1
    best: Optional[Memory] = None
    for directory in _levels(found):
        limit = _number(root, f"{directory}/{names.limit}")
        above = _field(root, f"{directory}/memory.stat", names.hierarchical)
        tight = min((one for one in (limit, above) if one is not None), default=UNLIMITED)
        if tight < UNLIMITED and (best is None or best.limit is None or tight < best.limit):
            best = Memory(tight, _used(root, directory, names), f"{directory}/{names.limit}")
    if best:
        return best
    used = _used(root, found.directory, names)
    return Memory(None, used, f"{found.directory}/{names.limit}")


class _Names(NamedTuple):
    limit: str
    usage: str
    cache: str
    hierarchical: str


_V1 = _Names(
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
    "hierarchical_memory_limit",
)  # fmt: skip
_V2 = _Names("memory.max", "memory.current", "inactive_file", "")


def _used(root: Root, directory: str, names: _Names) -> Optional[int]:
    """What is used, without the file pages that the kernel gives up first."""
    usage = _number(root, f"{directory}/{names.usage}")
    if usage is None:
        return None
    return max(0, usage - (_field(root, f"{directory}/memory.stat", names.cache) or 0))


def cpu_quota(root: Root) -> s.Fact[float]:
    """How many CPUs' time our cgroups leave us; absent: as many as there are."""
    found = group(root, "cpu")
    if not found:
        return s.absent(MOUNTS)
    quotas: List[float] = []
    for directory in _levels(found):
        if found.version == "v2":
            words = _words(root, directory + "/cpu.max")
            quota, period = (words[0], words[1]) if len(words) == 2 else ("max", "0")
        else:
            quota = " ".join(_words(root, directory + "/cpu.cfs_quota_us"))
            period = " ".join(_words(root, directory + "/cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    source = found.directory + ("/cpu.max" if found.version == "v2" else "/cpu.cfs_quota_us")
    return s.known(round(min(quotas), 3), source) if quotas else s.absent(source)


def _words(root: Root, path: str) -> List[str]:
    found = root.first_text((path,))
    return found[1].split() if found else []


def _number(root: Root, path: str) -> Optional[int]:
    """The number in a file; None for "max", and where there is no such file."""
    words = _words(root, path)
    return int(words[0]) if len(words) == 1 and words[0].isdecimal() else None


def _field(root: Root, path: str, name: str) -> Optional[int]:
    if not name:
        return None
    found = root.first_text((path,))
    for line in found[1].splitlines() if found else ():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None
