"""Requirements that what is installed does not meet, by the metadata alone.

What `pip check` and `uv pip check` say, and what they leave out: requirements behind an extra
that somebody's requirement asks for (torch asks for cuda-toolkit[cublas], that extra for one
nvidia-cublas).

Some hundred distributions have some thousand lines, nearly all for extras that nobody asks for:
those are put aside unread, and the plain form of the rest is taken apart without packaging.
"""

from __future__ import annotations

import posixpath
import re
from itertools import takewhile
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .. import snapshot as s
from ..lockfiles.applying import Target, holds
from ..lockfiles.versions import satisfies
from ..roots import Root
from .distributions import Distribution, normalize
from .place import head

#: The header of nearly all metadata lies in its first bytes; a longer one is read up to a limit.
HEADER, HEADER_LIMIT = 12 << 10, 1 << 20
#: More requirements of one distribution than this, and longer ones, are not looked at.
LINES, LINE_LIMIT = 10_000, 2000
#: More unmet requirements than this say nothing new.
ROWS = 500

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_SPEC = r"[<>=!~][^();@\[\]]*"
#: name[extras] spec, or name[extras] (spec); what is no spec at all is left to packaging.
_PLAIN = re.compile(
    rf"\s*({_NAME})\s*(?:\[([^\]]*)\])?\s*(?:\(\s*({_SPEC})\s*\)|({_SPEC})|\(\s*\))?\s*$"
)
_EXTRA = r"extra\s*==\s*(?:\"([^\"]*)\"|'([^']*)')"
_EXTRA_LAST = re.compile(rf"(.*?)(?:\band\s+)?{_EXTRA}\s*$", re.S)
_EXTRA_FIRST = re.compile(rf"\s*{_EXTRA}\s+and\s+(.*)$", re.S)
_OR = re.compile(r"\bor\b")
#: What ends a header besides an empty line, for the parser that pip uses: a line that is no field.
_NO_FIELD = re.compile(r"\n(?![ \t]|[\x21-\x39\x3b-\x7e]*:)")


class Header(NamedTuple):
    """The fields of a distribution's metadata: the file, its text, and what it requires."""

    path: str
    text: str
    version: str
    python: str
    requires: Sequence[str]


class _Line(NamedTuple):
    """A requirement as written, its part before the marker, and the marker without the extra."""

    text: str
    marker: str
    alone: str  # the marker asks for this extra, and for nothing else of the kind; empty: for none


def unmet(
    root: Root, dists: Mapping[str, Distribution], python: str, arch: str
) -> Iterator[s.Unmet]:
    """What the distributions ({normalized name: the one}) require and do not find.

    `python` is the interpreter's version ("3.11.7", "3.11", "" unknown), `arch` as `uname -m`.
    """
    check = _Check(root, dists, Target(python, arch))
    for number, row in enumerate(check.rows()):
        if number >= ROWS:
            return
        yield row


def asked_for(root: Root, dists: Mapping[str, Distribution], python: str, arch: str) -> Set[str]:
    """The normalized names that any of the distributions requires here, extras walked."""
    check = _Check(root, dists, Target(python, arch))
    for _row in check.rows():
        pass
    return check.asked


def header(root: Root, dist: Distribution) -> Header:
    """The fields of a distribution's metadata; empty where it cannot be read."""
    path = _file(root, dist)
    text = head(root, path, HEADER)
    if len(text) >= HEADER // 4 and "\n\n" not in text:
        text = head(root, path, HEADER_LIMIT)
    text = text.replace("\r\n", "\n").split("\n\n", 1)[0]
    broken = _NO_FIELD.search(text)
    if broken:
        text = text[: broken.start()]
    requires = _fields(text, "Requires-Dist")
    if not requires and dist.where.endswith(("/EGG-INFO", ".egg-info")):
        requires = _of_egg(head(root, posixpath.join(dist.where, "requires.txt"), HEADER_LIMIT))
    return Header(
        path, text, _field(text, "Version") or dist.version, _field(text, "Requires-Python"),
        requires[:LINES],
    )  # fmt: skip


def _file(root: Root, dist: Distribution) -> str:
    if dist.where.endswith(".dist-info"):
        return posixpath.join(dist.where, "METADATA")
    inside = posixpath.join(dist.where, "PKG-INFO")
    return inside if root.exists(inside) else dist.where


def _fields(text: str, name: str) -> List[str]:
    """The values of a field that may be there more than once; a folded one is one line."""
    found = []
    for part in ("\n" + text).split(f"\n{name}:")[1:]:
        value, *rest = part.split("\n")
        folded = list(takewhile(lambda line: line[:1] in (" ", "\t"), rest))
        value = " ".join([value, *(line.strip() for line in folded)])
        found.append(value.strip())
    return found


def _field(text: str, name: str) -> str:
    return next(iter(_fields(text, name)), "")


def _of_egg(text: str) -> List[str]:
    """The requirements of an egg's requires.txt, whose sections are "[extra:marker]"."""
    found, condition = [], ""
    for line in text.split("\n"):
        line = line.strip()
        section = re.match(r"\[([^:\]]*):?([^\]]*)\]$", line)
        if section:
            extra, marker = section.groups()
            asked = f'extra == "{extra}"' if extra else ""
            condition = " and ".join(filter(None, (f"({marker})" if marker else "", asked)))
        elif line and not line.startswith("#"):
            # A marker of its own stands last, and goes before what the section asks.
            requirement, _, own = line.partition(";")
            both = " and ".join(filter(None, (f"({own.strip()})" if own else "", condition)))
            found.append(f"{requirement}; {both}" if both else requirement)
    return found


