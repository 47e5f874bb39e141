"""A lock file as the snapshot's record, also one that cannot be read or is only described."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Optional, Tuple

from .. import snapshot as s
from . import read
from .applying import Target, record
from .model import CONSTRAINTS, LOCK, REQUIREMENTS, BadLock, NeedsLibrary, NoLock, Parsed, normalize


def load(
    path: str, data: bytes, target: Target, named: bool = False, role: str = ""
) -> Tuple[s.Lock, Optional[Parsed]]:
    """The record of a file, and what was parsed; a file that cannot be read says why.

    `role`: what it is taken for, where that is not the file's own (`-c`, PIP_CONSTRAINT).
    Raises NoLock for a file that nobody names and that is something else.
    """
    try:
        parsed = read(path, data)
    except NoLock as error:
        if not named:
            raise
        return broken(path, error, named, role), None
    except BadLock as error:
        return broken(path, error, named, role), None
    role = role or _by_name(posixpath.basename(path), parsed)
    made = record(parsed._replace(role=role or parsed.role), path, target, named)
    return made, parsed


def _by_name(name: str, parsed: Parsed) -> str:
    """What the name of a requirements file says of it; empty: nothing."""
    if re.match(r"constraints?\b", name):
        return CONSTRAINTS
    pinned = all(one.spec.startswith("==") or one.url for one in parsed.entries)
    return LOCK if parsed.role == REQUIREMENTS and "lock" in name and pinned else ""


def broken(path: str, error: BadLock, named: bool = False, role: str = "") -> s.Lock:
    """The record of a lock file that cannot be read."""
    made = s.Lock(
        path=s.known(path, path),
        named=s.known(named, path),
        role=s.known(role, path) if role else s.UNKNOWN,
    )
    if isinstance(error, NeedsLibrary):
        return replace(made, entries=s.unknown(str(error), path))
    return replace(made, problem=s.known(str(error), path), entries=s.unknown(str(error), path))


def described(given: s.Lock, target: Target) -> s.Lock:
    """A described lock with its entries: of its text, else of its pins."""
    path = given.path.get("lock")
    if given.entries.known or given.problem.known:
        return given
    if given.text.known:
        data = given.text.get("").encode("utf-8", "surrogatepass")
        made, _parsed = load(path, data, target, named=True)
    elif given.pins.known:
        pins = tuple(_pin(name, spec) for name, spec in given.pins.get({}).items())
        made = s.Lock(entries=s.known(pins, path), role=s.known(REQUIREMENTS, path))
    else:
        return given
    # Whether somebody named it is not said of a described one.
    made = replace(made, named=s.UNKNOWN)
    said = {name: one for name, one in vars(given).items() if one != s.UNKNOWN}
    return replace(made, **said)


def _pin(name: str, spec: str) -> s.Pin:
    """ "2.0.1" is what "==2.0.1" is in a description."""
    spec = spec.strip()
    return s.Pin(normalize(name), f"=={spec}" if spec[:1].isdigit() else spec)
