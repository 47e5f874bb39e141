"""The GPU code inside torch and the compiled modules that need it: read from the files."""

from __future__ import annotations

import posixpath
from typing import Dict, Iterator, Optional

from .. import snapshot as s
from ..binary import elf, fatbin
from ..binary.loader import OURS
from ..roots import Root
from .compiled import extensions

#: In at least this share of a file's fatbins: what its kernels have in common.
COMMON = 0.95


def read(root: Root, python: s.PythonEnv, torch: s.Framework) -> s.Snapshot:
    """For which architectures each file has machine code or PTX; files without any are left out."""
    code = list(_torch(root, torch))
    for owner, paths in extensions(root, python).items():
        code += [one for one in (code_of(root, path, owner) for path in paths) if one]
    return s.Snapshot(code=s.known(tuple(code), ".nv_fatbin"))


def _torch(root: Root, torch: s.Framework) -> Iterator[s.Code]:
    folder = posixpath.join(torch.path.get(""), "lib")
    names = [n for n in root.names(folder) if n.startswith(("libtorch", "libcaffe2"))]
    for name in names:
        code = code_of(root, f"{folder}/{name}", "torch", main="linalg" not in name)
        if code:
            yield code


def code_of(root: Root, path: str, owner: str, main: bool = True) -> Optional[s.Code]:
    """The GPU code of a file; None when there is none.

    Raises OSError where it could not be read for want of our own.
    """
    try:
        kernels = fatbin.read(root.on_host(path))
    except elf.BadElf:
        return None
    except OSError as error:
        if error.errno in OURS:  # not read is not "none in it"
            raise
        return None
    total = kernels.fatbins
    if not total:
        return None
    counts: Dict[str, int] = {}
    for group, count in kernels.groups.items():
        for one in group:
            counts[one] = counts.get(one, 0) + count
    common = tuple(one for one, count in counts.items() if count >= COMMON * total)
    partly = tuple(one for one in counts if one not in common)
    source = f"{path} (.nv_fatbin)"
    return s.Code(
        file=s.known(path.rpartition("/")[2], path),
        owner=s.known(owner, path),
        targets=s.known(common, source),
        partly=s.known(partly, source),
        fatbins=s.known(total, source),
        # A handful of kernels beside hundreds is for some operations only.
        main=s.known(main and total > 4, source),
    )
