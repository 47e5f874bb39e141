"""Rules about how a container starts its command, and what its runtime gave it."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import A100, finding, outcomes, say, snap, torch, word

INIT, SIGNALS = "container/no-init", "container/signals-not-forwarded"
SHELL, BROKEN = "container/shell-missing", "container/entrypoint-broken"
REPLACED, ACCESS = "container/entrypoint-replaced", "container/device-access-denied"
CAPABILITIES = "container/driver-capabilities-missing"
INSIDE = {"container": True}
NGC = "/opt/nvidia/nvidia_entrypoint.sh"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"image": {"init": False}}, "warn"),
        ({"image": {"init": True}}, "pass"),
        ({"image": {"entrypoint": ["/usr/bin/tini", "--", "train"]}}, "pass"),
        ({"os": INSIDE, "host": {"first_process": "docker-init"}}, "pass"),
        ({"os": INSIDE, "host": {"first_process": "bash"}}, "pass"),
        ({"os": INSIDE, "host": {"first_process": "python3"}}, "info"),
        ({"os": {"container": False}, "host": {"first_process": "python3"}}, "n/a"),
        ({"host": {"first_process": "python3"}}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_no_init(document, expected):
    assert say(INIT, **document) == [expected]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"image": {"entrypoint": ["/bin/sh", "-c", "python train.py"]}}, "warn"),
        ({"image": {"entrypoint": ["/bin/sh", "-c", "exec python train.py"]}}, "pass"),
        ({"image": {"entrypoint": ["python", "train.py"]}}, "pass"),
        ({"image": {"entrypoint": ["tini", "--", "bash", "-c", "train"]}}, "pass"),
        ({"image": {"entrypoint": ["/start.sh"]}}, "unknown"),
        ({"os": INSIDE, "host": {"below_shell": True, "first_process": "sh"}}, "warn"),
        ({"os": INSIDE, "host": {"below_shell": False}}, "pass"),
        # PAI DLC starts every job by a shell: that is told of, and no fault of the image.
        ({"os": INSIDE, "host": {"below_shell": True}, "env": {"DLC_JOB_ID": "dlc1"}}, "info"),
        ({"os": {"container": False}, "host": {"below_shell": True}}, "n/a"),
        ({}, "unknown"),
    ],
)
def test_signals_not_forwarded(document, expected):
    assert say(SIGNALS, **document) == [expected]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"image": {"shell": False, "entrypoint": ["/bin/sh", "-c"]}}, "fail"),
        ({"image": {"shell": False, "command": ["bash", "-c", "x"]}}, "fail"),
        ({"image": {"shell": True, "entrypoint": ["/bin/sh", "-c"]}}, "pass"),
        ({"image": {"entrypoint": ["/bin/sh", "-c"]}}, "unknown"),
        ({"image": {"shell": False, "entrypoint": ["/app/train"]}}, "n/a"),
        ({"image": {"shell": False}, "env": {"DLC_JOB_ID": "dlc1"}}, "fail"),
        ({"image": {"shell": False}, "job": {"platform": "pai-dlc"}}, "fail"),
        ({"image": {"shell": False}, "job": {"platform": "slurm"}}, "n/a"),
    ],
)
def test_shell_missing(document, expected):
    assert say(SHELL, **document) == [expected]


LINE = "env: 'bash ': No such file or directory"


@pytest.mark.parametrize(
    ("image", "logs", "expected"),
    [
        ({"entrypoint": ["/start.sh"], "entrypoint_problem": "is not executable"}, [], "fail"),
        ({"entrypoint": ["/start.sh"], "entrypoint_problem": None}, [LINE], "pass"),
        ({"entrypoint": ["/start.sh"]}, [LINE], "fail"),
        ({"entrypoint": ["/start.sh"]}, ["env: 'bash\r': No such file or directory"], "fail"),
        ({"entrypoint": ["/start.sh"]}, [], "unknown"),
        ({"entrypoint": ["/app/train"]}, [LINE], "unknown"),  # some other script's line
        ({"entrypoint": []}, [LINE], "n/a"),
        ({}, [LINE], "unknown"),
    ],
)
def test_entrypoint_broken(image, logs, expected):
    assert say(BROKEN, image=image, logs=logs) == [expected]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"base_entrypoint": [NGC], "entrypoint": ["python"]}, "warn"),
        ({"base_entrypoint": [NGC], "entrypoint": []}, "warn"),
        ({"base_entrypoint": [NGC], "entrypoint": ["preflight", "exec", "--"]}, "warn"),
        ({"base_entrypoint": [NGC], "entrypoint": [NGC, "preflight", "exec", "--"]}, "pass"),
        ({"base_entrypoint": [], "entrypoint": ["python"]}, "n/a"),
        ({"base_entrypoint": [NGC]}, "unknown"),
        ({"entrypoint": ["python"]}, "unknown"),
    ],
)
def test_entrypoint_replaced(image, expected):
    assert say(REPLACED, image=image) == [expected]


def test_the_entrypoint_to_restore_is_said():
    found = finding(REPLACED, image={"base_entrypoint": [NGC], "entrypoint": ["python"]})
    assert found.fix[0] == f'ENTRYPOINT ["{NGC}", "preflight", "exec", "--"]'


GIVEN = {"version": "535.104.05", "visible": True, "device_nodes": ["/dev/nvidia0"]}


def only(value):
    return {"NVIDIA_DRIVER_CAPABILITIES": value}


@pytest.mark.parametrize(
    ("driver", "env", "expected"),
    [
        (dict(GIVEN, libcuda="missing"), only("utility"), "fail"),
        (dict(GIVEN, libcuda="missing"), {}, "fail"),
        (dict(GIVEN, libcuda="missing"), only("all"), "pass"),  # then another rule speaks
        (dict(GIVEN, libcuda="host"), only("utility"), "pass"),  # CDI reads no variable
        (dict(GIVEN, libcuda="host"), {}, "pass"),
        (dict(GIVEN, device_nodes=[], libcuda="missing"), only("utility"), "n/a or pass"),
        ({}, only("utility"), "unknown"),
        ({}, only("compute,utility"), "pass"),
        ({}, {}, "n/a"),
    ],
)
def test_driver_capabilities(driver, env, expected):
    (found,) = say(CAPABILITIES, driver=driver, env=env, gpus=[A100], torch=torch("12.4"))
    assert found in expected.split(" or ")


@pytest.mark.parametrize(("ranks", "expected"), [(8, "fail"), (1, "warn")])
def test_nccl_needs_nvml(ranks, expected):
    driver = dict(GIVEN, libcuda="host", nvml="NVML Shared Library Not Found")
    job = {"processes_per_node": ranks}
    assert say(CAPABILITIES, driver=driver, env=only("compute"), job=job) == [expected]
    assert say(CAPABILITIES, driver=driver, env=only("compute,utility"), job=job) == ["pass"]
    assert say(CAPABILITIES, driver=dict(driver, nvml="ok"), env=only("compute"), job=job) == [
        "pass"
    ]


def test_an_image_that_leaves_compute_out_is_warned_of():
    said = say(CAPABILITIES, "directory", env=only("utility"), torch=torch("12.4"))
    assert said == ["warn"], "the node's runtime may be CDI, which does not read it"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"driver": {"devices_openable": False}}, "fail"),
        ({"driver": {"devices_openable": True}}, "pass"),
        ({"driver": {"devices_openable": None}}, "n/a"),
        ({"driver": {"devices_openable": False, "device_nodes": []}}, "n/a"),
        ({"driver": {"devices_openable": False}, "env": {"CUDA_VISIBLE_DEVICES": ""}}, "n/a"),
        ({}, "unknown"),
    ],
)
def test_device_access_denied(document, expected):
    assert say(ACCESS, **document) == [expected]


def test_access_that_could_not_be_tried_is_unknown_and_no_failure():
    seen = snap(gpus=[A100])
    lost = s.unknown("No such device or address", "open /dev/nvidiactl")
    seen = replace(seen, driver=replace(seen.driver, devices_openable=lost))
    assert [word(ACCESS, one) for one in outcomes(ACCESS, seen)] == ["unknown"]
