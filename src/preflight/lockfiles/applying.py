"""Which entries of a lock are for one Python and platform, as the record of the snapshot.

Markers are evaluated by packaging (PEP 508); an entry that a graph lock (uv, older poetry) has
is wanted where a wanted one needs it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from .. import snapshot as s
from .model import Entry, Need, Parsed

#: What conda calls the platform of a machine.
SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
#: More wheels of one entry than this are not named in the snapshot, only counted as many.
WHEELS = 60


class Target(NamedTuple):
    """The Python ("3.11.7", "" unknown) and machine ("x86_64") that a lock is judged for."""

    python: str = ""
    arch: str = "x86_64"

    def markers(self) -> Dict[str, str]:
        """The environment of PEP 508 on Linux; a Python that is not known has no key."""
        found = {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.arch or "x86_64",
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "platform_release": "",
            "platform_version": "",
            "sys_platform": "linux",
            "extra": "",
        }
        if self.python:
            parts = self.python.split(".")
            found["python_version"] = ".".join(parts[:2])
            full = self.python if len(parts) > 2 else f"{self.python}.0"
            found["python_full_version"] = found["implementation_version"] = full
        return found


def record(parsed: Parsed, path: str, target: Target, named: bool = False) -> s.Lock:
    """A lock file as the snapshot has it: its entries, each with whether it is for `target`."""
    why_not = _reasons(parsed, target)
    return s.Lock(
        path=s.known(path, path),
        format=s.known(parsed.format, path),
        role=s.known(parsed.role, path),
        named=s.known(named, path),
        platforms=s.known(parsed.platforms, path) if parsed.platforms else s.absent(path),
        python=s.known(parsed.python, path) if parsed.python else s.absent(path),
        indexes=s.known(parsed.indexes, path),
        entries=s.known(
            tuple(pin(one, why) for one, why in zip(parsed.entries, why_not) if not one.root), path
        ),
        conflicts=s.known(tuple(_conflicts(parsed, why_not, path, target)), path),
    )


def pin(entry: Entry, applies: str = "") -> s.Pin:
    """An entry as a row of the snapshot, its artefacts as tags of wheels."""
    hashes = [one.hash for one in entry.files if one.hash] or list(entry.hashes)
    wheels = [one.name for one in entry.files if one.name.endswith(".whl")]
    sdist = next((f.name for f in entry.files if f.name and not f.name.endswith(".whl")), "")
    only = hashes[0] if len(hashes) == 1 and (entry.url or entry.manager == "conda") else ""
    return s.Pin(
        name=entry.name,
        spec=entry.spec,
        line=entry.line,
        manager=entry.manager,
        applies=applies,
        marker=entry.marker,
        extras=",".join(entry.extras),
        group=",".join(entry.groups),
        url=entry.url,
        hash=only,
        hashed=len(hashes),
        index=entry.index_url,
        wheels=" ".join(dict.fromkeys(map(_tag, wheels[:WHEELS]))) if not entry.url else "",
        sdist=sdist if not entry.url and not entry.manager else "",
        python=entry.python,
        build=entry.build,
        platform=entry.platform,
    )


def _tag(wheel: str) -> str:
    """ "cp311-cp311-manylinux_2_28_x86_64" of a wheel's file name."""
    return "-".join(wheel[: -len(".whl")].rsplit("-", 3)[-3:])


# -- which are wanted -------------------------------------------------------------------------


def _reasons(parsed: Parsed, target: Target) -> List[str]:
    """For each entry why it is not for the target; empty: it is."""
    wanted = _wanted(parsed, target) if parsed.graph else None
    found = []
    for number, one in enumerate(parsed.entries):
        if one.platform and target.arch and one.platform not in _platforms(target):
            found.append(f"for {one.platform}")
        elif one.marker and holds(one.marker, target) is False:
            found.append(f"only where {one.marker}")
        elif wanted is not None and number not in wanted and not one.root:
            found.append("nothing that is wanted here needs it")
        elif one.groups:
            found.append("only with " + " or ".join(one.groups))
        else:
            found.append("")
    return found


def _platforms(target: Target) -> Tuple[str, ...]:
    return (SUBDIRS.get(target.arch, ""), "noarch")


