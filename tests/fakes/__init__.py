"""A stand-in NVIDIA driver: `libnvidia-ml.so.1` and `libcuda.so.1`, compiled to play a scenario.

`build` puts the libraries into a directory; a process that has it on `LD_LIBRARY_PATH` finds
the described driver and GPUs there, behind the real bindings and the real frameworks. The scenario
is compiled in, so nothing else in the environment of that process differs from a real one.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

HERE = Path(__file__).resolve().parent

#: How many MIG instances one GPU can have.
MIG_LIMIT = 7

#: Code that the NVML call which first meets the trouble returns: in nvmlInit_v2 …
NVML_INIT_CODES = {"no-permission": 4, "no-driver": 9, "mismatch": 18, "unknown-error": 999}
#: … or in nvmlDeviceGetHandleByIndex.
NVML_DEVICE_CODES = {"gpu-lost": 15}

#: Ways of going wrong that the sources know; the numbers are theirs alone.
FAULTS = {"ok": 0, "hang": 1, "crash": 2, "garbage": 3, "hang-later": 4, "stub": 5, "trap": 6}

NVML_MODES = (
    "ok", "hang", "hang-later", "crash", "garbage", "missing-function", "absent",
    *NVML_INIT_CODES, *NVML_DEVICE_CODES,
)  # fmt: skip
LIBCUDA_MODES = (
    "ok", "hang", "crash", "garbage", "stub", "trap", "missing-function", "absent",
)  # fmt: skip

Text = Union[str, bytes]


@dataclass(frozen=True)
class Refused:
    """The answer to one question: NVML's error of this code."""

    code: int


#: What NVML answers to a question that a GPU knows nothing of.
NOT_SUPPORTED = Refused(3)
#: Of `Health`, each the answer to one question; the order is that of the C sources.
Answer = Union[int, Refused]


@dataclass(frozen=True)
class Health:
    """What NVML says of a GPU's health: each a number, or the error it answers instead.

    As it stands: a healthy, idle H100 with all its NVLinks up, on a fabric that is ready. `handle`
    is what asking for the GPU itself returns (15: it is lost). `clocks`: bits of the reasons for
    the clocks (1: idle). `recovery`: what the driver asks for (0: nothing).
    """

    handle: Answer = 0
    ecc_now: Answer = 0
    ecc_ever: Answer = 0
    remap_pending: Answer = 0
    remap_failed: Answer = 0
    retired_pending: Answer = NOT_SUPPORTED
    recovery: Answer = 0
    clocks: Answer = 1
    temperature: Answer = 36
    slowdown_at: Answer = 87
    pcie_generation: Answer = 5
    pcie_generation_max: Answer = 5
    pcie_width: Answer = 16
    pcie_width_max: Answer = 16
    links: Answer = 18
    links_down: Answer = 0
    persistence: Answer = 1
    virtualization: Answer = 0
    used_mib: Answer = 4
    processes: Answer = 0
    fabric_state: Answer = 3
    fabric_status: Answer = 0
    fabric_health: Answer = 0
    peers: Answer = 0


HEALTHY = Health()
#: A board that has neither ECC nor NVLink nor a fabric, nor anything else that servers have.
PLAIN = Health(
    **dict.fromkeys(
        ("ecc_now", "ecc_ever", "remap_pending", "remap_failed", "recovery", "links",
         "fabric_state"),
        NOT_SUPPORTED,
    )
)  # fmt: skip


@dataclass(frozen=True)
class FakeGpu:
    """One GPU. `brand` is NVML's number: 2 Tesla, 5 GeForce, 14 NVIDIA, 15 GeForce RTX.

    `mig` is None for a GPU that has no MIG, False where it is off, True where it is on, with
    `mig_instances` of it (none at all is a common mistake). `uuid` is made from the index
    when empty.
    """

    name: Text = "NVIDIA H100 80GB HBM3"
    capability: str = "9.0"
    memory_gib: float = 80
    uuid: Text = ""
    mig: Optional[bool] = False
    mig_instances: int = 1
    mig_profile: str = "1g.10gb"
    compute_mode: int = 0
    brand: int = 14
    pci_device: int = 0x2330
    multiprocessors: int = 132
    health: Health = HEALTHY


