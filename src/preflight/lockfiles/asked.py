"""What the project asks for, of a lock that does not say: whatever nothing else in it brings."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Set, Tuple

from .model import Artefact, Entry, Need


def project(
    entries: Sequence[Entry], groups: Sequence[str], extras: Mapping[str, Sequence[str]]
) -> Entry:
    """The project as an entry: its needs, some of the group at their entry's place in `groups`."""
    needs = [Need(name, extra=extra) for extra, names in extras.items() for name in names]
    # An entry of no group is asked for by what is in none: groups come after.
    main = [number for number, group in enumerate(groups) if not group]
    others = [number for number, group in enumerate(groups) if group]
    seen: Set[Tuple[str, str]] = set()
    markers = _markers(entries)
    for number in (*_asked_for(entries, main, seen), *_asked_for(entries, others, seen)):
        one = entries[number]
        marker = _only_on(one.files) or markers.get(one.name, "")
        needs.append(Need(one.name, "", marker, group=groups[number], version=one.spec[2:]))
    return Entry("", root=True, needs=tuple(needs))


def _asked_for(entries: Sequence[Entry], among: List[int], seen: Set[Tuple[str, str]]) -> List[int]:
    """Entries that nothing else brings; of those that need each other in a ring, the first.

    One that only an extra of another brings is among them, for nothing in the file says which
    extras the project asks for.
    """
    brings = _needs(entries, among)
    found: List[int] = []
    left = [number for number in among if not entries[number].optional]
    needed = {need.name for number in among for need in entries[number].needs}
    for _ in range(2):
        for number in left:
            if entries[number].name not in needed and (entries[number].name, "") not in seen:
                found.append(number)
        _bring(brings, [entries[number].name for number in found], seen)
        left = [number for number in left if (entries[number].name, "") not in seen]
        needed = {n.name for number in left for n in entries[number].needs if not n.extra}
    for number in left:
        if (entries[number].name, "") not in seen:
            found.append(number)
            _bring(brings, [entries[number].name], seen)
    return found


def _needs(entries: Sequence[Entry], among: List[int]) -> Dict[Tuple[str, str], List[Need]]:
    """What some entries need, by their name and the extra it comes with."""
    found: Dict[Tuple[str, str], List[Need]] = {}
    for number in among:
        for need in entries[number].needs:
            found.setdefault((entries[number].name, need.extra), []).append(need)
    return found


def _markers(entries: Sequence[Entry]) -> Dict[str, str]:
    """Where any entry needs a name at all: the project's own marker is likely no wider."""
    found: Dict[str, Dict[str, None]] = {}
    for one in entries:
        for need in one.needs:
            found.setdefault(need.name, {})["" if need.extra else need.marker] = None
    return {
        name: " or ".join(f"({one})" for one in markers)
        for name, markers in found.items()
        if "" not in markers
    }


def _bring(
    brings: Dict[Tuple[str, str], List[Need]], names: List[str], seen: Set[Tuple[str, str]]
) -> None:
    """Adds to `seen` all (name, extra) that some names bring, wherever that is."""
    todo = [(name, "") for name in names]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            for need in brings.get(at, ()):
                todo.extend((need.name, extra) for extra in ("", *need.extras))


def _only_on(files: Sequence[Artefact]) -> str:
    """A marker for an entry that has only wheels of one system that is not Linux.

    What the project asks for has its marker in pyproject.toml only: without this, pywin32 would
    be missing on every Linux machine.
    """
    for system, tag in (("win32", r"-win[\w]*\.whl"), ("darwin", r"-macosx[\w]*\.whl")):
        if files and all(re.search(tag, one.name) for one in files):
            return f"sys_platform == '{system}'"
    return ""
