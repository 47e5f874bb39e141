"""The driver: kernel files, NVML, and the libcuda that would be loaded.

Three witnesses, each a probe of its own: :func:`kernel_files` reads what the kernel shows,
:func:`nvml` asks NVML through pynvml, :func:`libcuda` asks the libcuda that the loader picks for
its version. The last two load driver libraries and must run in a child. CUDA is never
initialised: cuDriverGetVersion needs no cuInit (CUDA Driver API, Version Management).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import snapshot as s
from ..binary import elf, loader
from ..roots import Root
from . import devices, health, pci

VERSION_FILE = "/proc/driver/nvidia/version"
MODULE_FILE = "/sys/module/nvidia/version"
GPU_DIRECTORY = "/proc/driver/nvidia/gpus"
NOTE_SECTION = ".note.cuda.fwd_compatibility"
NOTE_OWNER = b"NVIDIA Corporation"
GPU_LIMIT = 256

_VERSION = re.compile(r"(?<![\w.])(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)(?![\w.])")
_NODE = re.compile(r"^(nvidia\d+|nvidiactl|nvidia-uvm|dxg|nvhost-gpu)$")
_LIBRARY = re.compile(r"\.so\.(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)$")
_COMPAT = re.compile(r"(^|/)(cuda-)?compat[^/]*(/|$)")


# -- what the kernel shows ------------------------------------------------------------------


def kernel_files(root: Root) -> s.Snapshot:
    """Driver version, device nodes, PCI GPUs and GPU models, from the kernel's own files."""
    nodes = tuple("/dev/" + name for name in root.names("/dev") if _NODE.match(name))
    return s.Snapshot(
        driver=s.Driver(
            version=_kernel_version(root),
            device_nodes=s.known(nodes, "/dev"),
            uvm_device=s.known("/dev/nvidia-uvm" in nodes, "/dev"),
        ),
        gpus=_kernel_gpus(root),
        host=_pci(root),
    )


def _kernel_version(root: Root) -> s.Fact[str]:
    found = root.first_text((VERSION_FILE, MODULE_FILE))
    if not found:
        return s.absent(f"{VERSION_FILE}, {MODULE_FILE}")
    path, text = found
    match = _VERSION.search(text)
    if not match:
        return s.unknown(f"no driver version in {text.strip()[:80]!r}", path)
    return s.known(match.group(1), path)


def _kernel_gpus(root: Root) -> s.Fact[Any]:
    """GPU models from /proc/driver/nvidia/gpus, for when NVML does not answer."""
    gpus = []
    for address in root.names(GPU_DIRECTORY)[:GPU_LIMIT]:
        path = f"{GPU_DIRECTORY}/{address}/information"
        found = root.first_text((path,))
        fields = dict(_fields(found[1])) if found else {}
        name, uuid = fields.get("Model", ""), fields.get("GPU UUID", "")
        if name:
            gpus.append(
                s.Gpu(
                    name=s.known(name, path),
                    uuid=s.known(uuid, path) if uuid.startswith("GPU-") else s.UNKNOWN,
                )
            )
    return s.known(tuple(gpus), GPU_DIRECTORY) if gpus else s.UNKNOWN


def _fields(text: str) -> List[Tuple[str, str]]:
    pairs = [line.partition(":") for line in text.splitlines()]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _pci(root: Root) -> s.Host:
    """GPUs and NVSwitches on the PCI bus."""
    found = pci.nvidia(root)
    if found is None:
        lost: s.Fact[Any] = s.unknown("the PCI bus cannot be seen", pci.DIRECTORY)
        return s.Host(pci_gpus=lost, nvswitches=lost)
    gpus = []
    for one in found:
        if one.kind.startswith("0x03"):  # display controllers, 3D ones among them
            source = f"{pci.DIRECTORY}/{one.address}/device"
            gpus.append(
                s.PciDevice(
                    address=s.known(one.address, source),
                    device=s.known("10de:" + one.device[2:], source),
                )
            )
    switches = sum(one.kind.startswith("0x0680") for one in found)  # "other bridges"
    return s.Host(
        pci_gpus=s.known(tuple(gpus), pci.DIRECTORY),
        nvswitches=s.known(switches, pci.DIRECTORY),
    )


# -- which libcuda, by its files ------------------------------------------------------------


def libcuda_files(root: Root, env: Mapping[str, str], arch: str) -> s.Snapshot:
    """The libcuda.so.1 that the loader would pick, and the compat libraries in the image."""
    found = loader.find(root, env, "libcuda.so.1", arch)
    if not found:
        driver = s.Driver(libcuda_path=s.absent("loader's search path"))
    else:
        driver = s.Driver(
            libcuda_path=s.known(_real(root, found.path), f"{found.path} ({found.found_by})")
        )
    return s.Snapshot(driver=driver, compats=_compats(root, env))


