"""The parts that libcudnn.so.9 opens when it is first called: whether they would be found.

It is a front that passes calls on, to libraries that no DT_NEEDED names. A copy of it alone is
loaded without complaint; its first call ends the process: 'Unable to load any of
{libcudnn_graph.so.9.10.2, …}', 'Invalid handle. Cannot load symbol cudnnGetVersion'.
"""

from __future__ import annotations

from typing import List, Optional

from ..binary import elf
from ..binary.loader import NOT_FOUND, Object, Problem, Process

FRONT = "libcudnn.so.9"
#: In the order in which a first use meets them.
PARTS = ("libcudnn_graph", "libcudnn_ops", "libcudnn_cnn", "libcudnn_adv")


def lost(process: Process) -> List[Problem]:
    """The parts that the cuDNN of a process would not find, in the loader's words.

    Where the first one is lost nobody comes to the next. Raises OSError where files cannot be
    looked at.
    """
    front = next((one for one in process.objects if one.linkage.soname == FRONT), None)
    if front is None:
        return []
    found = []
    for stem in PARTS:
        problem = _lost(process, front, stem)
        if problem:
            found.append(problem)
            if stem == PARTS[0]:
                break
    return found


def _lost(process: Process, front: Object, stem: str) -> Optional[Problem]:
    """It tries the full version, then less of it; only the name with the major is shipped."""
    if not _names(front, stem):
        return None  # a front that is none, or of another make
    name = f"{stem}.so.9"
    if any(one.called(name) or one.linkage.soname == name for one in process.objects):
        return None
    hits = process.candidates(name, front)
    if not hits:
        return Problem("library", name, NOT_FOUND, name, front.path)
    first = hits[0]
    if first.file.problem:
        return Problem("library", first.path, first.file.problem, name, front.path)
    return None


def _names(front: Object, stem: str) -> bool:
    try:
        with elf.map_file(front.file.host_path) as data:
            return data.find(stem.encode() + b".so") >= 0
    except elf.BadElf:
        return False
