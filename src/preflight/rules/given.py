"""Rules about what the container runtime gave: driver libraries, device access."""

from __future__ import annotations

from typing import Iterator, Set

from ..matrix import Matrix
from ..snapshot import Snapshot
from . import common, node
from .registry import FAIL, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


def driver_capabilities_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NVIDIA_DRIVER_CAPABILITIES leaves out compute or utility.

    The NVIDIA runtime mounts libcuda for `compute`, libnvidia-ml for `utility`; without the
    variable early releases took `utility` alone. What is there decides, since CDI and other
    runtimes do not read the variable: it fails when GPUs were given and libcuda was not. Without
    libnvidia-ml NCCL does not start: that fails a job with several ranks and warns others. Of an
    image whose runtime is not known yet it warns.

    Fix: NVIDIA_DRIVER_CAPABILITIES=compute,utility (docker run -e, or ENV in the image).
    """
    wanted, hidden = common.gpu_wanted(s, m), common.gpu_hidden(s)
    given = s.variable(CAPABILITIES)
    named = {one.strip() for one in given.get("").split(",") if one.strip()}
    every = "all" in named
    if hidden:
        yield NotApplicable(hidden)
    elif s.os.container.value is False:
        yield NotApplicable("not in a container")
    elif s.driver.libcuda.value in ("host", "compat"):
        yield from _utility(s, every or "utility" in named or not given.known)
    elif s.driver.libcuda.value == "missing" and _given_gpus(s) and not (every or _has(named)):
        yield _missing(s, "compute", "no libcuda.so.1, though GPUs were given", FAIL)
    elif given.known and not every and not _has(named) and s.driver.libcuda.value != "missing":
        if s.origin == "directory" or (wanted and s.driver.libcuda.looked):
            yield _missing(s, "compute", f"{CAPABILITIES}={given.value}", WARN)
        else:
            yield Undecided(("driver.libcuda",), "whether libcuda is mounted all the same")
    elif given.known:
        yield Passed(f"{CAPABILITIES}={given.value}", "", evidence(s, "env." + CAPABILITIES))
    else:
        yield NotApplicable(f"{CAPABILITIES} is not set, or no GPU was given")


def _has(named: Set[str]) -> bool:
    return "compute" in named


def _given_gpus(s: Snapshot) -> bool:
    """Whether this container was given GPUs: by its device nodes, else by what answers."""
    if s.driver.device_nodes.known:
        return any(one.startswith("/dev/nvidia") for one in s.driver.device_nodes.get(()))
    asked = s.variable("NVIDIA_VISIBLE_DEVICES").get("").strip() not in ("", "void", "none")
    return asked and bool(s.driver.visible.value or s.driver.nvml.value == "ok")


def _utility(s: Snapshot, told: bool) -> Iterator[Outcome]:
    """libcuda is there; whether libnvidia-ml is, NVML's own answer says."""
    proof = evidence(s, "driver.libcuda", "env." + CAPABILITIES)
    answer = s.driver.nvml.get("")
    if told or "Not Found" not in answer or s.driver.libcuda.assumed:
        yield Passed("libcuda was mounted", "", proof)
        return
    several = (node.ranks(s).size or 1) > 1
    yield _missing(s, "utility", f"libnvidia-ml is not there ({answer})", FAIL if several else WARN)


def _missing(s: Snapshot, what: str, seen: str, severity: str) -> Finding:
    library = {"compute": "libcuda.so.1", "utility": "libnvidia-ml.so.1"}[what]
    value = s.variable(CAPABILITIES).value
    return Finding(
        summary=f"{CAPABILITIES}{f'={value}' if value else ' is not set'}: the driver's {library} "
        f"is not mounted without {what}",
        observed=seen,
        needed=f"{CAPABILITIES}=compute,utility (or all)",
        why="CUDA finds no driver: 'Found no NVIDIA driver', though nvidia-smi works."
        if what == "compute"
        else "NCCL needs NVML to start: 'Failed to open libnvidia-ml.so.1'.",
        fix=(
            f"docker run -e {CAPABILITIES}=compute,utility …",
            f"Dockerfile: ENV {CAPABILITIES}=compute,utility",
        ),
        evidence=evidence(
            s, "env." + CAPABILITIES, "env.NVIDIA_VISIBLE_DEVICES", "driver.libcuda",
            "driver.nvml", "driver.device_nodes",
        ),
        severity=severity,
    )  # fmt: skip


def device_access_denied(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Device nodes are there but may not be opened (device cgroup, permissions).

    systemd rewrites the device cgroup of a running container on `daemon-reload` where Docker uses
    the systemd driver: from then on every open of /dev/nvidiactl is refused and NVML says
    "Unknown Error". The same happens with --device left out, or without permission for the user.

    Fix: start the container again; for good, --device for each node, CDI, or the cgroupfs driver.
    """
    hidden, openable = common.gpu_hidden(s), s.driver.devices_openable
    if hidden:
        yield NotApplicable(hidden)
    elif openable.value is True:
        proof = evidence(s, "driver.devices_openable")
        yield Passed("the NVIDIA devices can be opened", "", proof)
    elif openable.absent or s.driver.device_nodes.value == ():
        yield NotApplicable("no NVIDIA device node is here")
    elif openable.unknown:
        yield Undecided(("driver.devices_openable",), "whether the device nodes can be opened")
    else:
        yield Finding(
            summary="the NVIDIA device nodes are here and may not be opened",
            observed="opening is refused: " + (openable.source or "by what was told"),
            needed="/dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidiaN that this process may open",
            why="The device cgroup denies them (often since systemctl daemon-reload on the node), "
            "or this user has no permission: NVML says Unknown Error, CUDA finds no device.",
            fix=(
                "start the container again (docker restart, or delete the pod)",
                "for good: docker run --device /dev/nvidiactl --device /dev/nvidia-uvm --device "
                "/dev/nvidia0 …, or CDI (--device nvidia.com/gpu=all)",
                "permissions: ls -l /dev/nvidia*; add the user to their group",
            ),
            evidence=evidence(s, "driver.devices_openable", "driver.device_nodes", "driver.nvml"),
        )
