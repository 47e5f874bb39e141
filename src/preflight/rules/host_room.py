"""Rules about the room a job has on its node: disk, memory, CPUs, open files."""

from __future__ import annotations

from typing import Iterator, List, Optional

from ..matrix import Matrix
from ..snapshot import Disk, Snapshot
from . import common, node
from .node import GIB, amount
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: Compile caches, logs and temporary files of a training job need about this much.
DISK_FLOOR = GIB
#: A compile cache alone has thousands of files.
INODES_FLOOR = 10_000
#: What a rank takes of the host's memory before its first batch: torch, CUDA's context.
RANK_MEMORY = 2 * GIB
#: Every worker of every rank keeps pipes, sockets and shared memory open; torch some hundred.
FILES_FLOOR = 1024
FILES_FOR_A_WORKER = 32


def disk_low(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Little free space or inodes where the job writes.

    Of the file systems under the working directory, TMPDIR and HOME: compile caches, logs, core
    files and checkpoints go there. Less than 1 GiB free, or fewer than 10000 inodes, warns. File
    systems that are mounted read-only, or count no inodes, are not judged by them.

    Fix: free some; or TMPDIR, TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR on a larger disk.
    """
    disks, free = s.host.disks, s.host.disk_free_bytes
    rows = list(disks.get(()))
    if not rows and free.known:
        rows = [Disk(path="the disk", free=free.get(0), size=free.get(0))]
    if not rows and disks.known:
        yield NotApplicable("nothing here can be written to")
    elif not rows:
        yield Undecided(("host.disks",), "how much space is left where the job writes")
    else:
        found = [one for one in (_low(s, row) for row in rows) if one]
        yield from found
        if not found:
            least = min(row.free for row in rows)
            proof = evidence(s, "host.disk_free_bytes")
            yield Passed(f"{amount(least)} free where the job writes", "", proof)


def _low(s: Snapshot, row: Disk) -> Optional[Finding]:
    what = f"{amount(max(0, row.free))} free"
    if row.free >= DISK_FLOOR:
        if row.inodes <= 0 or row.inodes_free >= min(INODES_FLOOR, row.inodes // 2):
            return None
        what = f"{row.inodes_free} of {row.inodes} inodes free"
    where = f"{row.path or 'the disk'}" + (f" ({row.purpose})" if row.purpose else "")
    path = row.path if row.path.startswith("/") else "."
    return Finding(
        summary=f"{what} on {where}",
        observed=f"{what} on {where}" + (f", {row.kind}" if row.kind else ""),
        needed=f"{amount(DISK_FLOOR)} and {INODES_FLOOR} inodes, more for checkpoints",
        why="Writing ends with 'No space left on device', often at the first checkpoint.",
        fix=(
            f"du -xh {path} | sort -h | tail: what is large there",
            "export TMPDIR=… TORCHINDUCTOR_CACHE_DIR=… TRITON_CACHE_DIR=… on a larger disk",
        ),
        evidence=evidence(s, "host.disk_free_bytes"),
        subject=row.path,
    )


def memory_low(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Little memory left, by the cgroup's limit.

    What is left is the limit of the cgroup (the smallest up the tree) less what it uses, or what
    the node has available where that is less. A rank of a GPU job takes about 2 GiB of the host's
    memory before its first batch; where the ranks are only taken to be as many as the GPUs, less
    than they would need is told of, and less than one needs warns.

    Fix: a larger limit (docker run --memory, resources.limits.memory), or fewer ranks and workers.
    """
    limit, used, free = (
        s.host.memory_limit_bytes,
        s.host.memory_used_bytes,
        s.host.memory_free_bytes,
    )
    hidden = common.gpu_hidden(s)
    left: List[int] = []
    if limit.known:
        left.append(limit.get(0) - used.get(0))
    if free.known:
        left.append(free.get(0))
    if hidden or (s.gpus.value == () and not common.gpu_wanted(s, m)):
        yield NotApplicable(hidden or "nothing here uses a GPU")
        return
    if not left or (limit.unknown and limit.looked):
        yield Undecided(("host.memory_limit_bytes",), "how much memory is left")
        return
    counted = node.ranks(s)
    ranks = max(1, counted.size or 1)
    places = ("host.memory_limit_bytes", "host.memory_used_bytes", "host.memory_free_bytes")
    least, need = max(0, min(left)), RANK_MEMORY * ranks
    by = "the cgroup's limit" if limit.known and least == max(0, left[0]) else "the node"
    if least >= need:
        yield Passed(f"{amount(least)} of memory left by {by}", "", evidence(s, *places))
        return
    yield Finding(
        summary=f"{amount(least)} of memory left by {by}, for {ranks} rank(s)",
        observed=f"limit {amount(limit.get(0)) if limit.known else 'none'}, used "
        f"{amount(used.get(0)) if used.known else 'not known'}; the node has "
        f"{amount(free.get(0)) if free.known else 'not known'} available",
        needed=f"about {amount(need)} before the first batch",
        why="The kernel kills the job when the cgroup is full: 'DataLoader worker is killed by "
        "signal: Killed', exit code 137.",
        fix=(
            "docker run --memory=… ; Kubernetes: resources.limits.memory; PAI DLC: a larger "
            "instance",
            "fewer ranks or loader workers on this node",
        ),
        evidence=evidence(s, *places, *counted.places),
        severity="" if counted.told or least < RANK_MEMORY else INFO,
    )


def cpus_low(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Fewer CPUs than ranks, or far fewer than loader workers, by quota and cpuset.

    What counts is the cgroup's quota and the CPUs this process may run on, not those of the node:
    inside a container os.cpu_count() names the node's. Less than one CPU a rank warns (a rank
    keeps one busy launching kernels), or is told of where the ranks are only taken to be as many
    as the GPUs; more than two workers a CPU is told of.

    Fix: more CPUs (docker run --cpus, resources.limits.cpu), or fewer loader workers.
    """
    cpus, workers = s.host.cpus, s.job.loader_workers
    if not cpus.looked:
        yield Undecided(("host.cpus",), "how many CPUs there are for ranks and workers")
        return
    ranks = node.ranks(s)
    count = ranks.size
    if common.gpu_hidden(s) or count == 0:
        yield NotApplicable("no GPU is used here")
    elif not cpus.known:
        yield Undecided(("host.cpus",), "how many CPUs there are for ranks and workers")
    elif count is None and not workers.known:
        yield Undecided(("job.processes_per_node",), "how many ranks share the CPUs")
    else:
        several = max(1, count or 1)
        each = several * max(0, workers.get(0))
        if cpus.get(0.0) < several and several > 1:
            yield _few(s, ranks, f"{several} ranks", WARN if ranks.told else INFO)
        elif each > 2 * max(cpus.get(0.0), 0.0) and each > 0:
            yield _few(s, ranks, f"{several} rank(s) with {workers.value} loader workers", INFO)
        else:
            proof = evidence(s, "host.cpus", *ranks.places)
            yield Passed(f"{cpus.get(0.0):g} CPUs for {several} rank(s)", "", proof)


def _few(s: Snapshot, ranks: node.Ranks, who: str, severity: str) -> Finding:
    cpus = s.host.cpus.get(0.0)
    return Finding(
        summary=f"{cpus:g} CPUs for {who}",
        observed=f"{cpus:g} CPUs by {s.host.cpus.source or 'quota and cpuset'}; {who}",
        needed="a CPU for each rank, and one for two loader workers",
        why="Ranks that wait for a CPU launch kernels late, and all others wait for them.",
        fix=(
            "docker run --cpus=… ; Kubernetes: resources.limits.cpu; PAI DLC: more CPUs",
            "DataLoader(num_workers=…): len(os.sched_getaffinity(0)) // ranks at most",
        ),
        evidence=evidence(
            s, "host.cpus", "host.cpu_quota", "host.cpu_set", "job.loader_workers", *ranks.places
        ),
        severity=severity,
    )


def open_files_low(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The limit of open files (ulimit -n) is too low for ranks and loader workers.

    Each worker hands tensors over as descriptors, and each rank keeps sockets to the others:
    below 1024, or below 32 for each loader worker, warns. The hard limit says whether the job can
    raise it itself.

    Fix: ulimit -n 65536 before the command; docker run --ulimit nofile=65536:65536.
    """
    limits = s.host.limits
    row = next((one for one in limits.get(()) if one.name == "nofile"), None)
    need = max(FILES_FLOOR, FILES_FOR_A_WORKER * max(0, s.job.loader_workers.get(0)))
    if common.gpu_hidden(s):
        yield NotApplicable("no GPU is used here")
    elif row is None:
        yield Undecided(("host.limits",), "how many files may be open")
    elif row.soft < 0 or row.soft >= need:
        words = "no limit" if row.soft < 0 else str(row.soft)
        yield Passed(f"open files: {words}", "", evidence(s, "host.limits"))
    else:
        itself = row.hard < 0 or row.hard >= need
        yield Finding(
            summary=f"{row.soft} open files at most (ulimit -n), about {need} are needed",
            observed=f"soft limit {row.soft}, hard limit {row.hard}",
            needed=f"{need} or more",
            why="Loaders and NCCL end with 'Too many open files'.",
            fix=(
                f"ulimit -n {need if not itself or row.hard < 0 else min(row.hard, 65536)}",
                "docker run --ulimit nofile=65536:65536 …",
            )[0 if itself else 1 :],
            evidence=evidence(s, "host.limits", "job.loader_workers"),
        )
