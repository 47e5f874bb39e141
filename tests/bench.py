"""What preflight costs at a job's start, next to an empty Python and to `import torch`.

Usage: python tests/bench.py [--torch-venv DIR] [--runs N]

The runs of all commands are interleaved, so that a busy machine slows all of them; ratios hold
within one such round-robin only. The peak is ru_maxrss (file pages that are mapped count too);
"own" is what the process and its children have to themselves (Pss_Anon), polled in one more run.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

BIN = Path(sys.executable).parent


class Command(NamedTuple):
    """One line of the table."""

    name: str
    words: List[str]
    variables: Dict[str, str]


class Sample(NamedTuple):
    """One run: seconds of the wall clock, peak resident bytes, exit code."""

    seconds: float
    peak: int
    code: int


def main() -> int:
    """Measure and print; 1 when preflight itself did not start its command, 2 without it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-venv", default=os.environ.get("PREFLIGHT_TORCH_VENV"))
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    if not (BIN / "preflight").exists():
        print(f"no preflight beside {sys.executable}; try: make bench", file=sys.stderr)
        return 2
    venv = options.torch_venv or default_venv()
    if venv is None:
        print("no environment with torch (--torch-venv DIR): its lines are left out\n")
    commands = all_commands(venv)
    samples = measure(commands, options.runs)
    print_table(commands, samples)
    failed = [one.name for one in commands if any(run.code for run in samples[one.name])]
    if failed:
        print("\nnot measured, since it did not end with 0: " + ", ".join(failed))
    return 1 if failed else 0


def default_venv() -> Optional[str]:
    """The environment that `make test` sets up, if it is there."""
    home = os.environ.get("PREFLIGHT_VENVS") or Path(__file__).parent.parent / ".venvs"
    venv = Path(home) / "torch-cu130"
    return str(venv) if (venv / "bin" / "python").exists() else None


def all_commands(venv: Optional[str]) -> List[Command]:
    """The lines of the table, the base of the ratios first."""
    preflight = [str(BIN / "preflight"), "exec", "--", "true"]
    empty = Command("python -I -c pass", [sys.executable, "-I", "-c", "pass"], {})
    off = Command("preflight exec, mode off", preflight, {"PREFLIGHT_MODE": "off"})
    if venv is None:
        return [empty, off, Command("preflight exec, nothing to see", preflight, WARN)]
    python = str(Path(venv) / "bin" / "python")
    full = Command("preflight exec, over torch", preflight, {**WARN, "PREFLIGHT_PYTHON": python})
    return [empty, off, full, Command("import torch", [python, "-c", "import torch"], {})]


#: Whatever the verdict is on this machine, the command is to be started.
WARN = {"PREFLIGHT_MODE": "warn"}


def measure(commands: List[Command], runs: int) -> Dict[str, List[Sample]]:
    """`runs` samples a command, interleaved, after one of each that only fills caches."""
    samples: Dict[str, List[Sample]] = {one.name: [] for one in commands}
    for number in range(runs + 1):
        for one in commands:
            sample = run(one)
            if number:
                samples[one.name].append(sample)
    return samples


def run(command: Command) -> Sample:
    """Start it, wait for it."""
    started = time.perf_counter()
    process = start(command)
    _pid, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = status  # wait4 reaped it, Popen does not know
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    return Sample(seconds, usage.ru_maxrss * 1024, code)


def start(command: Command) -> "subprocess.Popen[bytes]":
    """Silently, in an environment without settings of somebody else's preflight."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFLIGHT_")}
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command.words, env={**ours, **command.variables}, stdin=null, stdout=null, stderr=null
    )


def own_memory(command: Command) -> int:
    """The highest sum of Pss_Anon over the process and its children that polling sees."""
    process, highest = start(command), 0
    while process.poll() is None:
        highest = max(highest, sum(pss(pid) for pid in [process.pid, *children(process.pid)]))
        time.sleep(0.001)
    return highest


def children(pid: int) -> List[int]:
    """Of its main thread; empty where the kernel does not tell."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pss(pid: int) -> int:
    """Anonymous bytes, those shared between processes divided among them."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def print_table(commands: List[Command], samples: Dict[str, List[Sample]]) -> None:
    """Medians, spread, ratios to the first and to the last line, memory."""
    first, last = commands[0].name, commands[-1].name
    against = {first: "x " + first.split()[0] + " pass", last: "x " + last}
    head = f"{'command':32}{'median':>10}{'fastest':>10}{'slowest':>10}"
    print(
        head + "".join(f"{title[:16]:>18}" for title in against.values()) + f"{'peak':>9}{'own':>9}"
    )
    for one in commands:
        times = [run.seconds for run in samples[one.name]]
        row = f"{one.name:32}" + "".join(f"{ms:>7.1f} ms" for ms in spread(times))
        row += "".join(f"{ratio(samples, one.name, base):>18.3f}" for base in against)
        peak = max(run.peak for run in samples[one.name])
        print(row + f"{peak / 2**20:>6.0f} MB{own_memory(one) / 2**20:>6.0f} MB")


def spread(times: List[float]) -> List[float]:
    """Median, fastest, slowest, in milliseconds."""
    return [1000 * one for one in (statistics.median(times), min(times), max(times))]


def ratio(samples: Dict[str, List[Sample]], name: str, base: str) -> float:
    """How many times the median of `base` the median of `name` is."""
    mine, other = (statistics.median([run.seconds for run in samples[one]]) for one in (name, base))
    return mine / other


if __name__ == "__main__":
    sys.exit(main())
