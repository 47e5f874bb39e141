"""What the `platform/*` rules ask of a snapshot: platform, launch command, nodes, processes."""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple, Optional, Tuple

from ..launching import command, counts, meeting
from ..launching.command import NPROC, Launch
from ..matrix import Matrix, Row
from ..snapshot import Snapshot
from . import common


class Job(NamedTuple):
    """A job as its variables and its command describe it; what is not told is None or empty."""

    platform: str
    mark: Row  # of the platform; empty where it is none that the tables know
    within: str  # the launcher that started this very process
    launch: Optional[Launch]
    env: Mapping[str, str]
    nodes: Optional[int]
    rank: Optional[int]  # of this node
    gpus: Optional[int]  # that a process here could use

    @property
    def last(self) -> Optional[Launch]:
        return self.launch.last if self.launch else None

    @property
    def launcher(self) -> str:
        """Of the training processes; empty where the command is not known."""
        return self.last.launcher if self.last else ""

    @property
    def counts_nodes(self) -> bool:
        """Whether WORLD_SIZE and RANK count nodes here, as no launcher has rewritten them yet."""
        return self.mark.get("world") == "nodes" and not self.within

    def option(self, name: str) -> Tuple[str, str]:
        """(value, who says so) of an option of the launcher; empty: not given."""
        return meeting.option(self.last, name, self.env) if self.last else ("", "")


def told(s: Snapshot) -> bool:
    """Whether anything is known of how the job is started (of a stack alone nothing is)."""
    return bool(s.env.known or s.job.command.known or s.job.nodes.known or s.master.address.known)


def job(s: Snapshot, m: Matrix) -> Job:
    """The job of a snapshot."""
    env = s.env.get({})
    launch = None
    if s.job.command.known:
        launch = command.of_text(s.job.command.get(""), env.get)
    platform = s.job.platform.value
    if platform is None:
        named = counts.recognise(m.marks(), env)
        platform = named[0].platform if named else ""
    within = counts.within(env)
    mark = m.mark("torchrun" if within == "torchrun" else platform) or {}
    return Job(
        platform=platform,
        mark=mark,
        within=within,
        launch=launch,
        env=env,
        nodes=_number(s.job.nodes.value, mark, "nodes", env),
        rank=_number(s.job.node_rank.value, mark, "node_rank", env),
        gpus=usable_gpus(s),
    )


def _number(known: Optional[int], mark: Row, column: str, env: Mapping[str, str]) -> Optional[int]:
    if known is not None:
        return known if known >= 0 else None
    text = env.get(str(mark.get(column, "")))
    value = counts.count(text) if text is not None else None
    return value if value is None or value >= 0 else None


def usable_gpus(s: Snapshot) -> Optional[int]:
    """How many GPUs a process here can use; None where that is not known, or MIG is in it."""
    if not s.gpus.known or common.gpu_hidden(s):
        return None
    found = s.gpus.get(())
    if any(one.mig_mode.value or one.mig_devices.value for one in found):
        return None
    there = sum(max(one.count.get(1), 0) for one in found)
    chosen = s.variable("CUDA_VISIBLE_DEVICES").value
    if chosen is None:
        return there
    entries = [one.strip() for one in chosen.split(",")]
    if not all(re.fullmatch(r"\d{1,4}|GPU-[0-9a-fA-F-]+", one) for one in entries):
        return None
    return min(len(set(entries)), there)


def per_node(j: Job) -> Optional[int]:
    """The processes that the launcher starts on this node, where it says so as a number."""
    if j.launcher == "torchrun":
        text, _source = j.option(NPROC)
        return counts.whole(text) if text else 1
    if j.launcher == "deepspeed":
        return counts.whole(j.option(NPROC)[0])
    return None
