"""`platform/variable-malformed` and `platform/variable-renamed`: single variables by the tables."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from ..launching import counts, meeting
from ..matrix import Matrix, Row, cited, numbers
from ..snapshot import Snapshot
from .jobs import Job, job
from .registry import (
    FAIL,
    INFO,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    evidence,
)

#: Read by what starts the job there: a wrong one stops it. Others only mislead scripts.
STOPS = ("CLUSTER_SPEC", "SM_HOSTS", "DET_SLOT_IDS")
#: Ranks and ports have rules of their own.
ELSEWHERE = re.compile(r"RANK$|WORLD_SIZE$|_SIZE$|MASTER_PORT$|_INDEX$|PROCID$|NODEID$|LOCALID$")
MASKED = "(masked)"


def variable_malformed(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A platform variable (TF_CONFIG and the like) cannot be read.

    The tables say for each platform and launcher what form its variables have. Those of the
    platform that was recognised are held against it: JSON must parse and be an object or list,
    counts must be numbers. TF_CONFIG must have lists of host:port under ``cluster`` and a
    ``task`` whose type and index are in it (an evaluator stands outside). It fails where
    TensorFlow is what runs, or nobody knows; other variables that only scripts read warn.
    NPROC_PER_NODE=0 is how PAI marks a job without GPUs, and is right.

    Fix: leave the platform's variables as it sets them.
    """
    if not s.env.known:
        yield NotApplicable("the job's variables are not known")
        return
    j = job(s, m)
    looked = 0
    found = []
    for name, row in _rows(m, j).items():
        text = j.env.get(name)
        if text is None or text == MASKED:
            continue
        looked += 1
        problem = _FORMS[row["form"]](text)
        if problem:
            found.append(_malformed(s, row, name, problem))
    if found:
        yield from found
    elif looked:
        yield Passed(f"{looked} variable(s) of {j.platform or 'launchers'} can be read")
    else:
        yield NotApplicable("no variable with a form of its own is set")


def _rows(m: Matrix, j: Job) -> Dict[str, Row]:
    """{name: row} of what can be checked: the platform's; TF_CONFIG is TensorFlow's anywhere."""
    platforms = [j.platform] if j.platform else []
    platforms += ["pai-dlc"] if j.platform == "pai-training" else []
    if not platforms and "TF_CONFIG" not in j.env:
        return {}
    rows = m.variables(*platforms, "kubedl")
    found: Dict[str, Row] = {}
    for row in rows:
        name = str(row["name"])
        own = row["platform"] in platforms or name == "TF_CONFIG"
        if own and row.get("form") and name not in found and not ELSEWHERE.search(name):
            found[name] = row
    return found


def _malformed(s: Snapshot, row: Row, name: str, problem: str) -> Finding:
    severity = FAIL if name in STOPS else WARN
    if row["form"] == "cluster":
        names = {one.name.value for one in s.frameworks.get(())}
        severity = FAIL if not names or "tensorflow" in names else WARN
    return Finding(
        summary=f"{name} {problem}",
        observed=f"{name}: {problem}",
        needed=str(row.get("relation", "")) or f"{row['type']}: {row['meaning']}",
        why="What reads it stops with an error, or takes another role than this node has.",
        fix=(f"do not set {name} by hand (unset {name}), and let the platform set it",),
        evidence=evidence(s, "env." + name, "job.platform"),
        sources=cited(row),
        subject=name,
        severity=severity,
    )


def _positive(text: str) -> str:
    value = counts.whole(text)
    return "" if value is not None and value > 0 else f"is {text!r}, no number above 0"


def _natural(text: str) -> str:
    value = counts.whole(text)
    return "" if value is not None and value >= 0 else f"is {text!r}, no number"


def _port(text: str) -> str:
    return "" if meeting.port_number(text) else f"is {text!r}, no port"


def _json(text: str, kind: type, word: str) -> str:
    document, problem = _parsed(text)
    return problem or ("" if isinstance(document, kind) else f"is no JSON {word}")


