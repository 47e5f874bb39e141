"""GPU health, from a stand-in libnvidia-ml through the real binding to the rules: on and off."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from preflight import snapshot_json
from tests import fakes
from tests.fakes import A100, H100, NOT_SUPPORTED, RTX_5090, T4, V100, Refused
from tests.rules.build import outcomes, word

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.skipif(
    fakes.compiler() is None, reason="no C compiler to build the stand-in driver with"
)

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
ASK = """
import json, sys
from preflight import snapshot_json
from preflight.probes import driver
print(json.dumps(snapshot_json.to_json(driver.nvml())))
"""
TIME = """
import time
from preflight.probes import driver, health
import pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(8)]
health.read(pynvml, handles[0], 0)
started = time.process_time()
for n, handle in enumerate(handles):
    health.read(pynvml, handle, n)
print((time.process_time() - started) * 1000)
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("fakes")


def child(script, directory):
    """What the script prints with the libraries of `directory` in front."""
    environment = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    environment.update(LD_LIBRARY_PATH=str(directory))
    environment["PYTHONPATH"] = os.pathsep.join([SOURCE, environment.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode().splitlines()[-1]


def seen(tmp_path, cache, gpus, **how):
    """The snapshot that the NVML probe makes of these GPUs."""
    fakes.build(tmp_path, gpus=gpus, cache=cache, **how)
    made = snapshot_json.from_json(json.loads(child(ASK, tmp_path)))
    return replace(made, origin="live")


def sick(gpu, **changes):
    return replace(gpu, health=replace(gpu.health, **changes))


def words(rule, snapshot):
    return [word(rule, one) for one in outcomes(rule, snapshot)]


UNHEALTHY, THROTTLED, IN_USE = "gpu/unhealthy", "gpu/throttled", "gpu/memory-in-use"
FABRIC, EXCLUSIVE, MIG, VGPU = (
    "fabric/not-ready", "gpu/exclusive-mode-busy", "gpu/mig-device-unset", "gpu/vgpu-peer-access",
)  # fmt: skip

#: What is switched on, on which GPUs, the rule that speaks of it and how.
STATES = {
    "lost": ([sick(H100, handle=Refused(15))], UNHEALTHY, "fail"),
    "needs a reset": ([sick(H100, handle=Refused(16))], UNHEALTHY, "fail"),
    "lost while it is asked": ([sick(H100, temperature=Refused(15))], UNHEALTHY, "fail"),
    "the driver asks for a reset": ([sick(H100, recovery=1)], UNHEALTHY, "fail"),
    "the driver asks for a reboot": ([sick(H100, recovery=2)], UNHEALTHY, "fail"),
    "the driver asks for a drain": ([sick(H100, recovery=4)], UNHEALTHY, "fail"),
    "P2P has to be drained, one GPU": ([sick(H100, recovery=3)], UNHEALTHY, "warn"),
    "P2P has to be drained, two GPUs": ([sick(H100, recovery=3), H100], UNHEALTHY, "fail"),
    "an error dealt with": ([sick(H100, ecc_now=2)], UNHEALTHY, "warn"),
    "an error before Ampere": ([sick(V100, ecc_now=1)], UNHEALTHY, "fail"),
    "a remap pending": ([sick(A100, remap_pending=1, recovery=NOT_SUPPORTED)], UNHEALTHY, "warn"),
    "a remap failed": ([sick(A100, remap_failed=1)], UNHEALTHY, "fail"),
    "pages pending": ([sick(T4, retired_pending=1)], UNHEALTHY, "fail"),
    "some NVLinks down": ([H100, sick(H100, links_down=3)], UNHEALTHY, "warn"),
    "all NVLinks down": ([H100, sick(H100, links_down=18)], UNHEALTHY, "fail"),
    "narrow PCIe": ([sick(A100, pcie_width=8)], UNHEALTHY, "warn"),
    "slow PCIe while busy": ([sick(A100, pcie_generation=1, clocks=0)], UNHEALTHY, "warn"),
    "hot by hardware": ([sick(H100, clocks=0x48)], THROTTLED, "warn"),
    "hot by software": ([sick(H100, clocks=0x20)], THROTTLED, "warn"),
    "power brake": ([sick(H100, clocks=0x88)], THROTTLED, "warn"),
    "hardware slowdown": ([sick(H100, clocks=0x08)], THROTTLED, "warn"),
    "at its limit": ([sick(H100, temperature=87)], THROTTLED, "warn"),
    "memory in use": ([sick(H100, used_mib=30000, processes=2)], IN_USE, "warn"),
    "memory in use from elsewhere": ([sick(T4, used_mib=9000)], IN_USE, "warn"),
    "fabric in progress": ([sick(H100, fabric_state=2)], FABRIC, "fail"),
    "fabric not started": ([sick(H100, fabric_state=1)], FABRIC, "fail"),
    "fabric error, several": ([sick(H100, fabric_status=999)] * 2, FABRIC, "fail"),
    "fabric error, one": ([sick(H100, fabric_status=999)], FABRIC, "warn"),
    "fabric degraded": ([sick(H100, fabric_health=0x1)], FABRIC, "warn"),
    "a route unhealthy": ([sick(H100, fabric_health=0x10)], FABRIC, "warn"),
    "exclusive and taken": (
        [replace(sick(H100, processes=1), compute_mode=3)], EXCLUSIVE, "fail"
    ),
    "exclusive, several ranks": ([replace(H100, compute_mode=3)] * 2, EXCLUSIVE, "warn"),
    "prohibited": ([replace(H100, compute_mode=2)], EXCLUSIVE, "fail"),
    "MIG without a device": ([replace(H100, mig=True, mig_instances=0)], MIG, "fail"),
    "vGPUs apart": ([sick(A100, virtualization=2, peers=1)] * 2, VGPU, "warn"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_on(name, tmp_path, cache):
    gpus, rule, expected = STATES[name]
    assert words(rule, seen(tmp_path, cache, gpus)) == [expected]


#: The same with the state off: what a healthy machine of that kind answers.
OFF = {
    "H100": ([H100, H100], {MIG: "n/a", VGPU: "n/a"}),
    "A100": ([A100, A100], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}),
    "V100": ([V100], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}),
    "T4": ([T4], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}),
    "RTX 5090": ([RTX_5090], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}),
    # States that look like trouble and are none.
    "an idle GPU lowers PCIe": (
        [sick(A100, pcie_generation=1)], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}
    ),
    "a power cap under load": ([sick(H100, clocks=0x4)], {MIG: "n/a", VGPU: "n/a"}),
    "errors of earlier days": ([sick(H100, ecc_ever=40)], {MIG: "n/a", VGPU: "n/a"}),
    "all boards without a bridge": (
        [sick(replace(A100, name="NVIDIA A100-PCIE-40GB"), links_down=12)] * 2,
        {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"},
    ),
    "some boards without a bridge": (
        [replace(A100, name="NVIDIA A100-PCIE-40GB"),
         sick(replace(A100, name="NVIDIA A100-PCIE-40GB"), links_down=12)],
        {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"},
    ),
    "one of its kind with fewer links": ([sick(H100, links_down=3)], {MIG: "n/a", VGPU: "n/a"}),
    "a fabric that is not supported": (
        [sick(H100, fabric_state=0)], {FABRIC: "n/a", MIG: "n/a", VGPU: "n/a"}
    ),
    "exclusive, one process": ([replace(H100, compute_mode=3)], {MIG: "n/a", VGPU: "n/a"}),
    "MIG with a device": ([replace(A100, mig=True)], {FABRIC: "n/a", IN_USE: "n/a",
                                                      VGPU: "n/a"}),
    "vGPUs that reach each other": (
        [sick(A100, virtualization=2)] * 2, {FABRIC: "n/a", MIG: "n/a"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OFF)
def test_off(name, tmp_path, cache):
    gpus, others = OFF[name]
    snapshot = seen(tmp_path, cache, gpus)
    for rule in (UNHEALTHY, THROTTLED, IN_USE, FABRIC, EXCLUSIVE, MIG, VGPU):
        assert words(rule, snapshot) == [others.get(rule, "pass")], rule


QUESTIONS = [one.name for one in fields(fakes.Health) if one.name != "handle"]
#: NVML's codes: not supported, no permission, function not found, unknown error.
CODES = [3, 4, 13, 999]


@pytest.mark.parametrize("code", CODES)
def test_no_question_need_have_an_answer(code, tmp_path, cache):
    """Each of them refused: nothing is found, and only "not supported" is not called unknown."""
    gpu = sick(H100, **{name: Refused(code) for name in QUESTIONS})
    snapshot = seen(tmp_path, cache, [gpu])
    (found,) = snapshot.gpus.value
    assert found.name.value == "NVIDIA H100 80GB HBM3" and found.lost.absent
    for name in ("ecc_now", "remap_pending", "temperature", "pcie_width", "nvlinks_up",
                 "persistence", "slowdowns", "processes", "fabric_state"):  # fmt: skip
        fact = getattr(found, name)
        assert not fact.known
        assert bool(fact.unknown) == (code in (4, 999)) or name == "nvlinks_up", (name, fact)
    for rule in (UNHEALTHY, THROTTLED, IN_USE, FABRIC):
        assert not {"fail", "warn"} & set(words(rule, snapshot))


@pytest.mark.parametrize("name", QUESTIONS)
def test_one_question_without_an_answer_hides_no_other(name, tmp_path, cache):
    """One refusal beside a real fault: the fault is found all the same."""
    gone = {"recovery": "remap_failed"}.get(name, "recovery")
    gpu = sick(H100, **{name: Refused(999), gone: 1})
    assert "fail" in words(UNHEALTHY, seen(tmp_path, cache, [gpu]))


def test_an_old_driver_knows_fewer_calls(tmp_path, cache):
    """Functions that it does not export: an R450 has no fabric, event reasons or field."""
    missing = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetCurrentClocksEventReasons",
               "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetRemappedRows")  # fmt: skip
    snapshot = seen(
        tmp_path, cache, [sick(T4, clocks=0x40)], nvml="missing-function", nvml_missing=missing
    )
    (gpu,) = snapshot.gpus.value
    assert gpu.slowdowns.value == ("hw-thermal",) and gpu.memory_used_gib.known
    assert gpu.fabric_state.absent and gpu.remap_failed.absent


def test_a_library_that_lost_its_senses(tmp_path, cache):
    fakes.build(tmp_path, nvml="garbage", cache=cache)
    snapshot = snapshot_json.from_json(json.loads(child(ASK, tmp_path)))
    assert not snapshot.gpus.known  # it counts four billion of them


@pytest.mark.parametrize("gpu", [fakes.GARBAGE_GPU])
def test_answers_that_cannot_be_are_no_facts(gpu, tmp_path, cache):
    (found,) = seen(tmp_path, cache, [gpu]).gpus.value
    for name in ("temperature", "pcie_width", "pcie_generation", "memory_used_gib", "recovery"):
        assert getattr(found, name).unknown, name


def test_a_gpu_that_the_job_does_not_see_does_not_count(tmp_path, cache):
    from preflight import snapshot as s

    snapshot = seen(tmp_path, cache, [H100, sick(H100, recovery=1)])
    uuid = snapshot.gpus.value[0].uuid.value
    hidden = replace(snapshot, env=s.known({"CUDA_VISIBLE_DEVICES": uuid}, "test"))
    assert words(UNHEALTHY, snapshot) == ["fail"] and words(UNHEALTHY, hidden) == ["pass"]


def test_a_sick_gpu_is_named_with_what_to_do(tmp_path, cache):
    (found,) = outcomes(UNHEALTHY, seen(tmp_path, cache, [H100, sick(H100, recovery=1)]))
    assert "GPU 1" in found.summary and "GPU 0" not in found.summary
    assert any("--gpu-reset" in one for one in found.fix)
    assert ("gpus[1].recovery", "gpu-reset") in [(e.fact, e.value) for e in found.evidence]


def test_eight_gpus_take_some_milliseconds(tmp_path, cache):
    fakes.build(tmp_path, gpus=[H100] * 8, cache=cache)
    assert float(child(TIME, tmp_path)) < 8 * 5  # of CPU; a busy machine takes about 1 each
