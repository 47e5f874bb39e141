"""The Fabric Manager that has to run on a host with NVSwitches.

In a container the Fabric Manager is the host's and cannot be seen: what counts there is the state
of each GPU's fabric registration, which NVML says (probes/health.py).
"""

from __future__ import annotations

import re
from typing import Any

from .. import snapshot as s
from ..roots import Root

LOG = "/var/log/fabricmanager.log"
PACKAGES = "/var/lib/dpkg/status"
LIMIT = 32 << 20
PROCESS = "nv-fabricmanage"  # /proc/PID/comm holds fifteen characters

_SAID = re.compile(r"Fabric Manager version is\s*:\s*(\d{3,4}\.\d+(?:\.\d+)?)")
_PACKAGE = re.compile(
    r"^Package: nvidia-fabricmanager[^\n]*\n(?:[^\n]+\n)*?"
    r"Version: (?:\d+:)?(\d{3,4}\.\d+(?:\.\d+)?)",
    re.M,
)


def manager(root: Root) -> s.Fact[Any]:
    """The Fabric Manager of this machine: to be asked on a host with NVSwitches only."""
    running = _running(root)
    found = s.FabricManager(version=_version(root), state=running)
    return s.known(found, "/proc, " + LOG)


def _running(root: Root) -> s.Fact[str]:
    for name in root.names("/proc"):
        if name.isdecimal() and _word(root, f"/proc/{name}/comm") == PROCESS:
            return s.known("running", f"/proc/{name}/comm")
    return s.known("not-running", "/proc/*/comm")


def _version(root: Root) -> s.Fact[str]:
    """By its log, in which each start says it; else by the package."""
    for path, pattern in ((LOG, _SAID), (PACKAGES, _PACKAGE)):
        try:
            found = pattern.findall(root.text(path, LIMIT))
        except OSError:
            continue
        if found:
            return s.known(found[-1], path)
    return s.absent(f"{LOG}, {PACKAGES}")


def _word(root: Root, path: str) -> str:
    found = root.first_text((path,))
    return found[1].strip() if found else ""
