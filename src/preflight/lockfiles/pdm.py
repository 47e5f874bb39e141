"""pdm.lock, lock_version 4.x. Oracle: pdm's own reader, `pdm export`.

With the strategy inherit_metadata each entry has its groups and its marker; without, what is
wanted follows from what needs it. A package with extras is an entry of its own beside the bare.
"""

from __future__ import annotations

import re
from typing import Iterator, List, Tuple

from . import asked, lean, shapes
from .model import Artefact, Entry, Need, Parsed, normalize, without_credentials
from .shapes import Table

DEFAULT = "default"
_REPOSITORIES = ("git", "hg", "svn", "bzr")


def parse(text: str) -> Parsed:
    """The entries of a pdm.lock. Raises BadLock naming the line."""
    document = lean.load(text)
    metadata = shapes.top(document).table("metadata")
    version = metadata.text("lock_version")
    shapes.known_version(version, r"4(\.\d+)*", "lock_version", "4.x", 4)
    tables = shapes.packages(document, "package")
    graph = not any("groups" in one.values for one in tables)
    entries = tuple(_entry(one, metadata) for one in tables)
    if graph:
        entries += (asked.project(entries, [""] * len(entries), {}),)
    targets = [
        (_platform(one.text("platform")), one.text("requires_python"))
        for one in metadata.tables("targets")
    ]
    everywhere = any(not platform for platform, _python in targets)
    pythons = {python for _platform, python in targets}
    return Parsed(
        "pdm",
        entries=entries,
        platforms=() if everywhere else tuple(dict.fromkeys(one for one, _python in targets)),
        python=pythons.pop() if len(pythons) == 1 else "",
        graph=graph,
        switches=() if graph else _groups(metadata, entries),
        groupless=graph,
    )


def _platform(target: str) -> str:
    """A target ("manylinux_2_40_x86_64", "windows_amd64", "linux") as a marker."""
    for system, pattern in (("linux", r"(?:many|musl)?linux"), ("win32", "win"), ("darwin", "mac")):
        if re.match(pattern, target):
            machine = re.search(r"_(x86_64|aarch64|amd64|arm64|x86|i686)$", target)
            known = f" and platform_machine == '{machine.group(1)}'" if machine else ""
            return f"sys_platform == '{system}'" + (known if system == "linux" else "")
    return ""


def _groups(metadata: Table, entries: Tuple[Entry, ...]) -> Tuple[str, ...]:
    named = [normalize(one) for one in metadata.texts("groups")]
    found = dict.fromkeys([*named, *(group for one in entries for group in one.groups)])
    return tuple(one for one in found if one != DEFAULT)


def _entry(package: Table, metadata: Table) -> Entry:
    version = package.text("version")
    groups = tuple(map(normalize, package.texts("groups")))
    extras = tuple(sorted(map(normalize, package.texts("extras"))))
    return Entry(
        package.name(),
        f"=={version}" if version else "",
        package.line,
        marker=package.text("marker"),
        extras=extras,
        groups=() if DEFAULT in groups else groups,
        url=_place(package),
        files=_files(package, metadata),
        python=package.text("requires_python"),
        needs=tuple(_needs(package, extras)),
    )


def _place(package: Table) -> str:
    """Where an entry lies that comes from no index, as pip would be told."""
    below = package.text("subdirectory")
    for kind in (*_REPOSITORIES, "url", "path"):
        place = without_credentials(package.text(kind))
        if place and kind in _REPOSITORIES:
            place = f"{kind}+{place}@{package.text('revision') or package.text('ref')}"
        if place:
            return f"{place}#subdirectory={below}" if below else place
    return ""


def _files(package: Table, metadata: Table) -> Tuple[Artefact, ...]:
    """The files of an entry; before 4.3 they are at the end of the lock."""
    if "files" in metadata.values:
        key = f"{package.text('name')} {package.text('version')}"
        return metadata.table("files").artefacts(key)
    return package.artefacts("files")


def _needs(package: Table, extras: Tuple[str, ...]) -> Iterator[Need]:
    found: List[str] = list(package.texts("dependencies"))
    for text in found:
        need = shapes.need(text, package.line)
        for extra in extras or ("",):
            yield need._replace(extra=extra)
