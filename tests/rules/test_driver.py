"""Rules about the kernel driver: what it runs, what it still drives, and whether it is there."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import (
    A100,
    H100,
    RTX4090,
    T4,
    V100,
    finding,
    outcomes,
    say,
    snap,
    torch,
    word,
)  # fmt: skip

NOT_VISIBLE = "driver/not-visible"
MISMATCH = "driver/library-mismatch"
CUDA = "driver/too-old-for-cuda"
PTX = "driver/too-old-for-ptx"
TOO_NEW = "driver/too-new-for-gpu"
TOO_OLD = "driver/too-old-for-gpu"
REFUSAL = "the provided PTX was compiled with an unsupported toolchain"


def driver(version, **more):
    return {"version": version, "libcuda": "host", **more}


# -- driver/too-old-for-cuda ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "cuda", "expected"),
    [
        # Too old: below the floor, or of an older major.
        ("470.82.01", "12.1", "fail"),
        ("535.104.05", "13.0", "fail"),
        ("450.51.06", "11.1", "fail"),
        ("418.87", "10.2", "fail"),
        ("525.53", "12.1", "fail"),
        # Minor-version compatibility, from the floor on.
        ("470.82.01", "11.8", "pass"),
        ("450.80.02", "11.1", "pass"),
        ("525.60.13", "12.9", "pass"),
        ("580.65.06", "13.4", "pass"),
        # A newer driver and an older CUDA.
        ("580.95.05", "10.2", "pass"),
        ("580.95.05", "12.6", "pass"),
        ("700.10", "11.8", "pass"),
        # Newer than the tables know.
        ("700.10", "13.9", "pass"),
        ("700.10", "15.0", "unknown"),
    ],
)
def test_a_build_against_a_driver(version, cuda, expected):
    assert say(CUDA, driver=driver(version), torch=torch(cuda)) == [expected]
    assert say(CUDA, driver={"version": version}, torch=torch(cuda)) == [expected]


@pytest.mark.parametrize(
    "others",
    [
        {"cuda_toolkit": {"version": "13.0", "nvcc": "/usr/local/cuda/bin/nvcc"}},
        {"cuda_toolkit": {"version": "9.0"}},
        {"env": {"CUDA_VERSION": "13.0.0", "NV_CUDA_LIB_VERSION": "13.0.0-1"}},
        {"image": {"require_cuda": "cuda>=13.0"}},
    ],
)
def test_only_the_cuda_of_the_framework_counts(others):
    """Not nvcc's, not /usr/local/cuda's, not the image's variables."""
    assert say(CUDA, driver=driver("535.104.05"), torch=torch("12.4"), **others) == ["pass"]
    assert say(CUDA, driver=driver("470.82.01"), torch=torch("12.4"), **others) == ["fail"]


def test_what_nvidia_smi_prints_is_a_ceiling_and_not_a_floor():
    """Driver 535 prints CUDA 12.2: a 12.8 build runs all the same."""
    assert say(CUDA, driver=driver("535.104.05", cuda="12.2"), torch=torch("12.8")) == ["pass"]
    assert say(CUDA, driver={"cuda": "12.2"}, torch=torch("12.8")) == ["pass"]
    assert say(CUDA, driver={"cuda": "12.2"}, torch=torch("13.0")) == ["fail"]


