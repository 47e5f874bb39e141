"""preflight, run as its users run it, on a described driver. No verdicts here."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from tests import fakes
from tools import venvs

#: What would steer preflight, CUDA or the loader is no part of a described machine.
STEERING = ("PREFLIGHT_", "CUDA_", "NVIDIA_", "LD_", "TORCH_", "NV_CUDA")


class Ran(NamedTuple):
    """How a command ended: exit code, both streams, seconds of the wall clock."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def last(self) -> str:
        """The last line of standard output."""
        return (self.out.rstrip().splitlines() or [""])[-1]


def run(words: List[str], env: Mapping[str, str], timeout: float = 60) -> Ran:
    """Run to the end, with no standard input; subprocess.TimeoutExpired where that is far."""
    started = time.monotonic()
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        words, env=dict(env), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # what it started holds our pipes open, too
        child.communicate()
        raise
    seconds = time.monotonic() - started
    return Ran(child.returncode, *(one.decode("utf-8", "replace") for one in (out, err)), seconds)


def environment(**variables: str) -> Dict[str, str]:
    """Ours without what steers a check, plus `variables`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    return {**ours, "PYTHONDONTWRITEBYTECODE": "1", **variables}


def command(*words: str) -> List[str]:
    """The preflight of this interpreter, as a command line."""
    return [sys.executable, "-m", "preflight", *words]


def preflight(*words: str, libraries: str = "", proc: Optional[Path] = None, **env: str) -> Ran:
    """Run preflight where the loader finds `libraries` (LD_LIBRARY_PATH) first.

    With `proc` that directory is the container's /proc/driver (see `write_proc`).
    """
    given = {"LD_LIBRARY_PATH": libraries, **env} if libraries else env
    line = command(*words)
    return run(behind(proc, line) if proc else line, environment(**given))


def document(ran: Ran) -> Dict[str, Any]:
    """The JSON that a command printed."""
    try:
        found: Dict[str, Any] = json.loads(ran.out)
    except ValueError:
        raise AssertionError(f"no JSON (exit code {ran.code}): {ran.out[-500:]}{ran.err}") from None
    return found


def failing(report: Mapping[str, Any]) -> List[str]:
    """The rules that fail in a JSON report, in its order."""
    return [one["rule"] for one in report["findings"] if one["severity"] == "fail"]


def gpu_count(report: Mapping[str, Any]) -> int:
    """How many GPUs the snapshot of a JSON report has."""
    gpus = report["snapshot"].get("gpus", {}).get("value") or []
    return sum(one.get("count", {}).get("value") or 1 for one in gpus)


# -- what this machine has --------------------------------------------------------------------


def own_gpu() -> str:
    """What this machine has of its own that a described driver would mix with; "" if nothing."""
    places = glob.glob("/dev/nvidia[0-9c]*") + glob.glob("/proc/driver/nvidia/version")
    if places:
        return f"this machine has an NVIDIA driver of its own ({places[0]})"
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        if Path(path).read_text().strip() == "0x10de":
            return f"this machine has an NVIDIA device of its own ({path})"
    return ""


def torch_venv() -> Tuple[str, str]:
    """(the environment with the real torch, ""), or ("", why there is none)."""
    default = os.path.join(venvs.home(), "torch-cu130")
    venv = os.environ.get("PREFLIGHT_TORCH_VENV") or default
    if not glob.glob(os.path.join(venv, "lib", "python*", "site-packages", "torch")):
        return "", f"no torch in {venv} (make test sets it up, PREFLIGHT_TORCH_VENV names another)"
    return venv, ""


def extra_venv(name: str, requirement: str, always: bool = False) -> Tuple[str, str]:
    """(an environment with another torch, ""), or ("", why there is none).

    It is set up when PREFLIGHT_REAL_EXTRA=1, or `always`, and else used where it is there.
    """
    venv = os.path.join(venvs.home(), name)
    made = glob.glob(os.path.join(venv, "lib", "python*", "site-packages", "torch"))
    if made:
        return venv, ""
    if not always and os.environ.get("PREFLIGHT_REAL_EXTRA") != "1":
        return "", f"no {venv} (PREFLIGHT_REAL_EXTRA=1 sets it up with {requirement})"
    os.makedirs(venvs.home(), exist_ok=True)
    try:
        venvs.ensure(venv, os.path.realpath(sys.executable), [requirement])
    except venvs.Failed as error:
        shutil.rmtree(venv, ignore_errors=True)
        return "", f"{requirement} cannot be installed here: {str(error).splitlines()[-1]}"
    return venv, ""


# -- a /proc/driver of one's own --------------------------------------------------------------


def write_proc(directory: Path, driver: str, gpus: Iterable[fakes.FakeGpu]) -> Path:
    """What a kernel module of version `driver` shows under /proc/driver; returns `directory`."""
    nvidia = directory / "nvidia"
    nvidia.mkdir(parents=True)
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Sep 23 10:11:16 UTC"
    (nvidia / "version").write_text(version + "\nGCC version:  gcc version 12.2.0\n")
    for number, gpu in enumerate(gpus):
        place = nvidia / "gpus" / f"0000:{0x1B + number:02x}:00.0"
        place.mkdir(parents=True)
        name = gpu.name if isinstance(gpu.name, str) else gpu.name.decode("utf-8", "replace")
        text = f"Model: \t\t {name}\nIRQ:   \t\t 100\nGPU UUID: \t GPU-{number:08x}\n"
        (place / "information").write_text(text)
    return directory


def behind(proc: Path, words: List[str]) -> List[str]:
    """`words` in a mount namespace of their own, in which `proc` is /proc/driver."""
    script = 'mount --bind "$0" /proc/driver && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, str(proc), *words]


def no_proc() -> str:
    """Why /proc/driver cannot be stood in for here; "" when it can."""
    if shutil.which("unshare") is None:
        return "no unshare on PATH"
    ran = run(behind(Path(tempfile.gettempdir()), ["true"]), os.environ)
    return f"no mount namespace with a /proc/driver: {ran.err.strip()}" if ran.code else ""
