"""The paths that a policy declares: there, readable, how much, whole, writable.

Each path is looked at in a process of its own, since a mount that hangs takes its process along.
What was seen until then is kept: it is written down on the way (`Notes`).

This costs more than other probes where a policy declares paths, and nothing where none does:
a directory is listed (about 4 µs an entry on a local disk), sample files are opened and read.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import time
from dataclasses import replace
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from .. import datafiles
from .. import snapshot as s
from ..declared import ANY, AUTO, CHECKPOINT, DATA, Declared
from ..roots import Root
from . import listing, mounts
from .place import place
from .system import MASKED, is_secret

#: From one sample file this much is read for its rate: with a floor to hold, and without.
RATED, UNRATED = 32 << 20, 4 << 20
#: Shares of a path's time that listing, and listing with reading, may take.
LISTING, READING = 0.5, 0.8
#: Variables that number a process or node of the job: above 0 in one of them is not the first.
RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "SLURM_PROCID",
         "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
         "VC_TASK_INDEX")  # fmt: skip
#: A newest checkpoint of more files than this is looked at in part.
CHECKPOINT_FILES = 16

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Told(NamedTuple):
    """What is known of a path so far."""

    row: s.StoragePath
    damaged: Tuple[s.StorageFile, ...] = ()


#: Called with everything known so far, whenever there is more.
Notes = Callable[[Told], None]


class At(NamedTuple):
    """Where and how one path is looked at."""

    root: Root
    asked: Declared
    path: str
    first: bool  # this process lists and samples; others only see whether it is there
    until: float
    seconds: float
    notes: Notes
    thorough: bool = False  # libraries decode the sample, too

    def share(self, part: float) -> float:
        """The time at which `part` of the whole is over."""
        return self.until - self.seconds * (1 - part)


def read(
    root: Root,
    env: Mapping[str, str],
    asked: Declared,
    seconds: float,
    notes: Notes,
    thorough: bool = False,
) -> Told:
    """All about one declared path, within `seconds` unless the file system hangs."""
    row = asked_of(asked, root, env)
    notes(Told(row))
    if row.unset:
        return Told(row)
    until = time.monotonic() + seconds
    path = posixpath.normpath(posixpath.join(place(root, env).cwd, expanded(asked.path, env)))
    at = At(root, asked, path, _first(env), until, seconds, notes, thorough)
    look = {DATA: _data, CHECKPOINT: _checkpoint}.get(asked.role, _output)
    return look(at, row)


def asked_of(asked: Declared, root: Root, env: Mapping[str, str]) -> s.StoragePath:
    """What is asked of a path, and the mount that it lies on by its name: nothing is touched."""
    unset = [one for one in _VARIABLE.findall(asked.path) if not env.get(one)]
    cwd = place(root, env).cwd
    shown = posixpath.normpath(posixpath.join(cwd, expanded(asked.path, env, masked=True)))
    row = s.StoragePath(
        path=asked.path, at="" if unset else plain(shown), role=asked.role, place=asked.place,
        kind=asked.kind, glob=asked.glob, files_min=asked.files_min, files_max=asked.files_max,
        bytes_min=asked.bytes_min, bytes_max=asked.bytes_max, free_min=asked.free,
        throughput_min=asked.throughput_min, inodes_min=asked.inodes, unset=", ".join(unset),
        may_be_empty="yes" if asked.may_be_empty else "", create="yes" if asked.create else "",
    )  # fmt: skip
    real = posixpath.normpath(posixpath.join(cwd, expanded(asked.path, env)))
    return row if unset else _mounted(row, root, real)


def expanded(path: str, env: Mapping[str, str], masked: bool = False) -> str:
    """The path with its variables; `masked`: as it may be shown."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return MASKED if masked and is_secret(name) else env.get(name, "")

    return _VARIABLE.sub(value, path)


def plain(name: str) -> str:
    """A name as it can be shown: what a terminal would obey becomes an escape."""
    if name.isprintable():
        return name
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in name)


def _first(env: Mapping[str, str]) -> bool:
    return not any(env.get(one, "").isdecimal() and int(env[one]) > 0 for one in RANKS)


def _mounted(row: s.StoragePath, root: Root, path: str) -> s.StoragePath:
    one = mounts.of(path, mounts.mounts(root))
    if one is None:
        return row
    return replace(row, mount=plain(one.point), mount_kind=plain(one.kind),
                   mount_words=plain(one.words), own_disk="yes" if one.local else "")  # fmt: skip