H100 = FakeGpu()
A100 = replace(
    H100, name="NVIDIA A100-SXM4-80GB", capability="8.0", pci_device=0x20B2, multiprocessors=108,
    health=replace(HEALTHY, links=12, fabric_state=NOT_SUPPORTED, pcie_generation=4,
                   pcie_generation_max=4),
)  # fmt: skip
#: Before Ampere bad memory is retired by pages, not by rows; before Hopper no GPU tells its fabric.
_PAGES = replace(
    HEALTHY, remap_pending=NOT_SUPPORTED, remap_failed=NOT_SUPPORTED, retired_pending=0,
    recovery=NOT_SUPPORTED, fabric_state=NOT_SUPPORTED, pcie_generation=3, pcie_generation_max=3,
)  # fmt: skip
V100 = FakeGpu(
    "Tesla V100-SXM2-16GB", "7.0", 16, mig=None, brand=2, pci_device=0x1DB1, multiprocessors=80,
    health=replace(_PAGES, links=6),
)  # fmt: skip
T4 = FakeGpu(
    "Tesla T4", "7.5", 16, mig=None, brand=2, pci_device=0x1EB8, multiprocessors=40,
    health=replace(_PAGES, links=NOT_SUPPORTED),
)  # fmt: skip
RTX_5090 = FakeGpu(
    "NVIDIA GeForce RTX 5090",
    "12.0",
    32,
    mig=None,
    brand=15,
    pci_device=0x2B85,
    multiprocessors=170,
    health=PLAIN,
)

#: What a driver that lost its senses says: no UTF-8, and numbers beyond any hardware.
GARBAGE_VERSION = b"\xff\xfe??"
GARBAGE_GPU = FakeGpu(
    name=b"\xff\xfe\x80GPU",
    capability="250.99",
    memory_gib=0,
    uuid=b"\xff\xfe",
    mig=None,
    compute_mode=77,
    brand=9999,
    pci_device=0xFFFF,
    multiprocessors=-1,
    health=Health(**{one.name: 0xFFFFFFFF for one in fields(Health) if one.name != "handle"}),
)