@pytest.mark.parametrize(
    "document",
    [
        {"driver": driver("470.82.01")},
        {"driver": driver("470.82.01"), "torch": torch(None)},
        {"driver": {"visible": False}, "torch": torch("12.4")},
        {"driver": {"version": "470.82.01", "libcuda": "stub"}, "torch": torch("12.4")},
        {"driver": {"version": "470.82.01", "libcuda": "missing"}, "torch": torch("12.4")},
        {"driver": driver("470.82.01"), "torch": torch("12.4"),
         "env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"driver": driver("470.82.01"), "torch": torch("12.4"), "job": {"gpus_per_node": 0}},
    ],
)  # fmt: skip
def test_where_no_cuda_would_start_it_does_not_apply(document):
    assert say(CUDA, **document) == ["n/a"]


def test_without_a_driver_version_it_is_unknown():
    assert say(CUDA, torch=torch("12.4")) == ["unknown"]
    missing = outcomes(CUDA, snap(torch=torch("12.4")))[0].missing
    assert set(missing) == {"driver.version", "driver.cuda"}
    # Which compat libcuda it is decides, not the driver below it.
    unclear = {"version": "470.82.01", "libcuda": "compat"}
    assert say(CUDA, driver=unclear, torch=torch("12.4")) == ["unknown"]


def test_a_build_whose_cuda_is_not_known_is_unknown():
    conda = {"version": "2.1.0", "build": "conda"}
    assert say(CUDA, driver=driver("470.82.01"), torch=conda) == ["unknown"]
    by_name = {"version": "2.1.0+cu121", "build": "pip"}
    assert say(CUDA, driver=driver("470.82.01"), torch=by_name) == ["fail"]


@pytest.mark.parametrize(
    ("version", "compat", "cuda", "expected"),
    [
        ("470.129.06", "12.2", "12.1", "pass"),
        ("470.129.06", "12.2", "13.0", "fail"),
        ("535.104.05", "13.0", "13.0", "pass"),
    ],
)
def test_forward_compatibility_lifts(version, compat, cuda, expected):
    inside = {"cuda": compat, "resolved": True}
    kernel = {"version": version, "libcuda": "compat"}
    assert say(CUDA, driver=kernel, compat=inside, torch=torch(cuda)) == [expected]


def test_an_idle_compat_lifts_nothing():
    idle = {"cuda": "13.0", "resolved": False}
    assert say(CUDA, driver=driver("535.104.05"), compat=idle, torch=torch("13.0")) == ["fail"]


def test_each_framework_is_judged():
    jax = {"version": "0.4.30", "cuda": "12.3"}
    both = {"torch": torch("11.8"), "jax": jax}
    assert say(CUDA, driver=driver("470.82.01"), **both) == ["pass", "fail"]
    assert finding(CUDA, driver=driver("470.82.01"), **both).subject == "jax 0.4.30"


def test_the_finding_says_what_is_seen_needed_and_cures():
    found = finding(CUDA, driver=driver("470.82.01"), torch=torch("12.4", "2.6.0+cu124"),
                    gpus=[A100], os={"arch": "x86_64"}, python="3.11.7")  # fmt: skip
    assert "470.82.01" in found.observed and "11.4" in found.observed
    assert "525.60.13" in found.needed and "12.4" in found.summary
    fixes = "\n".join(found.fix)
    assert "torch==2.6.0+cu118" in fixes and "cuda-compat-12-4" in fixes and "525.60.13" in fixes
    assert {one.fact for one in found.evidence} >= {"driver.version", "frameworks[0].cuda"}


def test_no_compat_package_is_offered_for_geforce():
    fixes = finding(CUDA, driver=driver("470.82.01"), torch=torch("12.4"), gpus=[RTX4090]).fix
    assert not any("compat" in one for one in fixes)


# -- driver/too-old-for-ptx -------------------------------------------------------------------

ONLY_PTX = torch("12.8", arch_list=["sm_80", "compute_80"])


def test_ptx_newer_than_the_driver_fails():
    assert say(PTX, driver=driver("550.54.15"), torch=ONLY_PTX, gpus=[H100]) == ["fail"]
    found = finding(PTX, driver=driver("550.54.15"), torch=ONLY_PTX, gpus=[H100])
    assert "compute_80" in found.summary and "12.4" in found.summary


def test_ptx_that_the_driver_compiles_passes():
    assert say(PTX, driver=driver("570.86.10"), torch=ONLY_PTX, gpus=[H100]) == ["pass"]


def test_machine_code_needs_no_compiler():
    assert say(PTX, driver=driver("550.54.15"), torch=ONLY_PTX, gpus=[A100]) == ["n/a"]
    assert say(PTX, driver=driver("550.54.15"), torch=torch("12.8")) == ["n/a"]


def test_one_ptx_isa_is_one_compiler():
    """12.5 and 12.6 share PTX 8.5: R555 compiles what CUDA 12.6 made."""
    made = torch("12.6", arch_list=["compute_80"])
    assert say(PTX, driver=driver("555.42.02"), torch=made, gpus=[H100]) == ["pass"]
    assert say(PTX, driver=driver("550.54.15"), torch=made, gpus=[H100]) == ["fail"]


def test_without_a_driver_the_ptx_is_undecided():
    assert say(PTX, torch=ONLY_PTX, gpus=[H100]) == ["unknown"]


def test_a_compat_libcuda_brings_its_own_compiler():
    lifted = {"version": "550.54.15", "libcuda": "compat"}
    inside = {"cuda": "12.8", "resolved": True}
    assert say(PTX, driver=lifted, compat=inside, torch=ONLY_PTX, gpus=[H100]) == ["pass"]


def extension(cuda, **more):
    return [{"name": "fast", "built_for": {"cuda": cuda, **more}}]


@pytest.mark.parametrize(
    ("built", "logs", "expected"),
    [
        (extension("11.8"), [], "unknown"),
        (extension("11.8"), [REFUSAL], "fail"),
        (extension("11.8", arch_list=["compute_70"]), [], "fail"),
        (extension("11.8", arch_list=["sm_70", "compute_70"]), [], "n/a"),
        (extension("11.8", arch_list=["sm_70"]), [REFUSAL], "n/a"),
        (extension("11.2"), [REFUSAL], "n/a"),  # the driver compiles that: the log is of another
    ],
)
def test_extensions(built, logs, expected):
    document = {"driver": driver("460.91.03"), "gpus": [T4], "extensions": built, "logs": logs}
    assert say(PTX, **document) == [expected]


@pytest.mark.parametrize(
    ("version", "logs", "expected"),
    [("12.8", [], "info"), ("12.8", [REFUSAL], "fail"), ("12.4", [], "n/a"),
     ("12.4", [REFUSAL], "n/a")],
)  # fmt: skip
def test_nvrtc(version, logs, expected):
    nvrtc = [{"name": "libnvrtc.so.12", "version": version}]
    assert say(PTX, driver=driver("550.54.15"), libraries=nvrtc, logs=logs) == [expected]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"torch": torch("12.4")},
        {"driver": driver("550.54.15")},
        {"driver": driver("550.54.15"), "torch": torch("12.4")},
        {"driver": driver("550.54.15"), "torch": torch(None)},
        {"driver": driver("700.10"), "torch": torch("13.9")},
    ],
)
def test_a_log_never_decides_alone(document):
    """The facts do not show PTX that this driver refuses: the line proves nothing here."""
    assert "fail" not in say(PTX, logs=[REFUSAL], **document)


