"""`platform/rank-out-of-range` and `platform/omp-threads`: numbers of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..launching import counts, meeting, shell
from ..launching.command import BACKEND, ENDPOINT, PORT, RANK, REWRITING
from ..matrix import Matrix
from ..snapshot import Snapshot
from .jobs import Job, job, per_node
from .registry import (
    FAIL,
    INFO,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Undecided,
    evidence,
)


class Pair(NamedTuple):
    """A rank and the size that it must be below; `sure`: nothing sets them anew."""

    rank: str
    size: str
    sure: bool = True


#: SLURM_NTASKS is the job's, and the step's where there is one.
PAIRS: Tuple[Pair, ...] = (
    Pair("RANK", "WORLD_SIZE", False),
    Pair("LOCAL_RANK", "LOCAL_WORLD_SIZE", False),
    Pair("GROUP_RANK", "GROUP_WORLD_SIZE", False),
    Pair("NODE_RANK", "NNODES"),
    Pair("NODE_RANK", "NODE_NUM"),
    Pair("PET_NODE_RANK", "PET_NNODES"),
    Pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Pair("PMI_RANK", "PMI_SIZE"),
    Pair("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Pair("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    Pair("SLURM_NODEID", "SLURM_JOB_NUM_NODES"),
    Pair("VC_TASK_INDEX", "MA_NUM_HOSTS"),
)


def rank_out_of_range(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """RANK, LOCAL_RANK or node rank is not below its world size, or not a number.

    Every pair that is set is looked at: RANK and WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE,
    NODE_RANK and NNODES, those of torchrun (PET_), Open MPI, MPICH and Slurm, and ``--node-rank``
    against ``--nnodes`` of the launch command, where static rendezvous reads it. A launcher that
    is still to come sets RANK and WORLD_SIZE anew for its processes: then a wrong one only warns.

    Fix: ranks count from 0; RANK is below WORLD_SIZE on every node, and no two are the same.
    """
    if not s.env.known and not s.job.command.known:
        yield NotApplicable("the job's variables are not known")
        return
    j = job(s, m)
    looked = [pair for pair in PAIRS if pair.rank in j.env and pair.size in j.env]
    found = [one for pair in looked for one in _pair(s, j, pair)]
    found += list(_alone(s, j, looked))
    found += list(_command(s, j))
    if found:
        yield from found
    elif looked:
        names = ", ".join(pair.rank for pair in looked)
        yield Passed(f"{names} below its size")
    else:
        yield NotApplicable("no rank with its size is set")


def _pair(s: Snapshot, j: Job, pair: Pair) -> Iterator[Finding]:
    rank, size = counts.whole(j.env[pair.rank]), _size(j.env[pair.size])
    if pair.size in ("PET_NNODES", "NNODES") and ":" in j.env[pair.size]:
        span = counts.span(j.env[pair.size])
        size = span[1] if span else None
    if rank is None or size is None:
        bad = pair.rank if rank is None else pair.size
        yield _bad(s, j, pair, f"{bad}={j.env[bad]!r} is no number")
    elif not 0 <= rank < size:
        yield _bad(s, j, pair, f"{pair.rank}={rank} is not below {pair.size}={size}")


def _size(text: str) -> Optional[int]:
    return counts.count(text)


def _alone(s: Snapshot, j: Job, looked: List[Pair]) -> Iterator[Finding]:
    """RANK or WORLD_SIZE without the other, and no number."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        paired = any(name in (pair.rank, pair.size) for pair in looked)
        value = counts.whole(j.env.get(name, "0"))
        if not paired and (value is None or value < 0):
            one = _bad(s, j, Pair(name, name, False), f"{name}={j.env[name]!r} is no rank")
            # Many scripts write -1 for "not distributed": only env:// would refuse it.
            yield replace(one, severity=WARN) if value == -1 and not j.within else one


def _bad(s: Snapshot, j: Job, pair: Pair, summary: str) -> Finding:
    replaced = not pair.sure and (j.launcher in (*REWRITING, "shell", "swift") and not j.within)
    return Finding(
        summary=summary,
        observed=f"{pair.rank}={j.env.get(pair.rank)}, {pair.size}={j.env.get(pair.size)}",
        needed=f"0 <= {pair.rank} < {pair.size}" if pair.rank != pair.size else "a number",
        why="A rank that its world does not have is never waited for, and a rank missing is "
        "waited for until the timeout: init_process_group stops or hangs."
        + (" The launcher sets it anew, unless a script reads it first." if replaced else ""),
        fix=(f"set {pair.rank} to this node's or process's index, from 0 to {pair.size} - 1",),
        evidence=evidence(s, "env." + pair.rank, "env." + pair.size, "job.platform", "job.command"),
        severity=WARN if replaced else FAIL,
    )


