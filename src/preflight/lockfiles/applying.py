"""Which entries of a lock are for one Python and platform, as the record of the snapshot.

Markers are evaluated by packaging (PEP 508); an entry that a graph lock (uv, older poetry) has
is wanted where a wanted one needs it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Match,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from .. import snapshot as s
from .model import Entry, Need, Parsed, normalize

#: What conda calls the platform of a machine.
SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
PYTHONS = tuple(f"3.{minor}.0" for minor in range(6, 16))
#: More wheels of one entry than this are not named in the snapshot, only counted as many.
WHEELS = 60
#: A longer marker (uv writes all forks of its resolution) is not repeated in the snapshot.
MARKER = 400
#: Of more groups and extras of one lock than this it is not said what each brings.
SWITCHES = 40
#: The extras that needs ask for change what is needed, which changes …: it is enough then.
ROUNDS = 4
#: Of more versions of one name than this none is looked for that fits.
MANY = 50


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
    decided = _decided(parsed, target)
    why_not = [why for why, _switches in decided]
    return s.Lock(
        path=s.known(path, path),
        format=s.known(parsed.format, path),
        role=s.known(parsed.role, path),
        named=s.known(named, path),
        platforms=s.known(parsed.platforms, path) if parsed.platforms else s.absent(path),
        python=s.known(parsed.python, path) if parsed.python else s.absent(path),
        indexes=s.known(parsed.indexes, path),
        entries=s.known(
            tuple(
                pin(one, why, switches)
                for one, (why, switches) in zip(parsed.entries, decided)
                if not one.root
            ),
            path,
        ),
        conflicts=s.known(tuple(_conflicts(parsed, why_not, path, target)), path),
    )


def pin(entry: Entry, applies: str = "", switches: str = "") -> s.Pin:
    """An entry as a row of the snapshot, its artefacts as tags of wheels.

    `switches`: the groups and extras that it is wanted with only.
    """
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
        marker=entry.marker if len(entry.marker) <= MARKER else "",
        extras=",".join(entry.extras),
        group=switches,
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


def _decided(parsed: Parsed, target: Target) -> List[Tuple[str, str]]:
    """For each entry (why it is not for the target, with which groups and extras it would be).

    The reason is empty where it is for the target as the lock says it by itself.
    """
    wants = _Graph(parsed, target).wanted if parsed.graph else _Marked(parsed, target).wanted
    here = wants(frozenset(parsed.defaults))
    others: Dict[int, List[str]] = {}
    for switch in parsed.switches[:SWITCHES]:
        if switch not in parsed.defaults:
            for number in wants(frozenset({*parsed.defaults, switch})) - here:
                others.setdefault(number, []).append(switch)
    return [
        _reason(parsed, number, target, number in here, others.get(number, []))
        for number in range(len(parsed.entries))
    ]


def _reason(
    parsed: Parsed, number: int, target: Target, here: bool, switches: List[str]
) -> Tuple[str, str]:
    one = parsed.entries[number]
    if one.platform and target.arch and one.platform not in _platforms(target):
        return f"for {one.platform}", ",".join(one.groups)
    if here or one.root:
        return "", "?" if parsed.groupless and not one.root else ""
    switches = switches or list(one.groups)
    if switches and (parsed.graph or _allowed(one, target, switches)):
        return "only with " + " or ".join(switches), ",".join(switches)
    if one.marker and holds(one.marker, target) is False:
        short = one.marker if len(one.marker) <= MARKER else "its long marker holds"
        return f"only where {short}", ",".join(one.groups)
    return "nothing that is wanted here needs it", ""


def _platforms(target: Target) -> Tuple[str, ...]:
    return (SUBDIRS.get(target.arch, ""), "noarch")


def _allowed(entry: Entry, target: Target, active: Iterable[str]) -> bool:
    """Whether an entry's marker holds, or may hold, with some groups and extras."""
    if not entry.marker:
        return True
    groups = [one for one in active if not one.startswith("extra:")]
    return holds(entry.marker, target, _extras(active), groups) is not False


def _extras(active: Iterable[str]) -> List[str]:
    return [one[len("extra:") :] for one in active if one.startswith("extra:")]


#: What a marker asks of extras and groups: it is decided here, for packaging knows one extra
#: only, and before 25.0 no groups.
_ASKED = re.compile(
    r"""\bextra\s*(?P<op>==|!=)\s*(?P<q>['"])(?P<name>[^'"]*)(?P=q)"""
    r"""|(?P<q2>['"])(?P<name2>[^'"]*)(?P=q2)\s*(?:(?P<op2>==|!=)\s*extra\b"""
    r"""|(?P<not>not\s+)?in\s+(?P<set>extras|dependency_groups)\b)"""
)
_TRUE, _FALSE = "os_name == 'posix'", "os_name != 'posix'"


def holds(
    marker: str, target: Target, extras: Iterable[str] = (), groups: Iterable[str] = ()
) -> Optional[bool]:
    """Whether a marker holds; None where it asks what is not known, or cannot be read."""
    if "extra" in marker or "dependency_groups" in marker:
        asked = {"extra": set(map(normalize, extras)), "groups": set(map(normalize, groups))}

        def decided(found: Match[str]) -> str:
            name = normalize(found.group("name") or found.group("name2") or "")
            kind = "groups" if found.group("set") == "dependency_groups" else "extra"
            negated = "!=" in (found.group("op"), found.group("op2")) or found.group("not")
            return _TRUE if (name in asked[kind]) is not bool(negated) else _FALSE

        marker = _ASKED.sub(decided, marker)
    return _holds(marker, target)


