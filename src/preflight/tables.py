"""The tables of `compat/`, each read when first asked for, with overlays on top.

In a wheel every table is a JSON file compiled from its TOML at build time, which reads several
times faster; in a checkout the TOML is read itself. An overlay is a directory of TOML files of
the same names: a row with the same key takes the place of the built-in one, other rows are added.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

COMPILED = "compat"  # beside this file, in a wheel
CHECKOUT = os.path.join("..", "..", "compat")  # from this file, in a checkout

#: What makes two rows of a table the same row. A list of versions is split up: an overlay row
#: takes the place of exactly the versions it names.
KEYS: Dict[Tuple[str, str], Tuple[str, ...]] = {
    ("drivers", "branch"): ("branch",),
    ("toolkits", "toolkit"): ("cuda",),
    ("toolkits", "release"): ("version",),
    ("architectures", "architecture"): ("name",),
    ("gpus", "gpu"): ("name",),
    ("forward", "package"): ("cuda",),
    ("forward", "class"): ("class",),
    ("torch", "build"): ("platform", "variant"),
}


class BadTables(ValueError):
    """Tables that cannot be read: the message names the file and the place."""


class Replaced(NamedTuple):
    """A built-in row that an overlay's row takes the place of."""

    table: str
    key: str
    overlay: str


class Tables(Mapping[str, Any]):
    """{file stem: table}, read lazily. `replaced` tells what the overlays changed so far."""

    def __init__(self, directory: str, overlays: Sequence[str] = ()) -> None:
        self._directory = directory
        self._overlays = tuple(overlays)
        self._read: Dict[str, Any] = {}
        self.replaced: List[Replaced] = []

    def __getitem__(self, stem: str) -> Any:
        if stem not in self._read:
            table = _table(self._directory, stem)
            if table is None:
                raise KeyError(stem)
            for overlay in self._overlays:
                table = self._overlaid(stem, table, overlay)
            self._read[stem] = table
        return self._read[stem]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({os.path.splitext(name)[0] for name in os.listdir(self._directory)
                            if name.endswith((".toml", ".json"))}))  # fmt: skip

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _overlaid(self, stem: str, table: Dict[str, Any], overlay: str) -> Dict[str, Any]:
        """The table with one overlay's rows: replacing those of the same key, or added."""
        more = _table(overlay, stem)
        if more is None:
            return table
        merged = dict(table)
        for kind, rows in more.items():
            if isinstance(rows, dict):  # sources
                merged[kind] = {**table.get(kind, {}), **rows}
            else:
                merged[kind] = self._rows(stem, kind, table.get(kind, []), rows, overlay)
        return merged

    def _rows(
        self, stem: str, kind: str, rows: List[Any], more: List[Any], overlay: str
    ) -> List[Any]:
        columns = KEYS.get((stem, kind))
        if columns is None:
            raise BadTables(f"{overlay}/{stem}.toml: [[{kind}]] cannot be overlaid")
        for number, row in enumerate(more, 1):
            lacking = [one for one in columns if one not in row]
            if lacking:
                raise BadTables(f"{overlay}/{stem}.toml: [[{kind}]] {number} has no {lacking[0]!r}")
            rows = self._without(stem, rows, columns, row, overlay)
        return rows + [{**row, "overlay": overlay} for row in more]

    def _without(
        self, stem: str, rows: List[Any], columns: Tuple[str, ...], new: Any, overlay: str
    ) -> List[Any]:
        kept = []
        for row in rows:
            if any(row.get(one) != new[one] for one in columns):
                kept.append(row)
                continue
            versions = [one for one in row.get("versions", []) if one not in new["versions"]]
            if "versions" in row and len(versions) == len(row["versions"]):
                kept.append(row)
                continue
            key = ", ".join(f"{one} {row[one]}" for one in columns)
            self.replaced.append(Replaced(stem, key, overlay))
            if versions:
                kept.append({**row, "versions": versions})
        return kept


def built_in(overlays: Sequence[str] = ()) -> Tables:
    """The tables shipped with this package; raises BadTables for an overlay that is not there."""
    for overlay in overlays:
        if not os.path.isdir(overlay):
            raise BadTables(f"{overlay}: no such directory of tables")
    here = os.path.dirname(os.path.abspath(__file__))
    compiled = os.path.join(here, COMPILED)
    directory = compiled if os.path.isdir(compiled) else os.path.join(here, CHECKOUT)
    return Tables(directory, overlays)


def _table(directory: str, stem: str) -> Optional[Dict[str, Any]]:
    """One table of a directory, compiled or not; None when it is not there."""
    path = os.path.join(directory, stem)
    try:
        if os.path.exists(path + ".json"):
            with open(path + ".json", encoding="utf-8") as stream:
                compiled: Dict[str, Any] = json.load(stream)
                return compiled
        if os.path.exists(path + ".toml"):
            return read_toml(path + ".toml")
    except OSError as error:
        raise BadTables(f"{path}: {error.strerror}") from None
    return None


def read_toml(path: str) -> Dict[str, Any]:
    """A TOML file; raises BadTables naming the file and the line, OSError when unreadable."""
    try:
        import tomllib as toml
    except ImportError:
        import tomli as toml
    with open(path, "rb") as stream:
        try:
            table: Dict[str, Any] = toml.load(stream)
            return table
        except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadTables(f"{path}: {error}") from None


def all_of(directory: str) -> Dict[str, Any]:
    """{file stem: table} of every table in a directory, read at once."""
    tables = Tables(directory)
    return {stem: tables[stem] for stem in tables}
