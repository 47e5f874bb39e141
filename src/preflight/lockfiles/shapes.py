"""What TOML and JSON documents hold, taken out by its type: anything else names its line."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import unquote

from . import lean
from .model import (
    Artefact,
    BadLock,
    Need,
    normalize,
    of_default_index,
    other_version,
    shown,
    without_credentials,
)

_KINDS = {dict: "a table", list: "an array", str: "a string", bool: "true or false",
          int: "a number", float: "a number"}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class Table:
    """One table of a document: where it is, and its values by type. Raises BadLock."""

    def __init__(self, values: Any, line: int, place: str = "", taken: Any = None) -> None:
        self.line = line
        self.place = place
        self.taken: Mapping[str, lean.Taken] = taken or {}
        if not isinstance(values, dict):
            raise self.wrong("", values, "a table")
        self.values: Dict[str, Any] = values

    def wrong(self, key: str, value: object, expected: str) -> BadLock:
        """The error for a value of another type."""
        kind = _KINDS.get(type(value), "no value" if value is None else "a date")
        return BadLock(self.line, f"{self._path(key)} is {kind}, {expected} is expected")

    def _path(self, key: str) -> str:
        return ".".join(filter(None, (self.place, key))) or "this"

    def value(self, key: str, default: object) -> Any:
        """Whatever is there."""
        if key not in self.values:
            return default
        found = self.values[key]
        taken = self._taken(found)
        return lean.whole(taken) if taken else found

    def _taken(self, found: object) -> Optional[lean.Taken]:
        """What was taken out of the text where this stands in its place."""
        if isinstance(found, list) and len(found) == 1:
            found = found[0]
        return self.taken.get(found) if isinstance(found, str) else None

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self.value(key, default)
        if isinstance(value, str):
            return value
        raise self.wrong(key, value, "a string")

    def needed(self, key: str) -> str:
        """A string that must be there."""
        found = self.text(key)
        if not found:
            raise BadLock(self.line, f"{self._path('')} has no {key}".replace("this", "the file"))
        return found

    def name(self, key: str = "name") -> str:
        """The name of a package, in its one spelling."""
        found = self.needed(key)
        if not _NAME.fullmatch(found):
            raise BadLock(self.line, f"{self._path(key)}: {found[:80]!r} is no package's name")
        return normalize(found)

    def number(self, key: str) -> int:
        """A whole number, 0 where there is none."""
        value = self.value(key, 0)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self.wrong(key, value, "a number")

    def flag(self, key: str) -> bool:
        """True or false; false where it is not said."""
        value = self.value(key, False)
        if isinstance(value, bool):
            return value
        raise self.wrong(key, value, "true or false")

    def array(self, key: str) -> List[Any]:
        """An array of anything, empty where there is none."""
        value = self.value(key, [])
        if isinstance(value, list):
            return value
        raise self.wrong(key, value, "an array")

    def texts(self, key: str) -> Tuple[str, ...]:
        """An array of strings."""
        found = self.array(key)
        for one in found:
            if not isinstance(one, str):
                raise self.wrong(key, one, "a string")
        return tuple(found)

    def table(self, key: str) -> Table:
        """A table, empty where there is none."""
        return self._of(self.value(key, {}), key)

    def tables(self, key: str) -> Iterator[Table]:
        """An array of tables."""
        for one in self.array(key):
            yield self._of(one, key)

    def one_or_more(self, key: str) -> Iterator[Any]:
        """What an array holds, or the one thing that is no array."""
        value = self.value(key, [])
        for one in value if isinstance(value, list) else [value]:
            yield self._of(one, key) if isinstance(one, dict) else one

    def each(self, key: str) -> Iterator[Tuple[str, Table]]:
        """The arrays of tables within a table, each table with the name of its array."""
        within = self.table(key)
        for name in within.values:
            for one in within.tables(name):
                yield name, one

    def _of(self, value: Any, key: str) -> Table:
        return Table(value, self.line, self._path(key), self.taken)

    def artefacts(self, key: str) -> Tuple[Artefact, ...]:
        """The files of an array, or the one of a table."""
        if key not in self.values:
            return ()
        taken = self._taken(self.values[key])
        if taken and taken.kind in ("file", "files"):
            return tuple(map(_artefact, lean.parts(taken)))
        value = self.value(key, None)
        tables = [self.table(key)] if isinstance(value, dict) else self.tables(key)
        return tuple(_artefact(_spelled(one)) for one in tables)


def _spelled(table: Table) -> lean.Given:
    """An artefact that was not of the one form that `lean` takes."""
    kind = next((one for one in ("url", "path", "file") if table.text(one)), "")
    place = table.text(kind) if kind else table.text("filename")
    size = table.number("size")
    if size < 0:
        raise BadLock(table.line, f"{table.place}.size: {size} is less than nothing")
    hashed = table.text("hash") or strongest(table.table("hashes"))
    return lean.Given(kind or "file", place, table.text("name"), hashed, size)


def strongest(hashes: Table) -> str:
    """The hash to hold a file against: sha256 where there is one."""
    for kind in ("sha256", "sha512", "sha384", *hashes.values):
        if hashes.text(kind):
            return f"{kind}:{hashes.text(kind)}"
    return ""


def _artefact(given: lean.Given) -> Artefact:
    kind, place, name, hashed, size = given
    if "@" in place:
        place = without_credentials(place)
    return Artefact(name or file_name(place), hashed, "" if kind == "file" else place, size)


def file_name(place: str) -> str:
    """ "torch-2.9.0+cu128-….whl" of a URL or a path."""
    if "?" in place or "#" in place or place.endswith("/"):
        place = re.split(r"[?#]", place)[0].rstrip("/")
    name = place.rpartition("/")[2]
    return unquote(name) if "%" in name else name


_REQUIREMENT = re.compile(
    r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*(?:@\s*(\S+)|\(?([^;()@]*)\)?)\s*"
    r"(?:;\s*(.+))?"
)


def need(text: str, line: int) -> Need:
    """A dependency that is written as PEP 508 has it. Raises BadLock."""
    found = _REQUIREMENT.fullmatch(text)
    if not found:
        raise BadLock(line, f"{shown(text)} is no requirement")
    name, extras, url, spec, marker = (one or "" for one in found.groups())
    return Need(
        normalize(name.rstrip("._-")),
        re.sub(r"\s", "", spec),
        marker.strip(),
        tuple(sorted(normalize(one.strip()) for one in extras.split(",") if one.strip())),
        source=without_credentials(url),
    )


def top(document: lean.Document) -> Table:
    """The table that is the whole document."""
    return Table(document.tables, 0, "", document.taken)


def packages(document: lean.Document, key: str) -> List[Table]:
    """The `[[key]]` of a document. Raises BadLock where they are no array of tables."""
    found = top(document).array(key)
    names = [one.get("name") if isinstance(one, dict) else "" for one in found]
    lines = lean.headers(document, key, [one if isinstance(one, str) else "" for one in names])
    return [Table(one, line, key, document.taken) for one, line in zip(found, lines)]


def known_version(text: str, pattern: str, name: str, knows: str, newest: int) -> None:
    """Raises BadLock where a format's version is none that is known, of which one is the newest."""
    if not re.fullmatch(pattern, text):
        given = f"{name} {text[:40]!r}" if text else f"no {name}"
        raise other_version(0, f"{given}: only {knows} can be read here", text, newest)


def as_options(urls: Iterable[str]) -> Tuple[str, ...]:
    """Indexes as pip would be told of them: the default one, or else the first, before others."""
    found = list(dict.fromkeys(filter(None, urls)))
    found.sort(key=lambda one: not of_default_index(one))
    return tuple(
        f"--{'extra-' if number else ''}index-url {one}" for number, one in enumerate(found)
    )
