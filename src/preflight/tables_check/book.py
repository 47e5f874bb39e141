"""The rows of all tables with their places, for the checks to find their way."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from packaging.requirements import Requirement

from .. import tables_schema as schema

Numbers = Tuple[int, ...]
Build = Tuple[str, str, str]  # release, platform, variant

#: From this CUDA major on all minors have one floor.
FIRST_MINOR_COMPATIBLE = 11
#: MIG begins with this capability.
FIRST_WITH_MIG = (8, 0)


class Place(NamedTuple):
    """A row and where it is; `number` is 0 for a built-in row beside an overlay."""

    stem: str
    kind: str
    number: int
    row: Mapping[str, Any]

    def __str__(self) -> str:
        where = schema.place(self.stem, self.kind, self.number, self.row)
        return where if self.number else f"{where}, built in"


class Problem(NamedTuple):
    """What is wrong with a row."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class Book:
    """All rows with their places, and the few ways to find them that the checks need."""

    def __init__(self, source: Mapping[str, Any], whole: bool, directory: str) -> None:
        self.whole = whole
        self._rows: Dict[str, List[Place]] = {}
        for stem, kinds in schema.TABLES.items():
            for kind in kinds:
                count = 0
                places = self._rows.setdefault(kind, [])
                for row in source[stem].get(kind, []):
                    own = whole or row.get("overlay") == directory
                    count += own
                    places.append(Place(stem, kind, count if own else 0, row))
        self.branches = {int(p.row["branch"]): p for p in self.rows("branch")}
        self.toolkits = {str(p.row["cuda"]): p for p in self.rows("toolkit")}
        self.architectures = {str(p.row["name"]): p for p in self.rows("architecture")}
        self.by_capability = {
            capability: p for p in self.rows("architecture") for capability in p.row["capabilities"]
        }
        self.builds: Dict[Build, Place] = {
            (text, p.row["platform"], p.row["variant"]): p
            for p in self.rows("build")
            for text in p.row["versions"]
        }
        self.defaults = {
            (text, p.row["platform"]): str(p.row["variant"])
            for p in self.rows("build")
            for text in p.row.get("default", [])
        }
        self.releases = {text for text, _platform, _variant in self.builds}

    def rows(self, kind: str) -> List[Place]:
        """The rows of a table, the overlay's last."""
        return self._rows[kind]

    def every(self) -> Iterator[Place]:
        """All rows."""
        for places in self._rows.values():
            yield from places


# -- words ----------------------------------------------------------------------------------


def numbers(text: str) -> Numbers:
    """The numbers of a dotted version that the schema has let through."""
    return tuple(int(part) for part in text.split("."))


def listed(value: Any) -> List[Any]:
    """The value as a list, also where it is one."""
    return value if isinstance(value, list) else [value]


def target(text: str) -> Numbers:
    """The capability of a compiler target: sm_120a is 12.0."""
    digits = text[3:].rstrip("af")
    return int(digits[:-1]), int(digits[-1])


def pinned(texts: Iterable[str]) -> Dict[str, str]:
    """{name without -cuNN: version} of exact pins; other pins by their specifier."""
    found = {}
    for one in map(Requirement, texts):
        exact = [spec.version for spec in one.specifier if spec.operator == "=="]
        found[one.name] = exact[0] if exact else str(one.specifier)
    return found


def plain(found: Mapping[str, str]) -> Dict[str, str]:
    """Pins by names without their -cuNN."""
    return {re.sub(r"-cu\d+$", "", name): version for name, version in found.items()}
