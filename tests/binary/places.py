"""Real installs to test against, where they are."""

import glob
import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import pytest

from preflight.matrix import numbers

HOME = Path(__file__).resolve().parents[2]


class Install(NamedTuple):
    """An environment with a real torch: its interpreter, and its site-packages."""

    name: str
    python: str
    site: str


def _venvs() -> List[str]:
    homes = [os.environ.get("PREFLIGHT_VENVS", ""), str(HOME / ".venvs")]
    found = [os.environ.get("PREFLIGHT_TORCH_VENV", "")]
    for home in homes:
        found += sorted(glob.glob(os.path.join(home, "torch-*"))) if home else []
    return [one for one in found if one]


def _installs() -> Dict[str, Install]:
    """By torch version; the first environment that has it."""
    found: Dict[str, Install] = {}
    for venv in _venvs():
        for version in glob.glob(os.path.join(venv, "lib/python3*/site-packages/torch/version.py")):
            site = os.path.dirname(os.path.dirname(version))
            name = _version(version)
            python = os.path.join(venv, "bin", "python")
            if name and os.path.exists(python):
                found.setdefault(name, Install(name, python, site))
    return found


def _version(path: str) -> Optional[str]:
    for line in Path(path).read_text().splitlines():
        if line.startswith("__version__"):
            return line.split("=")[1].strip().strip("'\"")
    return None


INSTALLS = _installs()
_CUDA = [one for one in INSTALLS.values() if os.path.isdir(os.path.join(one.site, "nvidia"))]
#: The newest: its wheel brings the newest of NVIDIA's tools, too.
TORCH: Optional[Install] = max(_CUDA, key=lambda one: numbers(one.name)) if _CUDA else None
TORCH_SITE: Optional[str] = TORCH.site if TORCH else None

needs_torch = pytest.mark.skipif(
    TORCH is None, reason="no CUDA torch: neither PREFLIGHT_TORCH_VENV nor .venvs/torch-*"
)
