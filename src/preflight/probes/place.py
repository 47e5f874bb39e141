"""A root together with the environment and working directory that names are looked up with."""

from __future__ import annotations

import os
import posixpath
from typing import Iterator, Mapping, NamedTuple

from ..roots import Root

#: Headers, shebangs and metadata are looked for in this many bytes at most.
HEAD = 64 << 10
#: Searches upward stop after this many directories.
LEVELS = 64


class Place(NamedTuple):
    """A root with the environment and working directory that names are looked up with."""

    root: Root
    env: Mapping[str, str]
    cwd: str

    def absolute(self, path: str) -> str:
        """`path` made absolute from the working directory, as `os.path.abspath` would."""
        return posixpath.normpath(posixpath.join(self.cwd, path)).replace("//", "/", 1)


def place(root: Root, env: Mapping[str, str]) -> Place:
    """`root` seen with `env`; the working directory is ours when live, else PWD, else /."""
    cwd = env.get("PWD", "/")
    if root.live:
        try:
            cwd = os.getcwd()
        except OSError:
            pass
    return Place(root, env, cwd if cwd.startswith("/") else "/")


def head(root: Root, path: str, size: int = HEAD) -> str:
    """The beginning of a file as text, "" when it cannot be read."""
    try:
        return root.head(path, size).decode("utf-8", "replace")
    except OSError:
        return ""


def home_directory(at: Place) -> str:
    """HOME, else what the root's /etc/passwd says of our user (of uid 0 in an image)."""
    if "HOME" in at.env:
        return at.env["HOME"]
    uid = str(os.getuid()) if at.root.live else "0"
    for line in head(at.root, "/etc/passwd").split("\n"):
        columns = line.split(":")
        if len(columns) == 7 and columns[2] == uid:
            return columns[5]
    return "/root" if uid == "0" else "/"


def upward(path: str) -> Iterator[str]:
    """`path` and the directories above it; nothing when it is not absolute."""
    for _ in range(min(path.count("/") + 1, LEVELS) if path.startswith("/") else 0):
        yield path
        path = posixpath.dirname(path)
