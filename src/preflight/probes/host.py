"""What this process may use of its machine: shared memory, memory, CPUs, limits, PID 1.

Inside a container the cgroup's numbers count, not the machine's. Cheap: some twenty small files
of the kernel.
"""

from __future__ import annotations

import os
import resource
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .. import snapshot as s
from ..roots import Root
from . import cgroups, mps, processes

SHM = "/dev/shm"
MEMORY = "/proc/meminfo"
NODES = "/sys/devices/system/node"
LIMITS = (
    ("nofile", resource.RLIMIT_NOFILE),
    ("memlock", resource.RLIMIT_MEMLOCK),
    ("core", resource.RLIMIT_CORE),
    ("nproc", resource.RLIMIT_NPROC),
)


def read(root: Root, env: Mapping[str, str], command: Sequence[str] = ()) -> s.Snapshot:
    """The facts of the running machine. To be called in a child of preflight."""
    ours = processes.preflight()
    limits = _limits()
    memory = cgroups.memory(root)
    quota, allowed = cgroups.cpu_quota(root), _allowed()
    return s.Snapshot(
        host=s.Host(
            **_shm(root),
            **_memory(root, memory),
            **_cpus(quota, allowed),
            cgroup=_version(root),
            numa_nodes=_nodes(root),
            limits=s.known(tuple(limits), "getrlimit"),
            memlock_kib=_memlock(limits),
            first_process=processes.first(root, ours, command),
            below_shell=processes.below_shell(root, ours),
        ),
        driver=s.Driver(mps=mps.read(root, env)),
    )


def _shm(root: Root) -> Dict[str, s.Fact[Any]]:
    try:
        seen = os.statvfs(root.on_host(SHM))
    except OSError as error:
        lost: s.Fact[int] = s.unknown(error.strerror or "statvfs failed", SHM)
        return {"shm_bytes": lost, "shm_free_bytes": lost}
    source = f"statvfs of {SHM}"
    return {
        "shm_bytes": s.known(seen.f_blocks * seen.f_frsize, source),
        "shm_free_bytes": s.known(seen.f_bavail * seen.f_frsize, source),
    }


def _memory(root: Root, found: Optional[cgroups.Memory]) -> Dict[str, s.Fact[Any]]:
    free = _available(root)
    if found is None:
        none: s.Fact[int] = s.absent(cgroups.OWN)
        return {"memory_limit_bytes": none, "memory_free_bytes": free}
    known = {
        "memory_limit_bytes": s.absent(found.source)
        if found.limit is None
        else s.known(found.limit, found.source),
        "memory_free_bytes": free,
    }
    if found.used is not None:
        known["memory_used_bytes"] = s.known(found.used, found.source.rpartition("/")[0])
    return known


def _available(root: Root) -> s.Fact[int]:
    found = root.first_text((MEMORY,))
    for line in found[1].splitlines() if found else ():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and len(words) == 3 and words[1].isdecimal():
            return s.known(int(words[1]) * 1024, f"{MEMORY} (MemAvailable)")
    return s.unknown("no MemAvailable", MEMORY)


def _cpus(quota: s.Fact[float], allowed: int) -> Dict[str, s.Fact[Any]]:
    """The smaller of the CPUs we may run on and the time we may use."""
    affinity = "sched_getaffinity"
    less = quota.known and quota.get(0.0) < allowed
    cpus = s.known(quota.get(0.0), quota.source) if less else s.known(float(allowed), affinity)
    return {"cpus": cpus, "cpu_quota": quota, "cpu_set": s.known(allowed, affinity)}


def _allowed() -> int:
    return len(os.sched_getaffinity(0))


def _version(root: Root) -> s.Fact[str]:
    found = cgroups.group(root, "memory") or cgroups.group(root, "cpu")
    return s.known(found.version, found.top) if found else s.absent(cgroups.OWN)


def _nodes(root: Root) -> s.Fact[int]:
    nodes = [one for one in root.names(NODES) if one.startswith("node") and one[4:].isdecimal()]
    return s.known(len(nodes), NODES) if nodes else s.absent(NODES)


def _limits() -> List[s.Limit]:
    rows = []
    for name, number in LIMITS:
        soft, hard = resource.getrlimit(number)
        rows.append(s.Limit(name, soft, hard))  # RLIM_INFINITY is -1
    return rows


def _memlock(limits: Sequence[s.Limit]) -> s.Fact[int]:
    """In KiB as `ulimit -l`; without a limit the largest there is, so that it compares as one."""
    soft = next(one.soft for one in limits if one.name == "memlock")
    largest = (1 << 64) - 1
    return s.known((largest if soft < 0 else soft) >> 10, "getrlimit(RLIMIT_MEMLOCK)")
