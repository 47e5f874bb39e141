"""What the variables of a platform or launcher say of a job: which it is, how many nodes."""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Tuple

Row = Mapping[str, Any]

#: Set in the processes that a launcher has started: {launcher: its variables, any of them}.
WITHIN: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("torchrun", ("TORCHELASTIC_RUN_ID",)),
    ("mpi", ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE")),
)
#: Launchers rather than platforms: they run on any, and say nothing of who started the node.
LAUNCHERS = ("torchrun", "mpi")


class Recognised(NamedTuple):
    """A platform or launcher, and the variables that only it sets."""

    platform: str
    by: Tuple[str, ...]
    row: Row


def recognise(marks: Iterable[Row], env: Mapping[str, str]) -> List[Recognised]:
    """Every platform and launcher whose marks are in `env`, the one that decides first."""
    found: List[Recognised] = []
    for row in marks:
        names = tuple(row["variables"])
        new = not any(one.platform == row["platform"] for one in found)
        if new and all(env.get(name, "") for name in names):
            found.append(Recognised(str(row["platform"]), names, row))
    return found


def kind(rows: Iterable[Row], platform: str, env: Mapping[str, str]) -> Optional[Row]:
    """The row of the kind of job that this is on a platform; None where that cannot be told."""
    for row in rows:
        if row["platform"] == platform and all(name in env for name in row["variables"]):
            return row
    return None


def within(env: Mapping[str, str]) -> str:
    """The launcher that started this very process: torchrun, mpi or none."""
    for launcher, names in WITHIN:
        if any(env.get(name) for name in names):
            return launcher
    return ""


def whole(text: str) -> Optional[int]:
    """A whole number as programs read it; None for anything else."""
    plain = text.strip()
    return int(plain) if re.fullmatch(r"[+-]?\d{1,18}", plain, re.ASCII) else None


def count(text: str) -> Optional[int]:
    """How many: a number, or the length of a JSON list."""
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return len(listed) if isinstance(listed, list) else None
    return whole(text)


def span(text: str) -> Optional[Tuple[int, int]]:
    """The fewest and the most nodes of --nnodes: "2", "1:4"; None for what torchrun refuses."""
    parts = [whole(part) for part in text.split(":")]
    if len(parts) > 2 or any(part is None for part in parts):
        return None
    numbers = [part or 0 for part in parts]
    return (numbers[0], numbers[-1]) if 0 < numbers[0] <= numbers[-1] else None
