"""What NVML says of a GPU's health. Only in a child, with the handle of a GPU that answered.

Each question may have no answer on this GPU or driver: "not supported" and "function not found"
mean that there is no such thing here (absent), anything else that it could not be learned
(unknown). Some fifteen calls a GPU, none of which starts anything on it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .. import snapshot as s

#: nvmlClocksEventReasons of nvml.h that slow a job down. A power cap under load is no fault.
SLOWDOWNS = ((0x8, "hw-slowdown"), (0x20, "sw-thermal"), (0x40, "hw-thermal"),
             (0x80, "power-brake"))  # fmt: skip
IDLE = 0x1
#: nvmlDeviceGpuRecoveryAction_t, and the field that asks for it.
RECOVERY_FIELD = 230
RECOVERIES = ("none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset",
              "recover-imex-domain", "bus-reset", "system-reboot")  # fmt: skip
#: nvmlGpuFabricState_t.
FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
#: Bits of the fabric's health mask: where, how wide, which value is bad, what it means.
FABRIC_BITS = (
    (0, 0x3, (1,), "bandwidth degraded"),
    (2, 0x3, (1,), "route recovery in progress"),
    (4, 0x3, (1,), "route unhealthy"),
    (6, 0x3, (1,), "access timeout recovery in progress"),
    (8, 0xF, tuple(range(2, 16)), "incorrect configuration"),
)
VOLATILE, AGGREGATE, UNCORRECTED = 0, 1, 1
SLOWDOWN_LIMIT = 1  # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
LINKS = 18  # NVML_NVLINK_MAX_LINKS
VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU
P2P_READ, P2P_OK = 0, 0
#: The last: a binding from before the call.
_NONE_HERE = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound",
              "NVMLError_VgpuEccNotSupported", "AttributeError")  # fmt: skip
#: What NVML answers of a GPU that fell off the bus or that only a reset brings back.
LOST = ("NVMLError_GpuIsLost", "NVMLError_ResetRequired")

Ask = Callable[..., s.Fact[Any]]


def lost(error: BaseException) -> bool:
    """Whether NVML's answer means that the GPU is gone."""
    return type(error).__name__ in LOST


def read(pynvml: Any, handle: Any, index: int) -> Dict[str, s.Fact[Any]]:
    """The health fields of one GPU, by their names in :class:`snapshot.Gpu`."""
    gone: List[str] = []

    def ask(name: str, *more: Any) -> s.Fact[Any]:
        source = f"{name}({index})"
        try:
            return s.known(getattr(pynvml, name)(handle, *more), source)
        except Exception as error:  # noqa: BLE001 - a lying library raises anything
            words = (str(error) or type(error).__name__)[:200]
            if lost(error):
                gone.append(words)
            none_here = type(error).__name__ in _NONE_HERE
            return s.absent(f"{source}: {words}") if none_here else s.unknown(words, source)

    fields = {
        **_memory_errors(ask),
        **_clocks(ask),
        **_bus(ask),
        **_use(pynvml, ask),
        **_fabric(pynvml, handle, index),
    }
    source = f"NVML, GPU {index}"
    fields["lost"] = s.known(gone[0], source) if gone else s.absent(source)
    return fields


def _memory_errors(ask: Ask) -> Dict[str, s.Fact[Any]]:
    remap = ask("nvmlDeviceGetRemappedRows")
    return {
        "ecc_now": _number(ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE)),
        "ecc_ever": _number(ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, AGGREGATE)),
        "remap_pending": _map(remap, lambda rows: bool(rows[2])),
        "remap_failed": _map(remap, lambda rows: bool(rows[3])),
        "retired_pending": _map(ask("nvmlDeviceGetRetiredPagesPendingStatus"), bool),
        "recovery": _recovery(ask("nvmlDeviceGetFieldValues", [RECOVERY_FIELD])),
    }


def _recovery(fact: s.Fact[Any]) -> s.Fact[str]:
    """One field value carries its own return code: drivers before R570 do not know this field."""
    if not fact.known:
        return fact
    source = f"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION of {fact.source}"
    one = fact.value[0] if fact.value else None
    if one is None or one.nvmlReturn != 0:
        return s.absent(source)
    number = int(one.value.uiVal)
    if number >= len(RECOVERIES):
        return s.unknown(f"NVML answered recovery action {number}", source)
    return s.known(RECOVERIES[number], source)


def _clocks(ask: Ask) -> Dict[str, s.Fact[Any]]:
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if not reasons.known:  # the name that drivers before R535 know it by
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "slowdowns": _map(
            reasons, lambda bits: tuple(name for bit, name in SLOWDOWNS if int(bits) & bit)
        ),
        "idle": _map(reasons, lambda bits: bool(int(bits) & IDLE)),
        "temperature": _number(ask("nvmlDeviceGetTemperature", 0), 200),
        "temperature_limit": _number(ask("nvmlDeviceGetTemperatureThreshold", SLOWDOWN_LIMIT), 200),
    }


