"""Which platform runs this job and what it says of it: its variables, its metadata, the command.

Nothing is asked of the network, and of the command only what launchers read is kept.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import snapshot as s
from ..launching import command as commands
from ..launching import counts, meeting
from ..launching.command import NPROC, Launch
from ..roots import Root

#: PAI describes the job's region and mounts here, where it describes them.
METADATA = "/var/metadata/config.json"
METADATA_LIMIT = 1 << 20
#: More mounts than this are not listed.
MOUNTS = 64


def read(
    root: Root, env: Mapping[str, str], command: Sequence[str], tables: Mapping[str, Any]
) -> s.Snapshot:
    """The `job` of a snapshot, as far as this environment tells it. `tables`: of `marks.toml`."""
    marks = counts.recognise(tables["mark"], env)
    launch = launched(command, env)
    metadata = _metadata(root) if root.live or root.exists(METADATA) else None
    platform, row = _platform(marks, metadata)
    return s.Snapshot(
        job=s.Job(
            platform=platform,
            kind=_kind(tables["job_kind"], platform, env),
            launchers=s.known(
                tuple(one.platform for one in marks if one.platform != platform.value),
                ", ".join(name for one in marks for name in one.by) or "environment",
            ),
            command=_command(command, launch),
            nodes=_nodes(row, env),
            node_rank=_number(row, "node_rank", env, counts.whole),
            processes_per_node=_processes(launch, env),
            mounts=_mounts(metadata),
        )
    )


def launched(command: Sequence[str], env: Mapping[str, str]) -> Optional[Launch]:
    """The launch command that an argument vector is, in this environment."""
    return commands.of_words(command, lambda name: env.get(name, "")) if command else None


def _platform(
    marks: List[counts.Recognised], metadata: Optional[Dict[str, Any]]
) -> Tuple[s.Fact[str], Optional[counts.Row]]:
    """The platform, and the row whose counts hold: within torchrun, which sets them anew, its."""
    inner = next((one.row for one in marks if one.platform == "torchrun"), None)
    first = next((one for one in marks if one.platform not in counts.LAUNCHERS), None)
    if first is None and metadata is not None and "DLC_REGION_ID" in metadata:
        return s.known("pai-dlc", METADATA), inner
    if first is None:
        names = [one for one in marks if one.platform in counts.LAUNCHERS]
        first = names[0] if names else None
    if first is None:
        return s.absent("environment"), None
    words = "environment variable" + ("s " if len(first.by) > 1 else " ") + ", ".join(first.by)
    return s.known(first.platform, words), inner or first.row


def _kind(rows: Sequence[counts.Row], platform: s.Fact[str], env: Mapping[str, str]) -> s.Fact[str]:
    row = counts.kind(rows, platform.get(""), env)
    if row is None:
        return s.UNKNOWN
    return s.known(str(row["kind"]), "environment variable " + str(row["variables"][0]))


def _command(command: Sequence[str], launch: Optional[Launch]) -> s.Fact[str]:
    if launch is None:
        return s.UNKNOWN if not command else s.unknown("no launch command is read in it", "exec")
    return s.known(commands.written(launch), "the command given to preflight exec")


def _nodes(row: Optional[counts.Row], env: Mapping[str, str]) -> s.Fact[int]:
    found = _number(row, "nodes", env, counts.count)
    positive = found.value is None or found.value > 0
    return found if positive else s.unknown(f"{found.value} is no number of nodes", found.source)


def _number(
    row: Optional[counts.Row], column: str, env: Mapping[str, str], read_as: Any
) -> s.Fact[int]:
    """The number in the variable that a row names; facts nobody looks for where it names none."""
    name = str(row.get(column, "")) if row else ""
    if not name:
        return s.UNKNOWN
    source = "environment variable " + name
    if name not in env:
        return s.UNKNOWN
    value = read_as(env[name])
    return s.UNKNOWN if value is None else s.known(value, source)


def _processes(launch: Optional[Launch], env: Mapping[str, str]) -> s.Fact[int]:
    """The processes that the command starts on this node, where it says so."""
    last = launch.last if launch else None
    if last is None or last.launcher != "torchrun":
        return s.UNKNOWN
    text, source = meeting.option(last, NPROC, env)
    value = counts.whole(text) if text else 1
    return s.UNKNOWN if not value or value < 0 else s.known(value, source or "default of torchrun")


# -- the metadata of PAI ------------------------------------------------------------------------


def _metadata(root: Root) -> Optional[Dict[str, Any]]:
    try:
        document = json.loads(root.text(METADATA, METADATA_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _mounts(metadata: Optional[Dict[str, Any]]) -> s.Fact[Tuple[str, ...]]:
    """The kinds of the data sources with their places: "oss /mnt/data"."""
    listed = (metadata or {}).get("DATA_SOURCES")
    if isinstance(listed, str):  # as a text within the JSON, too
        try:
            listed = json.loads(listed)
        except (ValueError, RecursionError):
            listed = None
    if not isinstance(listed, list):
        return s.UNKNOWN
    found = []
    for one in listed[:MOUNTS]:
        if isinstance(one, dict) and isinstance(one.get("MountPath"), str):
            kind = one.get("DataSourceType")
            found.append(f"{kind if isinstance(kind, str) else 'data'} {one['MountPath']}")
    return s.known(tuple(found), METADATA)
