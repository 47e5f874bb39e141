"""`make peers`: machines that checkers get wrong, judged by preflight and by its peers.

Each cell: "=" the right verdict, "!" a wrong one, "." none; the telling word; the exit code; the
seconds. Peers run in the environment of the real torch, installed beside it and not into it, with
their own home directory and a limit to each run. What pip cannot install is named.

Usage: python tests/peers/table.py [--only S1,S3] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

if __name__ == "__main__":  # as a script it has its own directory for a root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import fakes
from tests.peers import scenarios
from tests.peers.scenarios import SCENARIOS, Missing, Scenario, Stage
from tools import venvs

#: (pattern, telling word, verdict): the first that is found in what a peer printed decides.
Words = Tuple[Tuple[str, str, str], ...]


class Peer(NamedTuple):
    """A checker: what pip installs, where its `main` is, its arguments, what its words mean.

    A verdict "none" is right where there is no GPU to be seen.
    """

    name: str
    requirement: str
    module: str
    arguments: Tuple[str, ...]
    words: Words


PEERS = (
    Peer(
        "env-doctor", "env-doctor==0.3.5", "env_doctor.cli", ("check",),
        (
            (r"CRITICAL CONFLICT", "conflict", "fail"),
            (r"No NVIDIA Driver detected", "no driver", "none"),
            (r"✅ COMPATIBLE", "compatible", "ok"),
        ),
    ),
    Peer(
        "ai-infradr", "ai-infradr==0.1.0", "ai_infradr.cli.main", ("--fail-on", "high"),
        (
            (r"^(CRITICAL|HIGH) ", "high", "fail"),
            (r"^MEDIUM ", "medium", "unknown"),
            (r"No known .* issues", "no issues", "ok"),
        ),
    ),
    Peer(
        "cuda-doctor", "cuda-doctor==0.2.0", "cuda_doctor.cli", ("diagnose",),
        (
            # Its status counts the nvcc of the machine in, too, which is no part of a scenario.
            (r"✗ torch vs driver", "torch error", "fail"),
            (r"✓ torch vs driver", "torch ok", "ok"),
            (r"Status: (DEGRADED|BROKEN|UNHEALTHY)", "degraded", "fail"),
            (r"Status: HEALTHY", "healthy", "ok"),
        ),
    ),
    Peer(
        "rigsolve", "rigsolve==1.0.0", "rigsolve.cli", ("check",),
        ((r"\[FAIL\]", "fail", "fail"), (r"\[ok\]", "ok", "ok")),
    ),
    Peer(
        "gpumedic", "gpumedic[nvidia]==0.1.0", "gpumedic.cli", ("scan",),
        (
            (r"Node verdict: HEALTHY", "healthy", "ok"),
            (r"Node verdict: (?!HEALTHY)", "sick", "fail"),
            (r"No NVIDIA GPU found", "no GPU", "none"),
        ),
    ),
    Peer("collect_env", "", "torch.utils.collect_env", (), ((r"PyTorch version", "values", ""),)),
)  # fmt: skip


class Cell(NamedTuple):
    """One verdict: whether it is right (None: there is none), the word, exit code, seconds."""

    right: Optional[bool]
    word: str
    code: str = ""
    seconds: float = 0

    def __str__(self) -> str:
        if not self.code:
            return self.word
        mark = "." if self.right is None else "=" if self.right else "!"
        return f"{mark} {self.word} {self.code} {self.seconds:.1f} s"


def main() -> int:
    """Print the table; 1 when a verdict of preflight's own is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios, comma-separated")
    parser.add_argument("--limit", type=float, default=60, help="seconds of one run")
    options = parser.parse_args()
    names = options.only.split(",")
    installed, problems = install()
    rows: Dict[str, Dict[str, Cell]] = {}
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            rows[name] = row(name, Path(work) / name, installed, options.limit)
    show(rows, ["preflight", *(peer.name for peer in PEERS if peer.name in installed)])
    for problem in problems:
        print(problem)
    return int(any(one.get("preflight", Cell(None, "")).right is False for one in rows.values()))


