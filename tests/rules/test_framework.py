"""Rules about framework builds."""

import pytest

from tests.rules.build import A100, V100, finding, outcomes, say, snap, torch

CPU = "framework/cpu-only-build"
JAX = {"version": "0.4.30", "cuda": "12.3"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"torch": torch(None, "2.6.0+cpu"), "gpus": [A100]}, ["fail"]),
        ({"torch": torch(None), "gpus": [A100]}, ["fail"]),
        ({"torch": {"version": "2.6.0+cpu"}, "gpus": [A100]}, ["fail"]),
        ({"torch": torch(None), "job": {"gpus_per_node": 8}}, ["fail"]),
        ({"torch": torch(None, "2.6.0+rocm6.2", hip="6.2"), "gpus": [A100]}, ["fail"]),
        ({"torch": torch("12.4"), "gpus": [A100]}, ["pass"]),
        ({"torch": {"version": "2.6.0+cu124"}, "gpus": [A100]}, ["pass"]),
        # Another framework uses the GPUs: the CPU build may be meant, or be the mistake.
        ({"torch": torch(None), "jax": JAX, "gpus": [A100]}, ["warn", "pass"]),
        ({"torch": torch(None), "jax": dict(JAX, cuda=None), "gpus": [A100]}, ["fail", "fail"]),
        # No GPU job, or none that says so.
        ({"torch": torch(None)}, ["n/a"]),
        ({"torch": torch(None), "gpus": []}, ["n/a"]),
        ({"torch": torch(None), "gpus": [A100], "env": {"CUDA_VISIBLE_DEVICES": "-1"}}, ["n/a"]),
        ({"torch": torch(None), "gpus": [A100], "job": {"gpus_per_node": 0}}, ["n/a"]),
        ({"torch": torch(None), "gpus": [A100],
          "env": {"NPROC_PER_NODE": "0", "DLC_JOB_ID": "dlc1"}}, ["n/a"]),
        ({"gpus": [A100]}, ["n/a"]),
    ],
)  # fmt: skip
def test_cpu_only_build(document, expected):
    assert say(CPU, **document) == expected


def test_a_build_of_unknown_kind_is_no_cpu_build():
    """conda and source builds say nothing by their version number."""
    unclear = {"version": "2.1.0", "build": "conda"}
    assert "fail" not in say(CPU, torch=unclear, gpus=[A100])


def test_a_build_of_unknown_kind_is_unknown():
    unclear = {"version": "2.1.0", "build": "conda"}
    assert say(CPU, torch=unclear, gpus=[A100]) == ["unknown"]


def test_frameworks_that_could_not_be_read_are_unknown():
    from dataclasses import replace

    from preflight import snapshot as s

    lost = replace(snap(gpus=[A100]), frameworks=s.unknown("timed out"))
    assert [type(one).__name__ for one in outcomes(CPU, lost)] == ["Undecided"]


def test_the_cure_runs_on_this_machine():
    """The same release where one runs here, else the newest older one that does."""
    document = {"os": {"arch": "x86_64"}, "python": "3.11.7"}
    found = finding(CPU, torch=torch(None, "2.6.0+cpu"), gpus=[A100],
                    driver={"version": "535.104.05", "libcuda": "host"}, **document)  # fmt: skip
    assert "torch==2.6.0+cu126" in found.fix[0] and found.fix[0].startswith("pip install ")
    found = finding(CPU, torch=torch(None, "2.6.0+cpu"), gpus=[A100],
                    driver={"version": "470.82.01", "libcuda": "host"}, **document)  # fmt: skip
    assert "torch==2.6.0+cu118" in found.fix[0]
    found = finding(CPU, torch=torch(None, "2.9.1+cpu"), gpus=[V100],
                    driver={"version": "470.82.01", "libcuda": "host"}, **document)  # fmt: skip
    assert "+cu118" in found.fix[0] and "2.9" not in found.fix[0]


def test_a_rocm_build_is_named_as_one():
    found = finding(CPU, torch=torch(None, "2.6.0+rocm6.2", hip="6.2"), gpus=[A100])
    assert "ROCm 6.2" in found.summary and "CPU" not in found.summary


def test_other_frameworks_get_no_pip_line_of_torch():
    found = finding(CPU, tensorflow={"version": "2.16.1", "cuda": None}, gpus=[A100])
    assert "tensorflow" in found.fix[0] and "torch" not in found.fix[0]
