"""Versions and requirements are written as `packaging` writes them."""

from __future__ import annotations

from typing import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from .book import Book, Place, Problem

#: Tables whose `versions` are those of a Python package.
PACKAGES = ("build", "detail", "install", "pins", "loose", "tensorflow", "jax", "jax_requires",
            "extension", "ngc_framework")  # fmt: skip
COMPANIONS = ("torchvision", "torchaudio", "torchtext", "torchdata")


def spelling(book: Book) -> Iterator[Problem]:
    """Versions are as `packaging` writes them and ascend; requirements and ranges parse."""
    for place in book.every():
        row = place.row
        columns = ("versions",) if place.kind in PACKAGES else ()
        for column in columns + (COMPANIONS if place.kind == "companion" else ()):
            yield from _versions(place, column)
        if place.kind == "companion" and not normal(row["torch"]):
            yield Problem(place, f"torch {row['torch']!r} is no version as packaging writes it")
        for column in ("requires", "pins"):
            yield from _requirements(place, column)
        for column in ("range", "torch_range", "python", "triton"):
            try:
                SpecifierSet(row.get(column, ""))
            except InvalidSpecifier:
                yield Problem(place, f"{column} {row[column]!r} is no range of versions")


def normal(text: str) -> bool:
    try:
        return str(Version(text)) == text
    except InvalidVersion:
        return False


def _versions(place: Place, column: str) -> Iterator[Problem]:
    texts = place.row.get(column, [])
    wrong = [text for text in texts if not normal(text)]
    if wrong:
        yield Problem(place, f"{column} {wrong[0]!r} is no version as packaging writes it")
    elif texts != sorted(texts, key=Version):
        yield Problem(place, f"{column} do not ascend")


def _requirements(place: Place, column: str) -> Iterator[Problem]:
    texts = place.row.get(column, [])
    for text in texts:
        try:
            normal = str(Requirement(text))
        except InvalidRequirement:
            normal = ""
        if normal != text:
            yield Problem(place, f"{column} {text!r} is no requirement as packaging writes it")
    if place.kind != "extension" and texts != sorted(texts):
        yield Problem(place, f"{column} are not in order")
