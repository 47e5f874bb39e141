"""What to install for a missing library."""

import pytest

from tests.rules.build import finding, torch

MISSING = "link/missing-library"


def cure(name, needed_by="libtorch_cuda.so", required=True, **document):
    library = {"name": name, "needed_by": needed_by, "missing": True, "required": required}
    return finding(MISSING, libraries=[library], **document).fix[0]


PINS = {"nvidia-nccl-cu13": "==2.30.7", "nvidia-cublas": "==13.1.1.3.*",
        "nvidia-nvjitlink": "<14,>=13.0.88"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("libnccl.so.2", "pip install nvidia-nccl-cu13==2.30.7"),
        ("libcublasLt.so.13", 'pip install "nvidia-cublas==13.1.1.3.*"'),
        ("libnvJitLink.so.13", 'pip install "nvidia-nvjitlink<14,>=13.0.88"'),
        # Not in the metadata, which was edited: the wheel of torch's CUDA.
        ("libcudnn.so.9", "pip install nvidia-cudnn-cu13"),
        ("libcudnn_graph.so.9", "pip install nvidia-cudnn-cu13"),
    ],
)
def test_the_wheel_in_the_version_that_torch_asks_for(name, line):
    assert cure(name, torch=torch("13.0", "2.14.1+cu130", requires=PINS)) == line


@pytest.mark.parametrize(
    ("cuda", "line"),
    [
        ("12.8", "pip install nvidia-nccl-cu12"),
        ("13.0", "pip install nvidia-nccl-cu13"),
        ("11.8", "pip install nvidia-nccl-cu11"),
    ],
)
def test_without_its_metadata_the_wheel_of_its_cuda(cuda, line):
    assert cure("libnccl.so.2", torch=torch(cuda)) == line


def test_where_no_cuda_is_known_each_wheel_is_named():
    line = cure("libcudnn.so.9", "plugin.so")
    assert line.startswith("pip install nvidia-cudnn-cu12 (or nvidia-cudnn-cu13")


def test_pip_is_told_to_install_again_what_it_thinks_is_there():
    line = cure("libnccl.so.2", torch=torch("13.0", requires=PINS),
                packages={"nvidia-nccl-cu13": "2.30.7"})  # fmt: skip
    assert line == "pip install --force-reinstall --no-deps nvidia-nccl-cu13==2.30.7"


def test_a_wheel_of_another_cuda_mends_nothing():
    line = cure("libcudart.so.12", "amp.so", torch=torch("13.0", requires=PINS))
    assert line.startswith("a build of amp.so for CUDA 13") and "pip install" not in line


@pytest.mark.parametrize("build", ["conda", "ngc", "source", "vendor"])
def test_other_builds_look_elsewhere(build):
    """Their RPATH leads to no wheel."""
    line = cure("libnccl.so.2", torch=torch("12.4", build=build))
    assert line.startswith("install the package that brings libnccl.so.2")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("libGL.so.1", "libgl1"), ("libgomp.so.1", "libgomp1"), ("libnuma.so.1", "libnuma1"),
        ("libibverbs.so.1", "libibverbs1"), ("libmpi.so.40", "libopenmpi-dev"),
    ],
)  # fmt: skip
def test_the_system_s_package(name, package):
    assert cure(name, torch=torch("12.4")).startswith(f"apt-get install -y {package},")


def test_a_part_of_torch_itself():
    here = torch("13.0", "2.14.1+cu130")
    assert cure("libtorch_cpu.so", "libtorch.so", torch=here) == (
        "pip install --force-reinstall --no-deps torch==2.14.1+cu130 "
        "--index-url https://download.pytorch.org/whl/cu130"
    )
    other = cure("libtorch_cuda_cu.so", "ops.so", required=False, torch=here)
    assert "torch==" not in other, "another torch's: this one never had it"


def test_nobody_knows_every_library():
    assert cure("libcusp.so.1").startswith("install the package that brings libcusp.so.1")


def test_a_line_to_paste_has_nothing_else_in_it():
    here = torch("13.0", requires={"nvidia-nccl-cu13": '==1"; reboot; "'})
    assert cure("libnccl.so.2", torch=here) == "pip install nvidia-nccl-cu13"