def _bus(ask: Ask) -> Dict[str, s.Fact[Any]]:
    up, down = _links(ask)
    return {
        "pcie_generation": _number(ask("nvmlDeviceGetCurrPcieLinkGeneration"), 16),
        "pcie_generation_max": _number(ask("nvmlDeviceGetMaxPcieLinkGeneration"), 16),
        "pcie_width": _number(ask("nvmlDeviceGetCurrPcieLinkWidth"), 64),
        "pcie_width_max": _number(ask("nvmlDeviceGetMaxPcieLinkWidth"), 64),
        "nvlinks_up": up,
        "nvlinks_down": down,
    }


def _links(ask: Ask) -> Tuple[s.Fact[int], s.Fact[int]]:
    """How many NVLinks are up and down: asked one by one until there is no further one."""
    states = []
    for number in range(LINKS):
        state = ask("nvmlDeviceGetNvLinkState", number)
        if not state.known:
            break
        states.append(bool(state.value))
    if not states:
        none = s.absent(state.source)
        return none, none
    return s.known(sum(states), state.source), s.known(states.count(False), state.source)


def _use(pynvml: Any, ask: Ask) -> Dict[str, s.Fact[Any]]:
    memory = ask("nvmlDeviceGetMemoryInfo", getattr(pynvml, "nvmlMemory_v2", None))
    if not memory.known:  # version 1 counts what the driver reserves for itself as used
        memory = ask("nvmlDeviceGetMemoryInfo")
    # By version: without one the binding refuses a library that is older than itself.
    running = ask("nvmlDeviceGetComputeRunningProcesses_v3")
    if not running.known:
        running = ask("nvmlDeviceGetComputeRunningProcesses_v2")
    return {
        "persistence": _map(ask("nvmlDeviceGetPersistenceMode"), bool),
        "vgpu": _map(ask("nvmlDeviceGetVirtualizationMode"), lambda mode: int(mode) == VGPU),
        "memory_used_gib": _used(memory),
        "processes": _map(running, len),
    }


def _used(memory: s.Fact[Any]) -> s.Fact[float]:
    if not memory.known:
        return memory
    given: Any = memory.value
    used, total = int(given.used), int(given.total)
    if not 0 <= used <= total:
        return s.unknown(f"NVML answered {used} of {total} bytes used", memory.source)
    return s.known(round(used / 2**30, 2), memory.source)


def _fabric(pynvml: Any, handle: Any, index: int) -> Dict[str, s.Fact[Any]]:
    """Of GPUs behind NVSwitches from Hopper on. State 0 is "not supported"."""
    source = f"nvmlDeviceGetGpuFabricInfoV({index})"
    names = ("fabric_state", "fabric_error", "fabric_degraded")
    try:
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        info.version = pynvml.nvmlGpuFabricInfo_v2
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes_reference(info))
    except Exception as error:  # noqa: BLE001 - as above
        none_here = type(error).__name__ in _NONE_HERE
        words = (str(error) or type(error).__name__)[:200]
        fact: s.Fact[Any] = s.absent(source) if none_here else s.unknown(words, source)
        return dict.fromkeys(names, fact)
    state = FABRIC_STATES.get(int(info.state))
    if state is None:
        return dict.fromkeys(names, s.absent(f"{source}: state {int(info.state)}"))
    error_of = int(info.status) if state == "completed" else 0  # else it means nothing
    degraded = tuple(
        words
        for shift, wide, bad, words in FABRIC_BITS
        if int(info.healthMask) >> shift & wide in bad
    )
    return {
        "fabric_state": s.known(state, source),
        "fabric_error": s.known(f"NVML error {error_of}", source) if error_of else s.absent(source),
        "fabric_degraded": s.known(degraded, source),
    }


def ctypes_reference(info: Any) -> Any:
    """A pointer to a structure, as this one call of the binding wants it."""
    import ctypes

    return ctypes.byref(info)


def peers(pynvml: Any, handles: List[Any]) -> List[s.Fact[bool]]:
    """Of each GPU, whether it can read the memory of every other one here."""
    return [_peers_of(pynvml, handles, index) for index in range(len(handles))]


def _peers_of(pynvml: Any, handles: List[Any], index: int) -> s.Fact[bool]:
    source = f"nvmlDeviceGetP2PStatus({index}, …)"
    try:
        status = [
            int(pynvml.nvmlDeviceGetP2PStatus(handles[index], other, P2P_READ))
            for number, other in enumerate(handles)
            if number != index
        ]
    except Exception as error:  # noqa: BLE001 - as above
        return s.unknown((str(error) or type(error).__name__)[:200], source)
    return s.known(all(one == P2P_OK for one in status), source)


def _map(fact: s.Fact[Any], change: Callable[[Any], Any]) -> s.Fact[Any]:
    return s.known(change(fact.value), fact.source) if fact.known else fact


def _number(fact: s.Fact[Any], most: int = 1 << 62) -> s.Fact[int]:
    """A number as far as it can be one: a library that lost its senses answers anything."""
    if not fact.known:
        return fact
    number = int(fact.get(0))
    if not 0 <= number <= most:
        return s.unknown(f"NVML answered {number}", fact.source)
    return s.known(number, fact.source)
