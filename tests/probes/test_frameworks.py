"""What each framework's files say of its build, for the layouts of every era."""

import os
import subprocess
import time

import pytest

from preflight.probes.frameworks import read_frameworks
from preflight.probes.python_env import read_environment
from preflight.roots import Root
from tests.probes.fake_root import Image

SITE = "/usr/local/lib/python3.11/site-packages"
COMMIT = "5c4886908584029761b579af026dcfb627c84070"


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "image").python("/usr/local", "3.11")


def frameworks(image, python="/usr/local/bin/python3", arch="x86_64", **env):
    """The frameworks found, by name."""
    found = read_frameworks(image.root, image.read(python, **env), env, arch)
    return {one.name.value: one for one in found}


def only(image, name="torch", **options):
    found = frameworks(image, **options)
    assert list(found) == [name]
    return found[name]


def pip(image, name, version, site=SITE, installer="pip\n"):
    image.dist(site, name, version)
    image.write(f"{site}/{name}-{version}.dist-info/INSTALLER", installer)
    return image


def torch(image, text, site=SITE, version="", installer="pip\n"):
    """A torch with this version.py and, where a version is given, package metadata."""
    image.write(f"{site}/torch/__init__.py", "raise SystemExit('imported')")
    image.write(f"{site}/torch/version.py", text)
    return pip(image, "torch", version, site, installer) if version else image


# -- torch through the years ----------------------------------------------------------------

