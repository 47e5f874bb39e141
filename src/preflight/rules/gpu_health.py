"""Rules about the health of the GPUs, as NVML tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List

from ..launching import counts
from ..matrix import Matrix
from ..snapshot import Fact, Gpu, Snapshot
from . import common, node
from .node import Trouble
from .registry import FAIL, INFO, WARN, NotApplicable, Outcome, Passed, Undecided, evidence

#: A GPU that computes nothing has less than this in use.
IDLE_GIB = 1.0
#: Facts by which a GPU is called healthy: one that NVML answered is enough to say so of.
HEALTH = (
    "ecc_now", "lost", "recovery", "remap_pending", "remap_failed", "retired_pending",
    "nvlinks_up", "pcie_width",
)  # fmt: skip
HEAT = ("slowdowns", "temperature")
USE = ("memory_used_gib", "in_use_by_others", "processes")
#: What the driver asks for, and what it means for a new job.
RECOVERY = {
    "gpu-reset": "it needs a reset before anything runs on it again",
    "bus-reset": "its PCIe bus needs a reset",
    "node-reboot": "the node needs a reboot",
    "system-reboot": "the system needs a reboot",
    "drain-and-reset": "it runs at reduced capacity: no new work, then a reset",
    "drain-p2p": "traffic between GPUs has to end before it is sound again",
    "recover-imex-domain": "the IMEX domain of its NVLink partition has to be recovered",
}
#: Those that stop a job only when it talks between GPUs.
BETWEEN_GPUS = ("drain-p2p", "recover-imex-domain")

_ELSEWHERE = "take another node; this one needs its administrator: nvidia-smi -q; dmesg | grep Xid"
_RESET = "on the node, with nothing running there: sudo nvidia-smi --gpu-reset (or a reboot)"
_LEAVE_OUT = "leave it out: export CUDA_VISIBLE_DEVICES=… without it"


def unhealthy(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Uncorrectable ECC errors, failed row remap, pending retirement, failed NVLink, a lost GPU.

    It fails what stops a job or makes its results doubtful: a GPU that fell off the bus, a
    recovery action that the driver asks for (R570 and later say it), a failed row remap, pages
    that wait for retirement, uncorrectable errors since the driver was loaded on GPUs without row
    remapping. It warns of what only slows a job down or may wait: a pending row remap (by NVIDIA
    new work may be started), errors that the driver has dealt with, NVLinks or PCIe lanes that
    are down. A PCIe generation below the highest counts only on a busy GPU: idle ones lower it.
    Errors of earlier days, repaired since, are not counted. Only GPUs that the job sees count.

    Fix: another node, or leave the GPU out; then a reset (nvidia-smi --gpu-reset) or a reboot.
    """
    devices = node.gpus_used(s, m, "whether the GPUs are healthy", *HEALTH)
    if not isinstance(devices, list):
        yield devices
        return
    several = (node.ranks(s).size or 1) > 1
    most = _most_links(devices)

    def judge(gpu: Gpu) -> List[Trouble]:
        return [*_gone(gpu), *_memory(gpu, several), *_links(gpu, most), *_lanes(gpu)]

    found = list(node.troubles(s, devices, judge))
    yield from found
    if not found:
        yield _healthy(s, devices)


def _healthy(s: Snapshot, devices: List[common.Device]) -> Outcome:
    answered = [
        f"{device.place}.{name}"
        for device in devices
        for name in HEALTH
        if not getattr(device.gpu, name).unknown
    ]
    if not answered:
        return Undecided((devices[0].place + ".ecc_now",), "whether the GPUs are healthy")
    return Passed("NVML reports no fault", "", evidence(s, *answered[: len(HEALTH)]))


def _gone(gpu: Gpu) -> List[Trouble]:
    if not gpu.lost.known:
        return []
    return [
        Trouble(
            FAIL, f"lost ({gpu.lost.value})", ("lost",), "a GPU that answers",
            "A GPU that fell off the bus (Xid 79) or waits for a reset runs nothing, and CUDA may "
            "refuse the others of the node too.",
            (_ELSEWHERE, _LEAVE_OUT),
        )
    ]  # fmt: skip