def _entered(at: At, row: s.StoragePath, path: str) -> s.StoragePath:
    """What stands at `path`: a directory, a file, nothing; and the mount behind symlinks."""
    try:
        mode = at.root.stat(path).st_mode
    except FileNotFoundError:
        return replace(row, state="missing", parent=plain(_above(at.root, path)))
    except OSError as error:
        return replace(row, problem=_words(error))
    state = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    if at.root.live:
        row = _mounted(row, at.root, os.path.realpath(path))
    return replace(row, state=state)


def _above(root: Root, path: str) -> str:
    while path not in ("/", ""):
        path = posixpath.dirname(path)
        if root.is_dir(path):
            return path
    return "/"


def _words(error: OSError) -> str:
    return error.strerror or str(error)


# -- data -----------------------------------------------------------------------------------


def _data(at: At, row: s.StoragePath) -> Told:
    row = _entered(at, row, at.path)
    at.notes(Told(row))
    if row.state == "file":
        return _one_file(at, row)
    if row.state != "directory":
        return Told(row)
    if not at.first:
        return Told(_peeked(at, row))
    return _directory(at, row)


def _peeked(at: At, row: s.StoragePath) -> s.StoragePath:
    """Whether a directory can be listed and has anything, without listing it."""
    row = replace(row, listed="the first rank lists it", weighed="the first rank lists it")
    try:
        return replace(row, blank="no" if listing.has_entries(at.root, at.path) else "yes")
    except OSError as error:
        return replace(row, problem=_words(error))


def _one_file(at: At, row: s.StoragePath) -> Told:
    try:
        size = at.root.stat(at.path).st_size
    except OSError as error:
        return Told(replace(row, problem=_words(error)))
    row = replace(row, files=1, bytes=size, listed="all", weighed="all", blank="no")
    if not at.first:
        os_problem = _opens(at, at.path)
        return Told(replace(row, problem=os_problem))
    return _sampled(at, row, [""], at.asked.kind)


def _opens(at: At, path: str) -> str:
    try:
        os.close(at.root.open(path))
    except OSError as error:
        return _words(error)
    return ""


def _directory(at: At, row: s.StoragePath) -> Told:
    def more(seen: listing.Listing) -> None:
        at.notes(Told(_counted(row, seen)))

    wanted = listing.Wanted(
        at.asked.glob, at.asked.recursive, at.share(LISTING), _cannot_be_empty(at)
    )
    try:
        seen = listing.read(at.root, at.path, wanted, more)
    except OSError as error:
        return Told(replace(row, problem=_words(error)))
    row = _counted(row, seen)
    damaged = tuple(_empty(row, name, _kind(at, name)) for name in seen.empties)
    at.notes(Told(row, damaged))
    return _sampled(at, row, _chosen(at, seen), at.asked.kind, damaged)


def _empty(row: s.StoragePath, name: str, kind: str) -> s.StorageFile:
    mild = "yes" if kind in datafiles.MAY_BE_EMPTY else ""
    return s.StorageFile(row.at, plain(name), 0, kind, datafiles.EMPTY, mild)


def _cannot_be_empty(at: At) -> Callable[[str], bool]:
    """Of which files 0 bytes are damage: those of a known kind."""
    return lambda name: not _aside(name) and bool(_kind(at, name))


def _kind(at: At, name: str) -> str:
    if at.asked.kind not in (AUTO, ANY):
        return at.asked.kind if datafiles.named_as(name, at.asked.kind) else ""
    return datafiles.kind_of(name, at.asked.kind)


def _aside(name: str) -> bool:
    """Whether a file is none of the data: _SUCCESS, ._part, and what lies in such directories."""
    return any(part[:1] in "._" for part in name.split("/"))


def _counted(row: s.StoragePath, seen: listing.Listing) -> s.StoragePath:
    return replace(
        row,
        files=seen.files,
        bytes=seen.size,
        listed="all" if seen.all_listed else "at least",
        weighed="all" if seen.all_weighed else "at least",
        blank="no" if seen.files or seen.entries else "yes",
        names="\n".join(plain(one) for one in seen.first),
        empties=seen.empty_count,
        note=seen.note,
    )


