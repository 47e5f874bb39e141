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
    for number in _asked_for(entries):
        one = entries[number]
        marker = _only_on(one.files)
        needs.append(Need(one.name, "", marker, group=groups[number], version=one.spec[2:]))
    return Entry("", root=True, needs=tuple(needs))


def _asked_for(entries: Sequence[Entry]) -> List[int]:
    """Entries that nothing else brings; of those that need each other in a ring, the first.

    One that only an extra of another brings is among them, for nothing in the file says which
    extras the project asks for.
    """
    brings: Dict[Tuple[str, str], List[Need]] = {}
    for one in entries:
        for need in one.needs:
            brings.setdefault((one.name, need.extra), []).append(need)
    seen: Set[Tuple[str, str]] = set()
    found: List[int] = []
    left = [number for number, one in enumerate(entries) if not one.optional]
    needed = {need.name for one in entries for need in one.needs}
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