def compiler() -> Optional[str]:
    """The path of a C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(
    directory: Union[str, Path],
    *,
    driver: str = "580.95.05",
    cuda: str = "13.0",
    gpus: Sequence[FakeGpu] = (H100,),
    nvml_cuda: Optional[str] = None,
    nvml: str = "ok",
    nvml_missing: Sequence[str] = ("nvmlDeviceGetCudaComputeCapability",),
    libcuda: str = "ok",
    libcuda_missing: Sequence[str] = ("cuDriverGetVersion",),
    libcuda_file: Optional[str] = None,
    cuda_init: int = 0,
    fwd_note: Optional[Mapping[str, Any]] = None,
    cache: Optional[Union[str, Path]] = None,
) -> Path:
    """Compile the described driver into `directory`, which is created, and return that.

    `nvml` and `libcuda` say how each library behaves (`NVML_MODES`, `LIBCUDA_MODES`; with "trap"
    all is well but cuInit aborts the process); the `…_missing` functions are what
    "missing-function" leaves out. NVML's CUDA version is that of the libcuda which the asking
    process loads, as with a real driver, unless `nvml_cuda` pins it.
    `cuda_init` is what cuInit returns (803, 804, 802, …). With `libcuda_file`, `libcuda.so.1` is
    a symbolic link to a file of that name. `fwd_note` becomes the ELF note by which a libcuda says
    that it is one for forward compatibility. Compiled libraries are kept in `cache`.
    """
    _known(nvml, NVML_MODES)
    _known(libcuda, LIBCUDA_MODES)
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    garbage = nvml == "garbage"
    if nvml != "absent":
        scenario = _scenario(
            GARBAGE_VERSION if garbage else driver,
            cuda,
            [GARBAGE_GPU] if garbage else gpus,
            NVML_FAULT=FAULTS.get(nvml, 0),
            NVML_INIT=NVML_INIT_CODES.get(nvml, 0),
            NVML_DEVICE=NVML_DEVICE_CODES.get(nvml, 0),
            NVML_CUDA_PINNED=int(garbage or nvml_cuda is not None),
            NVML_CUDA=-7 if garbage else _number(nvml_cuda or cuda),
        )
        hidden = nvml_missing if nvml == "missing-function" else ()
        library = target / "libnvidia-ml.so.1"
        _library(library, library.name, "nvml.c", scenario, hidden, cache)
    if libcuda != "absent":
        scenario = _scenario(
            driver,
            cuda,
            [GARBAGE_GPU] if libcuda == "garbage" else gpus,
            CUDA_FAULT=FAULTS.get(libcuda, 0),
            CUDA_INIT=cuda_init,
        )
        if fwd_note is not None:
            text = json.dumps(fwd_note, ensure_ascii=False).encode()
            # In assembly, inside C: a literal in a literal.
            scenario += f"#define FORWARD_COMPATIBILITY {_literal(_literal(text).encode())}\n"
        hidden = libcuda_missing if libcuda == "missing-function" else ()
        library = target / (libcuda_file or "libcuda.so.1")
        _library(library, "libcuda.so.1", "cuda.c", scenario, hidden, cache)
        if library.name != "libcuda.so.1":
            _link(target / "libcuda.so.1", library.name)
    return target


def build_runtime(directory: Union[str, Path], cache: Optional[Union[str, Path]] = None) -> Path:
    """Compile the library that goes before a real libcudart (`LD_PRELOAD`); its path.

    With it a CUDA program that the real runtime lets pass gets as far as looking at its devices;
    the refusals of the real runtime stay as they are.
    """
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    library = target / "libstand-in-cudart.so"
    _library(library, library.name, "cuda.c", "", (), cache, "-DSTAND_IN_RUNTIME")
    return library


def _known(mode: str, modes: Sequence[str]) -> None:
    if mode not in modes:
        raise ValueError(f"{mode!r} is none of {', '.join(modes)}")


def _number(version: str) -> int:
    """CUDA's own number for a version: 12.2 is 12020."""
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def _literal(text: Text) -> str:
    """A C string literal. Octal takes three digits at most, so nothing can run on after it."""
    data = text if isinstance(text, bytes) else text.encode()
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in data) + '"'


def _uuid(prefix: str, gpu: int, instance: int = 0) -> str:
    """A UUID of the usual form, told by the places of the GPU and the MIG instance."""
    digest = hashlib.sha256(f"{prefix}{gpu}/{instance}".encode()).hexdigest()
    parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
    return prefix + "-".join(parts)


def _gpu(gpu: FakeGpu, index: int) -> str:
    """The C initialiser of a `struct gpu`."""
    major, minor = gpu.capability.split(".")
    count = min(gpu.mig_instances, MIG_LIMIT) if gpu.mig else 0
    uuids = ", ".join(_literal(_uuid("MIG-", index, one)) for one in range(count)) or "0"
    values = (
        _literal(gpu.name),
        _literal(gpu.uuid or _uuid("GPU-", index)),
        major,
        minor,
        f"{int(gpu.memory_gib * 2**30)}ull",
        str(-1 if gpu.mig is None else int(gpu.mig)),
        str(count),
        _literal(gpu.mig_profile),
        f"{{{uuids}}}",
        str(gpu.compute_mode),
        str(gpu.brand),
        f"{gpu.pci_device}u",
        str(gpu.multiprocessors),
        "{" + ", ".join(str(_health(one)) for one in astuple(gpu.health)) + "}",
    )
    return "    {" + ", ".join(values) + "},\n"


