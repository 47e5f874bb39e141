"""Whether a directory of tables is well formed, agrees with itself and cites its sources.

First the form of every file and row (`tables_schema`); then, when that is good, the spelling of
versions and requirements; then what the tables say of each other. A directory that has not every
table is an overlay: its rows are checked together with the built-in ones.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Tuple

from .. import tables
from .. import tables_schema as schema
from . import images, machines, platforms, spelling, wheels
from .book import Book, Problem

#: What the tables say of each other; spelling goes before, as these read versions.
CHECKS: Tuple[Callable[[Book], Iterator[Problem]], ...] = (
    *machines.CHECKS, *wheels.CHECKS, *images.CHECKS, *platforms.CHECKS,
)  # fmt: skip


def check(directory: str) -> List[str]:
    """Problems of the tables in a directory, each with file and row; empty when there are none.

    Raises tables.BadTables for a directory or file that cannot be read.
    """
    own = tables.toml_files(directory)
    found = list(schema.file_problems(own))
    if found:
        return found
    whole = set(map(schema.stem, own)) >= {*schema.TABLES, schema.SOURCES}
    mine = tables.whole_tables(own)
    source = mine if whole else tables.built_in()
    known = {**source[schema.SOURCES].get("source", {})}
    known.update(own.get(schema.SOURCES, {}).get("source", {}))
    found = list(schema.unknown_sources(own, known))
    if found:
        return found
    book = Book(mine if whole else tables.built_in([directory]), whole, directory)
    found = [str(problem) for problem in spelling.spelling(book)]
    return found or [str(problem) for one in CHECKS for problem in one(book)]