OLD = "__version__ = '{}'\ndebug = False\ncuda = {}\n"
TYPED = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '{}'
debug = False
cuda: Optional[str] = {}
git_version = 'COMMIT'
hip: Optional[str] = {}
""".replace("COMMIT", COMMIT)

ERAS = [
    # text of version.py, version, cuda, hip, git, index
    (OLD.format("1.0.0", "'9.0.176'"), "1.0.0", "9.0.176", None, None, None),
    (OLD.format("1.1.0", "None"), "1.1.0", None, None, None, None),
    (OLD.format("1.3.1", "'9.2.148'") + "git_version = 'a'", "1.3.1", "9.2.148", None, "a", None),
    (OLD.format("1.4.0", "'10.1'") + "hip = None\n", "1.4.0", "10.1", None, None, None),
    (OLD.format("1.8.1+cu102", "'10.2'"), "1.8.1+cu102", "10.2", None, None, "cu102"),
    (OLD.format("1.12.1+cpu", "None"), "1.12.1+cpu", None, None, None, "cpu"),
    (
        OLD.format("1.13.1+rocm5.2", "None") + "hip = '5.2.21151-afdc89f8'\n",
        *("1.13.1+rocm5.2", None, "5.2.21151-afdc89f8", None, "rocm5.2"),
    ),
    (
        TYPED.format("2.2.0+cu121", "'12.1'", "None"),
        *("2.2.0+cu121", "12.1", None, COMMIT, "cu121"),
    ),
    (
        TYPED.format("2.6.0+rocm6.3", "None", "'6.3.42131'"),
        *("2.6.0+rocm6.3", None, "6.3.42131", COMMIT, "rocm6.3"),
    ),
    (
        TYPED.format("2.7.0+xpu", "None", "None") + "xpu: Optional[str] = '20250000'\n",
        *("2.7.0+xpu", None, None, COMMIT, "xpu"),
    ),
    (
        TYPED.format("2.10.0+cpu", "None", "None") + "rocm: Optional[str] = None\n",
        *("2.10.0+cpu", None, None, COMMIT, "cpu"),
    ),
    (
        TYPED.format("2.15.0+cu132", "'13.2'", "None"),
        *("2.15.0+cu132", "13.2", None, COMMIT, "cu132"),
    ),
    (
        TYPED.format("2.5.0+cpu.cxx11.abi", "None", "None"),
        *("2.5.0+cpu.cxx11.abi", None, None, COMMIT, "cpu"),
    ),
    ("\ufeff" + OLD.format("2.0.0", "'11.7'"), "2.0.0", "11.7", None, None, None),
]


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era[1])
def test_torch_of_every_era(image, era):
    text, version, cuda, hip, git, index = era
    torch(image, text, version=version.partition("+")[0])
    found = only(image)
    assert found.version.value == version and found.version.differs == ()
    assert (found.cuda.value, found.hip.value, found.git_version.value) == (cuda, hip, git)
    assert found.index.value == index
    for fact in (found.version, found.cuda, found.hip, found.git_version, found.index):
        assert not fact.unknown and fact.source == SITE + "/torch/version.py"
    assert found.build.value == "pip"
    assert found.path.value == SITE + "/torch"
    assert not found.arch_list.looked and not found.cxx11_abi.looked


def test_a_later_line_wins(image):
    torch(image, OLD.format("1.0", "None") + "x = cuda = '9.0'\ncuda: str\n")
    assert only(image).cuda.value == "9.0"


def test_none_of_it_is_executed(image):
    text = "__version__ = '2.0'\nimport os\nos.abort()\ncuda = os.environ['CUDA']\nhip = 1\n"
    torch(image, text + "git_version = '" + "x" * 300 + "'\n")
    found = only(image)
    assert found.version.value == "2.0"
    for fact in (found.cuda, found.hip, found.git_version):
        assert fact.unknown.endswith("no plain text")


def test_control_characters_are_no_version(image):
    torch(image, "__version__ = '2.0\\x1b[2J'\ncuda = '11.8\\n'\n")
    found = only(image)
    assert found.version.unknown and found.cuda.unknown


def test_what_is_not_stated(image):
    torch(image, "debug = False\n")
    found = only(image)
    assert "no __version__" in found.version.unknown
    assert "no cuda" in found.cuda.unknown
    assert found.hip.absent and found.git_version.absent
    assert found.nccl.unknown and found.cudnn.unknown and found.index.unknown


@pytest.mark.parametrize(
    "text, words",
    [
        ("__version__ = '2.0'\ncuda = = 1\n", "line 2"),
        ("\0", "cannot be parsed"),
        ("x = " + "(" * 5000, "cannot be parsed"),
        ("#" * 40000, "larger than"),
    ],
    ids=["syntax", "nul", "nested", "large"],
)
def test_version_py_that_cannot_be_parsed(image, text, words):
    torch(image, text, version="2.0.0")
    found = only(image)
    for fact in (found.version, found.cuda, found.hip, found.git_version, found.index):
        assert words in fact.unknown and fact.source == SITE + "/torch/version.py"
    assert found.nccl.unknown and found.build.value == "pip"


HOSTILE = {
    "minus": "-" * 30000 + "1",
    "sum": "1+" * 15000 + "1",
    "attributes": "a." * 15000 + "a",
    "lists": "[" * 15000 + "]" * 15000,
    "targets": "a=" * 15000 + "1",
    "calls": "f" + "()" * 15000,
    "lines": "if 1:\n" + " 1\n" * 10000,
    "escapes": "x='\\d'\n" * 3000,
    "quotes": "'" * 32000,
    "controls": "\x85\n" * 10000,
    "nots": "not " * 8000 + "1",
    "lambdas": "lambda:" * 4000 + "1",
    "powers": "1**" * 10000 + "1",
    "comparisons": "1<" * 15000 + "1",
    "conditions": "1 if 1 else " * 2500 + "1",
    "blocks": "".join(" " * depth + "if 1:\n" for depth in range(200)),
}


@pytest.mark.timed
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_sources(image, text):
    torch(image, text)
    started = time.monotonic()
    only(image)
    assert time.monotonic() - started < 2


def test_a_leftover_directory_is_no_torch(image):
    image.folders(SITE + "/torch/lib", SITE + "/torch/__pycache__")
    assert frameworks(image) == {}


def test_the_first_on_the_path_is_imported(image):
    image.folders("/first/torch")
    torch(image, OLD.format("1.0", "None"), site="/second")
    torch(image, TYPED.format("2.2.0+cu121", "'12.1'", "None"), version="2.2.0")
    found = only(image, PYTHONPATH="/first:/second")
    assert found.version.value == "1.0" and found.path.value == "/second/torch"
    assert [one.value for one in found.version.differs] == ["2.2.0"]


def test_a_source_tree_that_was_not_built(image):
    image.write("/pytorch/torch/__init__.py")
    torch(image, OLD.format("2.0", "None"))
    found = only(image, PYTHONPATH="/pytorch")
    assert found.path.value == "/pytorch/torch" and "No such file" in found.version.unknown


def test_edited_metadata_is_told(image):
    torch(image, TYPED.format("2.8.0+cu128", "'12.8'", "None"), version="2.7.1")
    version = only(image).version
    assert version.value == "2.8.0+cu128"
    assert version.differs[0].value == "2.7.1"
    assert version.differs[0].source == SITE + "/torch-2.7.1.dist-info"


# -- who built it ---------------------------------------------------------------------------


@pytest.mark.parametrize("installer", ["pip\n", "uv", "Poetry 1.8.2\n", "pdm"])
def test_pip_and_its_like(image, installer):
    torch(image, OLD.format("2.0.1", "'11.7'"), version="2.0.1", installer=installer)
    build = only(image).build
    assert (build.value, build.source) == ("pip", SITE + "/torch-2.0.1.dist-info/INSTALLER")


@pytest.mark.parametrize("installer", ["", "debian\n", "rpm", "\n\n"])
def test_vendors(image, installer):
    torch(image, OLD.format("2.0.1", "'11.7'"), version="2.0.1", installer=installer)
    assert only(image).build.value == "vendor"


def test_another_vendors_wheel(image):
    torch(image, OLD.format("2.8.0.9+nv25.3", "'12.8'"), version="2.8.0.9+nv25.3")
    assert only(image).build.value == "vendor"


def test_no_metadata_at_all(image):
    torch(image, OLD.format("2.0.1", "'11.7'"))
    assert only(image).build.value == "vendor"


NGC = "/usr/local/lib/python3.12/dist-packages"
NCCL_HEADER = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 3\n"
CUDNN_HEADER = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 14\n#define CUDNN_PATCHLEVEL 0\n"


@pytest.fixture
def ngc(tmp_path):
    image = Image(tmp_path / "ngc").python("/usr", "3.12", site_text="dist-packages local/lib")
    return image.folders(NGC)


def test_ngc_by_its_version(ngc):
    text = TYPED.format("2.9.0a0+145a3a7bda.nv25.10", "'13.0'", "None")
    torch(ngc, text, NGC, "2.9.0a0+145a3a7bda.nv25.10")
    ngc.write("/usr/include/nccl.h", NCCL_HEADER)
    ngc.write("/usr/include/aarch64-linux-gnu/cudnn_version_v9.h", CUDNN_HEADER)
    found = only(ngc, python="/usr/bin/python3", arch="aarch64")
    assert found.build.value == "ngc" and found.build.source == NGC + "/torch/version.py"
    assert (found.nccl.value, found.nccl.source) == ("2.28.3", "/usr/include/nccl.h")
    assert found.cudnn.value == "9.14.0"
    assert found.index.absent
    assert only(ngc, python="/usr/bin/python3", arch="x86_64").cudnn.unknown


@pytest.mark.parametrize("variable", ["NVIDIA_PYTORCH_VERSION", "NVIDIA_BUILD_ID"])
def test_ngc_by_its_variables(ngc, variable):
    torch(ngc, OLD.format("1.6.0a0+9907a3e", "'11.0'"), NGC, "1.6.0a0+9907a3e")
    found = only(ngc, python="/usr/bin/python3", **{variable: "20.06"})
    assert found.build.value == "ngc" and variable in found.build.source
    assert only(ngc, python="/usr/bin/python3").build.value == "source"


def test_ngc_image_with_another_torch_over_it(ngc):
    torch(ngc, TYPED.format("2.9.0+cu130", "'13.0'", "None"), NGC, "2.9.0")
    found = only(ngc, python="/usr/bin/python3", NVIDIA_PYTORCH_VERSION="25.10")
    assert found.build.value == "pip"


@pytest.mark.parametrize("version", ["2.1.0a0+git7bcf7da", "2.4.0+git1234567", "1.9.0a0+deadbeef"])
def test_built_from_source(image, version):
    torch(image, OLD.format(version, "'12.1'"), version=version)
    assert only(image).build.value == "source"


def test_editable_as_pip_records_it(image):
    torch(image, OLD.format("2.3.0", "'12.1'"), version="2.3.0")
    record = '{"dir_info": {"editable": true}, "url": "file:///pytorch"}'
    image.write(SITE + "/torch-2.3.0.dist-info/direct_url.json", record)
    assert only(image).build.value == "source"
    image.write(SITE + "/torch-2.3.0.dist-info/direct_url.json", '{"dir_info": {}, "url": ""}')
    assert only(image).build.value == "pip"


def test_editable_through_a_pth_file(image):
    image.write(SITE + "/easy-install.pth", "/pytorch\n")
    torch(image, OLD.format("2.3.0", "'12.1'"), site="/pytorch")
    image.write("/pytorch/torch.egg-info/PKG-INFO", "Name: torch\nVersion: 2.3.0\n")
    found = only(image)
    assert (found.build.value, found.path.value) == ("source", "/pytorch/torch")


def test_editable_through_a_finder(image):
    pip(image, "torch", "2.9.0a0+git1234567")
    finder = "import sys\nMAPPING: dict[str, str] = {'torch': '/pytorch/torch', 'x': 1}\n"
    image.write(SITE + "/__editable___torch_2_9_0_finder.py", finder)
    assert frameworks(image) == {}
    torch(image, OLD.format("2.9.0a0+git1234567", "'12.8'"), site="/pytorch")
    found = only(image)
    assert (found.build.value, found.path.value) == ("source", "/pytorch/torch")
    image.write(SITE + "/__editable___torch_2_9_0_finder.py", "MAPPING = None")
    assert frameworks(image) == {}


CONDA = "/opt/conda/lib/python3.11/site-packages"


@pytest.fixture
def conda(tmp_path):
    image = Image(tmp_path / "conda").python("/opt/conda", "3.11")
    for name in ("pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0", "nccl-2.23.4-h_1", "x-1-0"):
        image.write(f"/opt/conda/conda-meta/{name}.json")
    return image


def test_conda(conda):
    torch(conda, TYPED.format("2.5.1", "'12.4'", "None"), CONDA, "2.5.1", "conda\n")
    found = only(conda, python="/opt/conda/bin/python3")
    assert found.build.value == "conda" and "pytorch" in found.build.source
    assert found.index.absent
    assert (found.nccl.value, found.cudnn.value) == ("2.23.4", None)
    assert found.cudnn.unknown


def test_conda_without_pip_metadata(conda):
    torch(conda, TYPED.format("2.5.1", "'12.4'", "None"), CONDA)
    assert only(conda, python="/opt/conda/bin/python3").build.value == "conda"


def test_pip_in_conda(conda):
    torch(conda, TYPED.format("2.5.1+cu124", "'12.4'", "None"), CONDA, "2.5.1")
    assert only(conda, python="/opt/conda/bin/python3").build.value == "pip"
    torch(conda, TYPED.format("2.6.0", "'12.4'", "None"), CONDA, "2.6.0", "conda\n")
    assert only(conda, python="/opt/conda/bin/python3").build.value == "vendor"


def test_two_metadata_in_one_directory(conda):
    """The files tell which of them is the one installed; the other is told."""
    torch(conda, TYPED.format("2.5.1+cu124", "'12.4'", "None"), CONDA, "2.5.1")
    pip(conda, "torch", "2.3.0", CONDA, "conda\n")
    found = only(conda, python="/opt/conda/bin/python3")
    assert found.build.value == "pip" and found.version.value == "2.5.1+cu124"
    assert [one.value for one in found.version.differs] == ["2.3.0"]


def test_user_site_over_conda(conda):
    user = "/root/.local/lib/python3.11/site-packages"
    torch(conda, TYPED.format("2.5.1", "'12.4'", "None"), CONDA, "2.5.1", "conda\n")
    torch(conda, TYPED.format("2.5.1+cu118", "'11.8'", "None"), user, "2.5.1+cu118", "pip\n")
    found = only(conda, python="/opt/conda/bin/python3", HOME="/root")
    assert (found.build.value, found.cuda.value) == ("pip", "11.8")


# -- NCCL and cuDNN -------------------------------------------------------------------------


def cuda_torch(image):
    return torch(image, TYPED.format("2.14.1+cu130", "'13.0'", "None"), version="2.14.1")


@pytest.mark.timed
@pytest.mark.parametrize(
    "text, version",
    [
        ("#define NCCL_VERSION_CODE 23007\n", "2.30.7"),
        ("#  define\tNCCL_VERSION_CODE\t(20903)\n", "2.9.3"),
        ("#define NCCL_VERSION_CODE 2708\n", "2.7.8"),
        (NCCL_HEADER + "#define NCCL_VERSION_CODE 1\n", "2.28.3"),
        ("#define NCCL_VERSION_CODE NCCL_VERSION(2,3,4)\n", None),
        ("\n" * 200000 + "#" * 50000, None),
    ],
    ids=["code", "spaces", "old", "parts", "macro", "noise"],
)
def test_nccl_header(image, text, version):
    cuda_torch(image).write(SITE + "/nvidia/nccl/include/nccl.h", text)
    started = time.monotonic()
    nccl = only(image).nccl
    assert time.monotonic() - started < 1
    assert nccl.value == version
    assert bool(nccl.unknown) == (version is None)


def test_headers_first_then_wheels(image):
    cuda_torch(image)
    pip(image, "nvidia_nccl_cu13", "2.30.7")
    pip(image, "nvidia_cudnn_cu13", "9.24.0.43")
    found = only(image)
    assert (found.nccl.value, found.cudnn.value) == ("2.30.7", "9.24.0.43")
    assert found.nccl.source == SITE + "/nvidia_nccl_cu13-2.30.7.dist-info"
    image.write(SITE + "/nvidia/nccl/include/nccl.h", "#define NCCL_VERSION_CODE 23007\n")
    image.write(SITE + "/nvidia/cudnn/include/cudnn_version.h", CUDNN_HEADER.replace("14", "24"))
    found = only(image)
    assert (found.nccl.value, found.cudnn.value) == ("2.30.7", "9.24.0")
    assert found.nccl.source.endswith("nccl.h") and found.cudnn.source.endswith("cudnn_version.h")
    assert found.nccl.differs == () and found.cudnn.differs == ()


def test_two_nccl_wheels_in_one_folder(image):
    cuda_torch(image)
    pip(image, "nvidia_nccl_cu12", "2.27.5")
    pip(image, "nvidia_nccl_cu13", "2.30.7")
    image.write(SITE + "/nvidia/nccl/include/nccl.h", "#define NCCL_VERSION_CODE 22705\n")
    nccl = only(image).nccl
    assert nccl.value == "2.27.5"
    assert [one.value for one in nccl.differs] == ["2.30.7"]


def test_a_cpu_build_has_neither(image):
    torch(image, TYPED.format("2.10.0+cpu", "None", "None"), version="2.10.0")
    pip(image, "nvidia_nccl_cu12", "2.27.5")
    found = only(image)
    assert found.nccl.absent and found.cudnn.absent


def test_a_build_that_does_not_tell(image):
    found = only(cuda_torch(image))
    assert "binaries" in found.nccl.unknown and "binaries" in found.cudnn.unknown


# -- TensorFlow -----------------------------------------------------------------------------

DICT_INFO = """# generated
import collections
build_info = collections.OrderedDict([("cpu_compiler", "/usr/lib/llvm-18/bin/clang"),
 ("cuda_compute_capabilities", ["sm_60", "compute_90"]), ("cuda_version", "12.5.1"),
 ("cudnn_version", "9"), ("is_cuda_build", True), ("is_rocm_build", False)])
