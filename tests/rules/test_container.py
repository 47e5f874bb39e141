"""Rules about what the container was given."""

import pytest

from tests.rules.build import A100, finding, say, torch

GPUS = "container/gpu-not-requested"
UVM = "container/uvm-device-missing"

INSIDE = {"container": True}
NOTHING = {"version": "535.104.05", "device_nodes": [], "libcuda": "missing"}
GIVEN = {"version": "535.104.05", "device_nodes": ["/dev/nvidia0", "/dev/nvidiactl"],
         "libcuda": "host"}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"os": INSIDE, "driver": NOTHING}, "fail"),
        ({"os": INSIDE, "driver": dict(NOTHING, version=None),
          "host": {"pci_gpus": [{"device": "10de:20b2"}]}}, "fail"),
        ({"os": INSIDE, "driver": GIVEN}, "pass"),
        # Half of it is there: the container did ask.
        ({"os": INSIDE, "driver": dict(NOTHING, libcuda="host")}, "pass"),
        ({"os": INSIDE, "driver": dict(NOTHING, device_nodes=["/dev/nvidia0"])}, "pass"),
        # Outside, on a host without GPUs, and on what is no container at all.
        ({"os": {"container": False}, "driver": NOTHING}, "n/a"),
        ({"driver": NOTHING}, "n/a"),
        ({"os": INSIDE, "driver": dict(NOTHING, version=None), "host": {"pci_gpus": []}}, "n/a"),
        ({"os": INSIDE}, "unknown"),
    ],
)  # fmt: skip
def test_gpu_not_requested(document, expected):
    assert say(GPUS, torch=torch("12.4"), **document) == [expected]


@pytest.mark.parametrize(
    "why",
    [
        {},
        {"torch": torch(None)},
        {"torch": torch("12.4"), "env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"torch": torch("12.4"), "env": {"NVIDIA_VISIBLE_DEVICES": "void"}},
        {"torch": torch("12.4"), "env": {"NPROC_PER_NODE": "0", "DLC_JOB_ID": "dlc1"}},
        {"torch": torch("12.4"), "job": {"gpus_per_node": 0}},
    ],
)
def test_a_job_that_wants_no_gpu_need_not_ask(why):
    assert say(GPUS, os=INSIDE, driver=NOTHING, **why) == ["n/a"]


def test_a_job_can_ask_without_a_framework():
    assert say(GPUS, os=INSIDE, driver=NOTHING, job={"gpus_per_node": 1}) == ["fail"]


def test_how_to_ask_is_said():
    found = finding(GPUS, os=INSIDE, driver=NOTHING, torch=torch("12.4"))
    assert "--gpus all" in found.fix[0] and "nvidia.com/gpu" in found.fix[1]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"os": INSIDE, "driver": dict(GIVEN, uvm_device=False)}, "fail"),
        ({"os": INSIDE, "driver": dict(GIVEN, uvm_device=True)}, "pass"),
        ({"os": {"container": False}, "driver": dict(GIVEN, uvm_device=True)}, "pass"),
        # On a host the driver makes it when first used; WSL has another device.
        ({"os": {"container": False}, "driver": dict(GIVEN, uvm_device=False)}, "n/a"),
        ({"os": {"wsl": True, "container": True}, "driver": dict(GIVEN, uvm_device=False)}, "n/a"),
        ({"os": INSIDE, "driver": dict(NOTHING, uvm_device=False)}, "n/a"),
        ({"os": INSIDE, "driver": GIVEN}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_uvm_device_missing(document, expected):
    assert say(UVM, gpus=[A100], **document) == [expected]


@pytest.mark.parametrize("job", [{"env": {"CUDA_VISIBLE_DEVICES": ""}},
                                 {"job": {"gpus_per_node": 0}}])  # fmt: skip
def test_a_cpu_job_needs_no_uvm_device(job):
    driver = dict(GIVEN, uvm_device=False)
    assert "fail" not in say(UVM, os=INSIDE, driver=driver, torch=torch("12.4"), **job)
