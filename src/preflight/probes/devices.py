"""Whether the NVIDIA device nodes may be opened. Only in a child: a driver that is stuck hangs."""

from __future__ import annotations

import errno
import os
import re
from typing import List

from .. import snapshot as s

DIRECTORY = "/dev"
CONTROL = "nvidiactl"
_NODE = re.compile(r"^nvidia\d+$")


def openable(directory: str = DIRECTORY) -> s.Fact[bool]:
    """Whether the device nodes can be opened; absent when there are none.

    A device cgroup that denies them shows only when one is opened. That is done with nvidiactl,
    which starts nothing; opening nvidia0 would wake the GPU. Of the others the permissions tell.
    """
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        return s.unknown(error.strerror or "cannot be listed", directory)
    nodes = [f"{directory}/{one}" for one in names if _NODE.match(one)]
    control = f"{directory}/{CONTROL}"
    if CONTROL not in names:
        return s.absent(control)
    try:
        os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        words = error.strerror or "cannot be opened"
        if error.errno in (errno.EPERM, errno.EACCES):
            return s.known(False, f"open {control}: {words}")
        return s.unknown(words, f"open {control}")
    return _permissions(nodes, control)


def _permissions(nodes: List[str], control: str) -> s.Fact[bool]:
    closed = [one for one in nodes if not os.access(one, os.R_OK | os.W_OK)]
    if nodes and len(closed) == len(nodes):
        return s.known(False, f"access {closed[0]}: Permission denied")
    return s.known(True, f"open {control}")
