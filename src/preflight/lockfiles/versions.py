"""Versions and specifiers, compared as pip does (PEP 440), with packaging."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional, Tuple

_RELEASE = re.compile(r"\d{1,9}(?:\.\d{1,9})*")
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|<|>)\s*(\d{1,9}(?:\.\d{1,9})*)(\.\*)?\s*")


@lru_cache(maxsize=8192)
def satisfies(version: str, spec: str) -> bool:
    """Whether a version meets a specifier, pre-releases allowed; True where either is no PEP 440.

    As for pip, "==2.6.0" takes 2.6.0+cu124, and "==2.6.0+cu124" takes nothing else.
    """
    if spec in ("", "==" + version):
        return True
    plain = _plainly(version, spec)
    if plain is not None:
        return plain
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return bool(SpecifierSet(spec).contains(version, prereleases=True))
    except (InvalidSpecifier, InvalidVersion):
        return True


def _plainly(version: str, spec: str) -> Optional[bool]:
    """The answer where all versions are dotted numbers, as nearly all are; else None.

    packaging takes some ten times as long, and an environment has a thousand such questions.
    """
    if not _RELEASE.fullmatch(version):
        return None
    mine, met = _release(version), True
    for clause in spec.split(","):
        found = _CLAUSE.fullmatch(clause)
        if not found:
            return None
        operator, text, star = found.groups()
        if (star and operator not in ("==", "!=")) or (operator == "~=" and "." not in text):
            return None
        met = met and _meets(mine, operator, _release(text), bool(star))
    return met


@lru_cache(maxsize=8192)
def _release(text: str) -> Tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _meets(mine: Tuple[int, ...], operator: str, wanted: Tuple[int, ...], star: bool) -> bool:
    if star:
        return (_padded(mine, len(wanted))[: len(wanted)] == wanted) == (operator == "==")
    size = max(len(mine), len(wanted))
    left, right = _padded(mine, size), _padded(wanted, size)
    if operator == "~=":
        return left >= right and left[: len(wanted) - 1] == wanted[:-1]
    return {
        ">=": left >= right, "<=": left <= right, "==": left == right,
        "!=": left != right, "<": left < right, ">": left > right,
    }[operator]  # fmt: skip


def _padded(release: Tuple[int, ...], size: int) -> Tuple[int, ...]:
    return release + (0,) * (size - len(release))
