"""What several rules ask of the node: the GPUs that the job uses, and its ranks here."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from ..matrix import Matrix
from ..snapshot import Gpu, Snapshot
from . import common
from .registry import Finding, NotApplicable, Outcome, Undecided, evidence

GIB = 1 << 30


class Ranks(NamedTuple):
    """How many processes of the job there are on this node, and the facts that say so."""

    size: Optional[int]
    places: Tuple[str, ...]

    @property
    def told(self) -> bool:
        """False where they are only taken to be as many as the GPUs."""
        return self.size is not None and self.places != ("gpus",)


class Trouble(NamedTuple):
    """What is wrong with one GPU: the fields that show it, and what is to be said."""

    severity: str
    what: str  # "lost: GPU is lost"
    fields: Tuple[str, ...]
    needed: str
    why: str
    fix: Tuple[str, ...]


def gpus_used(
    s: Snapshot, m: Matrix, question: str, *fields: str
) -> Union[List[common.Device], Outcome]:
    """The GPUs that the job sees; else why a rule about them has none.

    Where nobody looked at one of `fields` on any of them, that is the answer at once.
    """
    all_of = s.gpus.value
    if (
        fields
        and all_of
        and not any(getattr(one, name).looked for one in all_of for name in fields)
    ):
        return Undecided((f"gpus[0].{fields[0]}",), question)
    hidden = common.gpu_hidden(s)
    if hidden:
        return NotApplicable(hidden)
    if s.gpus.value == () or s.gpus.absent:
        return NotApplicable("no GPU is here: another rule speaks")
    found = common.devices(s, m)
    return found or Undecided(("gpus",), question)


def ranks(s: Snapshot) -> Ranks:
    """By the job, else by torchrun's own variable, else one for each GPU that is used."""
    told = s.job.processes_per_node
    if told.known:
        return Ranks(told.value, ("job.processes_per_node",))
    local = s.variable("LOCAL_WORLD_SIZE").get("")
    if local.isascii() and local.isdecimal():
        return Ranks(int(local), ("env.LOCAL_WORLD_SIZE",))
    if s.job.gpus_per_node.known:
        return Ranks(s.job.gpus_per_node.value, ("job.gpus_per_node",))
    if not s.gpus.known:
        return Ranks(None, ())
    return Ranks(gpu_count(s), ("gpus",))


def gpu_count(s: Snapshot) -> int:
    """How many GPUs the job sees here: those that CUDA_VISIBLE_DEVICES leaves."""
    if common.gpu_hidden(s):
        return 0
    count = sum(max(0, one.count.get(1)) for one in s.gpus.get(()))
    given = s.variable("CUDA_VISIBLE_DEVICES").get("").strip()
    return min(count, len(given.split(","))) if given else count


def number(device: common.Device) -> str:
    """ "GPU 3" for gpus[3]; without a number where one entry stands for several."""
    at = device.place.partition("[")[2].rstrip("]")
    return f"GPU {at}" if device.gpu.count.get(1) == 1 else f"GPUs {device.label}"


def troubles(
    s: Snapshot, devices: List[common.Device], judge: Callable[[Gpu], List[Trouble]]
) -> Iterator[Finding]:
    """A finding for each kind of trouble, however many GPUs have it."""
    found: Dict[Trouble, List[common.Device]] = {}
    for device in devices:
        for one in judge(device.gpu):
            found.setdefault(one, []).append(device)
    for one, sick in found.items():
        who = ", ".join(number(device) for device in sick)
        places = [f"{device.place}.{name}" for device in sick for name in one.fields]
        yield Finding(
            summary=f"{who} ({sick[0].label}): {one.what}",
            observed=f"NVML: {who}: {one.what}",
            needed=one.needed,
            why=one.why,
            fix=one.fix,
            evidence=evidence(s, *places, *(device.place + ".uuid" for device in sick)),
            subject=who,
            severity=one.severity,
        )


def amount(size: float) -> str:
    """Bytes in words: "64 MiB", "1.5 GiB"."""
    if size >= GIB:
        return f"{size / GIB:.1f} GiB".replace(".0 ", " ")
    return f"{size / (1 << 20):.0f} MiB"
