"""What the text report says of the machine: the GPUs' health and the job's room, in a line each."""

from __future__ import annotations

from typing import List

from .. import snapshot as s

GIB = 1 << 30


def health(snapshot: s.Snapshot) -> str:
    """ "8 GPUs, at most 41 °C, 0.5 GiB in use, 12 NVLinks up, fabric completed"."""
    gpus = snapshot.gpus.get(())
    words = [f"{sum(one.count.get(1) for one in gpus)} GPU(s)"]
    lost = [one for one in gpus if one.lost.known]
    words += [f"{len(lost)} lost"] if lost else []
    hot = [one.temperature.get(0) for one in gpus if one.temperature.known]
    words += [f"at most {max(hot)} °C"] if hot else []
    used = [one.memory_used_gib.get(0.0) for one in gpus if one.memory_used_gib.known]
    words += [f"{sum(used):.1f} GiB in use"] if used else []
    links = [one.nvlinks_up.get(0) for one in gpus if one.nvlinks_up.known]
    words += [f"{min(links)} NVLinks up"] if links else []
    states = sorted({one.fabric_state.get("") for one in gpus if one.fabric_state.known})
    words += ["fabric " + ", ".join(states)] if states else []
    return ", ".join(words)


def host(snapshot: s.Snapshot) -> str:
    """ "16 CPUs, 240 of 256 GiB memory left, 64 MiB shm, 120 GiB disk free"."""
    here, words = snapshot.host, []
    if here.cpus.known:
        words.append(f"{here.cpus.get(0.0):g} CPUs" + (" (quota)" if _by_quota(here) else ""))
    if here.numa_nodes.get(0) > 1:
        words.append(f"{here.numa_nodes.value} NUMA nodes")
    words += _memory(here)
    if here.shm_bytes.known:
        words.append(f"{_size(here.shm_bytes.get(0))} shm")
    if here.disk_free_bytes.known:
        words.append(f"{_size(here.disk_free_bytes.get(0))} disk free")
    files = [one.soft for one in here.limits.get(()) if one.name == "nofile"]
    words += [f"{files[0]} open files"] if files and files[0] >= 0 else []
    return ", ".join(words) or "not looked at"


def _by_quota(here: s.Host) -> bool:
    return here.cpu_quota.known and here.cpu_quota.value == here.cpus.value


def _memory(here: s.Host) -> List[str]:
    limit, used, free = here.memory_limit_bytes, here.memory_used_bytes, here.memory_free_bytes
    if limit.known:
        left = limit.get(0) - used.get(0)
        return [f"{_size(max(0, left))} of {_size(limit.get(0))} memory left"]
    return [f"{_size(free.get(0))} memory free"] if free.known else []


def _size(number: int) -> str:
    return (
        f"{number / GIB:.0f} GiB"
        if number >= 10 * GIB
        else (f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / (1 << 20):.0f} MiB")
    )