def _memory(gpu: Gpu, several: bool) -> Iterator[Trouble]:
    action = gpu.recovery.get("none")
    if action in RECOVERY:
        mild = action in BETWEEN_GPUS and not several
        yield Trouble(
            WARN if mild else FAIL, f"the driver asks for {action}: {RECOVERY[action]}",
            ("recovery",), "no recovery action pending",
            "The driver met a fault that it cannot repair by itself.", (_ELSEWHERE, _RESET),
        )  # fmt: skip
    if gpu.remap_failed.value:
        yield Trouble(
            FAIL, "a row remap failed", ("remap_failed",), "rows of memory that can be remapped",
            "Bad memory has no spare rows left: its errors come back. NVIDIA replaces such GPUs.",
            (_ELSEWHERE, _LEAVE_OUT),
        )  # fmt: skip
    elif gpu.remap_pending.value:
        yield Trouble(
            WARN, "a row remap is pending", ("remap_pending",), "no remap pending",
            "Bad memory was set aside and is replaced at the next reset; new work may be started.",
            (_RESET,),
        )  # fmt: skip
    if gpu.retired_pending.value:
        yield Trouble(
            FAIL, "memory pages wait for retirement", ("retired_pending",), "no page pending",
            "Until the driver is loaded anew the bad page may be given to the job.",
            (_ELSEWHERE, _RESET),
        )  # fmt: skip
    elif gpu.ecc_now.get(0) > 0:
        yield _errors(gpu)


def _errors(gpu: Gpu) -> Trouble:
    """A GPU that remaps rows contains an error; on older ones only a reset brings it back."""
    dealt_with = gpu.recovery.value == "none" or gpu.remap_pending.known
    return Trouble(
        WARN if dealt_with else FAIL,
        f"{gpu.ecc_now.value} uncorrectable memory error(s) since the driver was loaded",
        ("ecc_now", "recovery", "remap_pending"), "none",
        "Errors come in company; the driver has dealt with these." if dealt_with else
        "An uncorrectable error ends the process that meets it (Xid 48), and the page stays in "
        "use until a reset.",
        (_ELSEWHERE, _RESET),
    )  # fmt: skip


def _most_links(devices: List[common.Device]) -> int:
    """NVLinks that are up on the best of these GPUs; GPUs of different kinds do not compare."""
    if len({device.gpu.name.value for device in devices}) != 1:
        return 0
    return max(device.gpu.nvlinks_up.get(0) for device in devices)


def _links(gpu: Gpu, most: int) -> Iterator[Trouble]:
    up, down = gpu.nvlinks_up, gpu.nvlinks_down
    # A board without a bridge has none up; one with fewer than its like has lost some.
    if not up.known or down.get(0) <= 0 or up.get(0) >= most:
        return
    board = "SXM" in gpu.name.get("") or gpu.fabric_state.known
    if up.get(0) > 0 or board:
        yield Trouble(
            FAIL if up.get(0) <= 0 else WARN,
            f"{up.value} of {most} NVLinks up, where its like have all",
            ("nvlinks_up", "nvlinks_down"), f"{most} NVLinks up",
            "Collectives between GPUs go as fast as the slowest link, or by PCIe.",
            (_ELSEWHERE, "nvidia-smi nvlink --status; nvidia-smi nvlink -e: which, and its errors"),
        )  # fmt: skip


def _lanes(gpu: Gpu) -> Iterator[Trouble]:
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if width.known and most.known and 0 < width.get(0) < most.get(0):
        yield Trouble(
            WARN, f"PCIe x{width.value} of x{most.value}", ("pcie_width", "pcie_width_max"),
            f"x{most.value}, which GPU and slot can do",
            "Loading data and collectives over PCIe take as many times longer.",
            (_ELSEWHERE, "on the node: reseat the board or riser; lspci -vv shows LnkSta"),
        )  # fmt: skip
    now, best = gpu.pcie_generation, gpu.pcie_generation_max
    if gpu.idle.value is False and now.known and best.known and 0 < now.get(0) < best.get(0):
        yield Trouble(
            WARN, f"PCIe generation {now.value} of {best.value} while it is busy",
            ("pcie_generation", "pcie_generation_max", "idle"),
            f"generation {best.value} under load",
            "Each generation less halves what PCIe carries.",
            (_ELSEWHERE, "nvidia-smi -q -d PERFORMANCE; lspci -vv shows LnkSta"),
        )  # fmt: skip


SLOWED = {
    "hw-thermal": "the hardware slows it down for its temperature",
    "sw-thermal": "the driver slows it down for its temperature",
    "power-brake": "an external power brake slows it down",
    "hw-slowdown": "the hardware slows it down",
}


