"""Virtual environments of the checkout, made once and brought up to date when asked.

As a script: `venvs.py DIRECTORY` sets up an environment that holds preflight as its users get it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: What building a wheel needs, so that it is fetched once and not at every build.
BUILD = ("hatchling>=1.26", "tomli")

#: An installation that takes longer than this is not going to end.
STEP_SECONDS = 600

_STAMP = ".preflight-holds"


class Failed(Exception):
    """A step that did not work; the text says which, and what it printed."""


def home() -> str:
    """The directory of the environments for development."""
    return os.path.abspath(os.environ.get("PREFLIGHT_VENVS") or os.path.join(ROOT, ".venvs"))


def python_of(venv: str) -> str:
    """The interpreter of an environment."""
    return os.path.join(venv, "bin", "python")


def ensure(venv: str, python: str, requirements: Sequence[str]) -> str:
    """Make `venv` with `requirements` where it is not there yet; returns its interpreter."""
    wanted = "\n".join([python, *requirements])
    if _stamp(venv) != wanted or not os.path.exists(python_of(venv)):
        shutil.rmtree(venv, ignore_errors=True)
        run([python, "-m", "venv", venv])
        if requirements:
            install(venv, requirements)
        _write_stamp(venv, wanted)
    return python_of(venv)


def install(venv: str, what: Sequence[str]) -> None:
    """pip install, quietly."""
    pip = [python_of(venv), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    run([*pip, *what])


def install_wheel(venv: str, wheel: str, extra: str = "") -> None:
    """Install `wheel` where its content is not the one installed before."""
    with open(wheel, "rb") as stream:
        digest = hashlib.sha256(stream.read()).hexdigest() + extra
    mark = _STAMP + "-wheel"
    if _stamp(venv, mark) != digest:
        install(venv, [wheel + extra])  # its dependencies, where missing
        install(venv, ["--force-reinstall", "--no-deps", wheel])
        _write_stamp(venv, digest, mark)


def build_wheel(python: str, directory: str) -> str:
    """Build the wheel with an interpreter that has BUILD; returns its path."""
    run([python, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT)
    return glob.glob(os.path.join(directory, "*.whl"))[0]


def run(words: Sequence[str], cwd: Optional[str] = None) -> None:
    """Run to the end, silently; raises Failed with all it printed when it did not succeed."""
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
            timeout=STEP_SECONDS,
            check=False,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}\nnot done after {STEP_SECONDS} s") from None
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()
        raise Failed(f"{' '.join(words)}\nended with {done.returncode}:\n{said}")


def clean_environment() -> Dict[str, str]:
    """Ours, without what would reach into another Python or steer the preflight under test."""
    kept = ("PREFLIGHT_VENVS", "PREFLIGHT_REAL", "PREFLIGHT_TORCH_VENV", "PREFLIGHT_REAL_EXTRA")
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("PYTHON", "PREFLIGHT_", "VIRTUAL_ENV"))
    }


def _stamp(venv: str, name: str = _STAMP) -> str:
    try:
        with open(os.path.join(venv, name), encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def _write_stamp(venv: str, text: str, name: str = _STAMP) -> None:
    with open(os.path.join(venv, name), "w", encoding="utf-8") as stream:
        stream.write(text)


def _can_make_venvs() -> bool:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return False
    return True


def main(arguments: List[str]) -> int:
    """Set up the environment named on the command line; returns an exit code."""
    if not _can_make_venvs():
        print(
            f"{sys.executable} cannot make a virtual environment: its module ensurepip or venv is "
            "missing. Install it (Debian, Ubuntu: apt-get install python3-venv), or choose "
            "another Python: make PYTHON=python3.11 ...",
            file=sys.stderr,
        )
        return 2
    venv = os.path.abspath(arguments[0])
    print(f"setting up {os.path.relpath(venv)} ...", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            python = ensure(venv, sys.executable, BUILD)
            install_wheel(venv, build_wheel(python, scratch))
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
