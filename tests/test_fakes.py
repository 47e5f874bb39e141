"""The stand-in driver, seen through the real NVML bindings and through ctypes."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from tests import fakes
from tests.fakes import A100, H100, T4, V100, FakeGpu, build

pytestmark = pytest.mark.skipif(
    fakes.compiler() is None, reason="no C compiler to build the stand-in driver with"
)

#: How long a call that hangs is watched; a call that answers needs some milliseconds.
PATIENCE = 1.5

ASK_NVML = r"""
import json, sys
import pynvml as n

print("started", flush=True)
n.nvmlInit()
answer = {"driver": n.nvmlSystemGetDriverVersion(), "nvml": n.nvmlSystemGetNVMLVersion(),
          "cuda": n.nvmlSystemGetCudaDriverVersion(), "count": n.nvmlDeviceGetCount(), "gpus": []}
for index in range(min(answer["count"], 8)):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    uuid = n.nvmlDeviceGetUUID(gpu)
    try:
        mig = n.nvmlDeviceGetMigMode(gpu)
    except n.NVMLError as error:
        mig = error.value
    instances = []
    for at in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            one = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, at)
        except n.NVMLError:
            continue
        is_mig = n.nvmlDeviceIsMigDeviceHandle(one)  # some bindings return the c_uint itself
        instances.append([n.nvmlDeviceGetName(one), n.nvmlDeviceGetUUID(one),
                          getattr(is_mig, "value", is_mig)])
    pci = n.nvmlDeviceGetPciInfo(gpu)
    answer["gpus"].append({
        "name": n.nvmlDeviceGetName(gpu), "uuid": uuid,
        "capability": n.nvmlDeviceGetCudaComputeCapability(gpu),
        "memory": [n.nvmlDeviceGetMemoryInfo(gpu).total,
                   n.nvmlDeviceGetMemoryInfo(gpu, version=n.nvmlMemory_v2).total],
        "mode": n.nvmlDeviceGetComputeMode(gpu), "brand": n.nvmlDeviceGetBrand(gpu),
        "mig": mig, "instances": instances, "bus": pci.busId, "pci": pci.pciDeviceId,
        "index": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)),
        "processes": len(n.nvmlDeviceGetComputeRunningProcesses(gpu))})
n.nvmlShutdown()
print(json.dumps(answer))
"""

ASK_CUDA = r"""
import ctypes, json

print("started", flush=True)
cuda = ctypes.CDLL("libcuda.so.1")

def ask(name, *arguments):
    number = ctypes.c_int(-1)
    return [getattr(cuda, name)(ctypes.byref(number), *arguments), number.value]

answer = {"version": ask("cuDriverGetVersion"), "early": ask("cuDeviceGetCount"),
          "init": cuda.cuInit(0), "count": ask("cuDeviceGetCount"), "gpus": []}
if answer["init"] == 0:
    for gpu in range(answer["count"][1]):
        name, uuid = ctypes.create_string_buffer(100), ctypes.create_string_buffer(16)
        memory = ctypes.c_size_t()
        codes = [cuda.cuDeviceGetName(name, 100, gpu), cuda.cuDeviceGetUuid_v2(uuid, gpu),
                 cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), gpu)]
        answer["gpus"].append({"name": name.value.decode(), "uuid": uuid.raw.hex(),
                               "memory": memory.value, "codes": codes,
                               "capability": [ask("cuDeviceGetAttribute", one, gpu)[1]
                                              for one in (75, 76)]})
print(json.dumps(answer))
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled libraries are shared by the tests of one run."""
    return tmp_path_factory.mktemp("fakes")


def start(
    script: str, *directories: Path, chosen: Optional[str] = None, patience: float = 60
) -> "subprocess.CompletedProcess[bytes]":
    """The finished child that ran `script` with the libraries of `directories`."""
    environment = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    environment["LD_LIBRARY_PATH"] = ":".join(str(one) for one in directories)
    if chosen is not None:
        environment["CUDA_VISIBLE_DEVICES"] = chosen
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        timeout=patience,
    )


def ask(script: str, *directories: Path, chosen: Optional[str] = None) -> Dict[str, Any]:
    """What the script found out."""
    child = start(script, *directories, chosen=chosen)
    assert child.returncode == 0, child.stderr.decode()
    answer: Dict[str, Any] = json.loads(child.stdout.decode().splitlines()[-1])
    return answer


def nvml(*directories: Path) -> Dict[str, Any]:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    return ask(ASK_NVML, *directories)


def refusal(script: str, directory: Path) -> str:
    """The last line of the traceback with which the script ended."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    child = start(script, directory)
    assert child.returncode == 1
    return str(child.stderr.decode().strip().splitlines()[-1])


