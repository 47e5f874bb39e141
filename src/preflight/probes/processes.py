"""PID 1 of this container, and whether a shell stands between it and us."""

from __future__ import annotations

import os
import posixpath
import signal
from typing import Dict, Sequence

from .. import snapshot as s
from ..roots import Root

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")
LEVELS = 64


def first(root: Root, ours: int, command: Sequence[str]) -> s.Fact[str]:
    """The program of PID 1, by name. `ours`: preflight's own PID, which `command` will take."""
    if ours == 1:
        name = posixpath.basename(command[0]) if command else "preflight"
        return s.known(name or "preflight", "PID 1 is this process")
    found = root.first_text(("/proc/1/cmdline",))
    name = posixpath.basename(found[1].partition("\0")[0]) if found else ""
    if name:
        return s.known(name.lstrip("-"), "/proc/1/cmdline")
    found = root.first_text(("/proc/1/comm",))
    if found and found[1].strip():
        return s.known(found[1].strip(), "/proc/1/comm")
    return s.unknown("PID 1 cannot be seen", "/proc/1")


def below_shell(root: Root, ours: int) -> s.Fact[bool]:
    """Whether PID 1 is a shell that waits for us and has no handler for SIGTERM.

    The kernel drops a signal to PID 1 that has no handler (man 7 pid_namespaces), and a shell
    passes none on while it waits.
    """
    if ours == 1:
        return s.known(False, "PID 1 is this process")
    status = _status(root, 1)
    name = first(root, ours, ()).get("")
    if not status or not name:
        return s.unknown("PID 1 cannot be seen", "/proc/1/status")
    if name not in SHELLS:
        return s.known(False, "/proc/1/cmdline")
    caught = int(status.get("SigCgt", "0") or "0", 16) >> (signal.SIGTERM - 1) & 1
    return s.known(not caught and _descends(root, ours), "/proc/1/status (SigCgt), parents")


def _descends(root: Root, pid: int) -> bool:
    """Whether PID 1 is among the parents: `docker exec` and the like come from outside."""
    for _ in range(LEVELS):
        if pid == 1:
            return True
        parent = _status(root, pid).get("PPid", "")
        if not parent.isdecimal() or parent == "0":
            return False
        pid = int(parent)
    return False


def _status(root: Root, pid: int) -> Dict[str, str]:
    found = root.first_text((f"/proc/{pid}/status",))
    pairs = [line.partition(":") for line in found[1].splitlines()] if found else []
    return {name: value.strip() for name, _, value in pairs}


def preflight() -> int:
    """The PID of preflight itself, asked by one of its probes, which is a child of it."""
    return os.getppid()