def _chosen(at: At, seen: listing.Listing) -> List[str]:
    """N names spread over the listing: of what is called as data, then of what lies beside it."""
    names = sorted(one for one in seen.names if not _aside(one)) or sorted(seen.names)
    if at.asked.kind == ANY:
        return spread(names, at.asked.sample)
    called = [one for one in names if _kind(at, one)]
    if called and at.asked.kind != AUTO:
        return spread(called, at.asked.sample)
    chosen = spread(called, at.asked.sample)
    others = [one for one in names if not _kind(at, one)]
    return chosen + spread(others, at.asked.sample - len(chosen))


def spread(names: List[str], count: int) -> List[str]:
    """`count` of the names, evenly over the list."""
    if count >= len(names):
        return names
    if count < 2:
        return names[: max(0, count)]
    return [names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)]


# -- the sample -----------------------------------------------------------------------------


def _sampled(
    at: At,
    row: s.StoragePath,
    names: List[str],
    kind: str,
    damaged: Tuple[s.StorageFile, ...] = (),
    mild: bool = False,
) -> Told:
    """The files opened, read and looked at one after the other, while there is time."""
    spent, told = 0.0, Told(row, damaged)
    for number, name in enumerate(names):
        if time.monotonic() > at.until or (number and time.monotonic() > at.share(0.95)):
            note = f"{number} of {len(names)} sample files were looked at in the time there is"
            return told._replace(row=noted(told.row, note))
        path = at.path if not name else posixpath.join(at.path, name)
        one, seconds, found = _file(at, told.row, path, name, kind)
        spent += seconds
        rate = int(one.read / spent) if spent > 0 and one.read else 0
        if found is not None and mild:
            found = replace(found, mild="yes")
        more = (found,) if found is not None and found not in told.damaged else ()
        told = Told(replace(one, throughput=rate), told.damaged + more)
        at.notes(told)
    return told


def noted(row: s.StoragePath, note: str) -> s.StoragePath:
    """The row with another note on what is not known."""
    return replace(row, note="; ".join(filter(None, (row.note, note))))


def _file(
    at: At, row: s.StoragePath, path: str, name: str, kind: str
) -> Tuple[s.StoragePath, float, Optional[s.StorageFile]]:
    """(what is known now, seconds that reading took, the file when it is not whole)."""
    shown = plain(name) if name else plain(posixpath.basename(path))
    try:
        handle = at.root.open(path)
    except OSError as error:
        return row, 0.0, s.StorageFile(row.at, shown, 0, "", f"cannot be opened: {_words(error)}")
    try:
        size = os.fstat(handle).st_size
        got, seconds = _rate(at, handle)
        row = replace(row, sampled=row.sampled + 1, read=row.read + got)
        reader = datafiles.Reader(handle, deadline=min(at.until, time.monotonic() + at.seconds / 4))
        as_kind = _kind_of_file(at, reader, name or posixpath.basename(path), kind)
        if as_kind:
            datafiles.check(reader, as_kind)
            if at.thorough and at.root.live:
                _decoded(handle, as_kind)
            row = replace(row, partly=row.partly + reader.tired)
        return row, seconds, None
    except datafiles.Damaged as error:
        mild = "yes" if error.mild else ""
        return row, seconds, s.StorageFile(row.at, shown, size, as_kind, plain(str(error)), mild)
    except OSError as error:
        problem = f"cannot be read: {_words(error)}"
        return row, 0.0, s.StorageFile(row.at, shown, 0, "", problem)
    finally:
        os.close(handle)


def _decoded(handle: int, kind: str) -> None:
    from ..datafiles import libraries

    libraries.check(handle, kind)


def _kind_of_file(at: At, reader: datafiles.Reader, name: str, kind: str) -> str:
    found = datafiles.kind_of(name, kind)
    if kind == ANY or found or not reader.size:
        return found
    return datafiles.begins_as(reader)


def _rate(at: At, handle: int) -> Tuple[int, float]:
    """(bytes, seconds) of reading the file's beginning, past the page cache where that obeys."""
    limit = RATED if at.asked.throughput_min else UNRATED
    until = at.share(READING)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:  # not every file system knows it
        pass
    got, started = 0, time.perf_counter()
    while got < limit and time.monotonic() < until:
        part = os.pread(handle, min(1 << 20, limit - got), got)
        if not part:
            break
        got += len(part)
    return got, time.perf_counter() - started