# -- driver/too-new-for-gpu -------------------------------------------------------------------

K80 = {"name": "Tesla K80", "compute_capability": "3.7"}
P100 = {"name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0"}


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [
        ("580.95.05", V100, "pass"),
        ("590.44.01", V100, "fail"),
        ("700.10", P100, "fail"),
        ("470.82.01", K80, "pass"),
        ("495.29.05", K80, "fail"),
        ("580.95.05", K80, "fail"),
        ("700.10", A100, "pass"),
        ("590.44.01", T4, "pass"),
        ("590.44.01", {"name": "A card nobody knows"}, "unknown"),
    ],
)
def test_what_a_driver_still_drives(version, gpu, expected):
    assert say(TOO_NEW, driver=driver(version), gpus=[gpu]) == [expected]


def test_the_name_stands_in_for_the_capability():
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=[{"name": "Tesla V100-SXM2-16GB"}]) == [
        "fail"
    ]


def test_a_compat_libcuda_drops_gpus_too():
    lifted = {"version": "580.95.05", "libcuda": "compat"}
    assert say(TOO_NEW, driver=lifted, compat={"cuda": "13.1"}, gpus=[V100]) == ["fail"]
    assert say(TOO_NEW, driver=lifted, compat={"cuda": "13.0"}, gpus=[V100]) == ["pass"]
    assert say(TOO_NEW, driver=lifted, compat={"cuda": "13.1"}, gpus=[T4]) == ["pass"]


def test_too_new_without_gpu_or_driver():
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=[]) == ["n/a"]
    assert say(TOO_NEW, driver=driver("590.44.01")) == ["unknown"]
    assert say(TOO_NEW, gpus=[V100]) == ["unknown"]
    assert say(TOO_NEW, gpus=[A100]) == ["pass"]  # every newer driver drives it


def test_gpus_that_a_driver_dropped_are_seen_on_the_bus():
    """A dropped GPU is not reported at all; the bus still shows it."""
    bus = {"pci_gpus": [{"device": "10de:1db1"}]}  # Tesla V100 SXM2 16 GB
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=[], host=bus) == ["fail"]
    assert say(TOO_NEW, driver=driver("580.95.05"), gpus=[], host=bus) == ["pass"]
    assert say(TOO_NEW, gpus=[], host=bus) == ["n/a"]


# -- driver/too-old-for-gpu -------------------------------------------------------------------


def assumed(version, gpu):
    """A driver given by hand, as --assume does."""
    here = snap(driver=driver(version), gpus=[gpu])
    by_hand = s.known(version, "assumed: driver=" + version, assumed=True)
    return replace(here, driver=replace(here.driver, version=by_hand))


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [
        ("535.104.05", H100, "pass"),
        ("520.61.05", H100, "pass"),  # the first branch that knows Hopper
        ("515.105.01", H100, "fail"),
        ("470.82.01", H100, "fail"),
        ("470.82.01", A100, "pass"),
        ("440.33.01", A100, "fail"),
        ("470.82.01", {"name": "A card nobody knows"}, "unknown"),
    ],
)
def test_a_gpu_that_an_assumed_driver_does_not_know(version, gpu, expected):
    assert [word(TOO_OLD, one) for one in outcomes(TOO_OLD, assumed(version, gpu))] == [expected]


def test_a_gpu_that_the_driver_reports_is_one_that_it_knows():
    assert say(TOO_OLD, driver=driver("470.82.01"), gpus=[H100]) == ["n/a"]


# -- driver/not-visible -----------------------------------------------------------------------

