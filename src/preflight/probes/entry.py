"""Whether a command can be executed: the file, its first line, and the program named there.

As the kernel does it (execve(2)): the x permission, then a program of this machine, or "#!" with
an interpreter and one argument; blanks at the end of that line do not count, a carriage return
does. What `env NAME` looks for on PATH the kernel does not check: such a script starts, and ends
with 127.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple, Optional, Sequence

from .place import Place

#: As the kernel: so much of a file is looked at.
LINE = 256
#: Interpreters that are scripts themselves.
DEPTH = 4
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Problem(NamedTuple):
    """Why a command does not run; `starts`: the kernel starts it all the same."""

    words: str
    starts: bool


def problem(at: Place, command: Sequence[str]) -> Optional[Problem]:
    """What keeps `command` from running in this root; None when nothing does."""
    if not command or not command[0]:
        return Problem("no command is given", False)
    path = _find(at, command[0])
    if not path:
        return Problem(f"{command[0]} is not there", False)
    return _executable(at, path, DEPTH)


def _find(at: Place, name: str) -> str:
    """The file that a name stands for, as execvp looks for it; "" where there is none."""
    if "/" in name:
        path = at.absolute(name)
        return path if at.root.exists(path) else ""
    for directory in at.env.get("PATH", DEFAULT_PATH).split(":"):
        path = at.absolute(posixpath.join(directory or ".", name))
        if at.root.is_file(path) and at.root.stat(path).st_mode & 0o111:
            return path
    return ""


def _executable(at: Place, path: str, depth: int) -> Optional[Problem]:
    if not at.root.is_file(path):
        return Problem(f"{path} is no file", False)
    if not at.root.stat(path).st_mode & 0o111:
        return Problem(f"{path} has no x permission", False)
    try:
        start = at.root.head(path, LINE)
    except OSError:
        return None  # it may be executed without being readable
    if start[:2] != b"#!":
        known = start[:4] == b"\x7fELF"
        return None if known else Problem(f"{path} is no program and has no #! line", False)
    return _interpreter(at, path, start, depth)


def _interpreter(at: Place, path: str, start: bytes, depth: int) -> Optional[Problem]:
    line = start[2:].partition(b"\n")[0].decode("utf-8", "replace").strip(" \t")
    name, _, argument = line.replace("\t", " ").partition(" ")
    said = f"{path} begins with #!{line!r}"
    if not name:
        return Problem(f"{path} has a #! line without an interpreter", False)
    if not at.root.exists(at.absolute(name)):
        return Problem(f"{said}: {name!r} is not there", False)
    inner = _executable(at, at.absolute(name), depth - 1) if depth else None
    if inner:
        return inner
    wanted = argument.strip(" \t")
    if posixpath.basename(name) != "env" or not wanted or wanted[0] == "-" or "=" in wanted:
        return None
    # One argument: env looks for a program whose name has the rest of the line in it.
    return None if _find(at, wanted) else Problem(f"{said}: env finds no {wanted!r}", True)
