"""Facts given by hand: what they stand in for, what stays, and what is refused."""

import pytest

from preflight import assume, matrix, verdict
from preflight import snapshot as s
from preflight.assume import BadAssumption
from tests.rules.build import A100, snap, torch

M = matrix.load()


def given(*texts, **document):
    return assume.apply(snap(**document), texts, M)


def test_a_driver():
    seen = given("driver=535.104.05", driver={"version": "470.82.01", "cuda": "11.4"})
    assert seen.driver.version.value == "535.104.05" and seen.driver.version.assumed
    assert seen.driver.visible.value is True and seen.driver.visible.assumed
    assert seen.driver.libcuda.value == "host"
    assert not seen.driver.cuda.known  # the old one's says nothing of the new one


@pytest.mark.parametrize("kind", ["compat", "stub"])
def test_the_libcuda_of_the_image_stays(kind):
    """It is in the image, whatever driver runs below it."""
    seen = given("driver=535.104.05", driver={"libcuda": kind, "cuda": "12.8"})
    assert (seen.driver.libcuda.value, seen.driver.cuda.value) == (kind, "12.8")


@pytest.mark.parametrize(
    ("text", "name", "capability", "count"),
    [
        ("gpu=NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "8.0", 1),
        ("gpu=8 x A100", None, "8.0", 8),
        ("gpu=8xT4", "Tesla T4", "7.5", 8),
        ("gpu=2 * H100", None, "9.0", 2),
        ("gpu=4 × V100", None, "7.0", 4),
        ("gpu=sm_80", "", "8.0", 1),
        ("gpu=sm80", "", "8.0", 1),
        ("gpu=8.0", "", "8.0", 1),
        ("gpu=12.0", "", "12.0", 1),
        ("gpu=sm_120", "", "12.0", 1),
        ("GPU = A100 ", None, "8.0", 1),
    ],
)  # fmt: skip
def test_gpus(text, name, capability, count):
    seen = given(text)
    assert seen.gpus.assumed
    (gpu,) = seen.gpus.value
    assert (gpu.compute_capability.value, gpu.count.value) == (capability, count)
    if name is not None:
        assert gpu.name.get("") == name
    assert all(one.assumed for one in (gpu.compute_capability, gpu.count))


def test_several_gpus_and_none():
    assert len(given("gpu=A100", "gpu=T4").gpus.value) == 2
    seen = given("gpu=none", gpus=[A100])
    assert seen.gpus.value == () and seen.gpus.assumed
    assert given("gpu=NONE").gpus.value == ()


def test_cuda_compat_and_platform():
    seen = given("cuda=12.2")
    assert seen.driver.cuda.value == "12.2" and seen.driver.visible.value is True
    seen = given("compat=13.0", "driver=535.104.05")
    assert seen.driver.libcuda.value == "compat"
    assert seen.compats.value[0].cuda.value == "13.0"
    assert seen.compats.value[0].resolved.value is True
    assert given("platform=pai-dlc").job.platform.value == "pai-dlc"


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_does_not_matter(order):
    texts = ["driver=535.104.05", "compat=13.0", "gpu=A100"][::order]
    report = verdict.judge(given(*texts, torch=torch("13.0")), M)
    assert report.verdict == "pass"
    cuda = [o.note for r, o in report.outcomes if r.name == "driver/too-old-for-cuda"]
    assert cuda == ["runs by forward compatibility"]


@pytest.mark.parametrize("order", [1, -1])
def test_driver_and_cuda_together(order):
    texts = ["driver=535.104.05", "cuda=12.4"][::order]
    seen = given(*texts)
    assert (seen.driver.version.value, seen.driver.cuda.value) == ("535.104.05", "12.4")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("driver", "FACT=VALUE"),
        ("driver=", "FACT=VALUE"),
        ("=535", "FACT=VALUE"),
        ("", "FACT=VALUE"),
        ("kernel=6.1", "kernel"),
        ("driver=new", "driver=new"),
        ("driver=535.104.05.06", "driver"),
        ("driver=12.2", "driver=12.2"),
        ("cuda=12", "cuda=12"),
        ("cuda=new", "cuda=new"),
        ("compat=13", "compat=13"),
        ("gpu=A card nobody knows", "A card nobody knows"),
        ("gpu=RTX", "RTX"),
        ("gpu=sm_81", "8.1"),
        ("gpu=8.4", "8.4"),
        ("gpu=0 x A100", "0 x A100"),
        ("gpu=none x A100", "none"),
    ],
)
def test_what_says_nothing_usable_is_named(text, word):
    with pytest.raises(BadAssumption) as caught:
        given(text)
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_what_contradicts_itself():
    with pytest.raises(BadAssumption):
        given("driver=535.104.05", "driver=550.54.15")
    with pytest.raises(BadAssumption):
        given("gpu=none", "gpu=A100")


def test_from_the_environment():
    env = {
        "PREFLIGHT_ASSUME_DRIVER": "535.104.05",
        "PREFLIGHT_ASSUME_GPU": "A100, 8 x H100",
        "PREFLIGHT_ASSUME_CUDA": " ",
        "PREFLIGHT_ASSUME": "x",
        "OTHER": "y",
    }
    assert assume.from_environment(env) == ["driver=535.104.05", "gpu=A100", "gpu=8 x H100"]
    assert assume.from_environment({}) == []


def test_an_assumption_is_shown_as_one():
    report = verdict.judge(given("driver=470.82.01", "gpu=A100", torch=torch("12.4")), M)
    (finding,) = [one.finding for one in report.findings]
    proof = {one.fact: one for one in finding.evidence}
    assert proof["driver.version"].assumed and "assumed" in proof["driver.version"].source
    assert not proof["frameworks[0].cuda"].assumed


def test_a_gpu_that_an_assumed_driver_does_not_know_is_said():
    report = verdict.judge(given("driver=470.82.01", "gpu=H100"), M)
    assert [one.rule.name for one in report.findings] == ["driver/too-old-for-gpu"]


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("525", "12.4"), ("450", "11.8"), ("580", "13.4"), ("525", "12.0"), ("535", "12.4")],
)
def test_a_branch_alone_is_not_its_oldest_release(driver, cuda):
    """R525 has releases on both sides of CUDA 12's floor: `driver=525` cannot fail for that."""
    report = verdict.judge(given("driver=" + driver, torch=torch(cuda)), M)
    assert report.verdict in ("pass", "unknown")
    too_old = verdict.judge(given("driver=" + driver, torch=torch("14.0")), M)
    assert too_old.verdict != "pass"


def test_nothing_given_changes_nothing():
    assert given() == snap()
    assert isinstance(given("gpu=A100"), s.Snapshot)
