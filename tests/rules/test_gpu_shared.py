"""Rules about divided and shared GPUs, and about the fabric, by described facts."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight import verdict
from tests.rules.build import A100, H100, M, finding, outcomes, say, snap, word

MIG, EXCLUSIVE = "gpu/mig-device-unset", "gpu/exclusive-mode-busy"
MPS, VGPU = "gpu/mps-not-reachable", "gpu/vgpu-peer-access"
VERSION, READY = "fabric/manager-version-mismatch", "fabric/not-ready"
ON = dict(A100, mig_mode=True)
TWO = {"processes_per_node": 2}


@pytest.mark.parametrize(
    ("gpus", "env", "job", "expected"),
    [
        ([dict(ON, mig_devices=[])], {}, {}, "fail"),
        ([dict(ON, mig_devices=["MIG-a"])], {}, {}, "pass"),
        ([dict(ON, mig_devices=["MIG-a", "MIG-b"])], {}, TWO, "warn"),
        ([dict(ON, mig_devices=["MIG-a"])], {"CUDA_VISIBLE_DEVICES": "MIG-a"}, TWO, "pass"),
        ([ON], {}, {}, "unknown"),
        ([A100], {}, {}, "unknown"),
        ([dict(A100, mig_mode=False)], {}, {}, "n/a"),
        ([dict(ON, mig_devices=[]), dict(A100, mig_mode=False)], {}, {}, "n/a"),
        ([dict(ON, mig_devices=[])], {"CUDA_VISIBLE_DEVICES": ""}, {}, "n/a"),
        ([], {}, {}, "n/a"),
    ],
)
def test_mig(gpus, env, job, expected):
    assert say(MIG, gpus=gpus, env=env, job=job) == [expected]


def test_mig_devices_that_could_not_be_asked_for_are_not_missing():
    seen = snap(gpus=[ON])
    (gpu,) = seen.gpus.value
    lost = replace(gpu, mig_devices=s.unknown("Insufficient Permissions"))
    seen = replace(seen, gpus=replace(seen.gpus, value=(lost,)))
    assert [word(MIG, one) for one in outcomes(MIG, seen)] == ["unknown"]


def taken(mode, **more):
    return [dict(A100, compute_mode=mode, **more)]


@pytest.mark.parametrize(
    ("gpus", "job", "mps", "expected"),
    [
        (taken("Exclusive_Process", in_use_by_others=True), {}, None, "fail"),
        (taken("Exclusive_Process", processes=1), {}, None, "fail"),
        (taken("Exclusive_Process"), {}, None, "pass"),
        (taken("Exclusive_Process"), TWO, None, "warn"),
        (taken("Exclusive_Process", processes=1), TWO, {"reachable": True}, "pass"),
        (taken("Exclusive_Process", processes=1), {}, {"reachable": False}, "fail"),
        (taken("Prohibited"), {}, None, "fail"),
        (taken("Default", processes=3), TWO, None, "pass"),
        ([A100], {}, None, "unknown"),
    ],
)
def test_exclusive(gpus, job, mps, expected):
    driver = {"mps": mps} if mps else {}
    assert say(EXCLUSIVE, gpus=gpus, job=job, driver=driver) == [expected]


ASKED = {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}


@pytest.mark.parametrize(
    ("mps", "env", "expected"),
    [
        ({"pipe_directory": "/run/mps", "reachable": False}, ASKED, "fail"),
        ({"pipe_directory": "/run/mps", "reachable": True}, ASKED, "pass"),
        # CUDA runs without MPS where there is no socket at all.
        ({"pipe_directory": "/run/mps", "reachable": None}, ASKED, "warn"),
        ({"pipe_directory": "/tmp/nvidia-mps", "reachable": None}, {}, "n/a"),
        ({"pipe_directory": "/tmp/nvidia-mps", "reachable": False}, {}, "fail"),
        ({"pipe_directory": "/run/mps"}, ASKED, "unknown"),
        (None, ASKED, "unknown"),
        (None, {}, "n/a"),
    ],
)
def test_mps(mps, env, expected):
    driver = {"mps": mps} if mps else {}
    assert say(MPS, gpus=[A100], driver=driver, env=env) == [expected]


VIRTUAL = {"name": "GRID A100X-40C", "count": 2, "vgpu": True}


@pytest.mark.parametrize(
    ("gpu", "job", "expected"),
    [
        (dict(VIRTUAL, unified_memory=False), TWO, "fail"),
        (dict(VIRTUAL, peer_access=False), TWO, "warn"),
        (VIRTUAL, TWO, "warn"),
        (dict(VIRTUAL, peer_access=True), TWO, "pass"),
        (dict(VIRTUAL, peer_access=True, unified_memory=False), TWO, "fail"),
        (VIRTUAL, {"processes_per_node": 1}, "n/a"),
        (dict(VIRTUAL, vgpu=False), TWO, "n/a"),
        (A100, TWO, "n/a"),
    ],
)
def test_vgpu(gpu, job, expected):
    assert say(VGPU, gpus=[gpu], job=job) == [expected]


@pytest.mark.parametrize(
    ("manager", "gpus", "expected"),
    [
        ({"version": "550.90.07", "state": "not-running"}, [A100], "fail"),
        ({"version": "550.90.07"}, [A100], "fail"),
        ({"version": "550.127.05"}, [A100], "pass"),
        ({"version": "550.90.07", "state": "running"}, [A100], "n/a"),
        # A file of another version, and a fabric that is up all the same.
        ({"version": "550.90.07"}, [dict(H100, fabric_state="completed")], "n/a"),
        ({"state": "running"}, [A100], "unknown"),
    ],
)
def test_fabric_manager_version(manager, gpus, expected):
    driver = {"version": "550.127.05", "fabric_manager": manager}
    assert say(VERSION, driver=driver, gpus=gpus) == [expected]


@pytest.mark.parametrize(
    ("state", "expected"),
    [("not-running", "fail"), ("in-progress", "fail"), ("failed", "fail"), ("running", "pass")],
)
def test_fabric_by_its_manager(state, expected):
    said = {"fabric_manager": {"state": state}}
    assert say(READY, driver=said, gpus=[A100]) == [expected]
    # What the GPU says of itself comes first.
    up = dict(H100, fabric_state="completed")
    assert say(READY, driver=said, gpus=[up]) == ["pass"]


def test_without_nvswitches_there_is_nothing_to_be_ready():
    assert say(READY, "live", gpus=[A100], host={"nvswitches": 0}) == ["n/a"]
    assert say(READY, "live", gpus=[A100], host={"nvswitches": 6}) == ["unknown"]
    assert say(READY, gpus=[]) == ["n/a"]


def test_memory_that_the_jobs_own_ranks_hold():
    """Where preflight runs in each rank, the others may have begun already."""
    gpus = [dict(H100, count=8, memory_used_gib=3.0)]
    assert say("gpu/memory-in-use", env={}, gpus=gpus) == ["warn"]
    within = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "3"}
    assert say("gpu/memory-in-use", env=within, gpus=gpus) == ["info"]


def test_a_gpu_without_a_fabric_waits_for_none():
    alone = dict(H100, fabric_state="not-supported")
    assert "fail" not in say(READY, gpus=[alone])
    assert say(READY, gpus=[dict(H100, fabric_state="not-started")]) == ["fail"]


def test_what_another_node_cures_ends_with_75():
    """Sick GPUs are a matter of the node: a scheduler may try the next one."""
    for document in ({"gpus": [dict(H100, lost="GPU is lost")]},
                     {"gpus": [dict(H100, fabric_state="in-progress")]},
                     {"gpus": taken("Prohibited")},
                     {"driver": {"devices_openable": False}, "gpus": [A100]}):  # fmt: skip
        report = verdict.judge(snap(**document), M)
        assert report.verdict == "fail" and verdict.exit_code(report) == 75, document


def test_the_fix_names_the_driver_to_match():
    driver = {"version": "550.127.05", "fabric_manager": {"version": "550.90.07"}}
    assert "nvidia-fabricmanager-550=550.127.05" in finding(VERSION, driver=driver).fix[0]
