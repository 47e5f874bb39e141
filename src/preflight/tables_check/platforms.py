"""What the tables of platforms say of each other, over all their files."""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

from .. import tables_schema as schema
from .book import Book, Place, Problem


def said_once(book: Book) -> Iterator[Problem]:
    """No two files say the same; within one file that was looked at before."""
    for kind in schema.TABLES["platforms"]:
        seen: Dict[Tuple[str, ...], Place] = {}
        for place in book.rows(kind):
            key = tuple(str(place.row.get(column, "")) for column in schema.IDENTITY[kind])
            if key in seen:
                yield Problem(place, "another file says this, too")
            seen[key] = place


def marks_tell_apart(book: Book) -> Iterator[Problem]:
    """A platform is recognised by what only it sets: no two have the same marks."""
    seen: Dict[Tuple[str, ...], Place] = {}
    for place in book.rows("mark"):
        key = tuple(sorted(place.row["variables"]))
        other = seen.get(key)
        if other and other.row["platform"] != place.row["platform"]:
            yield Problem(place, f"{other.row['platform']} has the same marks")
        seen[key] = place


def kinds_have_a_platform(book: Book) -> Iterator[Problem]:
    """Kinds of jobs are those of platforms that can be recognised."""
    known = {place.row["platform"] for place in book.rows("mark")}
    for place in book.rows("job_kind"):
        if place.row["platform"] not in known:
            yield Problem(place, f"no mark recognises {place.row['platform']!r}")


CHECKS = (said_once, marks_tell_apart, kinds_have_a_platform)