@lru_cache(maxsize=4096)
def _holds(marker: str, target: Target) -> Optional[bool]:
    from packaging.markers import (
        InvalidMarker,
        Marker,
        UndefinedComparison,
        UndefinedEnvironmentName,
    )
    from packaging.version import InvalidVersion

    unread = (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, InvalidVersion)

    try:
        read = Marker(marker)
        if target.python or not ("python" in marker or "implementation_version" in marker):
            return bool(read.evaluate(target.markers()))
        # Of no known Python: what holds, or does not, for each there is.
        each = {bool(read.evaluate(target._replace(python=one).markers())) for one in PYTHONS}
        return each.pop() if len(each) == 1 else None
    except (*unread, TypeError, RecursionError):
        return None


class _Marked:
    """A lock whose entries say themselves where they are wanted."""

    def __init__(self, parsed: Parsed, target: Target) -> None:
        self.parsed = parsed
        self.target = target
        self.always: Set[int] = set()
        self.asking: List[int] = []
        for number, one in enumerate(parsed.entries):
            if one.groups or "extra" in one.marker or "dependency_groups" in one.marker:
                self.asking.append(number)
            elif _allowed(one, target, ()):
                self.always.add(number)

    def wanted(self, active: FrozenSet[str]) -> Set[int]:
        """The entries that are wanted with these groups and extras, by index."""
        found = set(self.always)
        for number in self.asking:
            one = self.parsed.entries[number]
            asked_for = not one.groups or active.intersection(one.groups)
            if asked_for and _allowed(one, self.target, active):
                found.add(number)
        return found


class _Graph:
    """A lock whose entries are wanted where the project, or another that is wanted, needs them."""

    def __init__(self, parsed: Parsed, target: Target) -> None:
        self.entries = parsed.entries
        self.target = target
        self.roots = self._starts()
        self.needs: Dict[Tuple[int, str], List[Need]] = {}
        #: By (name, extra, version, place), the last two also empty: entries that have them.
        self.index: Dict[Tuple[str, str, str, str], List[int]] = {}
        for number, one in enumerate(parsed.entries):
            for need in one.needs:
                self.needs.setdefault((number, need.extra), []).append(need)
            version = one.spec[2:] if one.spec.startswith("==") else ""
            place = one.index_url or one.url
            keys = {
                (one.name, extra, v, p)
                for extra in {"", *(need.extra for need in one.needs)}
                for v in (version, "")
                for p in (place, "")
            }
            for key in keys:
                self.index.setdefault(key, []).append(number)

    def _starts(self) -> Set[int]:
        """The project's own entries; where the lock has none, whatever nothing needs."""
        roots = [number for number, one in enumerate(self.entries) if one.root]
        if roots:
            return {number for number in roots if not self.entries[number].optional} or {*roots}
        needed = {need.name for one in self.entries for need in one.needs}
        return {
            number
            for number, one in enumerate(self.entries)
            if one.name not in needed and not one.optional
        }

    def wanted(self, active: FrozenSet[str]) -> Set[int]:
        """The entries that are needed with these groups and extras of the project, by index."""
        starts = {(number, extra) for number in self.roots for extra in ("", *_extras(active))}
        names: Set[str] = set()
        seen = starts
        for _ in range(ROUNDS):
            # An extra of one's own that a need asks for decides markers of conflicts, too.
            more = self._in_markers(seen, active)
            if more == names:
                break
            names = more
            seen = self._reached(starts, active, names)
        return {number for number, _extra in seen}

    def _in_markers(self, seen: Set[Tuple[int, str]], active: FrozenSet[str]) -> Set[str]:
        """How uv's markers spell what is asked of the project's own packages."""
        found = set()
        for number, extra in seen:
            if self.entries[number].root:
                own = f"{len(self.entries[number].name)}-{self.entries[number].name}"
                found.add(f"extra-{own}-{extra}" if extra else f"project-{own}")
                if number in self.roots:
                    found.update(f"group-{own}-{one}" for one in active if ":" not in one)
        return found

    def _reached(
        self, starts: Set[Tuple[int, str]], active: FrozenSet[str], names: Set[str]
    ) -> Set[Tuple[int, str]]:
        seen = set(starts)
        todo = list(starts)
        met: Set[Need] = set()
        while todo:
            number, extra = todo.pop()
            for need in self.needs.get((number, extra), ()):
                if need.bound:
                    continue
                if need.group and not (need.group in active and number in self.roots):
                    continue
                alike = need._replace(group="")
                if alike in met:
                    continue
                met.add(alike)
                extras = {*names, extra} if extra else names
                if need.marker and holds(need.marker, self.target, extras) is False:
                    continue
                for other in self._meant(need, names):
                    if other not in seen:
                        seen.add(other)
                        todo.append(other)
        return seen

    def _meant(self, need: Need, names: Set[str]) -> Iterator[Tuple[int, str]]:
        """The entries that a need means, each alone and with the extras that are asked for."""
        for extra in ("", *need.extras):
            found = self.index.get((need.name, extra, need.version, need.source), [])
            if 1 < len(found) <= MANY and not need.version:
                found = self._fitting(found, need, names)
            for number in found:
                yield number, extra

    def _fitting(self, found: List[int], need: Need, names: Set[str]) -> List[int]:
        """Of several versions of one name those that fit what is asked, and here."""
        from .versions import satisfies

        return [
            number
            for number in found
            if satisfies(self.entries[number].spec[2:], need.spec)
            and (
                not self.entries[number].marker
                or holds(self.entries[number].marker, self.target, names) is not False
            )
        ]


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
            if 0 < len(same) <= MANY and not any(_meets(e, need, one.manager) for e in same):
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