def test_nvml_describes_every_gpu(tmp_path: Path, cache: Path) -> None:
    gpus = (H100, replace(T4, uuid="GPU-of-my-own", compute_mode=3))
    build(tmp_path, driver="580.95.05", cuda="13.0", gpus=gpus, cache=cache)
    answer = nvml(tmp_path)
    assert (answer["driver"], answer["nvml"]) == ("580.95.05", "13.580.95.05")
    assert (answer["cuda"], answer["count"]) == (13000, 2)
    first, second = answer["gpus"]
    assert (first["name"], first["capability"]) == ("NVIDIA H100 80GB HBM3", [9, 0])
    assert first["memory"] == [80 << 30, 80 << 30]
    assert (first["mig"], first["instances"], first["processes"]) == ([0, 0], [], 0)
    assert (first["bus"], first["pci"]) == ("00000000:1B:00.0", 0x233010DE)
    assert (second["uuid"], second["mode"], second["brand"]) == ("GPU-of-my-own", 3, 2)
    assert (second["mig"], second["index"]) == (3, 1), "a T4 has no MIG: not supported"
    assert first["uuid"].startswith("GPU-") and len(first["uuid"]) == 40


def test_nvml_lists_mig_instances(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, gpus=(replace(A100, mig=True, mig_instances=2),), cache=cache)
    (gpu,) = nvml(tmp_path)["gpus"]
    assert gpu["mig"] == [1, 1]
    (name, uuid, is_mig), other = gpu["instances"]
    assert (name, is_mig) == ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 1)
    assert uuid.startswith("MIG-") and uuid != other[1]


def test_nvml_without_gpus(tmp_path: Path, cache: Path) -> None:
    assert nvml(build(tmp_path, gpus=(), cache=cache))["count"] == 0


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("no-driver", "DriverNotLoaded"),
        ("mismatch", "LibRmVersionMismatch"),
        ("no-permission", "NoPermission"),
        ("unknown-error", "Unknown"),
        ("gpu-lost", "GpuIsLost"),
        ("missing-function", "FunctionNotFound"),
    ],
)
def test_nvml_refuses(tmp_path: Path, cache: Path, mode: str, error: str) -> None:
    build(tmp_path, nvml=mode, cache=cache)
    assert f"NVMLError_{error}: " in refusal(ASK_NVML, tmp_path)


def test_any_nvml_function_can_be_missing(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, nvml="missing-function", nvml_missing=("nvmlDeviceGetBrand",), cache=cache)
    library = ctypes.CDLL(str(tmp_path / "libnvidia-ml.so.1"))
    assert not hasattr(library, "nvmlDeviceGetBrand")
    assert hasattr(library, "nvmlDeviceGetCudaComputeCapability")


def test_nvml_garbage(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, nvml="garbage", cache=cache)
    assert "UnicodeDecodeError" in refusal(ASK_NVML, tmp_path)
    library = ctypes.CDLL(str(tmp_path / "libnvidia-ml.so.1"))
    number, minor, gpu = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(number)) == 0
    assert number.value == 4000000000
    assert library.nvmlDeviceGetHandleByIndex_v2(3999999999, ctypes.byref(gpu)) == 0
    assert library.nvmlDeviceGetName(gpu, name, 96) == 0
    assert name.value == b"\xff\xfe\x80GPU"
    library.nvmlDeviceGetCudaComputeCapability(gpu, ctypes.byref(number), ctypes.byref(minor))
    assert (number.value, minor.value) == (250, 99)
    assert library.nvmlSystemGetDriverVersion(name, 96) == 0
    assert name.value == b"\xff\xfe??"


