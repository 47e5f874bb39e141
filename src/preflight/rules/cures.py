"""Commands that would mend a finding, each judged by the same tables before it is offered."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..builds import serves_python
from ..matrix import Matrix, Row, numbers, targets
from ..snapshot import Framework, Snapshot
from . import common

WHEELS = "https://download.pytorch.org/whl/"


def torch_that_runs(s: Snapshot, m: Matrix, one: Framework) -> Tuple[str, ...]:
    """The pip line of a public torch build that runs here; empty when none is known to.

    The same release is preferred (its newest CUDA that runs), then the newest release that has
    any. It must run with the libcuda in use, hold machine code for every GPU here, and exist for
    this Python and platform.
    """
    release = (one.version.value or "").partition("+")[0]
    found = _best(s, m, release) if release else None
    if found is None:
        found = _best(s, m, "", release)
    if found is None:
        return ()
    version, row = found
    variant = row["variant"]
    # With the local version: a plain one would count as installed already.
    return (f"pip install torch=={version}+{variant} --index-url {WHEELS}{variant}",)


def _best(s: Snapshot, m: Matrix, release: str, below: str = "") -> Optional[Tuple[str, Row]]:
    best: Optional[Tuple[str, Row]] = None
    runs: Dict[str, bool] = {"": False}  # by CUDA, which many rows share
    gpus = [one.capability or "" for one in common.devices(s, m)]
    for row in m.torch_builds(release, s.os.arch.get("x86_64")):
        cuda = str(row.get("cuda", ""))
        if cuda not in runs:
            runs[cuda] = common.way(s, m, cuda).runs
        if not runs[cuda] or not _fits(s, m, row, gpus):
            continue
        for version in [release] if release else row["versions"]:
            if below and numbers(version) >= numbers(below):
                continue
            if best is None or _newness(version, row) > _newness(*best):
                best = (version, row)
    return best


def _newness(version: str, row: Row) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    return numbers(version), numbers(str(row["cuda"]))


def _fits(s: Snapshot, m: Matrix, row: Row, gpus: List[str]) -> bool:
    if not serves_python(row, s.python.version.get("")):
        return False
    return all(m.kernels(one, targets(row)).kind == "sass" for one in gpus)
