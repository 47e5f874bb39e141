"""Which of the supported Pythons this machine has."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from typing import Dict, List, Optional

SUPPORTED = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")

_ASK = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"


def find() -> Dict[str, Optional[str]]:
    """{version: path of an interpreter that can make a venv, or None} for each supported one."""
    return {version: _first(version) for version in SUPPORTED}


def _first(version: str) -> Optional[str]:
    return next(filter(None, (_asked(path, version) for path in _places(version))), None)


def _places(version: str) -> List[str]:
    versions = os.path.join(
        os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions"
    )
    installed = glob.glob(os.path.join(versions, version + ".*", "bin", "python" + version))
    on_path = shutil.which("python" + version)
    default = shutil.which("python3")
    return sorted(installed, reverse=True) + [one for one in (on_path, default) if one]


def _asked(path: str, version: str) -> Optional[str]:
    """The interpreter itself behind `path` (which may be a pyenv shim for nothing)."""
    done = subprocess.run(
        [path, "-I", "-c", _ASK],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    answer, _, executable = done.stdout.decode().strip().partition(" ")
    return executable if done.returncode == 0 and answer == version else None
