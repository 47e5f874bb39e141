"""Everything that `make test` runs: lint, types, the core on every Python here, a real torch.

What is missing on this machine is skipped by name. Standard library only; Python 3.8 or later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import interpreters
import venvs

DEVELOPMENT = ("mypy==1.14.1", "ruff==0.17.6", "packaging", "nvidia-ml-py", *venvs.BUILD)
LINT = {
    "ruff check": ["ruff", "check", "-q", "."],
    "ruff format": ["ruff", "format", "-q", "--check", "--diff", "."],
    "mypy --strict": ["mypy"],
}
FORMAT = {
    "ruff check --fix": ["ruff", "check", "-q", "--fix", "."],
    "ruff format": ["ruff", "format", "-q", "."],
}
TORCH = "torch==2.14.1"
#: torch imports it where it is there, and does not ask for it: an environment that trains has it.
NUMPY = "numpy==2.4.6; python_version >= '3.11'", "numpy==2.2.6; python_version < '3.11'"
#: The Pythons for the real torch, the preferred first.
TORCH_PYTHONS = ("3.11", "3.12", "3.10", "3.13")
TORCH_BYTES = 8 << 30
#: No suite takes this long; one that does hangs.
SUITE_SECONDS = 900


class Outcome(NamedTuple):
    """How one step ended: passed, failed or skipped, and why."""

    name: str
    state: str
    note: str = ""


def main(arguments: List[str]) -> int:
    """Run all steps, or only `lint`, or `format` the code; returns an exit code."""
    pythons = interpreters.find()
    newest = next((path for path in reversed(list(pythons.values())) if path), None)
    if newest is None:
        print(f"none of Python {', '.join(pythons)} with venv is here", file=sys.stderr)
        return 2
    try:
        tools = venvs.ensure(os.path.join(venvs.home(), "tools"), newest, DEVELOPMENT)
    except venvs.Failed as error:
        print(error, file=sys.stderr)
        return 1
    if arguments == ["format"]:
        return _summary(_steps(tools, FORMAT))
    outcomes = _steps(tools, LINT)
    if arguments != ["lint"]:
        with tempfile.TemporaryDirectory() as scratch:
            outcomes += _tests(pythons, tools, scratch)
    return _summary(outcomes)


def _steps(tools: str, steps: Dict[str, List[str]]) -> List[Outcome]:
    return [_timed(name, partial(_tool, tools, words)) for name, words in steps.items()]


def _tool(tools: str, words: List[str]) -> Tuple[str, str]:
    return _finished(["-m", *words], tools, quiet=False)


def _tests(pythons: Dict[str, Optional[str]], tools: str, scratch: str) -> List[Outcome]:
    try:
        wheel = venvs.build_wheel(tools, scratch)
    except venvs.Failed as error:
        return [Outcome("wheel", "failed", str(error))]

    def core(version: str) -> Outcome:
        return _timed("core, Python " + version, lambda: _core(version, pythons[version], wheel))

    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, len(pythons))) as pool:
        outcomes = list(pool.map(core, pythons))
    # Alone, since it measures times.
    return [*outcomes, _timed("real torch", lambda: _real(pythons, wheel))]


def _core(version: str, python: Optional[str], wheel: str) -> Tuple[str, str]:
    if python is None:
        return "skipped", f"no python{version} with venv on PATH or in ~/.pyenv/versions"
    suite = ["tests", "--ignore=tests/real", "--ignore=tests/peers"]
    return _pytest(_with_preflight(version, python, wheel), suite, f"core, Python {version}")


def _with_preflight(version: str, python: str, wheel: str) -> str:
    """The interpreter of an environment that holds the wheel and what its tests need."""
    venv = os.path.join(venvs.home(), "py" + version)
    interpreter = venvs.ensure(venv, python, [])
    venvs.install_wheel(venv, wheel, "[test]")
    return interpreter


def _real(pythons: Dict[str, Optional[str]], wheel: str) -> Tuple[str, str]:
    if os.environ.get("PREFLIGHT_REAL") == "0":
        return "skipped", "PREFLIGHT_REAL=0"
    if not os.path.isdir(os.path.join(venvs.ROOT, "tests", "real")):
        return "skipped", "no tests/real"
    version = next((one for one in TORCH_PYTHONS if pythons[one]), None)
    if version is None:
        return "skipped", f"{TORCH} needs one of Python {', '.join(TORCH_PYTHONS)}"
    torch = os.environ.get("PREFLIGHT_TORCH_VENV") or os.path.join(venvs.home(), "torch-cu130")
    problem = _torch_missing(torch, pythons[version] or "")
    if problem:
        return "skipped", problem
    interpreter = _with_preflight(version, pythons[version] or "", wheel)
    # The probes and fatbins once more, since some of their tests want a real torch to look at.
    suite = ["tests/real", "tests/peers", "tests/probes", "tests/binary/test_fatbin.py"]
    variables = {
        "PREFLIGHT_TORCH_VENV": torch,
        "PREFLIGHT_TEST_TORCH_PYTHON": venvs.python_of(torch),
    }
    return _pytest(interpreter, suite, "real torch", variables)


def _torch_missing(venv: str, python: str) -> str:
    """Why there is no environment with the real torch; empty when there is, now."""
    if os.environ.get("PREFLIGHT_TORCH_VENV"):
        return "" if os.path.exists(venvs.python_of(venv)) else f"{venv} is no environment"
    os.makedirs(venvs.home(), exist_ok=True)
    made = os.path.exists(venvs.python_of(venv))
    if not made and shutil.disk_usage(venvs.home()).free < TORCH_BYTES:
        return f"{TORCH} needs {TORCH_BYTES >> 30} GB of free space for {venv}"
    try:
        venvs.ensure(venv, python, [TORCH, *NUMPY])
    except venvs.Failed as error:
        return f"{TORCH} could not be installed: {str(error).splitlines()[-1]}"
    return ""


def _pytest(
    python: str, suite: List[str], title: str, variables: Optional[Dict[str, str]] = None
) -> Tuple[str, str]:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *suite]
    return _finished(words, python, title=title, variables=variables)


def _finished(
    words: List[str],
    python: str,
    quiet: bool = True,
    title: str = "",
    variables: Optional[Dict[str, str]] = None,
) -> Tuple[str, str]:
    try:
        done = subprocess.run(
            [python, "-B", *words],
            cwd=venvs.ROOT,
            env={**venvs.clean_environment(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        print((error.stdout or b"").decode(errors="replace"), flush=True)
        return "failed", f"not done after {SUITE_SECONDS} s"
    said = done.stdout.decode(errors="replace").rstrip()
    if said and (quiet or done.returncode):
        # One write: several suites run at once.
        print(f"---- {title or ' '.join(words)}\n{said}\n", end="", flush=True)
    last = said.splitlines()[-1].strip("= ") if said else ""
    return ("failed", f"status {done.returncode}") if done.returncode else ("passed", last)


def _timed(name: str, step: Callable[[], Tuple[str, str]]) -> Outcome:
    started = time.monotonic()
    try:
        state, note = step()
    except venvs.Failed as error:
        state, note = "failed", str(error)
    return Outcome(name, state, f"{note} [{time.monotonic() - started:.0f} s]".strip())


def _summary(outcomes: List[Outcome]) -> int:
    print("---- summary")
    for one in outcomes:
        print(f"{one.state:8}{one.name}: {one.note}")
    return 1 if any(one.state == "failed" for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
