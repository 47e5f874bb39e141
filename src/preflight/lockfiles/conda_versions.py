"""How conda orders versions and what its specs take, which is not how pip does.

"1.1" is "1.1.0", letters come before numbers ("1.0a" < "1.0", "1.0.1_" < "1.0.1a" < "1.0.1"),
"dev" before all else, "post" after; a local part ("+cu118") counts in `==`.

Oracle: `conda.models.version.VersionOrder`, `VersionSpec` and `MatchSpec.match`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import zip_longest
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

#: Of one spec: more is not read.
LENGTH = 1000
#: Brackets within brackets.
NESTED = 20

#: (0, "rc"), (1, 5): texts before numbers; the kinds between and around them as conda has them.
_Atom = Tuple[float, float, str]
_Part = Tuple[_Atom, ...]
_ZERO: _Atom = (1, 0, "")
_CHARACTERS = re.compile(r"[*.+!_0-9a-z]+")
_TOKEN = re.compile(r"[()|,]|[^()|,]+")
_RELATION = re.compile(r"(==|!=|<=|>=|~=|=|<|>)(?![=<>!~])(\S+)")


class NotRead(ValueError):
    """A version or spec that conda would refuse, or that is not judged here (a regex)."""


class Version(NamedTuple):
    """A version taken apart: the epoch and what stands between dots, and the local part."""

    parts: Tuple[_Part, ...]
    local: Tuple[_Part, ...]


def satisfies(version: str, build: str, spec: str, build_spec: str = "") -> bool:
    """Whether a version and build meet a spec of conda; True where either cannot be judged.

    A build that is not known (empty) meets any.
    """
    return _version_meets(version, spec) and (not build or _build_meets(build, build_spec))


def order(first: str, second: str) -> Optional[int]:
    """-1, 0 or 1 as the first version is before, the same as, or after the second.

    None where conda would refuse one of them.
    """
    try:
        return _compared(parse(first), parse(second))
    except NotRead:
        return None


@lru_cache(maxsize=8192)
def _version_meets(version: str, spec: str) -> bool:
    if spec in ("", "*", "==" + version):
        return True
    try:
        return _Spec(spec).takes(version)
    except NotRead:
        return True


def _build_meets(build: str, spec: str) -> bool:
    if spec.startswith("^"):
        return True  # a regex: conda's own to run
    return not spec or matches(build, spec)


def matches(text: str, glob: str) -> bool:
    """Whether a text is as a pattern in which only * has a meaning."""
    first, *rest = glob.split("*")
    if not rest:
        return text == glob
    last = rest.pop()
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in rest:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


# -- versions ---------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def parse(text: str) -> Version:
    """A version taken apart as conda does. Raises NotRead."""
    version = text.strip().lower()
    if not _CHARACTERS.fullmatch(version) and "_" not in version:
        version = version.replace("-", "_")
    if not _CHARACTERS.fullmatch(version) or len(version) > LENGTH:
        raise NotRead(text)
    epoch, mark, rest = version.rpartition("!")
    if mark and not epoch.isdigit():
        raise NotRead(text)
    public, plus, local = rest.partition("+")
    if not public or "+" in local:
        raise NotRead(text)
    # A trailing underscore stays with what it follows: openssl's 1.0.1_ comes before 1.0.1a.
    tail = "_" if public.endswith("_") else ""
    parts = _split(public[: len(public) - len(tail)])
    parts[-1] += tail
    return Version(
        tuple(_part(one) for one in [epoch or "0", *parts]),
        tuple(_part(one) for one in _split(local)) if plus else (),
    )


def _split(text: str) -> List[str]:
    return text.replace("_", ".").split(".")


def _part(text: str) -> _Part:
    found = tuple(_atom(one) for one in re.findall(r"[0-9]+|[*]+|[^0-9*]+", text))
    if not found:
        raise NotRead(text)
    return found if text[0].isdigit() else (_ZERO, *found)


def _atom(text: str) -> _Atom:
    if text.isdigit():
        return (1, int(text), "")
    if text == "post":
        return (1, float("inf"), "")
    return (0, 0, "DEV" if text == "dev" else text)  # capitals come after * and before _ and a


def _compared(first: Version, second: Version) -> int:
    for one, other in ((first.parts, second.parts), (first.local, second.local)):
        found = _parts_compared(one, other)
        if found:
            return found
    return 0


def _parts_compared(first: Tuple[_Part, ...], second: Tuple[_Part, ...]) -> int:
    for one, other in zip_longest(first, second, fillvalue=()):
        for a, b in zip_longest(one, other, fillvalue=_ZERO):
            if a != b:
                return -1 if a < b else 1
    return 0


def starts_with(version: Version, prefix: Version) -> bool:
    """Whether a version begins as `prefix` does: 1.8.3 and 1.8rc1 as 1.8; 1.80 does not."""
    mine, asked = version.parts, prefix.parts
    if prefix.local:
        if _parts_compared(version.parts, prefix.parts):
            return False
        mine, asked = version.local, prefix.local
    before = len(asked) - 1
    if _parts_compared(mine[:before], asked[:before]):
        return False
    part = mine[before] if len(mine) > before else ()
    *same, last = asked[before]
    if _parts_compared((part[: len(same)],), (tuple(same),)):
        return False
    atom = part[len(same)] if len(part) > len(same) else _ZERO
    if not last[0]:
        return not atom[0] and atom[2].startswith(last[2])
    return atom == last


# -- specs ------------------------------------------------------------------------------------

_COMPARED: Dict[str, Callable[[int], bool]] = {
    "==": lambda found: found == 0,
    "!=": lambda found: found != 0,
    "<=": lambda found: found <= 0,
    ">=": lambda found: found >= 0,
    "<": lambda found: found < 0,
    ">": lambda found: found > 0,
}


class _Spec:
    """A spec read while it is judged: `,` binds before `|`, brackets before both."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH or "^" in text or "$" in text:
            raise NotRead(text)
        self.tokens: List[str] = [one.strip() for one in _TOKEN.findall(text) if one.strip()]
        self.at = 0

    def takes(self, version: str) -> bool:
        """Whether the spec takes a version. Raises NotRead."""
        found = self._any(version, 0)
        if self.at != len(self.tokens):
            raise NotRead("a bracket too many")
        return found

    def _any(self, version: str, depth: int) -> bool:
        found = [self._all(version, depth)]
        while self._next("|"):
            found.append(self._all(version, depth))
        return any(found)

    def _all(self, version: str, depth: int) -> bool:
        found = [self._one(version, depth)]
        while self._next(","):
            found.append(self._one(version, depth))
        return all(found)

    def _one(self, version: str, depth: int) -> bool:
        if self._next("("):
            if depth >= NESTED:
                raise NotRead("nested too deeply")
            found = self._any(version, depth + 1)
            if not self._next(")"):
                raise NotRead("a bracket is open")
            return found
        if self.at == len(self.tokens) or self.tokens[self.at] in "()|,":
            raise NotRead("an operator without a version")
        self.at += 1
        return _takes(self.tokens[self.at - 1], version)

    def _next(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False


def _takes(spec: str, version: str) -> bool:
    """Whether one spec without commas takes a version. Raises NotRead."""
    if spec[0] in "=<>!~":
        return _related(spec, version)
    if spec == "*":
        return True
    plain = spec.rstrip("*")
    if "*" in plain:
        return matches(version, spec)
    if plain != spec:
        return starts_with(parse(version), parse(plain.rstrip(".")))
    if "@" in spec:
        return spec == version
    return _compared(parse(version), parse(spec)) == 0


def _related(spec: str, version: str) -> bool:
    found = _RELATION.fullmatch(spec)
    if not found:
        raise NotRead(spec)
    operator, asked = found.groups()
    prefix = operator in ("=", "~=")
    if asked.endswith(".*"):
        if operator == "~=":
            raise NotRead(spec)
        prefix = prefix or operator == "!="
        asked = asked[:-2]
    mine, other = parse(version), parse(asked)
    if operator == "~=":
        later = _compared(mine, other) >= 0
        return later and starts_with(mine, parse(asked.rpartition(".")[0]))
    if prefix:
        return starts_with(mine, other) == (operator == "=")
    return _COMPARED[operator](_compared(mine, other))