@pytest.mark.parametrize("mode", ["hang", "hang-later"])
def test_nvml_hangs(tmp_path: Path, cache: Path, mode: str) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    directory = build(tmp_path, nvml=mode, cache=cache)
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        start(ASK_NVML, directory, patience=PATIENCE)
    assert caught.value.stdout == b"started\n"


def test_nvml_crashes(tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    child = start(ASK_NVML, build(tmp_path, nvml="crash", cache=cache))
    assert (child.returncode, child.stdout) == (-signal.SIGSEGV, b"started\n")


def test_nvml_tells_the_cuda_of_the_libcuda_in_front(tmp_path: Path, cache: Path) -> None:
    host = build(tmp_path / "host", driver="535.104.05", cuda="12.2", gpus=(A100,), cache=cache)
    compat = build(tmp_path / "compat", cuda="13.2", nvml="absent", cache=cache)
    pinned = build(tmp_path / "pinned", cuda="12.2", nvml_cuda="11.4", cache=cache)
    assert nvml(host)["cuda"] == 12020
    assert nvml(compat, host)["cuda"] == 13020
    assert nvml(compat, host)["driver"] == "535.104.05"
    assert nvml(pinned)["cuda"] == 11040


def test_cuda_describes_every_gpu(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, driver="535.104.05", cuda="12.2", gpus=(A100, V100), cache=cache)
    answer = ask(ASK_CUDA, tmp_path)
    assert (answer["version"], answer["early"][0], answer["init"]) == ([0, 12020], 3, 0)
    assert answer["count"] == [0, 2]
    assert [gpu["name"] for gpu in answer["gpus"]] == ["NVIDIA A100-SXM4-80GB", V100.name]
    assert [gpu["capability"] for gpu in answer["gpus"]] == [[8, 0], [7, 0]]
    assert [gpu["memory"] for gpu in answer["gpus"]] == [80 << 30, 16 << 30]
    assert [gpu["codes"] for gpu in answer["gpus"]] == [[0, 0, 0], [0, 0, 0]]


def test_cuda_and_nvml_agree_on_the_uuid(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, cache=cache)
    uuid = nvml(tmp_path)["gpus"][0]["uuid"]
    assert ask(ASK_CUDA, tmp_path)["gpus"][0]["uuid"] == uuid[4:].replace("-", "")


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("1", ["two"]),
        ("2,0", ["three", "one"]),
        ("1,9,0", ["two"]),
        ("0,0", []),
        ("", []),
        ("-1", []),
        ("GPU-bbbb", ["two"]),
        ("GPU-cccccccc-0000-0000-0000-000000000000,0", ["three", "one"]),
    ],
)
def test_cuda_visible_devices(tmp_path: Path, cache: Path, chosen: str, names: Any) -> None:
    gpus = [
        replace(H100, name=name, uuid=f"GPU-{letter * 8}-0000-0000-0000-000000000000")
        for name, letter in (("one", "a"), ("two", "b"), ("three", "c"))
    ]
    answer = ask(ASK_CUDA, build(tmp_path, gpus=gpus, cache=cache), chosen=chosen)
    assert [gpu["name"] for gpu in answer["gpus"]] == names
    assert answer["init"] == (0 if names else 100)


@pytest.mark.parametrize(
    ("instances", "names"), [(0, ["NVIDIA H100 80GB HBM3"]), (3, ["Split MIG 1g.10gb"])]
)
def test_cuda_sees_one_mig_instance_and_no_gpu_beside_it(
    tmp_path: Path, cache: Path, instances: int, names: Any
) -> None:
    split = FakeGpu(name="Split", mig=True, mig_instances=instances)
    answer = ask(ASK_CUDA, build(tmp_path, gpus=(H100, split, split), cache=cache))
    assert [gpu["name"] for gpu in answer["gpus"]] == names


