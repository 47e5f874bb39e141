"""TensorFlow and JAX for real: what they map when they look for GPUs is what was predicted.

PREFLIGHT_TENSORFLOW_VENV and PREFLIGHT_JAX_VENV name environments with them, without NVIDIA's
wheels (`pip install tensorflow`; `pip install jax` and `pip install --no-deps` its plugin and pjrt
of CUDA 12 or 13). The CUDA libraries are those of the environments with torch. There is no GPU:
a stand-in driver takes them as far as opening what they need.
"""

import glob
import json
import os
import select
import subprocess
import tempfile
from pathlib import Path

import pytest

from preflight.binary import loader, plugins, symbols
from preflight.matrix import numbers
from preflight.roots import Root
from tests import fakes
from tests.binary.places import INSTALLS
from tests.real import stack

CHILD = """
import json, os, sys, time
name, look = sys.argv[2:]
answer = {"error": "", "path": sys.path, "found": ""}
try:
    framework = __import__(name)
    answer["found"] = repr(eval(look, {name: framework}))
except BaseException as error:
    answer["error"] = f"{type(error).__name__}: {error}"
os.write(int(sys.argv[1]), json.dumps(answer).encode())
time.sleep(60)
"""
#: With all that it opens TensorFlow goes on with the stand-in driver, which leads nowhere.
PATIENCE = 20
LOOKS = {
    "tensorflow": "tensorflow.config.list_physical_devices('GPU')", "jax": "jax.devices()",
}  # fmt: skip
#: What each opens that the other does not do without.
OF_CUDA_12 = ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
              "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9",
              "libnvJitLink.so.12"]  # fmt: skip
OF_CUDA_13 = ["libcudart.so.13", "libcublas.so.13", "libcufft.so.12", "libcusolver.so.12",
              "libcusparse.so.12", "libcudnn.so.9", "libcupti.so.13", "libnccl.so.2"]  # fmt: skip


class Place:
    """An environment with one of them."""

    def __init__(self, name):
        venv = os.environ.get(f"PREFLIGHT_{name.upper()}_VENV", "")
        found = glob.glob(f"{venv}/lib/python3*/site-packages/{name}") if venv else []
        if not found:
            pytest.skip(f"no environment with {name} (PREFLIGHT_{name.upper()}_VENV)")
        if fakes.compiler() is None:
            pytest.skip("no C compiler to build the stand-in driver with")
        self.name, self.python = name, f"{venv}/bin/python"
        self.site = os.path.dirname(found[0])

    def really(self, **env):
        """What a child tells that looks for GPUs, and what it logs."""
        read, write = os.pipe()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen(
                [self.python, "-s", "-c", CHILD, str(write), self.name, LOOKS[self.name]],
                env=dict(clean, PYTHONDONTWRITEBYTECODE="1", **env),
                pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=log, cwd="/",
            )  # fmt: skip
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                ready, _, _ = select.select([pipe], [], [], PATIENCE)
                text = os.read(pipe.fileno(), 1 << 20) if ready else b"{}"
            mapped = {
                one.split(None, 5)[5]
                for one in Path(f"/proc/{child.pid}/maps").read_text().splitlines()
                if "/" in one
            }
            child.kill()
            child.wait()
            log.seek(0)
            said = log.read().decode(errors="replace")
        nothing = {
            "error": "",
            "found": "[]",
            "path": [self.site, *env.get("PYTHONPATH", "").split(":")],
        }
        truth = {**nothing, **json.loads(text.decode())}
        truth["mapped"] = sorted(one for one in mapped if ".so" in one)
        return truth, said

    def played(self, path, **env):
        """(what is played, the files that stay mapped)."""
        check = plugins.frugal(symbols.Checker().check)
        process = loader.Process(Root(), env, self.python, cwd="/", check=check)
        assert not process.start().error
        if self.name == "tensorflow":
            done = plugins.tensorflow(process, self.site + "/tensorflow", "12.5.1", "9")
        else:
            done = plugins.jax(process, self.site + "/jaxlib", path, "13")
        return done, {process.files.real(one.path) for one in process.objects}

    def report(self, **env):
        """preflight's findings about what is linked."""
        words = ["--assume", "driver=580.95.05", "--assume", "gpu=H100"]
        with tempfile.NamedTemporaryFile("w", suffix=".env") as file:
            file.write("".join(f"{name}={value}\n" for name, value in env.items()))
            file.flush()
            words += ["--env-file", file.name]  # PYTHONPATH is not to lead preflight itself
            line = stack.command("check", "--python", self.python, "--format", "json", *words)
            document = stack.document(stack.run(line, stack.environment()))
        return [one for one in document["findings"] if one["rule"].startswith("link/")]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return str(fakes.build(tmp_path_factory.mktemp("driver")))


def wheels(major):
    """nvidia/ of an environment with a torch of that CUDA."""
    folder = "cu13" if major == 13 else "cublas"
    for install in sorted(INSTALLS.values(), key=lambda one: numbers(one.name), reverse=True):
        if os.path.isdir(f"{install.site}/nvidia/{folder}/lib"):
            return Path(install.site, "nvidia")
    pytest.skip(f"no environment with the libraries of CUDA {major} (PREFLIGHT_VENVS)")
    raise AssertionError


def here_already(names):
    """Those that this machine has for every program."""
    found = [one for one in names if loader.find(Root(), {}, one, os.uname().machine)]
    return set(found)


def cuda_of(paths):
    """Those that are NVIDIA's, but for the driver and what cuDNN brings in by itself."""
    kept = ("libcu", "libnv", "libnccl")
    out = ("libcuda.so", "libcudnn_", "libnvidia-ml")
    return {one for one in paths if os.path.basename(one).startswith(kept)
            and not os.path.basename(one).startswith(out)}  # fmt: skip


