"""What TensorFlow and JAX would load, in environments of a few small libraries."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from preflight import snapshot as s
from preflight.binary import fatbin
from preflight.binary.loader import Process, find
from preflight.probes import others
from preflight.roots import Root

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH")
CUDA_12 = {
    "cuda_runtime": ["libcudart.so.12"], "cublas": ["libcublas.so.12", "libcublasLt.so.12"],
    "cufft": ["libcufft.so.11"], "cusolver": ["libcusolver.so.11"],
    "cusparse": ["libcusparse.so.12"], "cudnn": ["libcudnn.so.9"],
}  # fmt: skip
CUDA_13 = {
    "cu13": ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcupti.so.13",
             "libcusparse.so.12", "libcusolver.so.12", "libcufft.so.12", "libnvrtc.so.13"],
    "nccl": ["libnccl.so.2"], "cudnn": ["libcudnn.so.9"],
}  # fmt: skip


def not_here(names):
    """Those that this machine has not got for every program."""
    return [one for one in names if not find(Root(), {}, one, os.uname().machine)]


def library(path, *options, code=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-o", str(path), "-x", "c", "-", "-x", "none",
         f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed", *options],
        input=code, check=True, encoding="utf-8",
    )  # fmt: skip
    return path


def runpath(*folders):
    return "-Wl,--enable-new-dtags,-rpath," + ":".join(folders)


class Environment:
    """A site-packages, and what is seen of it."""

    def __init__(self, site):
        self.site = site
        self.frameworks = []

    def framework(self, name, **facts):
        known = {key: s.known(value, "here") for key, value in facts.items()}
        path = s.known(str(self.site / name), "here")
        self.frameworks.append(s.Framework(name=s.known(name, "here"), path=path, **known))

    def wheels(self, libraries):
        for folder, names in libraries.items():
            for name in names:
                library(self.site / "nvidia" / folder / "lib" / name)

    @property
    def look(self):
        python = s.PythonEnv(
            executable=s.known(sys.executable, "here"), path=s.known((str(self.site),), "here")
        )
        return others.Look(Root(), {}, python, tuple(self.frameworks))

    def read(self, before=None, **env):
        return others.read(self.look._replace(env=env), before or s.Snapshot())

    def lost(self, **env):
        """{library: record} of what is missing, damaged or lacks something."""
        found = self.read(**env).libraries.value
        return {one.name.value: one for one in found
                if one.missing.value or one.missing_symbols.known}  # fmt: skip


@pytest.fixture
def tensorflow(tmp_path):
    """TensorFlow with the wheels that its library looks into; it does not look for cuSOLVER."""
    here = Environment(tmp_path / "site")
    package = here.site / "tensorflow"
    folders = [f"$ORIGIN/../nvidia/{one}/lib" for one in CUDA_12 if one != "cusolver"]
    core = library(package / "libtensorflow_framework.so.2", runpath(*folders))
    large = library(package / "libtensorflow_cc.so.2", str(core), runpath("$ORIGIN"))
    library(package / "python/_pywrap_tensorflow_internal.so", str(large), runpath("$ORIGIN/.."))
    (package / "python/pywrap_dlopen_global_flags.py").write_text("")
    here.framework("tensorflow", cuda="12.5.1", cudnn="9")
    return here


def test_tensorflow_without_wheels(tensorflow):
    lost = tensorflow.lost()
    assert list(lost) == not_here([one for names in CUDA_12.values() for one in names])
    assert {one.needed_by.value for one in lost.values()} == {"tensorflow"}
    assert {one.required.value for one in lost.values()} == {False}
    (seen,) = tensorflow.read().frameworks.value
    assert seen.import_problem.absent, "its import works"


def test_tensorflow_with_wheels_where_it_does_not_look(tensorflow, tmp_path):
    tensorflow.wheels(CUDA_12)
    (one,) = tensorflow.lost().values()
    place = tensorflow.site / "nvidia/cusolver/lib"
    assert one.path.value == str(place / "libcusolver.so.11") and not one.damaged.known
    assert tensorflow.lost(LD_LIBRARY_PATH=str(place)) == {}
    told = {one.name.value: one for one in tensorflow.read().libraries.value}
    assert told["libcudnn.so.9"].found_by.value == "runpath"
    assert told["libcudnn.so.9"].needed_by.value == "tensorflow"


def test_a_tensorflow_for_the_cpu_opens_none(tensorflow):
    tensorflow.frameworks.clear()
    tensorflow.framework("tensorflow")
    assert tensorflow.lost() == {}


def test_a_damaged_library_of_tensorflow_s_look(tensorflow):
    tensorflow.wheels(CUDA_12)
    (tensorflow.site / "nvidia/cufft/lib/libcufft.so.11").write_bytes(b"")
    assert tensorflow.lost()["libcufft.so.11"].damaged.value == "file too short"


def test_a_cuda_library_that_lacks_a_symbol(tensorflow):
    tensorflow.wheels(CUDA_12)
    library(tensorflow.site / "nvidia/cufft/lib/libcufft.so.11",
            code="int gone(void); int f(void) { return gone(); }")  # fmt: skip
    lost = tensorflow.lost()["libcufft.so.11"]
    assert lost.missing_symbols.value == ("gone",) and lost.required.value is False


@pytest.mark.parametrize("alone", [True, False])
def test_an_import_of_tensorflow_that_stops(tensorflow, alone):
    (tensorflow.site / "tensorflow/libtensorflow_cc.so.2").unlink()
    if not alone:
        tensorflow.framework("torch")
    (one,) = tensorflow.lost().values()
    assert one.name.value == "libtensorflow_cc.so.2" and one.required.value is alone
    by = "_pywrap_tensorflow_internal.so" if alone else "import tensorflow"
    assert one.needed_by.value == by
    (seen,) = tensorflow.read().frameworks.value
    assert seen.import_problem.value.startswith("ImportError: libtensorflow_cc.so.2: cannot open")


def test_a_glibc_that_tensorflow_finds_too_old(tensorflow, tmp_path):
    """Versions are looked at in its large libraries, too."""
    script = tmp_path / "new"
    script.write_text("GLIBC_9.99 { global: f; };")
    newer = library(tmp_path / "libc.so.6", f"-Wl,--version-script={script}",
                    code="int f(void) { return 1; }")  # fmt: skip
    library(tensorflow.site / "tensorflow/libtensorflow_cc.so.2", str(newer),
            code="int f(void); int g(void) { return f(); }")  # fmt: skip
    (one,) = [o for o in tensorflow.read().libraries.value if o.needed_version.known]
    assert one.name.value == "libc.so.6" and one.needed_version.value == "9.99"
    assert one.required.value is True and one.version.value.startswith("2.")


# -- JAX ----------------------------------------------------------------------------------------

INITIALIZE = '''
def _load(module, libraries):
  pass

def _load_nvidia_libraries():
  """From the wheels."""
  _load("cuda_runtime", ["libcudart.so.12"])
  _load("cu13", ["libcudart.so.13"])
  _load("cu13", ["libnvrtc.so.13"])
  _load("cublas", ["libcublas.so.12", "libcublasLt.so.12"])
  _load("cu13", ["libcublas.so.13", "libcublasLt.so.13"])
  _load("nccl", ["libnccl.so.2"])
  _load("cu13", ["libcupti.so.13"])
  _load("cu13", ["libcusparse.so.12"])
  _load("cu13", ["libcusolver.so.12"])
  _load("cu13", ["libcufft.so.12"])
  _load("nvshmem", ["libnvshmem_host.so.3"])
  _load("cudnn", ["libcudnn.so.9"])
  _load(somewhere, else_)
  _load("one")

def initialize():
  _load_nvidia_libraries()
'''


@pytest.fixture
def jax(tmp_path):
    """jaxlib and a plugin for CUDA 13."""
    here = Environment(tmp_path / "site")
    common = library(here.site / "jaxlib/libjax_common.so")
    library(here.site / "jaxlib/_jax.so", str(common), runpath("$ORIGIN"))
    for name in ("_versions", "_solver", "cuda_plugin_extension"):
        library(here.site / f"jax_cuda13_plugin/{name}.so")
    library(here.site / "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    (here.site / "jax_plugins/xla_cuda13/__init__.py").write_text(INITIALIZE)
    here.framework("jax", cuda="13")
    return here


def test_jax_with_its_wheels(jax):
    jax.wheels(CUDA_13)
    assert jax.lost() == {}
    told = {one.name.value for one in jax.read().libraries.value}
    assert {name for names in CUDA_13.values() for name in names} <= told


def test_jax_does_without_what_it_only_likes_to_have(jax):
    jax.wheels(CUDA_13)
    (jax.site / "nvidia/cu13/lib/libnvrtc.so.13").unlink()
    assert jax.lost() == {}


@pytest.mark.parametrize("name", ["libcudnn.so.9", "libcudart.so.13", "libnccl.so.2"])
def test_jax_without_one_of_them(jax, name):
    jax.wheels(CUDA_13)
    (path,) = jax.site.glob(f"nvidia/*/lib/{name}")
    path.unlink()
    if not not_here([name]):
        pytest.skip(f"this machine has {name} for every program")
    (one,) = jax.lost().values()
    assert one.name.value == name and one.needed_by.value == "jax"


def test_jax_with_the_system_s(jax, tmp_path):
    jax.wheels(CUDA_13)
    (jax.site / "nvidia").rename(tmp_path / "elsewhere")
    path = ":".join(str(one) for one in (tmp_path / "elsewhere").glob("*/lib"))
    assert list(jax.lost()) and jax.lost(LD_LIBRARY_PATH=path) == {}


def test_jax_without_a_plugin_is_for_the_cpu(jax):
    shutil.rmtree(str(jax.site / "jax_plugins"))
    assert jax.lost() == {}


@pytest.mark.parametrize("text", ["", "def initialize(:", "_load(*x)\n_load('a', ['b'], 3)\n"])
def test_a_plugin_that_says_nothing_of_what_it_opens(jax, text):
    """Older ones, and those that cannot be read: nothing is claimed to be missing."""
    (jax.site / "jax_plugins/xla_cuda13/__init__.py").write_text(text)
    assert jax.lost() == {}


def test_an_import_of_jax_that_stops(jax):
    (jax.site / "jaxlib/libjax_common.so").unlink()
    (one,) = jax.lost().values()
    assert one.name.value == "libjax_common.so" and one.required.value is True


# -- together -------------------------------------------------------------------------------


def test_what_could_not_be_seen_stays_unknown(jax, monkeypatch):
    lost = s.Snapshot(libraries=s.unknown("timed out"))
    assert jax.read(lost).libraries.unknown == "timed out"

    def failing(_self, _name, *_rest, **_more):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Process, "open", failing)
    assert "Too many open files" in jax.read().libraries.unknown


def test_what_torch_loads_too_is_told_once(jax):
    jax.wheels(CUDA_13)
    path = str(jax.site / "nvidia/cudnn/lib/libcudnn.so.9")
    theirs = s.Library(name=s.known("libcudnn.so.9", ""), path=s.known(path, ""),
                       needed_by=s.known("libtorch_cuda.so", ""))  # fmt: skip
    before = s.Snapshot(libraries=s.known((theirs,), "played"))
    found = [one for one in jax.read(before).libraries.value if one.name.value == "libcudnn.so.9"]
    assert found == [theirs]


@pytest.mark.parametrize("alone", [True, False])
def test_the_gpu_code_of_a_plugin(jax, monkeypatch, alone):
    """Beside another framework it is no main part of the job."""
    groups = {("sm_90", "compute_90"): 49}
    found = fatbin.read(str(jax.site / "jax_plugins/xla_cuda13/xla_cuda_plugin.so"))
    monkeypatch.setattr(fatbin, "read", lambda _path: found._replace(groups=groups))
    if not alone:
        jax.framework("torch")
    (code,) = others.kernels(jax.look)
    assert code.owner.value == "jax" and code.main.value is alone
    assert set(code.targets.value) == {"sm_90", "compute_90"}
