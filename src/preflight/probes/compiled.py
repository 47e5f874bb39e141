"""Compiled modules of a Python environment, and whose they are: by the files, nothing imported."""

from __future__ import annotations

import re
from itertools import islice
from typing import Dict, Iterator, List

from .. import snapshot as s
from ..binary import elf
from ..roots import Root
from .distributions import Distribution, distributions, normalize

#: Modules looked at for code that needs torch or CUDA, over all distributions.
MODULE_LIMIT = 4000
EXTENSION_LIMIT = 400
#: Below a top-level package; deeper modules are rare.
DEPTH = 4
_TAGGED = re.compile(r"\.(cpython-\w+|pypy\w+|abi3)(-[\w-]+)?\.so$")
_NEEDS = ("libtorch", "libc10", "libcudart.so")
#: torch and what it brings is looked at for itself; the others need neither torch nor CUDA.
_ELSEWHERE = ("torch", "nvidia", "triton", "numpy", "scipy", "functorch")


def extensions(root: Root, python: s.PythonEnv) -> Dict[str, List[str]]:
    """{distribution: its compiled modules that need torch or CUDA}, others than torch's own."""
    by_owner: Dict[str, List[str]] = {}
    owners: Dict[str, str] = {}
    for path in islice(_needing(root, python), EXTENSION_LIMIT):
        owners = owners or _owners(root, python)
        by_owner.setdefault(_owner(path, python, owners), []).append(path)
    return by_owner


def modules_of(root: Root, python: s.PythonEnv, name: str) -> Iterator[str]:
    """The compiled modules of a top-level package or module on sys.path."""
    top = name.replace("-", "_").split(".")[0]
    for entry in python.path.get(()):
        for one in root.names(entry):
            if one == top or one.startswith(top + "."):
                yield from _shared(root, entry, one)


def is_module(root: Root, path: str) -> bool:
    """Whether Python can import a .so file by its name: by its tag, else by its PyInit_ symbol.

    Of a damaged file without a tag, nobody knows: then a library is what is called lib*.
    """
    name = path.rpartition("/")[2]
    if _TAGGED.search(name):
        return True
    stem = name[: -len(".so")]
    if not name.endswith(".so") or not stem.isidentifier():
        return False
    try:
        with elf.ElfFile(root.on_host(path)) as file:
            return any(one.defined for one in file.lookup(b"PyInit_" + stem.encode()))
    except (OSError, elf.BadElf):
        return not stem.startswith("lib")


def _needing(root: Root, python: s.PythonEnv) -> Iterator[str]:
    for path in islice(_all(root, python), MODULE_LIMIT):
        try:
            with elf.ElfFile(root.on_host(path)) as file:
                needs = any(one.startswith(_NEEDS) for one in file.needed)
        except (OSError, elf.BadElf):
            continue
        if needs:
            yield path


def _all(root: Root, python: s.PythonEnv) -> Iterator[str]:
    for entry in python.path.get(()):
        for name in root.names(entry):
            if name not in _ELSEWHERE:
                yield from _shared(root, entry, name)


def _shared(root: Root, folder: str, name: str) -> Iterator[str]:
    """The .so files that `name` in a folder is, or has below it."""
    waiting = [(folder, [name], DEPTH)]
    while waiting:
        at, names, depth = waiting.pop()
        for one in names:
            if "." not in one:
                if depth and one != "__pycache__":
                    below = f"{at}/{one}"
                    waiting.append((below, root.names(below), depth - 1))
            elif (one.endswith(".so") or ".so." in one) and root.is_file(f"{at}/{one}"):
                yield f"{at}/{one}"


def _owner(path: str, python: s.PythonEnv, owners: Dict[str, str]) -> str:
    for entry in python.path.get(()):
        if path.startswith(entry + "/"):
            top = path[len(entry) + 1 :].split("/")[0].split(".")[0]
            return owners.get(top, normalize(top))
    return path.rpartition("/")[2]


def _owners(root: Root, python: s.PythonEnv) -> Dict[str, str]:
    """{top-level name: distribution}, by top_level.txt and by likeness of names."""
    found: Dict[str, str] = {}
    try:
        installed: List[Distribution] = distributions(root, python.path.get(()))
    except OSError:
        return found
    for one in installed:
        name = normalize(one.name)
        text = root.first_text((f"{one.where}/top_level.txt",))
        for top in (text[1].split() if text else []) + [name.replace("-", "_")]:
            found.setdefault(top, name)
    return found