def _compats(root: Root, env: Mapping[str, str]) -> s.Fact[Any]:
    seen: Dict[str, s.Compat] = {}
    for directory in _compat_directories(root, env):
        for name in root.names(directory):
            path = _real(root, f"{directory}/{name}")
            if name.startswith("libcuda.so") and path not in seen and root.is_file(path):
                seen[path] = _compat(root, path)
    return s.known(tuple(seen.values()), "/usr/local/cuda*/compat, LD_LIBRARY_PATH")


def _compat_directories(root: Root, env: Mapping[str, str]) -> List[str]:
    places = [f"/usr/local/{n}/compat" for n in root.names("/usr/local") if n.startswith("cuda")]
    places += [one.rstrip("/") for one in loader.search_path(env) if _COMPAT.search(one)]
    prefix = env.get("CONDA_PREFIX", "")
    places += [prefix + "/cuda-compat"] if prefix.startswith("/") else []
    return places + [f"{one}/{sub}" for one in places for sub in ("lib", "lib.real")]


def _compat(root: Root, path: str) -> s.Compat:
    version = _LIBRARY.search(path)
    compat = s.Compat(
        path=s.known(path, path),
        version=s.known(version.group(1), path) if version else s.UNKNOWN,
    )
    note = _note(root, path)
    if not note:
        return compat
    source = f"{path} ({NOTE_SECTION})"
    return s.Compat(
        path=compat.path,
        version=compat.version,
        cuda=_note_text(note.get("CUDA Version"), source),
        base_branches=_note_list(note.get("Driver"), source),
        device_brands=_note_list(note.get("Device"), source),
    )


def _note(root: Root, path: str) -> Optional[Dict[str, Any]]:
    import json

    try:
        data = elf.note(root.on_host(path), NOTE_SECTION, NOTE_OWNER)
        note = json.loads(data.rstrip(b"\0").decode()) if data else None
    except (OSError, ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) else None


def _note_text(value: Any, source: str) -> s.Fact[str]:
    if isinstance(value, int) and 1000 <= value < 100_000:
        return s.known(f"{value // 1000}.{value % 1000 // 10}", source)
    if isinstance(value, str) and re.match(r"^\d+\.\d+", value):
        return s.known(value, source)
    return s.UNKNOWN


def _note_list(value: Any, source: str) -> s.Fact[Tuple[str, ...]]:
    if not isinstance(value, list):
        return s.UNKNOWN
    return s.known(tuple(str(one) for one in value if isinstance(one, (int, str))), source)


def _real(root: Root, path: str) -> str:
    try:
        return root.resolve(path)
    except OSError:
        return path


# -- which libcuda, by loading it (only in a child) -----------------------------------------


def libcuda() -> s.Snapshot:
    """The CUDA version that the loaded libcuda reports, and the file it was loaded from."""
    import ctypes

    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        text = str(error)
        if "cannot open shared object file" in text and text.startswith("libcuda.so.1"):
            return s.Snapshot(driver=s.Driver(libcuda=s.known("missing", "dlopen: " + text)))
        return s.Snapshot(driver=s.Driver(cuda=s.unknown("libcuda.so.1 does not load: " + text)))
    path = _mapped("libcuda.so")
    source = f"cuDriverGetVersion of {path or 'libcuda.so.1'}"
    place = s.known(path, "/proc/self/maps") if path else s.UNKNOWN
    try:
        ask = library.cuDriverGetVersion
    except AttributeError:
        cuda: s.Fact[str] = s.unknown("this libcuda has no cuDriverGetVersion", source)
        return s.Snapshot(driver=s.Driver(cuda=cuda, libcuda_path=place))
    value = ctypes.c_int(0)
    status = ask(ctypes.byref(value))
    driver = s.Driver(cuda=_cuda_version(status, value.value, source), libcuda_path=place)
    if status == 34:  # CUDA_ERROR_STUB_LIBRARY
        driver = s.Driver(libcuda=s.known("stub", source + " (error 34)"), libcuda_path=place)
    return s.Snapshot(driver=driver)


def _cuda_version(status: int, value: int, source: str) -> s.Fact[str]:
    if status != 0:
        return s.unknown(f"cuDriverGetVersion failed with error {status}", source)
    if not 5000 <= value < 100_000 or value % 10:
        return s.unknown(f"cuDriverGetVersion answered {value}, which is no CUDA version", source)
    return s.known(f"{value // 1000}.{value % 1000 // 10}", source)


