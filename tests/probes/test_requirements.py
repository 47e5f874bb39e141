"""The NVIDIA wheels that a framework's metadata asks for."""

import pytest

from preflight.probes import requirements
from tests.probes.fake_root import Image

SITE = "/site"


def read(tmp_path, *lines, extra="", metapackage=()):
    image = Image(tmp_path)
    image.dist(SITE, "torch", "2.14.1", metadata(*lines))
    if metapackage:
        image.dist(SITE, "cuda_toolkit", "13.0.3.0", metadata(*metapackage))
    return requirements.read(image.root, SITE, "torch", "2.14.1", extra)


def metadata(*lines):
    return "Metadata-Version: 2.1\n" + "".join(f"Requires-Dist: {one}\n" for one in lines)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == \"Linux\"",
         {"nvidia-cudnn-cu11": "==8.5.0.96"}),
        ("nvidia-nccl-cu13==2.30.7; platform_system == \"Linux\"",
         {"nvidia-nccl-cu13": "==2.30.7"}),
        ("nvidia_nccl_cu12<3.0,>=2.27.7", {"nvidia-nccl-cu12": "<3.0,>=2.27.7"}),
        ("nvidia-nvtx", {"nvidia-nvtx": ""}),
    ],
)  # fmt: skip
def test_one_line(tmp_path, line, expected):
    assert read(tmp_path, "filelock", line).value == expected


def test_what_an_extra_asks_for(tmp_path):
    line = "nvidia-nccl-cu12>=2; extra == 'and-cuda'"
    assert read(tmp_path, line).absent
    assert read(tmp_path / "again", line, extra="and-cuda").value == {"nvidia-nccl-cu12": ">=2"}


def test_the_metapackage_s_extras(tmp_path):
    """torch from 2.11 on asks for cuda-toolkit[cublas,…], whose metadata has the pins."""
    other = "(sys_platform == 'linux' and platform_machine == 'x86_64') and extra == "
    found = read(
        tmp_path, "cuda-toolkit[cublas, nvjitlink]==13.0.3", "nvidia-cudnn-cu13==9.24.0.43",
        metapackage=[f"nvidia-cublas==13.1.1.3.*; {other}'cublas'",
                     f"nvidia-nvjitlink<14,>=13.0.88; {other}'nvjitlink'",
                     f"nvidia-npp==13.0.1.2.*; {other}'npp'"],
    )  # fmt: skip
    assert found.value == {"nvidia-cublas": "==13.1.1.3.*", "nvidia-nvjitlink": "<14,>=13.0.88",
                           "nvidia-cudnn-cu13": "==9.24.0.43"}  # fmt: skip


@pytest.mark.parametrize("line", ["nvidia-nccl-cu12==2; `reboot`", "nvidia-nccl-cu12$(x)==2"])
def test_what_is_no_requirement_brings_no_words_of_its_own(tmp_path, line):
    assert set(read(tmp_path, line).get({}).values()) <= {"==2"}


def test_without_metadata_it_is_unknown(tmp_path):
    assert requirements.read(Image(tmp_path).root, SITE, "torch", "2.14.1").unknown