def _command(s: Snapshot, j: Job) -> Iterator[Finding]:
    """--node-rank of torchrun, where static rendezvous reads it."""
    text, source = j.option(RANK)
    asked = meeting.asked_nodes(j.launch, j.env)
    rank = counts.whole(text)
    if j.launcher != "torchrun" or asked is None or rank is None or shell.HIDDEN in text:
        return
    static = (j.option(BACKEND)[0] or "static") == "static"
    met = asked[1] > 1 or bool(j.option(PORT)[0] or j.option(ENDPOINT)[0])
    if not static or not met or (j.last and "standalone" in j.last.flags) or 0 <= rank < asked[1]:
        return
    yield Finding(
        summary=f"{source}={rank} is not below the {asked[1]} node(s) that torchrun is told of",
        observed=f"{source}={rank}, --nnodes={asked[1]}",
        needed=f"0 <= --node-rank < {asked[1]}",
        why="Static rendezvous takes the node's rank from --node-rank: one that is not below "
        "--nnodes (1 where it is not given) waits for a master that never comes.",
        fix=(f"--nnodes={j.nodes if j.nodes and j.nodes > rank else rank + 1}",),
        evidence=evidence(s, "job.command", "job.nodes", "env.PET_NODE_RANK", "env.PET_NNODES"),
    )


# -- threads ----------------------------------------------------------------------------------

#: A process with as many CPUs to itself gains from more than one thread.
ROOMY = 4


def omp_threads(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """OMP_NUM_THREADS starves or oversubscribes the CPU.

    The threads of one process, times the processes of this node, are held against the CPUs that
    the container may use (its cgroup's quota, not the host's cores). One thread where a process
    has four CPUs or more to itself is mentioned, as are more threads than CPUs, and a value that
    OpenMP ignores. torchrun sets OMP_NUM_THREADS=1 itself when it starts several processes and
    nobody else did.

    Fix: OMP_NUM_THREADS = CPUs of the container / processes per node.
    """
    text = s.variable("OMP_NUM_THREADS").value
    if text is None:
        yield NotApplicable("OMP_NUM_THREADS is not set")
        return
    j = job(s, m)
    threads = counts.whole(text.split(",")[0])
    if threads is None or threads < 1:
        yield _omp(s, f"OMP_NUM_THREADS={text!r} is no number of threads: OpenMP ignores it",
                   "OpenMP then takes as many threads as the host has CPUs, in every process.",
                   "export OMP_NUM_THREADS=4")  # fmt: skip
        return
    cpus = s.host.cpus.value
    if (cpus is None or cpus <= 0) and threads == 1 and not j.within:
        yield _omp(s, "OMP_NUM_THREADS=1 is set for everything that this container starts",
                   "It is meant for the workers of torchrun, which sets it itself; what else runs "
                   "on the CPU (preprocessing, compilers) uses one thread, too.",
                   "unset OMP_NUM_THREADS, or set it to the CPUs of a process")  # fmt: skip
        return
    if cpus is None or cpus <= 0:
        yield Undecided(("host.cpus",), "whether OMP_NUM_THREADS fits the CPUs")
        return
    processes = max(_local(s, j), 1)
    fair = max(int(min(cpus, 1e6) // processes), 1)
    if threads == 1 and fair >= ROOMY:
        yield _omp(s, f"OMP_NUM_THREADS=1, and each of {processes} process(es) has {fair} CPUs",
                   "What runs on the CPU (preprocessing, optimisers, saving) uses one of them.",
                   f"export OMP_NUM_THREADS={fair}")  # fmt: skip
    elif threads * processes > 2 * max(cpus, 1):
        yield _omp(s, f"{processes} process(es) of OMP_NUM_THREADS={threads} share {cpus:g} CPUs",
                   "More threads than CPUs take them from each other, and from the loaders.",
                   f"export OMP_NUM_THREADS={fair}")  # fmt: skip
    else:
        yield Passed(f"OMP_NUM_THREADS={threads} fits {cpus:g} CPUs")


def _local(s: Snapshot, j: Job) -> int:
    """The processes on this node, as far as something says so."""
    local = counts.whole(j.env.get("LOCAL_WORLD_SIZE", "")) if j.within else None
    return s.job.processes_per_node.value or local or per_node(j) or 1


def _omp(s: Snapshot, summary: str, why: str, fix: str) -> Finding:
    return Finding(
        summary=summary, observed=summary.partition(":")[0], needed="CPUs / processes of this node",
        why=why, fix=(fix,), severity=INFO,
        evidence=evidence(s, "env.OMP_NUM_THREADS", "host.cpus", "job.processes_per_node",
                          "job.command"),
    )  # fmt: skip
