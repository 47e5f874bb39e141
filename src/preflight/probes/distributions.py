"""What is installed in an environment, by the files that installers leave."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence

from ..roots import Root
from ..snapshot import Fact, Observation, unknown
from .place import head

#: At most this many shadowed or doubly installed packages are told.
SHADOWED = 50


class Distribution(NamedTuple):
    """An installed package: its name as written, its version, its metadata (dir or file)."""

    name: str
    version: str
    where: str


_SEPARATORS = re.compile(r"[-_.]+")


@lru_cache(maxsize=8192)
def normalize(name: str) -> str:
    """A package name in the one spelling of PEP 503."""
    return _SEPARATORS.sub("-", name).lower()


def distributions(root: Root, path: Iterable[str]) -> List[Distribution]:
    """Every installed distribution on `path`, in its order: the first of a name is the one.

    Raises OSError where a directory cannot be listed.
    """
    found: List[Distribution] = []
    for entry in path:
        if entry.endswith(".egg"):
            found += _described(root, posixpath.join(entry, "EGG-INFO"), entry)
        for name in root.listing(entry):
            if name.endswith((".dist-info", ".egg-info")):
                where = posixpath.join(entry, name)
                found += _described(root, where, where)
    return found


_PLAIN_VERSION = re.compile(r"\d[0-9A-Za-z.!+]*$")


def _described(root: Root, where: str, titled: str) -> List[Distribution]:
    """The distribution whose metadata lies at `where`; none for a leftover without metadata."""
    file = "METADATA" if where.endswith(".dist-info") else "PKG-INFO"
    text = posixpath.join(where, file)
    if not root.exists(text):
        if where.endswith(".dist-info") or not root.is_file(where):
            return []
        text = where
    title = posixpath.splitext(posixpath.basename(titled))[0]
    name, _, version = title.partition("-")
    version = re.sub(r"-py\d.*$", "", version)
    if name.startswith("~"):
        return []  # what a broken-off uninstall left
    if _PLAIN_VERSION.match(version):
        return [Distribution(name, version, where)]
    return _from_metadata(root, text, where)


def _from_metadata(root: Root, text: str, where: str) -> List[Distribution]:
    fields_read = head(root, text).split("\n\n")[0].replace("\r", "")
    name = re.search(r"^Name:[ \t]*(\S+)", fields_read, re.M)
    version = re.search(r"^Version:[ \t]*(\S+)", fields_read, re.M)
    if not name or not version:
        return []
    return [Distribution(name.group(1), version.group(1), where)]


def packages(root: Root, path: Sequence[str]) -> Fact[Mapping[str, str]]:
    """{name: version}; in `differs` each other version of a name, with where it lies."""
    try:
        everything = distributions(root, path)
    except OSError as error:
        return unknown(f"cannot be listed: {error.strerror}", str(error.filename or ""))
    first: Dict[str, str] = {}
    others: List[Observation[Mapping[str, str]]] = []
    for one in everything:
        name = normalize(one.name)
        if first.setdefault(name, one.version) != one.version and len(others) < SHADOWED:
            others.append(Observation({name: one.version}, one.where))
    return Fact(first, ":".join(path), differs=tuple(others))
