"""A driver that hangs, crashes or lies delays a job by the deadline at most, and stops none."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import pytest

from tests import fakes
from tests.fakes import H100
from tests.real import stack

DEADLINE = 3.0
#: For starting Python twice, judging, and a busy machine.
GRACE = 1.0

#: The job: says that it runs, and which children it was left with.
JOB = ("sh", "-c", "echo started; cat /proc/$$/task/$$/children || :")


class Fault(NamedTuple):
    """How the driver misbehaves, the verdict on what is left, and a word of the reason."""

    options: Dict[str, Any]
    verdict: str
    reason: str
    hangs: bool = False


NO_ANSWER = "no answer within"
FAULTS: Dict[str, Fault] = {
    "nvml hangs": Fault({"nvml": "hang"}, "unknown", NO_ANSWER, True),
    "nvml hangs later": Fault({"nvml": "hang-later"}, "unknown", NO_ANSWER, True),
    "nvml crashes": Fault({"nvml": "crash"}, "unknown", "crashed (SIGSEGV)"),
    "nvml talks garbage": Fault({"nvml": "garbage"}, "unknown", ""),
    "nvml lacks a function": Fault({"nvml": "missing-function"}, "pass", ""),
    "nvml is not there": Fault({"nvml": "absent"}, "unknown", "no kernel driver or device"),
    "nvml may not": Fault({"nvml": "no-permission"}, "unknown", "no kernel driver or device"),
    "nvml finds no driver": Fault({"nvml": "no-driver"}, "unknown", "no kernel driver or device"),
    "nvml does not know why": Fault(
        {"nvml": "unknown-error"}, "unknown", "no kernel driver or device"
    ),
    "libcuda hangs": Fault({"libcuda": "hang"}, "unknown", NO_ANSWER, True),
    "libcuda crashes": Fault({"libcuda": "crash"}, "unknown", "crashed (SIGSEGV)"),
    "libcuda talks garbage": Fault({"libcuda": "garbage"}, "unknown", "-7, which is no CUDA"),
    "libcuda lacks a function": Fault(
        {"libcuda": "missing-function"}, "unknown", "no cuDriverGetVersion"
    ),
    "both hang": Fault({"nvml": "hang", "libcuda": "hang"}, "unknown", NO_ANSWER, True),
    "both crash": Fault({"nvml": "crash", "libcuda": "crash"}, "unknown", "crashed (SIGSEGV)"),
}


def broken(fault: Fault, tmp_path: Path, cache: Path) -> str:
    """The directory of the driver that misbehaves."""
    return str(fakes.build(tmp_path / "driver", cache=cache, **fault.options))


def in_time(ran: stack.Ran, fault: Fault) -> None:
    """Neither later than the deadline, nor given up on before there was need to."""
    assert ran.seconds < (DEADLINE + GRACE if fault.hangs else DEADLINE)
    assert not fault.hangs or ran.seconds > DEADLINE / 2


@pytest.mark.parametrize("name", FAULTS)
def test_exec_starts_the_job_in_time(name: str, venv: str, tmp_path: Path, cache: Path) -> None:
    fault = FAULTS[name]
    libraries = broken(fault, tmp_path, cache)
    words = ("exec", "--timeout", f"{DEADLINE:g}", "--python", venv, "--", *JOB)
    ran = stack.preflight(*words, libraries=libraries)
    assert ran.code == 0, ran.err
    first, children = (ran.out + "\n").split("\n", 1)
    assert first == "started"
    # The job asks by `cat`, which is its only child.
    assert len(children.split()) <= 1, "children of preflight's are left to the job"
    last = ran.err.rstrip().splitlines()[-1]
    assert last.startswith(f"preflight: {fault.verdict.upper()} ")
    assert fault.reason in last
    in_time(ran, fault)


@pytest.mark.parametrize("name", FAULTS)
def test_check_says_what_it_could_not_know(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    fault = FAULTS[name]
    libraries = broken(fault, tmp_path, cache)
    words = ("check", "--format", "json", "--timeout", f"{DEADLINE:g}", "--python", venv)
    ran = stack.preflight(*words, libraries=libraries)
    report = stack.document(ran)
    assert report["verdict"] == fault.verdict
    assert stack.failing(report) == [] and ran.code == 0
    reasons = [one["reason"] for one in report["unknowns"]]
    assert any(fault.reason in one for one in reasons), reasons
    assert all(one["how_to_know"] for one in report["unknowns"])
    in_time(ran, fault)


def test_unknown_can_be_made_to_count(venv: str, tmp_path: Path, cache: Path) -> None:
    libraries = broken(FAULTS["nvml crashes"], tmp_path, cache)
    words = ("exec", "--fail-on", "unknown", "--python", venv, "--", *JOB)
    ran = stack.preflight(*words, libraries=libraries)
    assert ran.code in (75, 78) and ran.out == ""


@pytest.mark.usefixtures("proc_driver")
@pytest.mark.parametrize("mode", ["absent", "no-permission", "unknown-error", "missing-function"])
def test_the_kernel_answers_where_nvml_does_not(
    mode: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    proc = stack.write_proc(tmp_path / "proc", "580.95.05", [H100])
    libraries = str(fakes.build(tmp_path / "driver", nvml=mode, cache=cache))
    words = ("check", "--format", "json", "--python", venv)
    report = stack.document(stack.preflight(*words, libraries=libraries, proc=proc))
    assert report["verdict"] == "pass"
    assert report["snapshot"]["driver"]["version"]["value"] == "580.95.05"
    assert stack.gpu_count(report) == 1


@pytest.mark.timed
@pytest.mark.usefixtures("proc_driver")
def test_what_is_known_decides_beside_a_hang(venv: str, tmp_path: Path, cache: Path) -> None:
    """The kernel and libcuda say that the driver is too old; NVML's silence changes nothing."""
    proc = stack.write_proc(tmp_path / "proc", "535.104.05", [H100])
    libraries = str(
        fakes.build(tmp_path / "driver", driver="535.104.05", cuda="12.2", nvml="hang", cache=cache)
    )
    words = ("exec", "--timeout", f"{DEADLINE:g}", "--python", venv, "--", *JOB)
    ran = stack.preflight(*words, libraries=libraries, proc=proc)
    assert ran.code == 78 and ran.out == ""
    last = ran.err.rstrip().splitlines()[-1]
    assert last.startswith("preflight: FAIL driver/too-old-for-cuda: driver 535.104.05")
    assert ran.seconds < DEADLINE + GRACE


