"""Which CUDA toolkit an extension build would take, in the images people have."""

import os
import time

import pytest

from preflight.probes.toolkit import read_toolkit
from tests.probes.fake_root import Image


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "image").folders("/")


def read(image, **env):
    return read_toolkit(image.root, {"PATH": "/usr/bin", **env})


def devel(image, home="/usr/local/cuda-12.4", version="12.4.1"):
    """A toolkit as NVIDIA's devel images have it."""
    text = f'{{"cuda": {{"name": "CUDA SDK", "version": "{version}"}}, "nvcc": {{}}}}'
    return image.write(home + "/version.json", text).program(home + "/bin/nvcc")


HEADER = "/* much */\n#define CUDA_VERSION {}\n"


def test_nothing(image):
    found = read(image)
    for fact in (found.version, found.home, found.nvcc):
        assert fact.absent
        for place in ("CUDA_HOME", "CUDA_PATH", "nvcc on PATH", "/usr/local/cuda", "CONDA_PREFIX"):
            assert place in fact.source


def test_a_devel_image(image):
    devel(image).link("/usr/local/cuda", "/etc/alternatives/cuda")
    image.link("/etc/alternatives/cuda", "/usr/local/cuda-12.4")
    found = read(image)
    assert (found.home.value, found.version.value) == ("/usr/local/cuda", "12.4.1")
    assert found.version.source == "/usr/local/cuda/version.json"
    assert found.nvcc.value == "/usr/local/cuda/bin/nvcc"
    found = read(image, PATH="/usr/local/cuda/bin:/usr/bin", CUDA_VERSION="12.4.1")
    assert found.home.source == "nvcc on PATH"
    assert found.version.differs == () and found.nvcc.differs == ()


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_the_variables_come_first(image, variable):
    devel(devel(image, "/usr/local/cuda"), "/opt/cuda-11.8", "11.8.89")
    found = read(image, PATH="/usr/local/cuda/bin", **{variable: "/opt/cuda-11.8"})
    assert found.home.value == "/opt/cuda-11.8" and variable in found.home.source
    assert found.version.value == "11.8.89"
    assert [one.value for one in found.version.differs] == ["12.4.1"]
    assert found.nvcc.value == "/opt/cuda-11.8/bin/nvcc"
    assert found.nvcc.differs[0].value == "/usr/local/cuda/bin/nvcc"
    gone = read(image, **{variable: "/gone"})
    assert gone.home.value == "/usr/local/cuda"
    assert read(image, **{variable: ""}).home.value == "/usr/local/cuda"


def test_version_txt(image):
    image.write(
        "/usr/local/cuda/version.txt", "CUDA Version 10.0.130\nCUDA Patch Version 10.0.130.1"
    )
    found = read(image)
    assert found.version.value == "10.0.130"
    assert found.version.source == "/usr/local/cuda/version.txt"
    assert found.nvcc.absent


@pytest.mark.parametrize(
    "file, text, version",
    [
        ("include/cuda.h", HEADER.format(12040), "12.4"),
        ("include/cuda.h", HEADER.format(9020), "9.2"),
        (
            "targets/x86_64-linux/include/cuda_runtime_api.h",
            "#define CUDART_VERSION  13000\n",
            "13.0",
        ),
    ],
)
def test_headers(image, file, text, version):
    image.program("/usr/local/cuda/bin/nvcc").write("/usr/local/cuda/" + file, text)
    found = read(image)
    assert (found.version.value, found.version.source) == (version, "/usr/local/cuda/" + file)


def test_a_runtime_image(image):
    image.write("/usr/local/cuda/lib64/libcudart.so.12.4.127")
    image.link("/usr/local/cuda/lib64/libcudart.so.12", "libcudart.so.12.4.127")
    found = read(image)
    assert found.version.value == "12.4.127" and found.nvcc.absent
    assert found.version.source == "/usr/local/cuda/lib64/libcudart.so.12.4.127"


def test_a_directory_without_a_toolkit(image):
    image.folders("/usr/local/cuda/compat", "/usr/local/cuda/lib64")
    assert read(image).home.absent


