"""The report on a real CUDA 13.0 torch, for drivers and GPUs that stand-ins describe."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import jsonschema
import pytest

from preflight.reports import json_report
from tests import fakes
from tests.fakes import A100, H100, RTX_5090, T4, V100, FakeGpu
from tests.real import stack

TOO_OLD = "driver/too-old-for-cuda"
NO_KERNELS = "gpu/no-kernels-for-architecture"
NOT_VISIBLE = "driver/not-visible"


class Machine(NamedTuple):
    """A described driver with its GPUs, and what the report on it must say.

    `fixes` are words of the fix lines: one line each, and there are no more.
    """

    driver: str
    cuda: str
    gpus: Tuple[FakeGpu, ...]
    verdict: str
    rule: str = ""
    reasons: Tuple[str, ...] = ()
    fixes: Tuple[str, ...] = ()


CU126, COMPAT, DRIVER = "torch==2.14.1+cu126", "cuda-compat-13-0", "driver 580.65.06 or newer"
MACHINES: Dict[str, Machine] = {
    "h100-580": Machine("580.95.05", "13.0", (H100,), "pass"),
    "h100-floor": Machine("580.65.06", "13.0", (H100,), "pass"),
    # That one library was built without sm_75, though the build lists it.
    "t4-580": Machine(
        "580.95.05", "13.0", (T4,), "warn", NO_KERNELS,
        ("libtorch_cuda_linalg.so", "no code for sm_75", "sm_80, sm_86"),
        ("libtorch_cuda_linalg.so", "sm_75"),
    ),
    "5090-580": Machine("580.95.05", "13.0", (RTX_5090,), "pass"),
    "unheard-of-driver": Machine("699.10", "14.2", (H100,), "pass"),
    "a100-535": Machine(
        "535.104.05", "12.2", (A100,) * 8, "fail", TOO_OLD,
        ("535.104.05", "CUDA 12.2", "needs CUDA 13.0", "580.65.06", "or a compat libcuda"),
        (CU126, COMPAT, DRIVER),
    ),
    "h100-575": Machine(
        "575.57.08", "12.9", (H100,), "fail", TOO_OLD,
        ("575.57.08", "CUDA 12.9", "needs CUDA 13.0", "580.65.06", "or a compat libcuda"),
        (CU126, COMPAT, DRIVER),
    ),
    # No compat package of CUDA 13 sits on R470, and no build of 2.14.1 is old enough for it.
    "t4-470": Machine(
        "470.82.01", "11.4", (T4,), "fail", TOO_OLD,
        ("470.82.01", "CUDA 11.4", "needs CUDA 13.0", "580.65.06"),
        ("torch==2.7.1+cu118", DRIVER),
    ),
    # Forward compatibility is not for GeForce: no compat package is offered.
    "5090-570": Machine(
        "570.86.10", "12.8", (RTX_5090,), "fail", TOO_OLD,
        ("570.86.10", "CUDA 12.8", "needs CUDA 13.0", "580.65.06"),
        ("torch==2.13.0+cu129", DRIVER),
    ),
    "v100-580": Machine(
        "580.95.05", "13.0", (V100,), "fail", NO_KERNELS,
        ("no code for sm_70", "Tesla V100-SXM2-16GB", "sm_75, sm_80", "no kernel image"),
        (CU126,),
    ),
    # The job may use the H100 alone.
    "mixed": Machine(
        "580.95.05", "13.0", (H100, V100), "warn", NO_KERNELS, ("no code for sm_70",), (CU126,)
    ),
}  # fmt: skip
FAILING = [name for name, machine in MACHINES.items() if machine.verdict == "fail"]
FOUND = [name for name, machine in MACHINES.items() if machine.verdict != "pass"]


def stand_in(directory: Path, machine: Machine, cache: Path) -> str:
    """The directory of the machine's driver libraries."""
    return str(
        fakes.build(
            directory / "driver",
            driver=machine.driver, cuda=machine.cuda, gpus=machine.gpus, cache=cache,
        )
    )  # fmt: skip


def report_on(venv: str, libraries: str, *words: str, **env: str) -> Dict[str, Any]:
    """The JSON report of `preflight check`, found valid."""
    ran = stack.preflight(
        "check", "--format", "json", "--python", venv, *words, libraries=libraries, **env
    )
    report = stack.document(ran)
    jsonschema.validate(report, json_report.json_schema())
    assert ran.code == (78 if report["verdict"] == "fail" else 0)
    assert not ran.err
    return report


