"""Rules about the GPUs, the code that is there for them, and which of them a job may see."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight.intake.described import BadDescription
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
)

KERNELS = "gpu/no-kernels-for-architecture"
VISIBLE = "gpu/visible-devices-invalid"
X86 = {"arch": "x86_64"}

# -- gpu/no-kernels-for-architecture ----------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "targets", "expected"),
    [
        (A100, ["sm_70", "sm_80"], "pass"),
        (RTX4090, ["sm_80", "sm_86"], "pass"),
        (H100, ["sm_80", "sm_86"], "fail"),
        (H100, ["sm_80", "compute_80"], "pass"),
        (V100, ["sm_75", "sm_80", "compute_80"], "fail"),
        (H100, ["sm_90a"], "pass"),
        ({"compute_capability": "10.0"}, ["sm_90a", "compute_90a"], "fail"),
        ({"compute_capability": "10.3"}, ["sm_100a"], "fail"),
        ({"compute_capability": "10.3"}, ["sm_100f"], "pass"),
        ({"compute_capability": "8.7"}, ["sm_80", "sm_86"], "unknown"),
        (A100, [], "fail"),
        ({"name": "A card nobody knows"}, ["sm_80"], "unknown"),
        ({"name": "Tesla V100-SXM2-16GB"}, ["sm_75"], "fail"),
    ],
)
def test_what_is_inside_the_build_decides(gpu, targets, expected):
    build = torch("12.8", "9.9.9", arch_list=targets)
    assert say(KERNELS, torch=build, gpus=[gpu]) == [expected]


def test_ptx_of_a_toolkit_older_than_the_gpu_warns():
    """The kernels are compiled; cuBLAS and cuDNN of that toolkit hold nothing for the GPU."""
    old = torch("10.2", "1.8.1", arch_list=["sm_37", "sm_70", "compute_70"])
    assert say(KERNELS, torch=old, gpus=[A100]) == ["warn"]


@pytest.mark.parametrize(
    ("version", "cuda", "gpu", "expected"),
    [
        ("2.8.0+cu128", "12.8", V100, "pass"),
        ("2.7.1+cu128", "12.8", V100, "fail"),
        ("2.6.0+cu124", "12.4", {"compute_capability": "12.0"}, "fail"),
        ("2.7.0+cu128", "12.8", {"compute_capability": "12.0"}, "pass"),
        ("1.7.1+cu102", "10.2", A100, "fail"),
        ("2.8.0+cu128", "12.8", {"compute_capability": "6.1"}, "fail"),
        # In no table: nightlies, vendors' and future releases.
        ("2.9.0.dev20250801+cu128", "12.8", V100, "unknown"),
        ("2.4.0a0+f70bd71a48.nv24.6", "12.5", V100, "unknown"),
        ("99.0.0+cu128", "12.8", V100, "unknown"),
        ("2.8.0+cu999", "99.9", V100, "unknown"),
    ],
)
def test_public_wheels_are_known_by_version(version, cuda, gpu, expected):
    assert say(KERNELS, torch=torch(cuda, version), gpus=[gpu], os=X86) == [expected]


@pytest.mark.parametrize("build", ["conda", "ngc", "source", "vendor"])
def test_other_builds_are_not_judged_by_the_public_wheels(build):
    other = torch("12.8", "2.7.1+cu128", build=build)
    assert say(KERNELS, torch=other, gpus=[V100], os=X86) == ["unknown"]
    assert say(KERNELS, torch=dict(other, arch_list=["sm_70"]), gpus=[V100]) == ["pass"]


def test_the_platform_counts():
    """x86_64 wheels of a release can hold what the aarch64 ones lack."""
    build = torch("13.0", "2.11.0+cu130")
    assert say(KERNELS, torch=build, gpus=[T4], os=X86) == ["pass"]
    assert say(KERNELS, torch=build, gpus=[T4], os={"arch": "aarch64"}) == ["fail"]
    assert say(KERNELS, torch=build, gpus=[T4]) == ["unknown"]
    assert say(KERNELS, torch=build, gpus=[H100]) == ["pass"]  # both have it


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "n/a"),
        ({"torch": torch(None), "gpus": [V100]}, "n/a"),
        ({"torch": torch("12.8"), "gpus": []}, "n/a"),
        ({"torch": torch("12.8"), "gpus": [V100], "env": {"CUDA_VISIBLE_DEVICES": ""}}, "n/a"),
        ({"torch": torch("12.8")}, "unknown"),
        ({"jax": {"version": "0.4.30", "cuda": "12.3"}, "gpus": [A100]}, "unknown"),
    ],
)
def test_kernels_apply_to_cuda_builds_and_gpus(document, expected):
    assert say(KERNELS, **document) == [expected]


def test_targets_without_a_known_cuda_are_enough():
    """A pasted arch list says all that is needed."""
    pasted = {"arch_list": ["sm_75"]}
    assert say(KERNELS, torch=pasted, gpus=[V100]) == ["fail"]
    assert say(KERNELS, torch=pasted, gpus=[T4]) == ["pass"]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [(["sm_80"], "fail"), (["sm_90"], "pass"), (["compute_80"], "pass"), ([], "fail")],
)
def test_extensions(targets, expected):
    built = [{"name": "fast", "built_for": {"arch_list": targets}}]
    assert say(KERNELS, gpus=[H100], extensions=built) == [expected]
    if expected == "fail":
        found = finding(KERNELS, gpus=[H100], extensions=built)
        assert 'TORCH_CUDA_ARCH_LIST="9.0"' in found.fix[0] and found.subject == "fast"


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["sm_90"], ["pass"]),
        (["sm_80"], ["warn"]),  # of that file, which may never be called
        (None, ["n/a"]),  # read, and there is no GPU code inside
    ],
)
def test_an_extension_whose_files_were_read(targets, expected):
    seen = snap(gpus=[H100], extensions=[{"name": "fast", "built_for": {"cuda": "12"}}])
    assert [word(KERNELS, one) for one in outcomes(KERNELS, seen)] == ["unknown"]
    code = s.Code(
        file=s.known("_C.so", "x"), owner=s.known("fast", "x"),
        targets=s.known(tuple(targets or ()), "x"), partly=s.known((), "x"),
    )  # fmt: skip
    seen = replace(seen, code=s.known((code,) if targets else (), "x"))
    assert [word(KERNELS, one) for one in outcomes(KERNELS, seen)] == expected


def test_alike_gpus_give_one_finding_and_mixed_ones_only_the_bad():
    build = torch("12.8", "2.7.1+cu128")
    eight = [dict(V100) for _ in range(8)]
    assert say(KERNELS, torch=build, gpus=eight, os=X86) == ["fail"]
    mixed = [A100, V100, H100]
    assert sorted(say(KERNELS, torch=build, gpus=mixed, os=X86)) == ["pass", "pass", "warn"]
    assert "V100" in finding(KERNELS, torch=build, gpus=mixed, os=X86).summary


def test_the_cure_has_the_architecture():
    found = finding(KERNELS, torch=torch("12.8", "2.7.1+cu128"), gpus=[V100], os=X86,
                    driver={"version": "575.57.08", "libcuda": "host"},
                    python="3.11.7")  # fmt: skip
    assert found.fix[0].startswith("pip install torch==2.7.1+cu")
    assert "sm_70" in found.needed and "table" in found.observed


# -- gpu/visible-devices-invalid --------------------------------------------------------------

TWO = [dict(A100, uuid="GPU-aabbccdd-1"), dict(A100, uuid="GPU-eeff0011-2")]
MIG = [dict(A100, uuid="GPU-aabb", mig_mode=True, mig_devices=["MIG-1234-a", "MIG-5678-b"])]


def visible(value, gpus=TWO, **more):
    return say(VISIBLE, gpus=gpus, env={"CUDA_VISIBLE_DEVICES": value, **more})


@pytest.mark.parametrize("value", ["0", "1", "0,1", "1,0", " 0 , 1 ", "GPU-aabbccdd-1",
                                   "GPU-aabb", "GPU-aa,1",
                                   "GPU-eeff0011-2,GPU-aabbccdd-1"])  # fmt: skip
def test_devices_that_exist(value):
    assert visible(value) == ["pass"]


@pytest.mark.parametrize("value", ["", " ", "-1", "NoDevFiles"])
def test_hidden_on_purpose(value):
    assert visible(value) == ["n/a"]


@pytest.mark.parametrize("value", ["2", "0,0", "0;1", "0 1", ",0", "all", "cuda:0", "1.0",
                                   "GPU-9999", "GPU-aabbccdd-9", "A100", "²", "١"])  # fmt: skip
def test_devices_that_do_not_exist(value):
    assert visible(value) == ["fail"]


@pytest.mark.parametrize("value", ["0,2", "0,1,2", "0,GPU-9999"])
def test_some_that_exist_are_left(value):
    """One GPU may be all that the job uses; where it says that it uses more, it fails."""
    assert visible(value) == ["warn"]
    more = {"gpus": TWO, "env": {"CUDA_VISIBLE_DEVICES": value}, "job": {"gpus_per_node": 3}}
    assert say(VISIBLE, **more) == ["fail"]


@pytest.mark.parametrize("value", ["0,-1", "0,-1,1", "0,", "0,,1"])
def test_a_list_may_be_ended_on_purpose(value):
    """CUDA C++ Programming Guide: "0,2,-1,1" shows devices 0 and 2."""
    assert visible(value) == ["pass"]


@pytest.mark.parametrize("value", ["0", "0,1", "7", "x", "GPU-aa"])
def test_not_in_a_cpu_job(value):
    assert visible(value, NPROC_PER_NODE="0", DLC_JOB_ID="dlc1") == ["n/a"]


def test_where_gpus_or_uuids_are_unknown():
    assert say(VISIBLE, env={"CUDA_VISIBLE_DEVICES": "0"}) == ["unknown"]
    assert visible("GPU-aabb", gpus=[A100]) == ["unknown"]
    assert visible("0", gpus=[A100]) == ["pass"]
    assert say(VISIBLE, gpus=[A100]) == ["n/a"]
    assert say(VISIBLE, gpus=[A100], env={}) == ["n/a"]


def test_mig_devices():
    assert visible("MIG-1234-a", gpus=MIG) == ["pass"]
    assert visible("MIG-9999", gpus=MIG) == ["fail"]
    assert visible("MIG-1234-a", gpus=TWO) == ["unknown"]
    assert visible("MIG-GPU-aabb/1/0", gpus=[dict(A100, mig_mode=True)]) == ["unknown"]


@pytest.mark.parametrize("value", ["0", "0,1", "GPU-aabb", "MIG-aabb", "x"])
def test_where_there_is_no_gpu_another_rule_speaks(value):
    """A variable that an image sets must not fail a job that uses no GPU."""
    assert visible(value, gpus=[]) == ["n/a"]


@pytest.mark.parametrize(
    ("value", "left"),
    [("2", "no GPU is left"), ("2,0", "no GPU is left"), ("0,2", "only the first 1 of 2"),
     ("0,1,2,3", "only the first 2 of 4"), ("0;1", "no GPU is left")],
)  # fmt: skip
def test_what_is_left_is_said(value, left):
    found = finding(VISIBLE, gpus=TWO, env={"CUDA_VISIBLE_DEVICES": value})
    assert left in found.why
    assert "export CUDA_VISIBLE_DEVICES=0,1" in found.fix


def test_gpus_in_one_record_are_counted():
    eight = [dict(A100, count=8)]
    assert visible("0,1,2,3,4,5,6,7", gpus=eight) == ["pass"]
    assert visible("8", gpus=eight) == ["fail"]


@pytest.mark.parametrize("count", [0, 100_000])
def test_a_described_count_cannot_flood_the_report(count):
    env = {"CUDA_VISIBLE_DEVICES": "x"}
    for one in outcomes(VISIBLE, snap(gpus=[dict(A100, count=count)], env=env)):
        assert sum(len(line) for line in getattr(one, "fix", ())) < 1000


@pytest.mark.parametrize("count", [-3, 3_000_000])
def test_a_count_no_node_can_have_is_refused_at_its_place(count):
    with pytest.raises(BadDescription, match="count"):
        snap(gpus=[dict(A100, count=count)])


# -- gpu/too-old-for-triton -------------------------------------------------------------------

TRITON = "gpu/too-old-for-triton"
P100 = {"name": "Tesla P100-PCIE-16GB", "count": 1, "compute_capability": "6.0"}
COMPILES = {"job": {"uses_torch_compile": True}}
EAGER = {"job": {"uses_torch_compile": False}}
INSTALLED = {"packages": {"triton": "3.2.0"}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({**COMPILES}, "warn"),
        ({**COMPILES, **INSTALLED}, "warn"),
        ({**INSTALLED}, "info"),  # torch brings it; the job may not use it
        ({"packages": {"pytorch-triton": "3.0.0+dedb7bdf33"}}, "info"),
        ({**EAGER, **INSTALLED}, "n/a"),
        ({**EAGER}, "n/a"),
        ({"packages": {"torch": "2.6.0"}}, "n/a"),
        ({}, "n/a"),
    ],
)
def test_triton_and_a_gpu_before_volta(document, expected):
    assert say(TRITON, gpus=[P100], **document) == [expected]


@pytest.mark.parametrize("gpu", [V100, T4, A100, H100, {"compute_capability": "12.0"}])
def test_triton_supports_what_is_newer(gpu):
    assert say(TRITON, gpus=[gpu], **COMPILES) == ["pass"]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({"name": "Tesla P100-SXM2-16GB"}, "warn"),  # by its name
        ({"compute_capability": "6.1"}, "warn"),
        ({"compute_capability": "5.2"}, "warn"),
        ({"name": "A card nobody knows"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_triton_and_what_is_known_of_the_gpu(gpu, expected):
    assert say(TRITON, gpus=[gpu], **COMPILES) == [expected]


def test_triton_where_the_gpu_is_not_known():
    assert say(TRITON, **COMPILES) == ["unknown"]
    assert say(TRITON, **INSTALLED) == ["unknown"]


@pytest.mark.parametrize("more", [{"gpus": []}, {"env": {"CUDA_VISIBLE_DEVICES": ""}},
                                  {"gpus": [P100], "env": {"CUDA_VISIBLE_DEVICES": "-1"}},
                                  {"gpus": [], "job": {"gpus_per_node": 0}}])  # fmt: skip
def test_triton_in_a_job_without_a_gpu(more):
    """Every CUDA wheel of torch brings Triton: a job for the CPU must not become undecided."""
    assert say(TRITON, **INSTALLED, **more) == ["n/a"]


def test_triton_where_packages_could_not_be_read():
    blind = replace(snap(gpus=[P100]), python=s.PythonEnv(packages=s.unknown("timed out")))
    assert [word(TRITON, one) for one in outcomes(TRITON, blind)] == ["unknown"]


def test_triton_names_each_kind_of_gpu_once():
    mixed = [P100, dict(P100), A100]
    assert sorted(say(TRITON, gpus=mixed, **COMPILES)) == ["pass", "warn"]
    found = finding(TRITON, gpus=mixed, **COMPILES)
    assert "P100" in found.summary and "TORCHDYNAMO_DISABLE=1" in found.fix[0]
    assert "job.uses_torch_compile" in [one.fact for one in found.evidence]


# -- frameworks beside torch ------------------------------------------------------------------


def plugin(main, *targets):
    """The GPU code of JAX's plugin."""
    return s.Code(file=s.known("xla_cuda_plugin.so", "x"), owner=s.known("jax", "x"),
                  targets=s.known(targets, "x"), partly=s.known((), "x"),
                  fatbins=s.known(49, "x"), main=s.known(main, "x"))  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "alone", "expected"),
    [
        (H100, True, ["pass"]),
        (V100, True, ["fail"]),
        (H100, False, ["pass", "pass"]),
        # torch may well be what the job uses: JAX's lack is a warning.
        (V100, False, ["n/a", "pass", "warn"]),
    ],
)
def test_the_code_of_a_plugin(gpu, alone, expected):
    builds = {"jax": {"version": "0.10.2", "cuda": "13", "build": "pip"}}
    if not alone:
        builds["torch"] = torch("12.4", arch_list=["sm_70", "sm_80", "sm_90"])
    seen = replace(
        snap(gpus=[gpu], **builds), code=s.known((plugin(alone, "sm_75", "sm_90"),), "x")
    )
    name = "gpu/no-kernels-for-architecture"
    assert sorted(word(name, one) for one in outcomes(name, seen)) == expected