# -- TensorFlow ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tensorflow():
    return Place("tensorflow")


def flat(folder, without=""):
    """A directory with CUDA 12's libraries, for LD_LIBRARY_PATH."""
    for path in wheels(12).glob("*/lib/lib*.so.*"):
        if not without or not path.name.startswith(without):
            (folder / path.name).symlink_to(path)
    return str(folder)


def test_tensorflow_without_cuda_s_libraries(tensorflow, driver):
    truth, log = tensorflow.really(LD_LIBRARY_PATH=driver)
    done, mapped = tensorflow.played(truth["path"], LD_LIBRARY_PATH=driver)
    assert done.error == truth["error"] == "" and truth["found"] == "[]"
    assert {one.name for one in done.lost} >= (
        set(OF_CUDA_12) - {"libnvJitLink.so.12"} - here_already(OF_CUDA_12)
    )
    assert cuda_of(truth["mapped"]) == cuda_of(mapped) == set()
    own = {one for one in mapped if "libtensorflow" in one or "_pywrap_tensorflow_i" in one}
    assert own and own <= set(truth["mapped"])
    (found,) = tensorflow.report()
    assert (found["rule"], found["severity"]) == ("link/missing-library", "warn")
    assert "and 4 more cannot be opened" in found["summary"]
    assert found["fix"][0].startswith('pip install "tensorflow[and-cuda]==2.')


def test_tensorflow_with_all_of_them(tensorflow, driver, tmp_path):
    env = {"LD_LIBRARY_PATH": f"{flat(tmp_path)}:{driver}"}
    truth, log = tensorflow.really(**env)
    done, mapped = tensorflow.played(truth["path"], **env)
    assert done.error == truth["error"] == "" and done.lost == ()
    assert "Cannot dlopen some GPU libraries" not in log
    assert cuda_of(truth["mapped"]) == cuda_of(mapped) != set()
    assert tensorflow.report(**env) == []


@pytest.mark.parametrize("without", OF_CUDA_12)
def test_tensorflow_without_one_of_them(tensorflow, driver, tmp_path, without):
    env = {"LD_LIBRARY_PATH": f"{flat(tmp_path, without)}:{driver}"}
    if here_already([without]):
        pytest.skip(f"this machine has {without} for every program")
    truth, log = tensorflow.really(**env)
    done, mapped = tensorflow.played(truth["path"], **env)
    assert without in {one.name for one in done.lost} and truth["found"] == "[]"
    assert cuda_of(truth["mapped"]) <= cuda_of(mapped)
    assert "Cannot dlopen some GPU libraries" in log or "cudart" in without
    (found,) = tensorflow.report(**env)
    assert found["severity"] == "warn" and without in found["summary"]


# -- JAX ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax():
    return Place("jax")


def site(folder, without=""):
    """A directory for PYTHONPATH with NVIDIA's wheels."""
    for path in wheels(13).glob("*/lib/lib*.so.*"):
        if not without or not path.name.startswith(without):
            target = folder / "nvidia" / path.relative_to(wheels(13))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    return str(folder)


def test_jax_with_all_wheels(jax, driver, tmp_path):
    env = {"PYTHONPATH": site(tmp_path), "LD_LIBRARY_PATH": driver,
           "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}  # fmt: skip
    truth, log = jax.really(**env)
    done, mapped = jax.played(truth["path"], **env)
    assert truth["error"] == done.error == "" and done.lost == ()
    assert cuda_of(truth["mapped"]) == cuda_of(mapped) != set()
    plugin = [one for one in mapped if "jax" in one.rpartition("site-packages")[2]]
    assert [one for one in plugin if one not in truth["mapped"]] == []
    assert any("xla_cuda_plugin.so" in one for one in plugin)
    assert jax.report(**env) == []


def test_jax_without_wheels(jax, driver):
    truth, log = jax.really(LD_LIBRARY_PATH=driver)
    done, mapped = jax.played(truth["path"], LD_LIBRARY_PATH=driver)
    assert truth["error"] == "" and "Cpu" in truth["found"] and "Unable to load" in log
    assert {one.name for one in done.lost} == set(OF_CUDA_13) - here_already(OF_CUDA_13)
    assert cuda_of(truth["mapped"]) <= cuda_of(mapped), "it stops at the first"
    (found,) = jax.report(LD_LIBRARY_PATH=driver)
    assert (found["rule"], found["severity"]) == ("link/missing-library", "warn")
    assert found["fix"][0].startswith('pip install "jax[cuda13]==')


#: What JAX calls those whose version it asks for.
SPOKEN = {"libcudart.so.13": "CUDA", "libcudnn.so.9": "cuDNN", "libcufft.so.12": "cuFFT",
          "libcupti.so.13": "cuPTI", "libcublas.so.13": "cuBLAS",
          "libcusparse.so.12": "cuSPARSE"}  # fmt: skip


@pytest.mark.parametrize("without", sorted(OF_CUDA_13))
def test_jax_without_one_of_them(jax, driver, tmp_path, without):
    env = {"PYTHONPATH": site(tmp_path, without), "LD_LIBRARY_PATH": driver}
    if here_already([without]):
        pytest.skip(f"this machine has {without} for every program")
    truth, log = jax.really(**env)
    done, mapped = jax.played(truth["path"], **env)
    lost = {one.name for one in done.lost}
    assert without in lost <= {without, "libcusolver.so.12"}, "which needs some of the others"
    assert cuda_of(truth["mapped"]) <= cuda_of(mapped)
    if without in SPOKEN:
        assert f"Unable to load {SPOKEN[without]}. Is it installed?" in log
    (found,) = jax.report(**env)
    assert found["severity"] == "warn" and without in found["summary"]