def throttled(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A thermal or power slowdown is active before the job starts, or the GPU is over its limit.

    By NVML's reasons for the clocks: hardware and software thermal slowdown and the external power
    brake; and by the temperature against the one at which this very GPU slows down. The power cap
    of a busy GPU and the low clocks of an idle one are no fault.

    Fix: another node; on this one fans, airflow and power supplies.
    """
    devices = node.gpus_used(s, m, "whether the GPUs are slowed down", *HEAT)
    if not isinstance(devices, list):
        yield devices
        return
    found = list(node.troubles(s, devices, _slowed))
    yield from found
    if found:
        return
    answered = [one for one in devices if one.gpu.slowdowns.known or one.gpu.temperature.known]
    if answered:
        places = [f"{one.place}.{n}" for one in answered[:2] for n in ("slowdowns", "temperature")]
        yield Passed("no slowdown is active", "", evidence(s, *places))
    else:
        yield Undecided((devices[0].place + ".slowdowns",), "whether the GPUs are slowed down")


def _slowed(gpu: Gpu) -> List[Trouble]:
    reasons = [one for one in SLOWED if one in gpu.slowdowns.get(())]
    if len(reasons) > 1 and "hw-slowdown" in reasons:
        reasons.remove("hw-slowdown")  # set beside each of the others
    found = [
        Trouble(
            WARN, f"{SLOWED[one]} ({one})", ("slowdowns", "temperature"), "no slowdown",
            "All ranks wait for the slowest GPU: clocks fall to a half or less.",
            (_ELSEWHERE, "nvidia-smi -q -d PERFORMANCE,TEMPERATURE: what is slowed down and why"),
        )
        for one in reasons
    ]  # fmt: skip
    hot, limit = gpu.temperature, gpu.temperature_limit
    if hot.known and limit.known and hot.get(0) >= limit.get(0) > 0:
        found.append(
            Trouble(
                WARN, f"{hot.value} °C, and it slows down at {limit.value} °C",
                ("temperature", "temperature_limit"), f"below {limit.value} °C",
                "At this temperature the clocks fall; some degrees more and it shuts down.",
                (_ELSEWHERE, "on the node: fans and airflow"),
            )
        )  # fmt: skip
    return found


def memory_in_use(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Another process holds GPU memory before the job starts.

    By NVML's count of used memory (what the driver keeps for itself left out), which also shows
    what processes outside this container hold. Below 1 GiB it is no trouble: an MPS server or a
    display. A GPU with MIG on is not judged, its instances have memory of their own. Ranks of
    this job that have started already count too: within torchrun or MPI it is only mentioned.

    Fix: end what is left there (nvidia-smi, fuser -v /dev/nvidia*), or take another GPU.
    """
    devices = node.gpus_used(s, m, "whether others hold GPU memory", *USE)
    if not isinstance(devices, list):
        yield devices
        return
    whole = [one for one in devices if one.gpu.mig_mode.value is not True]
    found = list(node.troubles(s, whole, _held))
    began = counts.within(s.env.get({}))
    for one in found:
        yield replace(one, severity=INFO) if began else one
    if found:
        return
    told = [one for one in whole if one.gpu.memory_used_gib.known or one.gpu.in_use_by_others.known]
    if told:
        places = [f"{one.place}.memory_used_gib" for one in told[:2]]
        yield Passed("the GPUs are free", "", evidence(s, *places))
    elif not whole:
        yield NotApplicable("MIG is on: its instances have memory of their own")
    elif all(one.gpu.memory_used_gib.absent for one in whole):
        yield NotApplicable("this driver does not tell how much memory is used")
    else:
        yield Undecided((devices[0].place + ".memory_used_gib",), "whether others hold GPU memory")


def _held(gpu: Gpu) -> List[Trouble]:
    used, several = gpu.memory_used_gib, gpu.processes.get(0)
    if gpu.in_use_by_others.value is not True and used.get(0.0) < IDLE_GIB:
        return []
    size = _of(used, gpu.memory_gib)
    by = f", {several} process(es) compute there" if several > 0 else ""
    return [
        Trouble(
            WARN, f"{size} in use before the job starts{by}",
            ("memory_used_gib", "memory_gib", "processes", "in_use_by_others"), "free GPU memory",
            "The job has so much less: out of memory where it fitted before, and it shares the "
            "GPU's time.",
            ("nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv; end what is left",
             "fuser -v /dev/nvidia*: processes that nvidia-smi does not list", _LEAVE_OUT),
        )
    ]  # fmt: skip


def _of(used: Fact[float], total: Fact[float]) -> str:
    if not used.known:
        return "memory"
    return f"{used.value:g} GiB" + (f" of {total.value:g} GiB" if total.known else "")