def worst(report: Dict[str, Any]) -> Dict[str, Any]:
    """The finding that decides."""
    found: Dict[str, Any] = report["findings"][0]
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_the_json_report_is_right(name: str, venv: str, tmp_path: Path, cache: Path) -> None:
    machine = MACHINES[name]
    report = report_on(venv, stand_in(tmp_path, machine, cache))
    assert report["verdict"] == machine.verdict, report["findings"]
    assert stack.gpu_count(report) == len(machine.gpus)
    assert stack.failing(report) == ([machine.rule] if machine.verdict == "fail" else [])
    assert not machine.rule or worst(report)["rule"] == machine.rule
    framework = report["snapshot"]["frameworks"]["value"][0]
    assert framework["cuda"]["value"] == "13.0"
    assert report["snapshot"]["driver"]["version"]["value"] == machine.driver
    assert report["snapshot"]["driver"]["cuda"]["value"] == machine.cuda


@pytest.mark.parametrize("name", FAILING)
def test_a_finding_gives_reason_fix_and_proof(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    machine = MACHINES[name]
    found = worst(report_on(venv, stand_in(tmp_path, machine, cache)))
    said = " ".join(found[part] for part in ("summary", "observed", "needed", "why"))
    assert [words for words in machine.reasons if words not in said] == []
    assert len(found["fix"]) == len(machine.fixes), found["fix"]
    lines = [[line for line in found["fix"] if words in line] for words in machine.fixes]
    assert [len(one) for one in lines] == [1] * len(machine.fixes), found["fix"]
    assert found["subject"] == "torch 2.14.1+cu130"
    assert found["evidence"] and all(one["source"] for one in found["evidence"])
    assert not any(one["assumed"] for one in found["evidence"])
    assert found["references"] and all(one["title"] for one in found["references"])


@pytest.mark.parametrize("name", MACHINES)
def test_the_text_says_the_same(name: str, venv: str, tmp_path: Path, cache: Path) -> None:
    machine = MACHINES[name]
    ran = stack.preflight(
        "--explain", "--python", venv, libraries=stand_in(tmp_path, machine, cache)
    )
    assert ran.code == (78 if machine.verdict == "fail" else 0)
    plain = " ".join(ran.out.split())
    assert "\033" not in ran.out, "colour is for terminals"
    assert machine.driver in plain and "torch 2.14.1+cu130" in plain
    if machine.verdict == "pass":
        assert ran.last.startswith("PASS: torch 2.14.1+cu130")
        return
    assert ran.last.startswith(f"{machine.verdict.upper()}: {machine.rule}: ")
    assert [words for words in machine.reasons if words not in plain] == []
    labels = re.findall(r"^  (seen|needed|why|fix|source) ", ran.out, re.MULTILINE)
    assert labels[:5] == ["seen", "needed", "why", "fix", "source"]
    assert [words for words in machine.fixes if words not in plain] == []
    assert machine.fixes[0] in ran.last, "the verdict line ends with the first fix"


def test_without_a_driver(venv: str) -> None:
    report = report_on(venv, "")
    assert report["verdict"] == "fail"
    assert stack.failing(report) == [NOT_VISIBLE]
    found = worst(report)
    assert "no NVIDIA driver" in found["summary"] and "CUDA 13.0 build" in found["summary"]
    assert any("--gpus all" in line for line in found["fix"])
    text = stack.preflight("--explain", "--python", venv)
    assert text.code == 78 and text.last.startswith(f"FAIL: {NOT_VISIBLE}: ")


def test_without_a_driver_and_gpus_hidden_on_purpose(venv: str) -> None:
    report = report_on(venv, "", CUDA_VISIBLE_DEVICES="")
    assert report["verdict"] == "pass", "a CPU job is no GPU job gone wrong"


# -- the fixes are true: following them gives a pass --------------------------------------------


@pytest.mark.parametrize("name", ["a100-535", "h100-575", "t4-470", "5090-570"])
def test_the_driver_it_asks_for_is_enough(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    libraries = stand_in(tmp_path, MACHINES[name], cache)
    lines = " ".join(worst(report_on(venv, libraries))["fix"])
    (asked,) = re.findall(r"driver ([\d.]+) or newer", lines)
    enough = report_on(venv, libraries, "--assume", f"driver={asked}")
    assert enough["verdict"] == ("warn" if name == "t4-470" else "pass"), "the T4's linalg remains"
    older = asked.replace("580.", "579.")
    assert report_on(venv, libraries, "--assume", f"driver={older}")["verdict"] == "fail"


@pytest.mark.parametrize("name", FAILING)
def test_the_build_it_offers_passes(name: str, venv: str, tmp_path: Path, cache: Path) -> None:
    report = report_on(venv, stand_in(tmp_path, MACHINES[name], cache))
    line = next(one for one in worst(report)["fix"] if "pip install" in one)
    offered = re.search(r"torch==([\d.]+\+(cu(\d+)(\d))) --index-url \S+/(\S+)$", line)
    assert offered, line
    version, variant, major, minor, index = offered.groups()
    assert index == variant
    framework = report["snapshot"]["frameworks"]["value"][0]
    framework["version"]["value"] = version
    framework["cuda"]["value"] = f"{major}.{minor}"
    framework.pop("arch_list", None)
    for one in ("code", "libraries", "extensions"):  # its files go with it, and what it pins
        report["snapshot"].pop(one, None)
    report["snapshot"]["python"].pop("packages")
    path = tmp_path / "cured.json"
    path.write_text(json.dumps(report["snapshot"]))
    ran = stack.preflight("diagnose", "--format", "json", str(path))
    assert stack.document(ran)["verdict"] == "pass", ran.out


@pytest.mark.parametrize("name", ["a100-535", "h100-575"])
def test_the_compat_package_it_offers_passes(
    name: str, venv: str, tmp_path: Path, cache: Path
) -> None:
    libraries = stand_in(tmp_path, MACHINES[name], cache)
    assert report_on(venv, libraries, "--assume", "compat=13.0")["verdict"] == "pass"


# -- beside a kernel driver, as on a real node --------------------------------------------------


def on_a_node(
    tmp_path: Path, cache: Path, node: List[FakeGpu], given: List[FakeGpu]
) -> Tuple[Path, str]:
    """A /proc/driver that shows the GPUs of the node, libraries that show those given to us."""
    proc = stack.write_proc(tmp_path / "proc", "580.95.05", node)
    return proc, str(fakes.build(tmp_path / "driver", gpus=given, cache=cache))


@pytest.mark.usefixtures("proc_driver")
def test_what_nvml_knows_of_a_gpu_is_kept(venv: str, tmp_path: Path, cache: Path) -> None:
    unheard_of = replace(H100, name="NVIDIA X900", capability="9.0", memory_gib=141)
    proc, libraries = on_a_node(tmp_path, cache, [unheard_of], [unheard_of])
    ran = stack.preflight(
        "check", "--format", "json", "--python", venv, libraries=libraries, proc=proc
    )
    report = stack.document(ran)
    (gpu,) = report["snapshot"]["gpus"]["value"]
    assert gpu["compute_capability"]["value"] == "9.0"
    assert gpu["memory_gib"]["value"] == 141 and gpu["brand"]["value"] == "14"
    assert report["verdict"] == "pass", "its capability is known, whatever its name"


@pytest.mark.usefixtures("proc_driver")
def test_other_gpus_of_the_node_are_not_ours(venv: str, tmp_path: Path, cache: Path) -> None:
    """A container that was given one GPU can still see every GPU of the node in /proc."""
    proc, libraries = on_a_node(tmp_path, cache, [V100, H100], [H100])
    words = ["check", "--format", "json", "--python", venv]
    report = stack.document(stack.preflight(*words, libraries=libraries, proc=proc))
    assert stack.gpu_count(report) == 1
    assert report["verdict"] == "pass", "the V100 is not this container's"
    ran = stack.preflight(*words, libraries=libraries, proc=proc, CUDA_VISIBLE_DEVICES="1")
    assert stack.failing(stack.document(ran)) == ["gpu/visible-devices-invalid"]


@pytest.mark.usefixtures("proc_driver")
def test_halves_of_two_drivers(venv: str, tmp_path: Path, cache: Path) -> None:
    proc = stack.write_proc(tmp_path / "proc", "575.57.08", [H100])
    libraries = fakes.build(
        tmp_path / "driver", nvml="mismatch", libcuda_file="libcuda.so.580.95.05", cache=cache
    )
    ran = stack.preflight(
        "check", "--format", "json", "--python", venv, libraries=str(libraries), proc=proc
    )
    report = stack.document(ran)
    assert stack.failing(report)[0] == "driver/library-mismatch"
    assert "580.95.05" in worst(report)["summary"] and "575.57.08" in worst(report)["summary"]