def _mapped(name: str) -> str:
    """The file of a library mapped into this process; "" when it cannot be told."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                fields = line.rstrip("\n").split(None, 5)
                path = fields[5] if len(fields) == 6 else ""
                if path.rpartition("/")[2].startswith(name):
                    return path
    except OSError:
        pass
    return ""


# -- NVML (only in a child) -----------------------------------------------------------------


def nvml() -> s.Snapshot:
    """Driver version and GPUs as NVML reports them through pynvml, and whether the device nodes
    can be opened at all."""
    from dataclasses import replace

    seen = _nvml()
    return replace(seen, driver=replace(seen.driver, devices_openable=devices.openable()))


def _nvml() -> s.Snapshot:
    try:
        import pynvml
    except ImportError as error:
        return _no_nvml(f"pynvml cannot be imported: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _no_nvml(_words(error))
    path = _mapped("libnvidia-ml.so")
    version = _LIBRARY.search(path)
    return s.Snapshot(
        driver=s.Driver(
            nvml=s.known("ok", "nvmlInit"),
            version=_driver_version(pynvml),
            library_version=s.known(version.group(1), path) if version else s.UNKNOWN,
        ),
        gpus=_nvml_gpus(pynvml),
    )


def _no_nvml(problem: str) -> s.Snapshot:
    reason = "NVML: " + problem
    return s.Snapshot(
        driver=s.Driver(nvml=s.known(problem, "nvmlInit")),
        gpus=s.unknown(reason, "nvmlInit"),
    )


def _driver_version(pynvml: Any) -> s.Fact[str]:
    source = "nvmlSystemGetDriverVersion"
    fact = _ask(pynvml.nvmlSystemGetDriverVersion, source)
    if fact.known and not _VERSION.match(str(fact.value)):
        return s.unknown(f"NVML answered {str(fact.value)[:40]!r}, which is no version", source)
    return fact


def _nvml_gpus(pynvml: Any) -> s.Fact[Any]:
    count = _ask(pynvml.nvmlDeviceGetCount, "nvmlDeviceGetCount")
    if count.unknown:
        return s.unknown(count.unknown, count.source)
    number = int(count.get(0))
    if not 0 <= number <= GPU_LIMIT:
        return s.unknown(f"NVML answered {number} GPUs", count.source)
    gpus = tuple(_nvml_gpu(pynvml, index) for index in range(number))
    return s.known(_with_peers(pynvml, gpus), count.source)


def _with_peers(pynvml: Any, gpus: Tuple[s.Gpu, ...]) -> Tuple[s.Gpu, ...]:
    """Of virtual GPUs, which may lack it, also whether they reach each other's memory."""
    from dataclasses import replace

    if len(gpus) < 2 or not any(one.vgpu.value for one in gpus):
        return gpus
    handles = [
        _ask(lambda n=n: pynvml.nvmlDeviceGetHandleByIndex(n), "").value  # type: ignore[misc]
        for n in range(len(gpus))
    ]
    reached = health.peers(pynvml, handles)
    return tuple(replace(one, peer_access=fact) for one, fact in zip(gpus, reached))


def _nvml_gpu(pynvml: Any, index: int) -> s.Gpu:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:  # noqa: BLE001 - a lying library raises anything
        source = f"nvmlDeviceGetHandleByIndex({index})"
        unseen: s.Fact[Any] = s.unknown(_words(error), source)
        gone = s.known(_words(error), source) if health.lost(error) else s.UNKNOWN
        return s.Gpu(name=unseen, count=s.known(1, "nvml"), compute_capability=unseen, lost=gone)

    def ask(name: str) -> s.Fact[Any]:
        function = getattr(pynvml, name)
        return _ask(lambda: function(handle), f"{name}({index})")

    memory = ask("nvmlDeviceGetMemoryInfo")
    mode = ask("nvmlDeviceGetComputeMode")
    mig = _mig_mode(ask("nvmlDeviceGetMigMode"))
    return s.Gpu(
        name=_text(ask("nvmlDeviceGetName")),
        count=s.known(1, "nvml"),
        compute_capability=_capability(ask("nvmlDeviceGetCudaComputeCapability")),
        memory_gib=_map(memory, lambda one: round(one.total / 2**30, 1)),
        uuid=_text(ask("nvmlDeviceGetUUID")),
        brand=_map(ask("nvmlDeviceGetBrand"), str),
        mig_mode=mig,
        mig_devices=_mig_devices(pynvml, handle, index) if mig.value else s.known((), mig.source),
        compute_mode=_map(mode, lambda one: _COMPUTE_MODES.get(one, str(one))),
        **health.read(pynvml, handle, index),
    )


#: nvmlComputeMode_t of nvml.h, in nvidia-smi's words.
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}


def _ask(call: Callable[[], Any], source: str) -> s.Fact[Any]:
    try:
        return s.known(call(), source)
    except Exception as error:  # noqa: BLE001 - a lying library raises anything
        return s.unknown(_words(error), source)


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]