def _health(answer: Any) -> int:
    """An answer as the C sources have it: a number, or the error below zero."""
    if isinstance(answer, tuple):  # astuple goes into Refused as well
        return -int(answer[0])
    return int(answer)


def _scenario(driver: Text, cuda: str, gpus: Sequence[FakeGpu], **numbers: int) -> str:
    """The text of `scenario.h`."""
    if isinstance(driver, bytes):
        nvml = driver
    else:
        nvml = f"{cuda.split('.')[0]}.{driver}".encode()
    constants = dict(
        {f"FAULT_{name.upper().replace('-', '_')}": code for name, code in FAULTS.items()},
        CUDA_VERSION=_number(cuda),
        GPU_COUNT=len(gpus),
        MIG_LIMIT=MIG_LIMIT,
        FIRST_BUS=0x1B,
        HEALTH_COUNT=len(fields(Health)),
        **{f"HEALTH_{one.name.upper()}": at for at, one in enumerate(fields(Health))},
        **numbers,
    )
    # One row that no call reaches keeps the table legal when there is no GPU.
    rows = "".join(_gpu(gpu, index) for index, gpu in enumerate([*gpus, FakeGpu()]))
    return (
        "".join(f"#define {name} ({value})\n" for name, value in constants.items())
        + f"#define DRIVER_VERSION {_literal(driver)}\n#define NVML_VERSION {_literal(nvml)}\n"
        + "struct gpu {\n    const char *name, *uuid;\n    int major, minor;\n"
        + "    unsigned long long memory;\n    int mig;\n    unsigned mig_count;\n"
        + "    const char *mig_profile, *mig_uuids[MIG_LIMIT];\n    int compute_mode, brand;\n"
        + "    unsigned pci_device;\n    int multiprocessors;\n"
        + "    long long health[HEALTH_COUNT];\n};\n"
        + f"static const struct gpu gpus[] = {{\n{rows}}};\n"
    )


def _library(
    library: Path,
    soname: str,
    source: str,
    scenario: str,
    hidden: Sequence[str],
    cache: Optional[Union[str, Path]],
    *options: str,
) -> None:
    """Put the compiled `source` at `library`, from `cache` when it is there."""
    code = (HERE / source).read_bytes()
    if cache is None:
        _compile(library, soname, code, scenario, hidden, options)
        return
    key = repr((soname, code, scenario, tuple(hidden), options)).encode()
    kept = Path(cache) / f"{hashlib.sha256(key).hexdigest()}.so"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        _compile(kept, soname, code, scenario, hidden, options)
    if library.is_symlink() or library.exists():
        # A new file: one that a process has mapped must not change under it.
        library.unlink()
    shutil.copyfile(str(kept), str(library))


def _compile(
    library: Path,
    soname: str,
    code: bytes,
    scenario: str,
    hidden: Sequence[str],
    options: Tuple[str, ...],
) -> None:
    path = compiler()
    if path is None:
        raise RuntimeError("no C compiler was found")
    with tempfile.TemporaryDirectory(dir=str(library.parent)) as work:
        made = Path(work) / "made.so"
        (Path(work) / "scenario.h").write_text(scenario)
        (Path(work) / "source.c").write_bytes(code)
        arguments: List[str] = [
            path, "-std=gnu11", "-O1", "-Wall", "-shared", "-fPIC", "-I", work, *options,
            f"-Wl,-soname,{soname}", "-o", str(made), str(Path(work) / "source.c"),
        ]  # fmt: skip
        if hidden:
            script = Path(work) / "hidden.map"
            script.write_text("{ local: " + " ".join(f"{name};" for name in hidden) + " };\n")
            arguments.append(f"-Wl,--version-script,{script}")
        done = subprocess.run(
            [*arguments, "-ldl"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise RuntimeError(f"{path} failed:\n{done.stdout.decode(errors='replace')}")
        # In one step, so that two test processes can share a cache.
        os.replace(str(made), str(library))


def _link(link: Path, to: str) -> None:
    if link.is_symlink() or link.exists():
        link.unlink()
    link.symlink_to(to)