"""
LITERAL_INFO = (
    "build_info = {'is_cuda_build': True, 'cuda_version': '11.2', 'cudnn_version': '8'}\n"
)
CPU_INFO = "build_info = dict([('is_cuda_build', False), ('is_rocm_build', False)])\n"
ROCM_INFO = (
    """build_info = {"is_cuda_build": False, "is_rocm_build": True, "rocm_version": "6.2.0"}"""
)
OLD_INFO = "is_rocm_build = False\nis_cuda_build = True\ncuda_version_number = '10.0'\n"
OLD_INFO += "cudnn_version_number = '7'\nmsvcp_dll_name = None\n"

INFO = "python/platform/build_info.py"


def tensorflow(image, text, name="tensorflow", version="2.18.0", folder="tensorflow"):
    image.write(SITE + "/tensorflow/__init__.py").write(f"{SITE}/{folder}/{INFO}", text)
    return pip(image, name, version)


@pytest.mark.parametrize(
    "text, cuda, cudnn, hip",
    [
        (DICT_INFO, "12.5.1", "9", None),
        (LITERAL_INFO, "11.2", "8", None),
        (CPU_INFO, None, None, None),
        (ROCM_INFO, None, None, "6.2.0"),
        (OLD_INFO, "10.0", "7", None),
        ("is_cuda_build = False\ncuda_version_number = '10'\n", None, None, None),
    ],
)
def test_tensorflow(image, text, cuda, cudnn, hip):
    found = only(tensorflow(image, text), "tensorflow")
    assert (found.cuda.value, found.cudnn.value, found.hip.value) == (cuda, cudnn, hip)
    for fact in (found.cuda, found.cudnn, found.hip):
        assert not fact.unknown and fact.source == f"{SITE}/tensorflow/{INFO}"
    assert (found.version.value, found.build.value) == ("2.18.0", "pip")
    assert found.nccl.absent == (cuda is None)


@pytest.mark.parametrize(
    "name", ["tensorflow-gpu", "tensorflow_cpu", "tensorflow_intel", "tf_nightly", "tf-nightly-gpu"]
)
def test_tensorflow_by_other_names(image, name):
    found = only(tensorflow(image, LITERAL_INFO, name, "2.4.1"), "tensorflow")
    assert found.version.value == "2.4.1"


def test_tensorflow_before_2_1_keeps_its_code_elsewhere(image):
    tensorflow(image, OLD_INFO, "tensorflow_gpu", "1.15.5", "tensorflow_core")
    assert only(image, "tensorflow").cuda.value == "10.0"


def test_tensorflow_twice(image):
    tensorflow(image, LITERAL_INFO, version="2.11.0")
    pip(image, "tensorflow_gpu", "2.10.0")
    version = only(image, "tensorflow").version
    assert version.value == "2.11.0" and version.differs[0].value == "2.10.0"


def test_tensorflow_of_ngc_and_its_nccl(image):
    tensorflow(image, DICT_INFO, version="2.17.0+nv25.2")
    pip(image, "nvidia_nccl_cu12", "2.25.1")
    found = only(image, "tensorflow")
    assert (found.build.value, found.nccl.value) == ("ngc", "2.25.1")


def test_tensorflow_without_build_info(image):
    image.write(SITE + "/tensorflow/__init__.py")
    assert frameworks(image) == {}
    pip(image, "tensorflow", "2.18.0")
    found = only(image, "tensorflow")
    assert found.cuda.unknown and found.cudnn.unknown and found.nccl.unknown


def test_tensorflow_whose_build_info_says_nothing(image):
    found = only(tensorflow(image, "build_info = load()\n"), "tensorflow")
    assert found.cuda.unknown and found.cudnn.unknown and found.hip.absent
    found = only(tensorflow(image, "build_info = {'is_cuda_build': True, **more}"), "tensorflow")
    assert found.cuda.unknown
    found = only(tensorflow(image, "build_info ="), "tensorflow")
    assert "line 1" in found.cuda.unknown


def test_tensorflow_metadata_without_files(image):
    pip(image, "tensorflow", "2.18.0")
    assert frameworks(image) == {}


# -- JAX ------------------------------------------------------------------------------------


def jax(image, *dists):
    image.write(SITE + "/jax/__init__.py")
    for one in dists:
        pip(image, *one.split("=="))
    return image


@pytest.mark.parametrize(
    "dists, cuda",
    [
        (["jaxlib==0.6.0"], None),
        (["jaxlib==0.6.0", "jax_cuda12_plugin==0.6.0", "jax_cuda12_pjrt==0.6.0"], "12"),
        (["jaxlib==0.6.0", "jax_cuda12_pjrt==0.6.0", "nvidia_cuda_runtime_cu12==12.9.79"], "12.9"),
        (["jaxlib==0.8.0", "jax_cuda13_plugin==0.8.0", "nvidia_cuda_runtime==13.0.96"], "13.0"),
        (["jaxlib==0.8.0", "jax_cuda12_plugin==0.8.0", "nvidia_cuda_runtime==13.0.96"], "12"),
        (["jaxlib==0.4.7+cuda11.cudnn86"], "11"),
        (["jaxlib==0.4.25+cuda12.cudnn89"], "12"),
        (["jaxlib==0.1.71+cuda111"], "11.1"),
        (["jaxlib==0.1.55+cuda102"], "10.2"),
    ],
)
def test_jax(image, dists, cuda):
    found = only(jax(image, "jax==0.6.0", *dists), "jax")
    assert found.cuda.value == cuda and not found.cuda.unknown
    assert found.cuda.source.startswith(SITE) and found.version.value == "0.6.0"
    assert found.build.value == "pip" and found.hip.absent
    assert found.cudnn.absent == (cuda is None)


def test_jax_libraries(image):
    jax(image, "jax==0.4.7", "jaxlib==0.4.7+cuda11.cudnn86")
    found = only(image, "jax")
    assert (found.cudnn.value, found.index.value) == ("8.6", "cuda11.cudnn86")
    pip(image, "nvidia_cudnn_cu11", "8.6.0.163")
    pip(image, "nvidia_nccl_cu11", "2.16.5")
    found = only(image, "jax")
    assert (found.cudnn.value, found.nccl.value) == ("8.6.0.163", "2.16.5")


def test_jax_with_two_plugins(image):
    jax(image, "jax==0.8.0", "jaxlib==0.8.0", "jax_cuda12_plugin==0.8.0", "jax_cuda13_pjrt==0.8.0")
    cuda = only(image, "jax").cuda
    assert cuda.value == "13" and [one.value for one in cuda.differs] == ["12"]


@pytest.mark.parametrize("plugin, hip", [("jax_rocm60_plugin", "6.0"), ("jax_rocm7_pjrt", "7")])
def test_jax_on_rocm(image, plugin, hip):
    jax(image, "jax==0.6.0", "jaxlib==0.6.0", plugin + "==0.6.0")
    found = only(image, "jax")
    assert found.hip.value == hip and found.cuda.absent


def test_jax_without_jaxlib(image):
    assert "jaxlib" in only(jax(image, "jax==0.6.0"), "jax").cuda.unknown
    assert frameworks(image)["jax"].index.absent


def test_no_jax(image):
    pip(image, "jax", "0.6.0")
    assert frameworks(image) == {}


# -- Paddle ---------------------------------------------------------------------------------


def paddle(image, text, name="paddlepaddle_gpu", version="2.6.1", file="version/__init__.py"):
    image.write(SITE + "/paddle/__init__.py").write(SITE + "/paddle/" + file, text)
    return pip(image, name, version)


def test_paddle(image):
    text = (
        "full_version = '2.6.1'\ncuda_version = '11.8'\ncudnn_version = '8.6.0'\ncommit = 'f00'\n"
    )
    found = only(paddle(image, text), "paddle")
    assert (found.version.value, found.cuda.value, found.cudnn.value) == ("2.6.1", "11.8", "8.6.0")
    assert found.git_version.value == "f00" and found.hip.absent and found.nccl.unknown


def test_paddle_for_cpu(image):
    text = "cuda_version = 'False'\ncudnn_version = 'False'\n"
    found = only(paddle(image, text, "paddlepaddle"), "paddle")
    assert found.cuda.absent and found.cudnn.absent and found.nccl.absent


def test_paddle_before_it_wrote_its_cuda(image):
    paddle(image, "x = 1\n", version="2.0.2.post101", file="version.py")
    assert only(image, "paddle").cuda.value == "10.1"
    other = Image(image.folder.parent / "other").python("/usr/local", "3.11")
    assert only(paddle(other, "x = 1\n", version="2.0.2"), "paddle").cuda.unknown
    third = Image(image.folder.parent / "third").python("/usr/local", "3.11")
    assert only(paddle(third, "x = 1\n", "paddlepaddle"), "paddle").cuda.absent


# -- all together ---------------------------------------------------------------------------


def test_several_at_once(image):
    cuda_torch(image)
    tensorflow(image, DICT_INFO)
    jax(image, "jax==0.6.0", "jaxlib==0.6.0")
    paddle(image, "cuda_version = '11.8'\n")
    assert list(frameworks(image)) == ["torch", "tensorflow", "jax", "paddle"]


def test_nothing_installed_and_nothing_known(image):
    assert frameworks(image) == {}
    nothing = read_environment(image.root, "/no/python", {})
    assert read_frameworks(image.root, nothing, {}, "") == ()


def test_files_that_are_no_files(image):
    image.folders(SITE + "/torch/version.py").write(SITE + "/torch/__init__.py")
    image.link(SITE + "/torch-2.0.dist-info", "/loop").link("/loop", "/loop")
    image.folders(SITE + "/nvidia/nccl/include/nccl.h")
    found = only(image)
    assert "not a regular file" in found.version.unknown
    os.mkfifo(str(image.folder / SITE[1:] / "fifo-1.0.dist-info"))
    assert only(image).build.value == "vendor"


def test_a_directory_that_cannot_be_listed(image, monkeypatch):
    python = image.read("/usr/local/bin/python3")
    cuda_torch(image)

    def listing(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(image.root, "listing", listing)
    (found,) = read_frameworks(image.root, python, {}, "x86_64")
    assert found.cuda.value == "13.0" and found.nccl.unknown


ASK_TORCH = """
import torch
print(torch.__version__, torch.version.cuda, torch.version.git_version, torch.__path__[0])
print(".".join(map(str, torch.cuda.nccl.version())), torch.backends.cudnn.version())
"""


def test_a_real_torch_says_the_same():
    python = os.environ.get("PREFLIGHT_TEST_TORCH_PYTHON", "")
    if not os.path.exists(python):
        pytest.skip("no environment with a real torch")
    read = read_environment(Root(), python, {})
    (found,) = read_frameworks(Root(), read, {}, "x86_64")
    said = subprocess.run(
        [python, "-c", ASK_TORCH], stdout=subprocess.PIPE, check=True, env={}, cwd="/"
    ).stdout.decode()
    version, cuda, git, path, nccl, cudnn = said.split()
    assert (found.version.value, found.cuda.value) == (version, cuda)
    assert (found.git_version.value, found.path.value) == (git, path)
    assert found.nccl.value == nccl
    major, minor, patch = map(int, found.cudnn.get("").split(".")[:3])
    assert int(cudnn) == major * 10000 + minor * 100 + patch