def test_a_toolkit_that_tells_no_version(image):
    image.program("/usr/local/cuda/bin/nvcc").program("/opt/x/bin/nvcc")
    devel(image, "/opt/x")
    found = read(image, CUDA_HOME="/usr/local/cuda", CUDA_PATH="/opt/x")
    assert "no file tells" in found.version.unknown and found.version.source == "/usr/local/cuda"
    assert found.home.known and found.nvcc.known


def test_debians_package(image):
    image.program("/usr/bin/nvcc").write("/usr/include/cuda.h", HEADER.format(11080))
    found = read(image)
    assert (found.home.value, found.version.value) == ("/usr", "11.8")
    assert found.nvcc.value == "/usr/bin/nvcc"


def test_nvcc_linked_into_path(image):
    devel(image).link("/usr/bin/nvcc", "/usr/local/cuda-12.4/bin/nvcc")
    found = read(image)
    assert (found.home.value, found.version.value) == ("/usr", "12.4.1")
    assert found.version.source == "/usr/local/cuda-12.4/version.json"
    assert found.nvcc.value == "/usr/bin/nvcc" and found.nvcc.differs == ()


def test_nvcc_linked_by_debian(image):
    image.program("/usr/lib/nvidia-cuda-toolkit/bin/nvcc")
    image.link("/usr/bin/nvcc", "/usr/lib/nvidia-cuda-toolkit/bin/nvcc")
    image.write("/usr/include/cuda.h", HEADER.format(11080))
    found = read(image)
    assert (found.home.value, found.version.value) == ("/usr", "11.8")
    assert found.version.differs == ()


def test_nvcc_outside_a_bin_directory(image):
    image.program("/tools/nvcc")
    assert read(image, PATH="/tools").home.absent


def test_conda(image):
    image.program("/opt/conda/bin/nvcc").write("/opt/conda/lib/libcudart.so.12.4.127")
    found = read(image, CONDA_PREFIX="/opt/conda")
    assert (found.home.value, found.version.value) == ("/opt/conda", "12.4.127")
    assert found.nvcc.value == "/opt/conda/bin/nvcc"


def test_condas_run_time_is_no_toolkit(image):
    image.write("/opt/conda/lib/libcudart.so.12.4.127")
    assert read(image, CONDA_PREFIX="/opt/conda").home.absent


@pytest.mark.parametrize(
    "variable", ["CUDA_VERSION", "NV_CUDA_LIB_VERSION", "NV_CUDA_CUDART_VERSION"]
)
def test_the_images_variables_are_a_second_witness_only(image, variable):
    assert read(image, **{variable: "12.1.1"}).version.value is None
    told = read(image, **{variable: "12.1.105-1"}).version
    assert told.absent and told.differs[0].value == "12.1.105"
    devel(image, "/usr/local/cuda")
    version = read(image, **{variable: "12.1.105-1"}).version
    assert version.value == "12.4.1"
    assert version.differs[0].source == "environment variable " + variable
    for same in ("12.4.0", "12.4.127-1", "", "latest"):
        assert read(image, **{variable: same}).version.differs == ()


HOSTILE = {
    "empty": "",
    "list": "[]",
    "cut": "{",
    "number": '{"cuda": 1}',
    "float": '{"cuda": {"version": 12.4}}',
    "nothing": '{"cuda": {}}',
    "nested": "[" * 100000,
    "control": '{"cuda": {"version": "12.4\\u001b"}}',
    "nul": "\0",
    "long": '{"cuda": {"version": "' + "1" * 9999 + '"}}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_version_json(image, text):
    image.write("/usr/local/cuda/version.json", text)
    image.write("/usr/local/cuda/include/cuda.h", HEADER.format(12040))
    assert read(image).version.value == "12.4"


@pytest.mark.timed
def test_hostile_places(image):
    image.link("/usr/local/cuda", "cuda").folders("/opt/x/bin/nvcc", "/opt/x/version.json")
    os.mkfifo(str(image.folder / "opt" / "x" / "version.txt"))
    started = time.monotonic()
    for value in ("\0", "/\ud800", "/" + "a/" * 5000, "relative", "/opt/x", "/usr/local/cuda"):
        assert read(image, CUDA_HOME=value, PATH=value + ":" * 5000).home.absent
    assert time.monotonic() - started < 2