def install() -> Tuple[Dict[str, str], List[str]]:
    """({peer: the directory it is in}, what could not be installed, and why)."""
    found: Dict[str, str] = {}
    problems = []
    try:
        python = venvs.python_of(scenarios.torch_of("cu130"))
    except Missing as missing:
        return {}, [f"no peer can run: {missing}"]
    for peer in PEERS:
        target = os.path.join(venvs.home(), "peers", peer.name)
        try:
            if peer.requirement and not os.path.isdir(target):
                pip_target(python, peer.requirement, target)
            found[peer.name] = target
        except venvs.Failed as error:
            problems.append(f"{peer.name} cannot be installed: {str(error).splitlines()[-1]}")
    return found, problems


def pip_target(python: str, requirement: str, target: str) -> None:
    """Install into a directory of its own, which is there when all of it is."""
    print(f"installing {requirement} ...", file=sys.stderr)
    unfinished = target + ".unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    venvs.run([python, "-m", "pip", "install", "-q", "--target", unfinished, requirement])
    os.rename(unfinished, target)


def row(name: str, work: Path, installed: Dict[str, str], limit: float) -> Dict[str, Cell]:
    """All verdicts on one scenario; an empty row where it cannot be set up."""
    scenario = SCENARIOS[name]
    print(f"{name}: {scenario.title} ...", file=sys.stderr)
    try:
        stage = scenarios.set_up(name, work)
    except Missing as missing:
        print(f"{name} is left out: {missing}")
        return {}
    ran = scenarios.check(stage, scenario)
    verdict = scenarios.verdict_of(ran)
    cells = {"preflight": Cell(verdict == scenario.expected, verdict, str(ran.code), ran.seconds)}
    runtime = fakes.build_runtime(work / "runtime")
    for peer in PEERS:
        if peer.name in installed:
            cells[peer.name] = ask(peer, stage, scenario, installed[peer.name], runtime, limit)
    return cells


def ask(
    peer: Peer, stage: Stage, scenario: Scenario, target: str, runtime: Path, limit: float
) -> Cell:
    """A peer's verdict on a machine."""
    home = os.path.join(os.path.dirname(str(runtime)), "home")
    os.makedirs(home, exist_ok=True)
    # What is beyond the checks, in the real torch they start, is to find its devices.
    more = {"LD_PRELOAD": str(runtime)} if scenario.driver else {}
    try:
        ran = stage.run(
            command(peer, stage.venv), limit,
            PYTHONPATH=target, HOME=home, COLUMNS="200", PYTHONIOENCODING="utf-8", **more,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Cell(False, "hangs", "-", limit)
    said = ran.out + ran.err
    for pattern, word, verdict in peer.words:
        if re.search(pattern, said, re.MULTILINE):
            right = verdict == scenario.expected or (verdict == "none" and not scenario.driver)
            return Cell(right if verdict else None, word, str(ran.code), ran.seconds)
    return Cell(None, "no verdict", str(ran.code), ran.seconds)


def command(peer: Peer, venv: str) -> List[str]:
    """The command line of a peer, in the environment of torch."""
    python = venvs.python_of(venv)
    if not peer.requirement:
        return [python, "-B", "-m", peer.module]
    words = [peer.name, *peer.arguments]
    script = f"import sys; sys.argv = {words!r}; from {peer.module} import main; sys.exit(main())"
    return [python, "-B", "-c", script]


def show(rows: Dict[str, Dict[str, Cell]], columns: List[str]) -> None:
    """The table: a line a scenario, a column a tool; then what the scenarios are."""
    cells = [["", "expected", *columns]]
    for name, found in rows.items():
        answers = [str(found[one]) if one in found else "-" for one in columns]
        cells.append([name, SCENARIOS[name].expected, *answers])
    widths = [max(len(line[at]) for line in cells) for at in range(len(cells[0]))]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    print("\n= right, ! wrong, . no verdict; then the word, the exit code, the seconds\n")
    for name in rows:
        print(f"{name:4} {SCENARIOS[name].title}")


if __name__ == "__main__":
    sys.exit(main())