def holds(marker: str, target: Target, extras: Iterable[str] = ()) -> Optional[bool]:
    """Whether a marker holds; None where it asks what is not known, or cannot be read."""
    return _holds(marker, target, tuple(sorted(extras)))


@lru_cache(maxsize=4096)
def _holds(marker: str, target: Target, extras: Tuple[str, ...]) -> Optional[bool]:
    from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
    from packaging.version import InvalidVersion

    environment = target.markers()
    if not target.python and ("python" in marker or "implementation_version" in marker):
        return None
    try:
        read = Marker(marker)
        if not extras:
            return bool(read.evaluate(environment))
        return any(read.evaluate({**environment, "extra": one}) for one in ("", *extras))
    except (InvalidMarker, UndefinedEnvironmentName, InvalidVersion, TypeError):
        return None


def _wanted(parsed: Parsed, target: Target) -> Set[int]:
    """The entries that the project needs, directly or through others, by index.

    From the project's own entries where the lock has them, else from whatever nothing needs.
    """
    by_name: Dict[str, List[int]] = {}
    for number, one in enumerate(parsed.entries):
        by_name.setdefault(one.name, []).append(number)
    needed = {need.name for one in parsed.entries for need in one.needs}
    todo: List[Tuple[int, str]] = [
        (number, "")
        for number, one in enumerate(parsed.entries)
        if one.root or (one.name not in needed and not one.optional)
    ]
    if any(one.root for one in parsed.entries):
        todo = [(number, extra) for number, extra in todo if parsed.entries[number].root]
    seen: Set[Tuple[int, str]] = set()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        number, extra = at
        for need in parsed.entries[number].needs:
            if need.group or need.bound or need.extra != extra:
                continue
            if need.marker and holds(need.marker, target) is False:
                continue
            for other in _of(parsed, by_name, need):
                if _fits(parsed.entries[other], target):
                    todo.append((other, ""))
                    todo.extend((other, one) for one in need.extras)
    return {number for number, _extra in seen}


def _fits(entry: Entry, target: Target) -> bool:
    return not entry.marker or holds(entry.marker, target) is not False


def _of(parsed: Parsed, by_name: Mapping[str, List[int]], need: Need) -> Iterator[int]:
    """The entries that a need means: of several versions of one name that which it names."""
    for number in by_name.get(need.name, ()):
        one = parsed.entries[number]
        if need.version and one.spec and one.spec != f"=={need.version}":
            continue
        if need.source and one.index_url and need.source != one.index_url:
            continue
        yield number


# -- the lock against itself --------------------------------------------------------------------


def _conflicts(parsed: Parsed, why_not: List[str], path: str, target: Target) -> Iterator[s.Unmet]:
    """What an entry needs in a version that the lock does not give it."""
    given: Dict[str, List[Entry]] = {}
    for one, why in zip(parsed.entries, why_not):
        if not why:
            given.setdefault(one.name, []).append(one)
    for one, why in zip(parsed.entries, why_not):
        for need in one.needs if not why else ():
            if not need.spec or need.extra or need.group:
                continue
            if need.marker and holds(need.marker, target) is not True:
                continue
            same = [e for e in given.get(need.name, ()) if e.spec.startswith("==")]
            if one.manager:
                same = [e for e in same if e.manager == one.manager]
            if same and not any(_meets(each, need, one.manager) for each in same):
                owner = f"{one.name} {one.spec.lstrip('=')}".strip()
                asks = f"{need.name} {need.spec}" if one.manager else need.name + need.spec
                found = f"{same[0].spec[2:]} {same[0].build}".strip()
                yield s.Unmet(owner, need.name, asks, found, path, one.line)


def _meets(entry: Entry, need: Need, manager: str) -> bool:
    """Whether a pinned entry is what another one needs, as its manager compares."""
    if not manager:
        from .versions import satisfies

        return satisfies(entry.spec[2:], need.spec)
    from . import conda_spec, conda_versions

    version, build = conda_spec.version_and_build(need.spec)
    return conda_versions.satisfies(entry.spec[2:], entry.build, version, build)