def _map(fact: s.Fact[Any], change: Callable[[Any], Any]) -> s.Fact[Any]:
    return s.known(change(fact.value), fact.source) if fact.known else fact


def _text(fact: s.Fact[Any]) -> s.Fact[str]:
    if isinstance(fact.value, bytes):
        return _map(fact, lambda one: one.decode("utf-8", "replace"))
    return fact


def _capability(fact: s.Fact[Any]) -> s.Fact[str]:
    if not fact.known:
        return fact
    major, minor = fact.get((0, 0))
    if not (1 <= major <= 99 and 0 <= minor <= 9):
        return s.unknown(f"NVML answered compute capability {major}.{minor}", fact.source)
    return s.known(f"{major}.{minor}", fact.source)


def _mig_mode(fact: s.Fact[Any]) -> s.Fact[bool]:
    if fact.known:
        return s.known(bool(fact.get((0, 0))[0]), fact.source)
    return s.known(False, fact.source) if "Supported" in fact.unknown else fact


def _mig_devices(pynvml: Any, handle: Any, index: int) -> s.Fact[Tuple[str, ...]]:
    """The MIG devices; unknown where one could not be asked for: it may be there."""
    source = f"nvmlDeviceGetMigDeviceHandleByIndex({index})"
    count = _ask(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), source)
    found = []
    for number in range(min(int(count.get(0)), 16)):
        try:
            found.append(_mig_uuid(pynvml, handle, number))
        except Exception as error:  # noqa: BLE001 - a lying library raises anything
            if type(error).__name__ not in ("NVMLError_NotFound", "NVMLError_InvalidArgument"):
                return s.unknown(_words(error), source)
    return s.known(tuple(found), source) if count.known else s.UNKNOWN


def _mig_uuid(pynvml: Any, handle: Any, number: int) -> str:
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
    value = pynvml.nvmlDeviceGetUUID(device)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# -- putting the witnesses together -----------------------------------------------------------


def conclude(snapshot: s.Snapshot) -> s.Driver:
    """The driver section with what follows from all witnesses: which libcuda it is, and whether
    a driver is visible at all."""
    from dataclasses import replace

    driver = snapshot.driver
    kind = _kind(snapshot)
    version = driver.library_version
    path = driver.libcuda_path.get("")
    match = _LIBRARY.search(path)
    if match and kind.value == "host":
        version = s.merge(s.known(match.group(1), path), version)
    elif kind.value == "compat":
        version = s.known(match.group(1), path) if match else s.UNKNOWN
    driver = replace(driver, libcuda=kind, library_version=version)
    return replace(driver, visible=_visible(driver))


def resolve_compats(snapshot: s.Snapshot) -> s.Fact[Tuple[s.Compat, ...]]:
    """The compat libraries, each with whether it is the libcuda that would be loaded."""
    from dataclasses import replace

    if not snapshot.compats.known:
        return snapshot.compats
    path = snapshot.driver.libcuda_path
    marked = [
        replace(one, resolved=s.known(one.path.value == path.value, path.source))
        if path.known or path.absent
        else one
        for one in snapshot.compats.get(())
    ]
    return replace(snapshot.compats, value=tuple(marked))


def _kind(snapshot: s.Snapshot) -> s.Fact[str]:
    driver = snapshot.driver
    if driver.libcuda.known:
        return driver.libcuda
    path, source = driver.libcuda_path.value, driver.libcuda_path.source
    if driver.libcuda_path.absent:
        return s.known("missing", source)
    if not path:
        return s.unknown(driver.cuda.unknown or "no libcuda was looked for")
    if "/stubs/" in path:
        return s.known("stub", path)
    listed = [one for one in snapshot.compats.get(()) if one.path.value == path]
    match, kernel = _LIBRARY.search(path), driver.version.value
    same = bool(match and kernel and match.group(1) == kernel)
    if not same and (_COMPAT.search(path) or listed):
        return s.known("compat", path)
    return s.known("host", path)


def _visible(driver: s.Driver) -> s.Fact[bool]:
    if driver.version.known:
        return s.known(True, driver.version.source)
    if driver.device_nodes.get(()):
        return s.known(True, driver.device_nodes.source)
    if driver.nvml.value == "ok":
        return s.known(True, driver.nvml.source)
    silent = [
        one for one in (driver.version, driver.nvml, driver.cuda) if one.looked and one.unknown
    ]
    if driver.cuda.known or driver.libcuda.value == "stub":
        return s.unknown("libcuda answers, but no kernel driver or device can be seen")
    if silent:
        return s.unknown(silent[0].unknown)
    return s.known(False, "/proc/driver/nvidia, /dev/nvidia*, NVML")
