"""The file systems that a job writes to: what is free on them, and what their clock says.

A mount whose server is away never answers: this probe runs in a child of its own.
"""

from __future__ import annotations

import os
import posixpath
import time
from typing import Dict, List, Mapping, NamedTuple, Tuple

from .. import snapshot as s
from ..roots import Root
from .place import Place, home_directory

MOUNTS = "/proc/self/mountinfo"
#: Kinds whose file times come from another machine's clock.
SHARED = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "gpfs", "9p", "virtiofs")
SHARED_PREFIXES = ("fuse.", "alinas", "cpfs")


class Mount(NamedTuple):
    """A mounted file system: where, and of which kind."""

    point: str
    kind: str


def read(at: Place) -> s.Snapshot:
    """Space, inodes and clock of the file systems under the working directory, TMPDIR and HOME."""
    wanted: Dict[str, List[str]] = {}
    for purpose, path in _places(at):
        wanted.setdefault(_existing(at.root, path), []).append(purpose)
    mounts = _mounts(at.root)
    rows: Dict[Tuple[int, int], s.Disk] = {}
    behind: s.Fact[float] = s.absent("no shared mount")
    for path, purposes in wanted.items():
        try:
            seen, numbers = os.stat(path), os.statvfs(path)
        except OSError:
            continue
        if numbers.f_flag & os.ST_RDONLY:
            continue
        mount = _mount_of(path, mounts)
        key = (seen.st_dev, numbers.f_blocks)
        before = rows.get(key)
        purpose = ", ".join([*(before.purpose.split(", ") if before else []), *purposes])
        rows[key] = s.Disk(
            path=before.path if before else path,
            purpose=purpose,
            kind=mount.kind,
            free=numbers.f_bavail * numbers.f_frsize,
            size=numbers.f_blocks * numbers.f_frsize,
            inodes_free=numbers.f_favail,
            inodes=numbers.f_files,
        )
        if _is_shared(mount.kind):
            behind = _behind(path, seen.st_mtime, behind)
    disks = tuple(rows.values())
    return s.Snapshot(
        host=s.Host(
            disks=s.known(disks, "statvfs"),
            disk_free_bytes=s.known(min(one.free for one in disks), "statvfs")
            if disks
            else s.UNKNOWN,
            clock_behind_seconds=behind,
        )
    )


def _places(at: Place) -> List[Tuple[str, str]]:
    """Where a job writes without being told to."""
    places = [("working directory", at.cwd), ("TMPDIR", _temporary(at.env))]
    return [*places, ("HOME", home_directory(at))]


def _temporary(env: Mapping[str, str]) -> str:
    return next((env[one] for one in ("TMPDIR", "TEMP", "TMP") if env.get(one)), "/tmp")


def _existing(root: Root, path: str) -> str:
    """The directory, or the nearest one above it that is there."""
    path = posixpath.normpath(path if path.startswith("/") else "/")
    while path != "/" and not root.exists(path):
        path = posixpath.dirname(path)
    return path


def _mounts(root: Root) -> List[Mount]:
    found = root.first_text((MOUNTS,))
    mounts = []
    for line in found[1].splitlines() if found else ():
        left, _, right = line.partition(" - ")
        words, tail = left.split(), right.split()
        if len(words) >= 5 and tail:
            mounts.append(Mount(words[4], tail[0]))
    return mounts


def _mount_of(path: str, mounts: List[Mount]) -> Mount:
    """The mount that a path is on: the deepest, of several at one place the last."""
    real = os.path.realpath(path)
    best = Mount("", "")
    for one in mounts:
        inside = one.point == "/" or real == one.point or real.startswith(one.point + "/")
        if inside and len(one.point) >= len(best.point):
            best = one
    return best


def _is_shared(kind: str) -> bool:
    return kind in SHARED or kind.startswith(SHARED_PREFIXES)


def _behind(path: str, modified: float, before: s.Fact[float]) -> s.Fact[float]:
    """How far a directory's time is ahead of our clock: nothing is written to find out."""
    ahead = round(max(0.0, modified - time.time()), 1)
    return s.known(ahead, f"time of {path}") if ahead >= before.get(0.0) else before
