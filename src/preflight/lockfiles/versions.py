"""Versions and specifiers, compared as pip does (PEP 440), with packaging."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=8192)
def satisfies(version: str, spec: str) -> bool:
    """Whether a version meets a specifier, pre-releases allowed; True where either is no PEP 440.

    As for pip, "==2.6.0" takes 2.6.0+cu124, and "==2.6.0+cu124" takes nothing else.
    """
    if spec in ("", "==" + version):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return bool(SpecifierSet(spec).contains(version, prereleases=True))
    except (InvalidSpecifier, InvalidVersion):
        return True
