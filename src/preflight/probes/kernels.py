"""The GPU code inside torch and the compiled modules that need it: read from the files."""

from __future__ import annotations

import posixpath
import re
from typing import Collection, Dict, Iterator, List, Optional

from .. import snapshot as s
from ..binary import elf, fatbin
from ..binary.loader import OURS
from ..roots import Root
from .compiled import extensions

#: In at least this share of a file's fatbins: what its kernels have in common.
COMMON = 0.95
#: Where torch says which architectures it was built for (torch.cuda.get_arch_list), and how.
LISTING, LISTED = "libtorch_python.so", re.compile(rb"sm_\d+[af]?(?: (?:sm|compute)_\d+[af]?)*\0")
#: Its texts have 1 MB.
TEXTS_LIMIT = 32 << 20


def read(root: Root, python: s.PythonEnv, torch: s.Framework) -> s.Snapshot:
    """For which architectures each file has machine code or PTX; files without any are left out."""
    code = list(_torch(root, torch))
    for owner, paths in extensions(root, python).items():
        code += [one for one in (code_of(root, path, owner) for path in paths) if one]
    return s.Snapshot(code=s.known(tuple(code), ".nv_fatbin"))


def _torch(root: Root, torch: s.Framework) -> Iterator[s.Code]:
    folder = posixpath.join(torch.path.get(""), "lib")
    names = [n for n in root.names(folder) if n.startswith(("libtorch", "libcaffe2"))]
    own = _own(root, f"{folder}/{LISTING}")
    for name in names:
        code = code_of(root, f"{folder}/{name}", "torch", "linalg" not in name, own)
        if code:
            yield code


def _own(root: Root, path: str) -> List[str]:
    """The architectures of torch's own kernels; none where it does not say.

    cuBLAS, cuDNN, NCCL and others that are linked into it have other lists, and choose by
    themselves: they may have more fatbins than torch (1.12.1+cu102) and nothing in common.
    """
    try:
        with elf.ElfFile(root.on_host(path)) as file:
            place = file.section(".rodata")
            size = min(place.size, TEXTS_LIMIT) if place else 0
            data = file.data[place.offset : place.offset + size] if place else b""
    except elf.BadElf:
        return []
    except OSError as error:
        if error.errno in OURS:
            raise
        return []
    data = b"\0" + data
    found = [one for one in LISTED.finditer(data) if not data[one.start() - 1]]
    longest = max((one.group()[:-1] for one in found), key=len, default=b"")
    return longest.decode().split()


def code_of(
    root: Root, path: str, owner: str, main: bool = True, own: Collection[str] = ()
) -> Optional[s.Code]:
    """The GPU code of a file; None when there is none. `own`: what the owner says it is built for.

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
    common = tuple(n for n, count in counts.items() if count >= COMMON * total or n in own)
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