def _parsed(text: str) -> Tuple[Any, str]:
    try:
        return json.loads(text), ""
    except RecursionError:
        return None, "is nested too deeply"
    except ValueError as error:
        where = f": {error}" if text.strip() else ", but empty"
        return None, f"is no JSON{where}"


def _cluster(text: str) -> str:
    document, problem = _parsed(text)
    if problem or not isinstance(document, dict):
        return problem or "is no JSON object"
    cluster, task = document.get("cluster"), document.get("task")
    if cluster is None and task is None:
        return ""  # {}: a job of one
    if not isinstance(cluster, dict):
        return "has no 'cluster' of hosts"
    for role, hosts in cluster.items():
        if not isinstance(hosts, list) or not all(isinstance(one, str) for one in hosts):
            return f"has no list of hosts for {role!r}"
        wrong = next((one for one in hosts if not re.fullmatch(r".+:\d{1,5}", one)), None)
        if wrong is not None:
            return f"has {wrong!r} for {role!r}, no host:port"
    return _task(cluster, task)


def _task(cluster: Dict[str, Any], task: Any) -> str:
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        return "has no 'task' with a type"
    role = task["type"]
    index = counts.whole(str(task.get("index", "")))
    if index is None or index < 0:
        return f"has no index of its task {role!r}"
    if role not in cluster:
        return "" if role == "evaluator" else f"has a task {role!r} that is not in its cluster"
    if index >= len(cluster[role]):
        return f"has task {role!r} {index}, and its cluster only {len(cluster[role])} of them"
    return ""


_FORMS: Dict[str, Callable[[str], str]] = {
    "positive": _positive,
    "natural": _natural,
    "port": _port,
    "object": lambda text: _json(text, dict, "object"),
    "list": lambda text: _json(text, list, "list"),
    "cluster": _cluster,
}


# -- names ------------------------------------------------------------------------------------


def variable_renamed(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A variable is set that was renamed, or that nobody reads.

    The tables hold names that people set and that changed (NCCL_ASYNC_ERROR_HANDLING is
    TORCH_NCCL_ASYNC_ERROR_HANDLING since torch 2.2; the old name is still read, with a warning:
    mentioned only) and names that no program reads (NCCL_TIMEOUT): what was meant by those has no
    effect, which warns. Where the new name is set as well, all is said.

    Fix: the name that is read, or nothing.
    """
    if not s.env.known:
        yield NotApplicable("the job's variables are not known")
        return
    env = s.env.get({})
    rows = [row for row in m.renamed() if row["name"] in env]
    found = [_renamed(s, row) for row in rows if row.get("now") not in env]
    if any(found):
        yield from (one for one in found if one)
    elif rows:
        names = ", ".join(str(row["name"]) for row in rows)
        yield Passed(f"{names}: the name that is read is set, or this release reads the old one")
    else:
        yield NotApplicable("no variable is set that was renamed or is read by nobody")


def _renamed(s: Snapshot, row: Row) -> Optional[Finding]:
    name, now, product = str(row["name"]), str(row.get("now", "")), str(row["product"])
    if product != "nobody" and not _has(s, product, str(row.get("since", ""))):
        return None
    nobody = product == "nobody"
    summary = f"{name} is read by nobody" if nobody else f"{name} is {now} since {product} "
    summary += (f"; {now} is meant" if now else "") if nobody else str(row.get("since", ""))
    return Finding(
        summary=summary,
        observed=f"{name} is set",
        needed=f"{now}" if now else f"no {name}",
        why=str(row["meaning"]).capitalize() + ".",
        fix=(f"unset {name}" + (f"; export {now}=…" if now else ""),),
        evidence=evidence(s, "env." + name),
        sources=cited(row),
        subject=name,
        severity=WARN if nobody and not name.startswith("PAI_") else INFO,
    )


def _has(s: Snapshot, product: str, since: str) -> bool:
    """Whether a framework is here, at least of a release."""
    for one in s.frameworks.get(()):
        if one.name.value == product and numbers(one.version.get("")) >= numbers(since):
            return True
    return False
