"""Rules about the NVLink fabric of NVSwitch systems."""

from __future__ import annotations

from typing import Iterator, List, Optional

from ..matrix import Matrix
from ..snapshot import FabricManager, Snapshot
from . import common, node
from .registry import FAIL, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

NO_MANAGER = FabricManager()
#: States of a Fabric Manager that does not serve the GPUs.
DOWN = ("not-running", "in-progress", "failed")
#: States of a GPU that has not joined its fabric; one that is "not-supported" has none.
UNREGISTERED = ("not-started", "in-progress")


def manager_version_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Fabric Manager and driver versions differ on an NVSwitch system.

    Fabric Manager must be of exactly the kernel driver's version: another one ends when it
    starts, and every CUDA call gets error 802. Where the GPUs have completed their registration
    another file on the disk does not matter, and an image's own copy never does: it is the
    host's that runs.

    Fix: the Fabric Manager package of the driver's exact version, on the node.
    """
    manager = s.driver.fabric_manager.get(NO_MANAGER)
    version, driver = manager.version, s.driver.version
    if not s.driver.fabric_manager.known:
        yield _unseen(s)
    elif not version.known:
        yield Undecided(("driver.fabric_manager",), "which version the Fabric Manager is")
    elif not driver.known:
        yield Undecided(("driver.version",), "whether Fabric Manager is of the driver's version")
    elif version.value == driver.value:
        proof = evidence(s, "driver.version", "driver.fabric_manager")
        yield Passed(f"Fabric Manager is {version.value} too", "", proof)
    elif manager.state.value == "running" or _registered(s, m):
        yield NotApplicable("the fabric is up: another Fabric Manager serves it")
    else:
        yield Finding(
            summary=f"Fabric Manager {version.value} does not serve driver {driver.value}",
            observed=f"Fabric Manager {version.value}, driver {driver.value}",
            needed=f"Fabric Manager {driver.value}",
            why="It refuses a driver of any other version: the NVSwitches stay down, and CUDA "
            "answers error 802 (system not yet initialized).",
            fix=(
                f"on the node: sudo apt-get install nvidia-fabricmanager-"
                f"{(driver.value or '').partition('.')[0]}={driver.value}-1; "
                "sudo systemctl restart nvidia-fabricmanager",
                "another node: nothing in the image helps",
            ),
            evidence=evidence(s, "driver.version", "driver.fabric_manager"),
        )


def not_ready(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """An NVSwitch system whose fabric is not up (CUDA error 802).

    On these systems every GPU registers with the fabric, also one that is alone in its container.
    Until that is completed cuInit ends with error 802, while nvidia-smi shows nothing wrong. NVML
    tells the state of GPUs from Hopper on; on a host with NVSwitches the process of the Fabric
    Manager tells it. A completed registration that ended with an error fails a job on several
    GPUs and warns one on a single GPU; degraded routes warn.

    Fix: on the node `systemctl restart nvidia-fabricmanager`; else another node.
    """
    devices = node.gpus_used(s, m, "whether the fabric is up")
    if not isinstance(devices, list) and isinstance(devices, NotApplicable):
        yield devices
        return
    gpus = devices if isinstance(devices, list) else []
    waiting = [one for one in gpus if one.gpu.fabric_state.value in UNREGISTERED]
    manager = s.driver.fabric_manager.get(NO_MANAGER)
    registered = [one for one in gpus if one.gpu.fabric_state.value == "completed"]
    if waiting:
        states = ", ".join(sorted({one.gpu.fabric_state.get("") for one in waiting}))
        yield _down(s, waiting, f"fabric registration is {states}")
    elif registered:
        yield from _completed(s, registered)
    elif manager.state.get("") in DOWN:
        yield _down(s, gpus, f"Fabric Manager is {manager.state.value}")
    elif manager.state.known:
        yield Passed("Fabric Manager runs", "", evidence(s, "driver.fabric_manager"))
    else:
        yield _unseen(s)


def _down(s: Snapshot, gpus: List[common.Device], what: str) -> Finding:
    who = common.labels(gpus) or "the GPUs"
    return Finding(
        summary=f"the NVLink fabric is not up: {what} ({who})",
        observed=what,
        needed="registration completed, by a Fabric Manager that runs on the node",
        why="Until then cuInit ends with error 802 (system not yet initialized); nvidia-smi shows "
        "nothing wrong, and nothing in the image helps.",
        fix=(
            "on the node: sudo systemctl restart nvidia-fabricmanager; journalctl -u "
            "nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
            "another node, or later: a node that has just booted needs some minutes",
        ),
        evidence=evidence(
            s, "driver.fabric_manager", *(one.place + ".fabric_state" for one in gpus)
        ),
    )


def _completed(s: Snapshot, gpus: List[common.Device]) -> Iterator[Outcome]:
    wrong = [one for one in gpus if one.gpu.fabric_error.known]
    degraded = [one for one in gpus if one.gpu.fabric_degraded.get(())]
    several = (node.ranks(s).size or 1) > 1
    if not wrong and not degraded:
        places = [one.place + ".fabric_state" for one in gpus[:2]]
        yield Passed("the fabric is up", "", evidence(s, *places))
        return
    first = (wrong or degraded)[0]
    words = first.gpu.fabric_error.value or ", ".join(first.gpu.fabric_degraded.get(()))
    yield Finding(
        summary=f"the NVLink fabric came up with a fault: {words} "
        f"({', '.join(node.number(one) for one in wrong or degraded)})",
        observed=f"registration completed, {words}",
        needed="registration completed without an error, all routes whole",
        why="Between these GPUs NVLink is missing or slower: collectives fail or take longer.",
        fix=(
            "another node; on this one: nvidia-smi -q | grep -A8 Fabric, then restart "
            "nvidia-fabricmanager or reset the GPUs",
        ),
        evidence=evidence(
            s,
            *(one.place + ".fabric_error" for one in wrong),
            *(one.place + ".fabric_degraded" for one in degraded),
        ),
        severity=FAIL if wrong and several else WARN,
    )


def _registered(s: Snapshot, m: Matrix) -> bool:
    states = [one.gpu.fabric_state for one in common.devices(s, m) if one.gpu.fabric_state.known]
    return bool(states) and all(one.value == "completed" for one in states)


def _unseen(s: Snapshot) -> Outcome:
    """No fabric is told of: there is none, or it is the host's and these GPUs cannot tell."""
    switches: Optional[int] = s.host.nvswitches.value
    if not switches and s.origin == "live":
        return NotApplicable("no NVSwitch is here")
    return Undecided(("driver.fabric_manager",), "whether this is an NVSwitch system that is up")
