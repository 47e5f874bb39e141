"""The rule about /dev/shm: what loader workers and NCCL put there."""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Snapshot
from . import common, node
from .node import GIB, amount
from .registry import INFO, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

MIB = 1 << 20
#: Docker's and Kubernetes' own size of /dev/shm.
DEFAULT = 64 * MIB
#: What a worker keeps there: two batches that wait (prefetch_factor) and the one it makes.
WORKER = 64 * MIB
#: What NCCL keeps there for a rank where GPUs do not reach each other (some 10 MB a connection).
RANK = 32 * MIB
#: Below this share of free space it is as good as full.
FULL = 0.2

_USED = re.compile(r"/dev/shm\D*?([\d.]+)\s*([KMGT])i?B?\s+of\s+([\d.]+)\s*([KMGT])")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Need(NamedTuple):
    """How much this job puts into /dev/shm; None where it may be nothing."""

    size: Optional[int]
    words: str
    places: Tuple[str, ...]
    sure: bool


def shm_too_small(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """/dev/shm is too small for loader workers or NCCL on this many GPUs, or nearly full.

    DataLoader workers hand their batches over in /dev/shm (about 64 MiB a worker), NCCL keeps
    buffers there for GPUs that do not reach each other (about 32 MiB a rank). Docker and
    Kubernetes give 64 MiB. One process without workers puts nothing there; one whose workers are
    not known is told of, no more. Leftovers of ended workers fill it too: less than a fifth free
    warns where others would fit.

    Fix: docker run --shm-size=16g (or --ipc=host); Kubernetes: an emptyDir with medium: Memory
    at /dev/shm; PAI DLC: the job's shared memory.
    """
    size, hidden = s.host.shm_bytes, common.gpu_hidden(s)
    if hidden:
        yield NotApplicable(hidden)
    elif s.gpus.value == () and not common.gpu_wanted(s, m):
        yield NotApplicable("nothing here uses a GPU")
    elif size.absent:
        yield NotApplicable("there is no /dev/shm")
    elif not size.known:
        yield Undecided(("host.shm_bytes",), "whether /dev/shm is large enough")
    else:
        yield _judged(s, _need(s))


def _need(s: Snapshot) -> Need:
    ranks, workers = node.ranks(s), s.job.loader_workers
    places = (*ranks.places, "job.loader_workers")
    if ranks.size is None and not workers.known:
        return Need(None, "how many ranks and loader workers is not known", places, False)
    count = max(1, ranks.size or 1)
    for_nccl = RANK * count if count > 1 else 0
    for_workers = WORKER * count * max(0, workers.get(0))
    told = f"{count} rank(s)" + (f" with {workers.value} loader workers" if workers.known else "")
    return Need(for_nccl + for_workers, told, places, workers.known)


def _judged(s: Snapshot, need: Need) -> Outcome:
    size = s.host.shm_bytes.get(0)
    free = _free(s, size)
    enough = need.size is not None and need.size <= size
    if free is not None and size > DEFAULT and free < FULL * size and free < GIB:
        return _finding(s, need, f"{amount(free)} of {amount(size)} free", "")
    if need.size is None and size <= DEFAULT:
        return _finding(s, need, amount(size), "")
    if need.size is not None and not enough:
        return _finding(s, need, amount(size), "")
    if need.size is None:
        return Undecided(
            ("job.processes_per_node", "job.loader_workers"), "what /dev/shm must hold"
        )
    if size <= DEFAULT and not need.sure:
        return _finding(s, need, amount(size), INFO)
    proof = evidence(s, "host.shm_bytes", *need.places)
    return Passed(f"{amount(size)} in /dev/shm for {need.words}", "", proof)


def _free(s: Snapshot, size: int) -> Optional[int]:
    """What is free: as it was seen, else as a line of the log says of a /dev/shm of this size."""
    if s.host.shm_free_bytes.known:
        return s.host.shm_free_bytes.value
    for line in s.logs.get(()):
        found = _USED.search(line)
        if found:
            used, total = (_bytes(found.group(n), found.group(n + 1)) for n in (1, 3))
            if 0.9 * size <= total <= 1.1 * size and used <= total:
                return int(total - used)
    return None


def _bytes(number: str, unit: str) -> float:
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return 0.0


def _finding(s: Snapshot, need: Need, seen: str, severity: str) -> Finding:
    wanted = need.size if need.size else None
    harmless = severity == INFO
    return Finding(
        summary=f"/dev/shm: {seen}, " + (
            "enough only without loader workers" if harmless
            else f"and {need.words}: about {amount(wanted)} go there" if wanted
            else "too little for several ranks or loader workers"
        ),
        observed=f"/dev/shm: {seen}; {need.words}",
        needed=f"about {amount(wanted)} or more" if wanted else "some GiB for loaders and NCCL",
        why="Workers end with 'Bus error' or 'No space left on device', or wait for ever; NCCL "
        "cannot create its segments.",
        fix=(
            "docker run --shm-size=16g … (or --ipc=host)",
            "Kubernetes: volumes: - name: shm, emptyDir: {medium: Memory}, mounted at /dev/shm; "
            "PAI DLC: shared memory in the job's resources",
            "ls -l /dev/shm: remove what ended processes left there",
        ),
        evidence=evidence(s, "host.shm_bytes", "host.shm_free_bytes", *need.places),
        severity=severity,
    )  # fmt: skip