GONE = {"visible": False, "libcuda": "missing"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"driver": GONE, "torch": torch("12.4")}, "fail"),
        ({"driver": GONE, "job": {"gpus_per_node": 8}}, "fail"),
        ({"driver": driver("535.1", visible=True), "gpus": [], "torch": torch("12.4")}, "fail"),
        ({"driver": {"version": "535.1", "libcuda": "missing"}, "torch": torch("12.4")}, "fail"),
        ({"driver": driver("535.1"), "gpus": [A100], "torch": torch("12.4")}, "pass"),
        ({"driver": {"visible": True}, "torch": torch("12.4")}, "pass"),
        ({"torch": torch("12.4")}, "unknown"),
        # Nothing wants a GPU.
        ({"driver": GONE}, "n/a"),
        ({"driver": GONE, "torch": torch(None)}, "n/a"),
        ({"driver": GONE, "torch": torch(None, hip="6.4")}, "n/a"),
    ],
)
def test_visible(document, expected):
    assert say(NOT_VISIBLE, **document) == [expected]


@pytest.mark.parametrize(
    "hidden",
    [
        {"env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"env": {"CUDA_VISIBLE_DEVICES": "-1"}},
        {"env": {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}},
        {"env": {"CUDA_VISIBLE_DEVICES": "  "}},
        {"env": {"NVIDIA_VISIBLE_DEVICES": "void"}},
        {"env": {"NVIDIA_VISIBLE_DEVICES": "none"}},
        {"env": {"NPROC_PER_NODE": "0", "DLC_JOB_ID": "dlc1"}},
        {"job": {"gpus_per_node": 0}},
    ],
)
def test_a_job_that_hides_its_gpus_is_let_be(hidden):
    assert say(NOT_VISIBLE, driver=GONE, torch=torch("12.4"), **hidden) == ["n/a"]


@pytest.mark.parametrize(
    "env",
    [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"NVIDIA_VISIBLE_DEVICES": "all"},
        {"NPROC_PER_NODE": "0"},  # not on PAI: says nothing
        {"NPROC_PER_NODE": "8", "DLC_JOB_ID": "dlc1"},
    ],
)
def test_other_variables_hide_nothing(env):
    assert say(NOT_VISIBLE, driver=GONE, torch=torch("12.4"), env=env) == ["fail"]


def test_a_driver_that_hangs_is_unknown_and_not_absent():
    silent = s.unknown("no answer within 10.0 s")
    seen = snap("live", driver={"version": "535.1", "visible": True}, torch=torch("12.4"))
    for field in ("nvml", "cuda"):
        broken = replace(seen, driver=replace(seen.driver, **{field: silent}))
        found = outcomes(NOT_VISIBLE, broken)
        assert [word(NOT_VISIBLE, one) for one in found] == ["unknown"]
        assert found[0].missing == ("driver." + field,)


# -- driver/library-mismatch ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (driver("535.104.05", library_version="535.86.10"), "fail"),
        (driver("535.104.05", library_version="535.104.05"), "pass"),
        ({"version": "535.104.05", "nvml": "Driver/library version mismatch"}, "fail"),
        ({"nvml": "Driver/library version mismatch"}, "fail"),
        (driver("535.104.05"), "unknown"),
        ({"library_version": "535.104.05"}, "unknown"),
        ({}, "unknown"),
        # A compat libcuda is meant to differ.
        ({"version": "470.82.01", "library_version": "535.86.10", "libcuda": "compat"}, "n/a"),
        ({"version": "470.82.01", "libcuda": "stub"}, "n/a"),
        ({"version": "470.82.01", "libcuda": "missing"}, "n/a"),
        ({"visible": False}, "n/a"),
        # NVML has no compat version: there it is a mismatch all the same.
        ({"version": "470.82.01", "libcuda": "compat", "nvml": "version mismatch"}, "fail"),
    ],
)
def test_library_mismatch(given, expected):
    assert say(MISMATCH, driver=given) == [expected]


# -- many GPUs ------------------------------------------------------------------------------


def test_eight_alike_are_one_finding():
    eight = [dict(V100) for _ in range(8)]
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=eight) == ["fail"]
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=[dict(V100, count=8)]) == ["fail"]
    assert say(PTX, driver=driver("550.54.15"), torch=ONLY_PTX, gpus=[H100] * 8) == ["fail"]


def test_of_mixed_gpus_only_the_bad_one_is_found():
    mixed = [A100, V100, A100]
    assert say(TOO_NEW, driver=driver("590.44.01"), gpus=mixed) == ["pass", "fail"]
    assert finding(TOO_NEW, driver=driver("590.44.01"), gpus=mixed).subject == V100["name"]
    assert finding(PTX, driver=driver("550.54.15"), torch=ONLY_PTX, gpus=[A100, H100])