@pytest.mark.parametrize(
    ("options", "version", "init"),
    [
        ({"libcuda": "garbage"}, [0, -7], 0),
        ({"libcuda": "stub"}, [34, -1], 34),
        ({"cuda_init": 804}, [0, 13000], 804),
        ({"gpus": ()}, [0, 13000], 100),
    ],
)
def test_cuda_refuses(
    tmp_path: Path, cache: Path, options: Dict[str, Any], version: Any, init: int
) -> None:
    answer = ask(ASK_CUDA, build(tmp_path, cache=cache, **options))
    assert (answer["version"], answer["init"]) == (version, init)


def test_cuda_hangs(tmp_path: Path, cache: Path) -> None:
    directory = build(tmp_path, libcuda="hang", cache=cache)
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        start(ASK_CUDA, directory, patience=PATIENCE)
    assert caught.value.stdout == b"started\n"


def test_cuda_crashes(tmp_path: Path, cache: Path) -> None:
    child = start(ASK_CUDA, build(tmp_path, libcuda="crash", cache=cache))
    assert (child.returncode, child.stdout) == (-signal.SIGSEGV, b"started\n")


def test_cuda_function_missing(tmp_path: Path, cache: Path) -> None:
    child = start(ASK_CUDA, build(tmp_path, libcuda="missing-function", cache=cache))
    assert b"undefined symbol: cuDriverGetVersion" in child.stderr


def test_absent_libraries_are_not_built(tmp_path: Path) -> None:
    assert list(build(tmp_path, nvml="absent", libcuda="absent").iterdir()) == []


def test_libcuda_can_be_a_link(tmp_path: Path, cache: Path) -> None:
    build(tmp_path, cuda="12.2", libcuda_file="libcuda.so.535.104.05", cache=cache)
    assert os.readlink(str(tmp_path / "libcuda.so.1")) == "libcuda.so.535.104.05"
    assert ask(ASK_CUDA, tmp_path)["version"] == [0, 12020]
    build(tmp_path, cuda="12.4", cache=cache)
    assert not (tmp_path / "libcuda.so.1").is_symlink()
    assert ask(ASK_CUDA, tmp_path)["version"] == [0, 12040]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf to read the note with")
def test_forward_compatibility_note(tmp_path: Path, cache: Path) -> None:
    note = {"Format": 1, "CUDA Version": "13.2", "Driver": [535, 580], "Text": 'a"\\\n%é'}
    build(tmp_path / "compat", fwd_note=note, cache=cache)
    build(tmp_path / "plain", cache=cache)
    said = notes(tmp_path / "compat")
    owner, data = said.split(".note.cuda.fwd_compatibility")[1].split("description data:")
    assert "NVIDIA Corporation" in owner
    assert json.loads(bytes.fromhex(data.split("\n")[0].replace(" ", "")).decode()) == note
    assert "fwd_compatibility" not in notes(tmp_path / "plain")
    assert ask(ASK_CUDA, tmp_path / "compat")["version"] == [0, 13000]


def notes(directory: Path) -> str:
    """What readelf prints of the notes of the libcuda in `directory`."""
    command = ["readelf", "-n", "-W", str(directory / "libcuda.so.1")]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()


def test_cache_saves_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "one", cache=tmp_path / "cache")
    monkeypatch.setattr(fakes, "compiler", lambda: None)
    build(tmp_path / "two", cache=tmp_path / "cache")
    with pytest.raises(RuntimeError, match="no C compiler"):
        build(tmp_path / "three", cuda="12.2", cache=tmp_path / "cache")
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == ["libcuda.so.1", "libnvidia-ml.so.1"]


def test_unknown_modes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'sleepy' is none of ok, hang"):
        build(tmp_path, nvml="sleepy")
    with pytest.raises(ValueError, match="'mismatch' is none of ok, hang"):
        build(tmp_path, libcuda="mismatch")


def test_runtime_alone_decides_nothing(tmp_path: Path, cache: Path) -> None:
    """Without a real runtime behind it, the one in front has no devices to offer."""
    runtime = ctypes.CDLL(str(fakes.build_runtime(tmp_path, cache)))
    count = ctypes.c_int(-1)
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 801
    assert runtime.cudaGetLastError() == 801
    assert runtime.cudaGetLastError() == 0