# -- output ---------------------------------------------------------------------------------


def _output(at: At, row: s.StoragePath) -> Told:
    row = _entered(at, row, at.path)
    at.notes(Told(row))
    if row.state == "missing" and row.create and at.root.live:
        return Told(_spacious(replace(row, writable=_may_write(row.parent)), row.parent))
    if row.state == "directory" and at.root.live:
        row = _spacious(row, at.path)
        at.notes(Told(row))
        row = _written(row, at.path)
    return Told(row)


def _spacious(row: s.StoragePath, path: str) -> s.StoragePath:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return noted(row, f"its free space: {_words(error)}")
    if row.free_min and not found.f_blocks:
        row = noted(row, "the file system does not say how much is free")
    return replace(row, free=found.f_bavail * found.f_frsize, space=found.f_blocks * found.f_frsize,
                   inodes=found.f_favail, inodes_all=found.f_files)  # fmt: skip


def _may_write(path: str) -> str:
    return "yes" if os.access(path, os.W_OK | os.X_OK) else "no"


def _written(row: s.StoragePath, path: str) -> s.StoragePath:
    """One file of a name that nobody else has, made and removed: permissions alone do not tell."""
    name = f".preflight-{os.getpid()}-{os.urandom(6).hex()}"
    where = posixpath.join(path, name)
    try:
        # No file that is there is ever written to, nor a link followed.
        handle = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        return replace(row, writable="no", problem=_words(error))
    problem = ""
    try:
        try:
            os.write(handle, b"preflight looks whether it can write here\n")
        finally:
            os.close(handle)  # where object storage first says that it refuses
    except OSError as error:
        problem = _words(error)
    try:
        os.unlink(where)
    except OSError as error:
        row = noted(row, f"{name} could not be removed: {_words(error)}")
    return replace(row, writable="no" if problem else "yes", problem=problem)


# -- checkpoints ----------------------------------------------------------------------------


def _checkpoint(at: At, row: s.StoragePath) -> Told:
    base, pattern = split(at.path)
    row = _entered(at, row, base)
    if row.state == "file" and not pattern:  # one file that is written anew each time
        base, pattern = (
            posixpath.dirname(base),
            re.sub(r"([*?[])", r"[\1]", posixpath.basename(base)),
        )
        row = _entered(at, row, base)
    at.notes(Told(row))
    if row.state == "missing" and at.root.live:
        return Told(replace(row, writable=_may_write(row.parent)))
    if row.state != "directory":
        return Told(row)
    if at.root.live:
        row = _written(row, base)
        at.notes(Told(row))
    if not at.first or row.problem:
        return Told(row)
    try:
        newest = listing.newest(at.root, base, pattern, at.share(LISTING))
    except OSError as error:
        return Told(replace(row, problem=_words(error)))
    if newest is None:
        return Told(replace(row, blank="yes"))
    name, when = newest
    row = replace(row, blank="no", newest=plain(name), newest_at=_day(when))
    at.notes(Told(row))
    return _newest_whole(at._replace(path=base), row, name)


def _newest_whole(at: At, row: s.StoragePath, name: str) -> Told:
    """Its files, whether they are whole. What is not only warns: a job may take the one before."""
    path = posixpath.join(at.path, name)
    names = [name]
    if at.root.is_dir(path):
        wanted = listing.Wanted("", True, at.share(LISTING), lambda _name: False)
        try:
            seen = listing.read(at.root, path, wanted, lambda _seen: None)
        except OSError as error:
            return Told(noted(row, f"{name}: {_words(error)}"))
        inside = spread(sorted(seen.names), CHECKPOINT_FILES)
        names = [posixpath.join(name, one) for one in inside]
    names = [one for one in names if datafiles.kind_of(one) or not one.endswith(_EMPTY_IS_FINE)]
    return _sampled(at, row, names, AUTO, mild=True)


#: Markers and notes beside the weights.
_EMPTY_IS_FINE = (".txt", ".lock", ".done", ".json", ".py", "latest")


def split(path: str) -> Tuple[str, str]:
    """A glob as (the directory without wildcards, the pattern below it)."""
    parts = path.split("/")
    for number, part in enumerate(parts):
        if set(part) & set("*?["):
            return "/".join(parts[:number]) or "/", "/".join(parts[number:])
    return path, ""


def _day(when: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    except (OverflowError, ValueError, OSError):
        return ""
