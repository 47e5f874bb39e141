"""Rules about forward compatibility: what a compat libcuda needs, and where it only harms."""

import pytest

from tests.rules.build import A100, RTX4090, T4, V100, finding, say, torch

OLDER = "compat/older-than-driver"
GPU = "compat/unsupported-gpu"
BRANCH = "compat/unsupported-branch"
IDLE = "compat/not-active"
IN_USE = (OLDER, GPU, BRANCH)


def on(version, **more):
    """A kernel driver with a compat libcuda in use."""
    return {"version": version, "libcuda": "compat", **more}


# -- not in use -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_USE)
@pytest.mark.parametrize(
    "document",
    [
        {"driver": {"version": "535.104.05", "libcuda": "host"}},
        {"driver": {"version": "535.104.05", "libcuda": "host"}, "compat": {"cuda": "12.0"}},
        {"driver": {"version": "535.104.05", "libcuda": "stub"}},
        {"driver": {"version": "535.104.05", "libcuda": "missing"}},
    ],
)
def test_a_compat_library_that_is_not_loaded_harms_nobody(name, document):
    assert say(name, gpus=[RTX4090], **document) == ["n/a"]


@pytest.mark.parametrize("name", IN_USE)
def test_which_libcuda_is_not_known(name):
    assert say(name, driver={"version": "535.104.05"}, gpus=[RTX4090]) == ["unknown"]


@pytest.mark.parametrize("name", IN_USE)
def test_which_compat_library_is_not_known(name):
    assert "fail" not in say(name, driver={"libcuda": "compat"}, gpus=[A100])
    assert say(name, driver={"libcuda": "compat"}) == ["unknown"]


# -- compat/older-than-driver -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "compat", "expected"),
    [
        ("580.65.06", {"version": "535.104.05"}, "fail"),
        ("535.104.05", {"version": "535.86.10"}, "fail"),
        ("535.104.05", {"version": "535.104.05"}, "pass"),
        ("535.104.05", {"version": "550.54.15"}, "pass"),
        # By CUDA, where the file name tells no version.
        ("580.65.06", {"cuda": "12.8"}, "fail"),
        ("580.65.06", {"cuda": "13.0"}, "pass"),
        ("535.104.05", {"cuda": "13.0"}, "pass"),
        ("700.10", {"cuda": "13.0"}, "unknown"),  # whose CUDA nobody knows
        ("700.10", {"version": "575.57.08"}, "fail"),
        ("535.104.05", {}, "unknown"),
    ],
)
def test_older_same_newer(version, compat, expected):
    compat = {"resolved": True, **compat}
    assert say(OLDER, driver=on(version), compat=compat, gpus=[A100]) == [expected]


def test_the_cure_is_to_remove_it_and_not_to_upgrade():
    found = finding(OLDER, driver=on("580.65.06"), compat={"version": "535.104.05"})
    assert "535.104.05" in found.summary and "580.65.06" in found.summary
    assert "803" in found.why
    assert "LD_LIBRARY_PATH" in found.fix[0] and not any("newer driver" in one for one in found.fix)


# -- compat/unsupported-gpu -------------------------------------------------------------------

NEWER = {"version": "575.57.08", "cuda": "12.9", "resolved": True}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (RTX4090, "fail"),
        ({"name": "NVIDIA TITAN V"}, "fail"),
        ({"name": "NVIDIA GeForce RTX 9999"}, "fail"),
        (A100, "pass"),
        (T4, "pass"),
        ({"name": "NVIDIA RTX A6000"}, "unknown"),  # some are NGC-ready
        ({"name": "A card nobody knows"}, "unknown"),
        ({"compute_capability": "8.0"}, "unknown"),
    ],
)
def test_which_gpus_it_supports(gpu, expected):
    assert say(GPU, driver=on("535.104.05"), compat=NEWER, gpus=[gpu]) == [expected]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (dict(A100, brand="5"), "fail"),
        (dict(RTX4090, brand="1"), "pass"),
        ({"name": "NVIDIA RTX A6000", "brand": "1"}, "pass"),
        ({"name": "A card nobody knows", "brand": "5"}, "fail"),
        (A100, "pass"),  # no brand was told: the class decides
        (RTX4090, "fail"),
    ],
)
def test_the_librarys_own_note_of_brands_wins_over_the_table(gpu, expected):
    noted = dict(NEWER, device_brands=["1", "3"])
    assert say(GPU, driver=on("535.104.05"), compat=noted, gpus=[gpu]) == [expected]


def test_one_that_is_no_newer_is_another_rules():
    for version in ("575.57.08", "580.65.06"):
        assert say(GPU, driver=on(version), compat=NEWER, gpus=[RTX4090]) == ["n/a"]


def test_no_gpu_no_verdict():
    assert say(GPU, driver=on("535.104.05"), compat=NEWER) == ["unknown"]


def test_alike_and_mixed_gpus():
    eight = [dict(RTX4090) for _ in range(8)]
    assert say(GPU, driver=on("535.104.05"), compat=NEWER, gpus=eight) == ["fail"]
    mixed = [A100, RTX4090]
    assert say(GPU, driver=on("535.104.05"), compat=NEWER, gpus=mixed) == ["pass", "fail"]
    assert (
        finding(GPU, driver=on("535.104.05"), compat=NEWER, gpus=mixed).subject == (RTX4090["name"])
    )