class _Asker:
    """A distribution: its requirements by the extra they are behind."""

    def __init__(self, dist: Distribution, read: Header) -> None:
        self.name = dist.name
        self.read = read
        self.always: List[_Line] = []
        self.behind: Dict[str, List[_Line]] = {}
        self.mixed: List[_Line] = []  # ask for an extra in a way that packaging must work out
        for text in read.requires:
            if len(text) <= LINE_LIMIT:
                self._add(text)

    def _add(self, text: str) -> None:
        requirement, _, marker = text.partition(";")
        if "@" in requirement:
            requirement, marker = _split_direct(text)
        if "extra" not in marker:
            self.always.append(_Line(requirement, marker, ""))
            return
        line = _behind_extra(requirement, marker)
        if line.alone:
            self.behind.setdefault(line.alone, []).append(line)
        else:
            self.mixed.append(line)

    def title(self, extra: str) -> str:
        """Who asks, as pip would write it."""
        return f"{self.name}{f'[{extra}]' if extra else ''} {self.read.version}"

    def lines(self, extra: str) -> List[_Line]:
        """What it requires always (extra ""), or besides with an extra."""
        return (self.behind.get(extra, []) if extra else self.always) + self.mixed


def _split_direct(text: str) -> Tuple[str, str]:
    """(name @ url, marker): a URL may hold semicolons, and ends at a space."""
    found = re.match(r"(.*?@\s*\S+)\s+;\s*(.*)$", text)
    return (found.group(1), found.group(2)) if found else (text, "")


def _behind_extra(requirement: str, marker: str) -> _Line:
    """A line that is for one extra only: "A and extra == 'x'", where A names no other."""
    for pattern, order in ((_EXTRA_LAST, (2, 3, 1)), (_EXTRA_FIRST, (1, 2, 3))):
        found = pattern.match(marker)
        if found:
            double, single, rest = (found.group(one) or "" for one in order)
            rest = rest.strip()
            if "extra" not in rest and _one_condition(rest):
                return _Line(requirement, rest, normalize(double or single))
    return _Line(requirement, marker, "")


def _one_condition(marker: str) -> bool:
    """Whether `and` binds all of a marker: it has no `or` outside of one pair of brackets."""
    if not _OR.search(marker):
        return True
    return marker.startswith("(") and marker.find(")") == len(marker) - 1


class _Check:
    """One walk over everything that is installed, then over every extra that is asked for."""

    def __init__(self, root: Root, dists: Mapping[str, Distribution], target: Target) -> None:
        self.target = target
        self.askers = {name: _Asker(one, header(root, one)) for name, one in dists.items()}
        self.told: Set[Tuple[str, str, str]] = set()
        self.asked: Set[str] = set()

    def rows(self) -> Iterator[s.Unmet]:
        """The unmet requirements, those that pip tells too before those behind extras."""
        todo = [(name, "") for name in self.askers]
        seen = set(todo)
        for name, extra in todo:  # grows while it is walked
            asker = self.askers[name]
            if not extra:
                yield from self._python(asker)
            for line in asker.lines(extra):
                asked = self._asked(line, extra)
                if asked is None:
                    continue
                wanted, extras, spec = asked
                self.asked.add(wanted)
                yield from self._judge(asker, extra, line, wanted, spec)
                more = [(wanted, normalize(one)) for one in extras if wanted in self.askers]
                todo.extend(one for one in more if one not in seen)
                seen.update(more)

    def _asked(self, line: _Line, extra: str) -> Optional[Tuple[str, List[str], str]]:
        """(name, extras, specifier) of a line that is for this Python and platform."""
        if line.marker:
            extras = (extra,) if extra and not line.alone else ()
            if holds(line.marker, self.target, extras) is not True:
                return None
            if extras and holds(line.marker, self.target) is True:
                return None  # it holds without the extra, and has been looked at
        plain = _PLAIN.match(line.text)
        if plain:
            name, extras_text, bracketed, bare = plain.groups()
            extras_found = re.findall(r"[\w.-]+", extras_text) if extras_text else []
            return normalize(name), extras_found, (bracketed or bare or "").replace(" ", "")
        return _by_packaging(line.text)

    def _judge(
        self, asker: _Asker, extra: str, line: _Line, wanted: str, spec: str
    ) -> Iterator[s.Unmet]:
        there = self.askers.get(wanted)
        version = there.read.version if there else ""
        if there and satisfies(version, spec):
            return
        if (asker.name, wanted, spec) in self.told:
            return
        self.told.add((asker.name, wanted, spec))
        yield s.Unmet(
            asker.title(extra), wanted, line.text.strip(), version, asker.read.path,
            _line_of(asker.read.text, "Requires-Dist:", line.text),
        )  # fmt: skip

    def _python(self, asker: _Asker) -> Iterator[s.Unmet]:
        """Requires-Python; where only X.Y is known, no X.Y.Z must do before it is told."""
        spec = asker.read.python
        found = re.match(r"\d+\.\d+(?:\.\d+)?", self.target.python)
        if not spec or not found:
            return
        python = found.group()
        may_be = [python] if python.count(".") == 2 else [f"{python}.0", f"{python}.99"]
        if not any(satisfies(one, spec) for one in may_be):
            line = _line_of(asker.read.text, "Requires-Python:", spec)
            yield s.Unmet(asker.title(""), "python", f"python{spec}", python, asker.read.path, line)


def _line_of(text: str, field: str, value: str) -> int:
    found = re.search(rf"^{field}[ \t]*{re.escape(value)}", text, re.M)
    return text.count("\n", 0, found.start()) + 1 if found else 0


def _by_packaging(text: str) -> Optional[Tuple[str, List[str], str]]:
    """(name, extras, specifier) of a form that is not plain; None for what is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        read = Requirement(text)
    except InvalidRequirement:
        return None
    return normalize(read.name), sorted(read.extras), str(read.specifier)
