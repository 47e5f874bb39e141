"""The tables of `compat/`, each read when first asked for, with overlays on top.

In a wheel every table is a JSON file compiled from its TOML at build time, which reads several
times faster; in a checkout the TOML is read itself. An overlay is a directory of TOML files of
the same names: a row with the same key takes the place of the built-in one, other rows are
added. Its rows are checked as the built-in ones are; of several overlays the later one wins.

A table may be spread over several files in a directory of its name: `platforms/pai-dlc.toml`.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

COMPILED = "compat"  # beside this file, in a wheel
CHECKOUT = os.path.join("..", "..", "compat")  # from this file, in a checkout
LIMIT = 4 << 20  # of one file of an overlay; the built-in ones are below 100 KB


class BadTables(ValueError):
    """Tables that cannot be read or used: the message names the file and the place."""


class Replaced(NamedTuple):
    """A row, or a part of one, that an overlay's row takes the place of."""

    table: str
    key: str
    overlay: str


class Tables(Mapping[str, Any]):
    """{file stem: table}, read lazily; overlays are read, checked and laid on at once.

    `replaced` tells whose place the overlays' rows take. Raises BadTables for a bad overlay.
    """

    def __init__(self, directory: str, overlays: Sequence[str] = ()) -> None:
        self._directory = directory
        self._read: Dict[str, Any] = {}
        self.replaced: List[Replaced] = []
        for overlay in overlays:
            self._lay_on(overlay)

    def __getitem__(self, stem: str) -> Any:
        if stem not in self._read:
            table = _built_in(self._directory, stem)
            if table is None:
                raise KeyError(stem)
            self._read[stem] = table
        return self._read[stem]

    def __iter__(self) -> Iterator[str]:
        found = {os.path.splitext(name)[0] for name in os.listdir(self._directory)
                 if name.endswith((".toml", ".json"))}  # fmt: skip
        found |= {one for one in _schema().DIRECTORIES if self._has(one)}
        return iter(sorted(found))

    def _has(self, directory: str) -> bool:
        return os.path.isdir(os.path.join(self._directory, directory))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _lay_on(self, overlay: str) -> None:
        from . import tables_schema as schema

        own = toml_files(overlay)
        for problem in schema.file_problems(own):
            raise BadTables(os.path.join(overlay, problem))
        for key, row in own.pop(schema.SOURCES, {}).get("source", {}).items():
            self._source(key, row, overlay)
        sources = self["sources"]["source"]
        for problem in schema.unknown_sources(own, sources):
            raise BadTables(os.path.join(overlay, problem))
        for file, table in own.items():
            stem = schema.stem(file)
            merged = dict(self[stem])
            for kind, rows in table.items():
                known = {_same(row) for row in merged.get(kind, [])}
                new = [row for row in rows if _same(row) not in known]  # a copy changes nothing
                merged[kind], said = schema.laid_on(kind, merged.get(kind, []), new)
                merged[kind] += [{**row, "overlay": overlay} for row in new]
                self.replaced += [Replaced(stem, key, overlay) for key in said]
            self._read[stem] = merged

    def _source(self, key: str, row: Any, overlay: str) -> None:
        sources = self["sources"]["source"]
        if sources.get(key) == row:
            return
        if key in sources:
            self.replaced.append(Replaced("sources", key, overlay))
        self._read["sources"] = {"source": {**sources, key: {**row, "overlay": overlay}}}


def _same(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def built_in(overlays: Sequence[str] = ()) -> Tables:
    """The tables shipped with this package, overlays on top; raises BadTables for a bad one."""
    here = os.path.dirname(os.path.abspath(__file__))
    compiled = os.path.join(here, COMPILED)
    return Tables(compiled if os.path.isdir(compiled) else os.path.join(here, CHECKOUT), overlays)


def _schema() -> Any:
    from . import tables_schema

    return tables_schema


def toml_files(path: str) -> Dict[str, Any]:
    """{file stem: what its TOML says} of a directory; raises BadTables, naming the file.

    Of a table that is a directory, a file's stem is "platforms/pai-dlc".
    """
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".toml"))
        for one in _schema().DIRECTORIES:
            if os.path.isdir(os.path.join(path, one)):
                inside = sorted(os.listdir(os.path.join(path, one)))
                names += [f"{one}/{name}" for name in inside if name.endswith(".toml")]
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        words = "no such directory of tables" if missing else _words(error)
        raise BadTables(f"{path}: {words}") from None
    names = [name for name in names if not name.rpartition("/")[2].startswith(".")]
    if not names:
        raise BadTables(f"{path}: no tables (NAME.toml) in this directory")
    return {name[: -len(".toml")]: read_toml(os.path.join(path, name)) for name in names}


def _built_in(path: str, stem: str) -> Optional[Dict[str, Any]]:
    """One built-in table, compiled or not; None when it is not there."""
    file = os.path.join(path, stem)
    try:
        if os.path.exists(file + ".json"):
            with open(file + ".json", encoding="utf-8") as stream:
                compiled: Dict[str, Any] = json.load(stream)
                return compiled
        if os.path.exists(file + ".toml"):
            return read_toml(file + ".toml")
        if os.path.isdir(file):
            names = sorted(one for one in os.listdir(file) if one.endswith(".toml"))
            return joined(read_toml(os.path.join(file, name)) for name in names)
    except OSError as error:
        raise BadTables(f"{file}: {error.strerror}") from None
    return None


def joined(files: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """One table of several files: the rows of each, one after another."""
    found: Dict[str, Any] = {}
    for table in files:
        for kind, rows in table.items():
            found[kind] = found.get(kind, []) + rows
    return found


def whole_tables(own: Mapping[str, Any]) -> Dict[str, Any]:
    """What `toml_files` gives, with the files of a directory joined into its table."""
    found: Dict[str, Any] = {}
    for file, table in own.items():
        stem = _schema().stem(file)
        found[stem] = table if stem == file else joined([found.get(stem, {}), table])
    return found


def read_toml(path: str) -> Dict[str, Any]:
    """A TOML file; raises BadTables naming the file and what is wrong with it."""
    try:
        import tomllib as toml
    except ImportError:
        import tomli as toml
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LIMIT:
            regular = stat.S_ISREG(facts.st_mode)
            words = f"larger than {LIMIT >> 20} MiB" if regular else "not a file"
            raise OSError(0, words)
        with open(path, "rb") as stream:
            table: Dict[str, Any] = toml.load(stream)
            return table
    except OSError as error:
        raise BadTables(f"{path}: {_words(error)}") from None
    except RecursionError:
        raise BadTables(f"{path}: nested too deeply") from None
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise BadTables(f"{path}: {error}") from None


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