# -- compat/unsupported-branch ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "cuda", "expected"),
    [
        ("535.104.05", "13.0", "pass"),
        ("550.54.15", "13.0", "pass"),
        ("450.80.02", "13.0", "fail"),
        ("560.35.03", "13.0", "fail"),
        ("470.82.01", "13.0", "warn"),  # in no list: nobody promises it, nobody forbids it
        ("535.104.05", "13.9", "warn"),  # a package that the tables do not know
        ("580.65.06", "12.8", "n/a"),  # older than the driver
        ("580.65.06", "13.0", "n/a"),
    ],
)
def test_branches(version, cuda, expected):
    compat = {"cuda": cuda, "resolved": True}
    assert say(BRANCH, driver=on(version), compat=compat, gpus=[A100]) == [expected]


@pytest.mark.parametrize(
    ("version", "branches", "expected"),
    [
        ("560.35.03", ["535", "560"], "pass"),  # the table says no
        ("535.104.05", ["550"], "fail"),  # the table says yes
        ("470.82.01", ["535"], "fail"),  # the table says nothing
        ("535.104.05", [], "fail"),
    ],
)
def test_the_librarys_own_note_of_branches_wins_over_the_table(version, branches, expected):
    noted = {"cuda": "13.0", "resolved": True, "base_branches": branches}
    assert say(BRANCH, driver=on(version), compat=noted, gpus=[A100]) == [expected]
    if expected == "fail":
        found = finding(BRANCH, driver=on(version), compat=noted)
        assert "compats[0].base_branches" in [one.fact for one in found.evidence]


@pytest.mark.parametrize(
    "document",
    [
        {"driver": {"libcuda": "compat"}, "compat": {"cuda": "13.0"}},
        {"driver": on("535.104.05"), "compat": {"path": "/opt/compat/libcuda.so.1"}},
    ],
)
def test_branch_unknown(document):
    assert say(BRANCH, **document) == ["unknown"]


# -- compat/not-active ------------------------------------------------------------------------


def host(version, **more):
    return {"version": version, "libcuda": "host", **more}


def idle(cuda, **more):
    return {"cuda": cuda, "resolved": False, "path": f"/usr/local/cuda-{cuda}/compat", **more}


@pytest.mark.parametrize(
    ("version", "compat", "cuda", "gpu", "expected"),
    [
        ("535.104.05", "13.0", "13.0", A100, "fail"),
        ("535.104.05", "13.0", "12.2", A100, "pass"),  # runs natively
        ("535.104.05", "12.8", "12.8", A100, "info"),  # runs by minor-version compatibility
        ("535.104.05", "12.8", "13.0", A100, "pass"),  # would not help
        ("535.104.05", "13.0", "13.0", RTX4090, "pass"),  # not on this GPU
        ("450.80.02", "13.0", "13.0", A100, "pass"),  # not on this branch
        ("580.65.06", "12.8", "12.8", A100, "pass"),
        ("418.87", "10.2", "10.2", V100, "fail"),
    ],
)
def test_an_idle_compat_library(version, compat, cuda, gpu, expected):
    document = {"driver": host(version), "compat": idle(compat), "gpus": [gpu]}
    assert say(IDLE, torch=torch(cuda), **document) == [expected]


def test_the_base_images_entrypoint_that_would_switch_it_on_was_replaced():
    image = {"base_entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"], "entrypoint": []}
    document = {"driver": host("535.104.05"), "compat": idle("12.8"), "gpus": [A100]}
    assert say(IDLE, torch=torch("12.8"), image=image, **document) == ["warn"]
    kept = dict(image, entrypoint=image["base_entrypoint"])
    assert say(IDLE, torch=torch("12.8"), image=kept, **document) == ["info"]


@pytest.mark.parametrize(
    "document",
    [
        {"driver": host("535.104.05")},
        {"driver": host("535.104.05"), "compat": dict(idle("13.0"), resolved=True)},
        {"driver": host("535.104.05"), "compat": {"cuda": "13.0"}},  # idle or not: not known
        {"driver": on("535.104.05"), "compat": idle("13.0")},  # another one is in use
        {"driver": {"version": "535.104.05", "libcuda": "stub"}, "compat": idle("13.0")},
    ],
)
def test_nothing_lies_idle(document):
    assert say(IDLE, torch=torch("13.0"), gpus=[A100], **document) == ["n/a"]


@pytest.mark.parametrize(
    "document",
    [
        {"compat": idle("13.0")},
        {"driver": host("535.104.05"), "compat": {"resolved": False}},
    ],
)
def test_whether_it_would_be_needed_is_not_known(document):
    assert say(IDLE, torch=torch("13.0"), gpus=[A100], **document) == ["unknown"]


def test_what_to_type():
    found = finding(IDLE, driver=host("535.104.05"), compat=idle("13.0"), gpus=[A100],
                    torch=torch("13.0"))  # fmt: skip
    assert found.fix[0] == "export LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat:$LD_LIBRARY_PATH"
    inside = idle("13.0", path="/opt/compat/libcuda.so.580.65.06")
    found = finding(IDLE, driver=host("535.104.05"), compat=inside, gpus=[A100],
                    torch=torch("13.0"))  # fmt: skip
    assert found.fix[0] == "export LD_LIBRARY_PATH=/opt/compat:$LD_LIBRARY_PATH"