@pytest.mark.usefixtures("proc_driver")
def test_a_lost_gpu_is_not_papered_over(venv: str, tmp_path: Path, cache: Path) -> None:
    """The kernel's list still has the GPU that NVML calls lost: another node may do, this not."""
    proc = stack.write_proc(tmp_path / "proc", "580.95.05", [H100])
    libraries = str(fakes.build(tmp_path / "driver", nvml="gpu-lost", cache=cache))
    words = ("check", "--format", "json", "--python", venv)
    report = stack.document(stack.preflight(*words, libraries=libraries, proc=proc))
    assert stack.failing(report) == ["gpu/unhealthy"]
    assert any("GPU is lost" in one["reason"] for one in report["unknowns"])
    words = ("exec", "--python", venv, "--", *JOB)
    ran = stack.preflight(*words, libraries=libraries, proc=proc)
    assert ran.code == 75 and "gpu/unhealthy" in ran.err


# -- nothing is left behind ---------------------------------------------------------------------


def of_session(session: int) -> List[str]:
    """What still runs in a session: "PID (name) state", zombies among it."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = place.read_text()
        except OSError:
            continue
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        if fields[3] == str(session):
            found.append(f"{head}) {fields[0]}")
    return found


def sweep(session: int) -> None:
    """End what a failed test found."""
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:  # as it should be
        pass


def started(venv: str, libraries: str, *words: str) -> "subprocess.Popen[bytes]":
    """A preflight in a session of its own."""
    return subprocess.Popen(
        stack.command(*words),
        env=stack.environment(LD_LIBRARY_PATH=libraries, PREFLIGHT_PYTHON=venv),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("words", [("check",), ("exec", "--", "true")], ids=" ".join)
def test_no_child_is_left_behind(words: List[str], venv: str, tmp_path: Path, cache: Path) -> None:
    libraries = broken(FAULTS["both hang"], tmp_path, cache)
    command = [words[0], "--timeout", "1", *words[1:]]
    child = started(venv, libraries, *command)
    child.communicate(timeout=30)
    left = of_session(child.pid)
    sweep(child.pid)
    assert child.returncode == 0
    assert left == []


@pytest.mark.parametrize("words", [("check",), ("exec", "--", "true")], ids=" ".join)
def test_sigterm_ends_a_hanging_check_at_once(
    words: List[str], venv: str, tmp_path: Path, cache: Path
) -> None:
    libraries = broken(FAULTS["both hang"], tmp_path, cache)
    child = started(venv, libraries, *words)
    limit = time.monotonic() + 10
    while len(of_session(child.pid)) < 3 and time.monotonic() < limit:  # the probes are out
        time.sleep(0.05)
    sent = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    child.communicate(timeout=30)
    seconds = time.monotonic() - sent
    time.sleep(0.1)  # what was killed is gone when its new parent has reaped it
    left = of_session(child.pid)
    sweep(child.pid)
    assert child.returncode == 143
    assert seconds < GRACE
    assert [one for one in left if not one.endswith(" Z")] == []
