"""The MPS control daemon that CUDA would look for, and whether somebody listens there.

A client looks for the socket `control` in CUDA_MPS_PIPE_DIRECTORY, by default /tmp/nvidia-mps
(MPS documentation, "Environment variables").
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Mapping

from .. import snapshot as s
from ..roots import Root

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
DEFAULT = "/tmp/nvidia-mps"
#: What the kernel says of a socket of another type that somebody has open: that it is there.
_ALIVE = (errno.EPROTOTYPE, errno.EAGAIN)
_DEAD = (errno.ECONNREFUSED,)


def read(root: Root, env: Mapping[str, str]) -> s.Fact[Any]:
    """The MPS daemon of this environment; absent when nothing points at one."""
    given = env.get(VARIABLE, "")
    directory = given or DEFAULT
    control = directory.rstrip("/") + "/control"
    try:
        root.stat(control)
    except OSError as error:
        if not given and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return s.absent(control)
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why: s.Fact[bool] = s.absent(control) if gone else s.unknown(str(error.strerror), control)
        return _found(directory, given, why)
    return _found(directory, given, _listens(control))


def _found(directory: str, given: str, reachable: s.Fact[bool]) -> s.Fact[Any]:
    source = f"environment variable {VARIABLE}" if given else directory
    found = s.Mps(pipe_directory=s.known(directory, source), reachable=reachable)
    return s.known(found, source)


def _listens(control: str) -> s.Fact[bool]:
    """Asks the kernel with a socket of a type that the daemon does not have: it hears nothing."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    source = f"connect to {control}"
    try:
        asking.connect(control)
    except OSError as error:
        if error.errno in _ALIVE:
            return s.known(True, source)
        words = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in _DEAD:
            return s.known(False, f"{source}: {words}")
        return s.unknown(words, source)
    finally:
        asking.close()
    return s.known(True, source)
