"""Nothing of the job's environment is run, mapped or imported, and CUDA is never initialised."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple

import pytest

from tests import fakes
from tests.real import stack, truth

#: Python files of the environment that are read, as text, for what they say of their package.
READ_AS_TEXT = (
    "torch/__init__.py",  # which libraries it loads first
    "torch/version.py",
    "tensorflow/python/platform/build_info.py",
    "jax/version.py",
)
CALLS = "open,openat,openat2,execve,execveat,mmap,mmap2"


class Call(NamedTuple):
    """One system call of a trace: process, name, everything after the name."""

    pid: str
    name: str
    rest: str

    @property
    def path(self) -> str:
        """The file that was opened or mapped (as strace -y names its descriptor), or run."""
        if self.name.startswith("mmap"):
            found = re.search(r", \d+<([^>]*)>", self.rest)
        else:
            found = re.search(r'"((?:[^"\\]|\\.)*)"', self.rest)
        return found.group(1) if found else ""


def strace(venv: str, tmp_path: Path, cache: Path, *words: str) -> List[Call]:
    """What all processes of one preflight command opened, ran and mapped."""
    tool = shutil.which("strace")
    if tool is None:
        pytest.skip("no strace on PATH")
    libraries = fakes.build(tmp_path / "driver", cache=cache)
    log = tmp_path / "calls"
    line = [tool, "-f", "-y", "-s", "4096", "-qq", "-e", f"trace={CALLS}", "-o", str(log)]
    # LD_LIBRARY_PATH is not for strace itself; PREFLIGHT_PYTHON works for each command.
    variables = ["env", f"LD_LIBRARY_PATH={libraries}", f"PREFLIGHT_PYTHON={venv}"]
    done = stack.run([*line, *variables, *stack.command(*words)], stack.environment())
    if not log.exists() or "ptrace" in done.err.lower():
        pytest.skip(f"strace may not trace here: {done.err.strip()[:200]}")
    assert done.code == 0, done.err
    return list(parsed(log.read_text(errors="replace")))


def parsed(text: str) -> Iterator[Call]:
    """The calls of a trace; one that another process interrupted is put together again."""
    waiting = {}
    for line in text.splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            waiting[pid] = call[: -len("<unfinished ...>")]
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", call)
        if resumed:
            call = waiting.pop(pid, "") + resumed.group(1)
        name, bracket, rest = call.partition("(")
        if bracket and name.isidentifier():
            yield Call(pid, name, rest)


def inside(venv: str, calls: List[Call]) -> List[Call]:
    """Those about a file of the environment, by whatever path."""
    roots = (venv.rstrip("/") + "/", str(Path(venv).resolve()) + "/")
    return [one for one in calls if one.path.startswith(roots)]


COMMANDS = {
    "check": ("check",),
    "explained": ("--explain", "--verbose"),
    "snapshot": ("snapshot",),
    "exec": ("exec", "--", "true"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_of_the_environment_is_run(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    calls = strace(venv, tmp_path, cache, *COMMANDS[name])
    ours = inside(venv, calls)
    opened = {one.path for one in ours if one.name.startswith("open")}
    read = [path for path in opened if path.endswith("torch/version.py")]
    assert read, "the trace shows what preflight reads"

    code = [one for one in opened if one.endswith((".py", ".pyc", ".pyo"))]
    assert [one for one in code if not one.endswith(READ_AS_TEXT)] == []
    assert not [one for one in opened if "__pycache__" in one]
    assert not [one.path for one in ours if one.name.startswith("mmap") and "PROT_EXEC" in one.rest]
    writing = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")
    assert not [one.path for one in ours if writing.search(one.rest)], "nor changed"


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_started_but_the_command(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    calls = strace(venv, tmp_path, cache, *COMMANDS[name])
    ran = [one for one in calls if one.name.startswith("execve") and one.rest.endswith(" = 0")]
    env, preflight, *others = ran
    assert env.path.endswith("/env") and preflight.path == sys.executable
    if name == "exec":
        (true,) = others
        assert true.path.endswith("/true") and true.pid == preflight.pid, "by the same process"
    else:
        assert others == []


def test_the_trace_would_show_an_import(venv: str, tmp_path: Path) -> None:
    """The opposite case: what the first test looks for is really seen when it happens."""
    tool = shutil.which("strace")
    if tool is None:
        pytest.skip("no strace on PATH")
    log = tmp_path / "calls"
    line = [tool, "-f", "-y", "-s", "4096", "-qq", "-e", f"trace={CALLS}", "-o", str(log)]
    # A module with machine code of its own, quick to import, that torch always brings.
    job = [f"{venv}/bin/python", "-B", "-c", "import markupsafe._speedups"]
    done = stack.run([*line, *job], stack.environment())
    if not log.exists():
        pytest.skip(f"strace may not trace here: {done.err.strip()[:200]}")
    ours = inside(venv, list(parsed(log.read_text(errors="replace"))))
    assert [one for one in ours if one.name.startswith("mmap") and "PROT_EXEC" in one.rest]
    assert [one for one in ours if one.path.endswith((".py", ".pyc"))]


# -- CUDA is never initialised ------------------------------------------------------------------


@pytest.mark.parametrize("words", [("check",), ("exec", "--", "true")], ids=" ".join)
def test_cuda_is_never_initialised(
    words: List[str], venv: str, tmp_path: Path, cache: Path
) -> None:
    """A libcuda whose cuInit ends the process leaves a verdict that knows its version."""
    libraries = str(fakes.build(tmp_path / "driver", libcuda="trap", cache=cache))
    ran = stack.preflight(*words, libraries=libraries, PREFLIGHT_PYTHON=venv)
    assert ran.code == 0
    assert "PASS" in ran.out + ran.err and "crashed" not in ran.out + ran.err
    shot = stack.preflight("snapshot", libraries=libraries, PREFLIGHT_PYTHON=venv)
    assert stack.document(shot)["driver"]["cuda"]["value"] == "13.0", "it was asked"


def test_the_trap_catches_who_does(venv: str, tmp_path: Path, cache: Path) -> None:
    libraries = str(fakes.build(tmp_path / "driver", libcuda="trap", cache=cache))
    answer = truth.ask_torch(
        f"{venv}/bin/python", {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": None}
    )
    assert answer.get("died") == -6, "torch initialises CUDA"


# -- nothing is imported, in our own processes either -------------------------------------------

IN_PROCESS = r"""
import importlib, os, pkgutil, sys
import preflight

for module in pkgutil.walk_packages(preflight.__path__, "preflight."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

from preflight import isolate
from preflight.__main__ import main

caught = set()
run = isolate.run

def here(tasks, deadline=None):
    # In this process instead of children, so that what they import is seen.
    return {name: isolate.Answer(task.call(), "", 0.0) for name, task in tasks.items()}

isolate.run = here
code = main(["check", "--python", sys.argv[1]])
print(code, *sorted({"torch", "numpy", "tensorflow", "jax"} & set(sys.modules)))
"""


def test_no_framework_is_imported(venv: str, tmp_path: Path, cache: Path) -> None:
    libraries = str(fakes.build(tmp_path / "driver", cache=cache))
    # As if the job's packages were ours too: an import would succeed, and be seen.
    (packages,) = Path(venv).glob("lib/python*/site-packages")
    script = f"import sys; sys.path.append({str(packages)!r})\n" + IN_PROCESS
    done = subprocess.run(
        [sys.executable, "-c", script, venv],
        env=stack.environment(LD_LIBRARY_PATH=libraries),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines()[-1] == "0"
    assert "torch 2.14.1+cu130" in done.stdout.decode()
