"""The lock files of the job: those asked for by name, and those found where jobs have them.

Files that they take in (`-r`, `-c`) are read too, inside the root; nothing is fetched.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from .. import snapshot as s
from ..lockfiles import LIMIT, document
from ..lockfiles.applying import Target
from ..lockfiles.model import CONSTRAINTS, REQUIREMENTS, BadLock, NoLock, without_credentials
from ..roots import Root
from . import conda_meta

#: Names under which people keep them, in the working directory.
FOUND = re.compile(
    r"(pylock(\.[\w-]+)?\.toml|(uv|poetry|pdm|Pipfile|pixi)\.lock|(.*[._-])?conda-lock\.ya?ml"
    r"|requirements([._-]?lock)?(\.(txt|lock))?|requirements\.lock\.txt|requirements_lock\.txt"
    r"|constraints?\.txt|environment([._-]lock)?\.ya?ml|explicit\.txt|conda-linux-(64|aarch64)\.lock)"
)
#: Where PAI puts what a job installs before it starts (PAI SDK's launch.sh), besides.
PLACES = ("/ml/input/config", "/ml/usercode")
#: More files than this, or taken in deeper than that, are not read.
FILES, DEPTH = 40, 10


class Wanted(NamedTuple):
    """A file to read: its path in the root, whether somebody named it, what it is taken for."""

    path: str
    named: bool = False
    role: str = ""
    depth: int = 0
    by: str = ""  # who takes it in: "requirements.txt, line 3"


def read(
    root: Root,
    env: Mapping[str, str],
    target: Target,
    cwd: str,
    named: Sequence[str] = (),
    binding: Sequence[str] = (),
) -> s.Fact[Tuple[s.Lock, ...]]:
    """Every lock file there is; an empty tuple where there is none.

    `binding`: constraints that pip and uv obey without being told in the command.
    """
    todo = [Wanted(posixpath.join(cwd, path), named=True) for path in named]
    todo += [Wanted(one) for one in found(root, env, cwd)]
    bound = (posixpath.join(cwd, one) for one in binding if "://" not in one)
    todo += [Wanted(one, role=CONSTRAINTS) for one in bound if root.is_file(one)]
    done: Dict[str, s.Lock] = {}
    while todo and len(done) < FILES:
        one = todo.pop(0)
        where = posixpath.normpath(one.path)
        if where in done:
            continue
        try:
            done[where], more = _read(root, one._replace(path=where), target)
        except NoLock:  # an environment.yml of something else
            continue
        todo += more
    return s.known(tuple(done.values()), cwd)


def of_conda(root: Root, prefix: str, seen: Sequence[s.Lock]) -> s.Fact[Tuple[s.Origin, ...]]:
    """From which artefact conda installed what the locks name with a hash, by its records."""
    kinds = {
        pin.name: pin.hash.partition(":")[0]
        for lock in seen
        for pin in lock.entries.get(())
        if pin.manager and pin.hash and not pin.applies
    }
    if not kinds:
        return s.UNKNOWN
    rows = []
    for name, stated in conda_meta.stated(root, prefix, kinds).items():
        record = stated.get(conda_meta.Record())
        digest = getattr(record, kinds[name], "") if kinds[name] in ("md5", "sha256") else ""
        if digest:
            url = without_credentials(record.url)
            rows.append(
                s.Origin(name, record.version, url, f"{kinds[name]}:{digest}", "", "", "conda")
            )
    return s.known(tuple(rows), posixpath.join(prefix, "conda-meta"))


def _read(root: Root, one: Wanted, target: Target) -> Tuple[s.Lock, List[Wanted]]:
    try:
        data = root.read(one.path, LIMIT)
    except OSError as error:
        why = BadLock(0, f"{error.strerror}" + (f" ({one.by})" if one.by else ""))
        return document.broken(one.path, why, one.named, one.role), []
    # Other things than conda environments have that name, and none has those of the locks.
    shared = posixpath.basename(one.path).startswith("environment")
    meant = one.named or bool(one.by) or not shared
    lock, parsed = document.load(one.path, data, target, meant, one.role)
    lock = replace(lock, named=s.known(one.named, one.path))
    lock = _without_the_gone(root, lock, one.path)
    if parsed is None or one.depth >= DEPTH:
        return lock, []
    more = []
    for each in parsed.includes:
        if re.match(r"[a-z+]+://", each.path):
            continue  # not fetched
        path = posixpath.join(posixpath.dirname(one.path), each.path)
        role = CONSTRAINTS if CONSTRAINTS in (each.role, one.role) else REQUIREMENTS
        by = f"{one.path}, line {each.line}"
        more.append(Wanted(path, one.named, _taken(role, lock), one.depth + 1, by))
    return lock, more


def _taken(role: str, by: s.Lock) -> str:
    """What a file is that another takes in: constraints, else what the one is that takes it in."""
    return role if role == CONSTRAINTS else by.role.get("")


def _without_the_gone(root: Root, lock: s.Lock, path: str) -> s.Lock:
    """Entries that lie in a file which is not there say so."""
    pins = []
    for one in lock.entries.get(()):
        where = _local(one.url, path)
        pins.append(replace(one, gone="yes") if where and not root.exists(where) else one)
    return replace(lock, entries=replace(lock.entries, value=tuple(pins))) if pins else lock


def _local(url: str, path: str) -> str:
    """The file that an entry lies in; empty where it is to be fetched."""
    if url.startswith("file:"):
        from urllib.parse import unquote

        return unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", url))
    if not url or "://" in url or re.match(r"(git|hg|svn|bzr)\+", url) or "$" in url:
        return ""
    return posixpath.join(posixpath.dirname(path), url)


def found(root: Root, env: Mapping[str, str], cwd: str) -> List[str]:
    """The lock files that nobody named."""
    return list(_found(root, env, cwd))


def _found(root: Root, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    working = env.get("PAI_WORKING_DIR", "")
    for folder in dict.fromkeys((cwd, working, *PLACES)):
        if not folder.startswith("/"):
            continue
        for name in root.names(folder):
            path = posixpath.join(folder, name)
            if FOUND.fullmatch(name) and root.is_file(path):
                yield path
