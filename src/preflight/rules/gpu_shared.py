"""Rules about GPUs that are divided or shared: MIG, compute modes, MPS, vGPU."""

from __future__ import annotations

from typing import Iterator, List

from ..matrix import Matrix
from ..snapshot import Gpu, Mps, Snapshot
from . import common, node
from .node import Trouble
from .registry import FAIL, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

EXCLUSIVE = ("Exclusive_Process", "Exclusive_Thread")
PROHIBITED = "Prohibited"
_NO_MPS = Mps()


def mig_device_unset(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """MIG is on and no MIG device is selected or exposed.

    With MIG on CUDA computes on MIG devices only: without any there is no CUDA device, though
    nvidia-smi lists the GPU. One process sees one MIG device, the first, whatever is listed: with
    several ranks and no CUDA_VISIBLE_DEVICES all of them land there, and the second finds no
    device of its number. That warns, since the command itself may choose one for each rank.

    Fix: CUDA_VISIBLE_DEVICES=MIG-<uuid> for each process (nvidia-smi -L), one rank for each.
    """
    devices = node.gpus_used(s, m, "whether MIG is on", "mig_mode")
    if not isinstance(devices, list):
        yield devices
        return
    modes = [one.gpu.mig_mode for one in devices]
    if not all(one.known for one in modes):
        place = next(one.place for one in devices if not one.gpu.mig_mode.known)
        yield Undecided((place + ".mig_mode",), "whether MIG is on")
        return
    if not all(one.value for one in modes):
        yield NotApplicable("MIG is off, or GPUs without it are here too")
        return
    silent = [one for one in devices if not one.gpu.mig_devices.known]
    if silent:
        yield Undecided((silent[0].place + ".mig_devices",), "which MIG devices are exposed")
        return
    yield _mig(s, devices)


def _mig(s: Snapshot, devices: List[common.Device]) -> Outcome:
    names = [name for one in devices for name in one.gpu.mig_devices.get(())]
    places = [f"{one.place}.{field}" for one in devices for field in ("mig_mode", "mig_devices")]
    proof = evidence(s, *places, "env.CUDA_VISIBLE_DEVICES", "job.processes_per_node")
    told = s.job.processes_per_node.get(0)
    chosen = s.variable("CUDA_VISIBLE_DEVICES").known
    if names and (chosen or told <= 1):
        return Passed("one MIG device for one process", "", proof)
    if names:
        return Finding(
            summary=f"MIG is on, {told} ranks, and none of them is given a MIG device of its own",
            observed=f"MIG devices here: {', '.join(names)}; CUDA_VISIBLE_DEVICES is not set",
            needed="CUDA_VISIBLE_DEVICES=MIG-<uuid>, another one for each rank",
            why="One process sees one MIG device, always the first: rank 1 finds no device 1, and "
            "NCCL does not join two ranks on one.",
            fix=(
                "nvidia-smi -L; then start each rank with its own CUDA_VISIBLE_DEVICES=MIG-<uuid>",
                "one rank: --nproc_per_node=1",
            ),
            evidence=proof,
            severity=WARN,
        )
    return Finding(
        summary=f"MIG is on and no MIG device is here: {common.labels(devices)} is no CUDA device",
        observed="MIG mode enabled; no MIG device exists or was given to this container",
        needed="a MIG device, or MIG off",
        why="With MIG on CUDA computes on MIG devices only: it counts 0 devices.",
        fix=(
            "on the node: sudo nvidia-smi mig -cgi 3g.40gb -C (nvidia-smi mig -lgip lists them)",
            "docker run --gpus '\"device=MIG-<uuid>\"' …; Kubernetes: nvidia.com/mig-3g.40gb: 1",
            "on the node, without MIG: sudo nvidia-smi -mig 0",
        ),
        evidence=proof,
    )


def exclusive_mode_busy(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Exclusive compute mode, and the GPU is taken.

    In Exclusive_Process mode one process at a time may have a context on the GPU: when one is
    there the job gets "all CUDA-capable devices are busy or unavailable"; in Prohibited mode
    nobody gets one. When the GPUs are free and several ranks start, it warns: ranks that touch
    GPU 0 before they choose their own shut each other out. A running MPS daemon is one process.

    Fix: nvidia-smi -c DEFAULT on the node, or end what holds the GPU.
    """
    devices = node.gpus_used(s, m, "which compute mode the GPUs are in", "compute_mode")
    if not isinstance(devices, list):
        yield devices
        return
    shared = bool(s.driver.mps.known and s.driver.mps.get(_NO_MPS).reachable.value)
    several = (node.ranks(s).size or 1) > 1

    def judge(gpu: Gpu) -> List[Trouble]:
        return _shut(gpu, several, shared)

    found = list(node.troubles(s, devices, judge))
    yield from found
    if found:
        return
    silent = [one for one in devices if not one.gpu.compute_mode.known]
    if silent:
        yield Undecided((silent[0].place + ".compute_mode",), "which compute mode the GPUs are in")
    else:
        places = [one.place + ".compute_mode" for one in devices[:2]]
        yield Passed("the GPUs can be used", "", evidence(s, *places))


def _shut(gpu: Gpu, several: bool, shared: bool) -> List[Trouble]:
    mode, fields = gpu.compute_mode.get(""), ("compute_mode", "processes", "in_use_by_others")
    cure = "on the node: sudo nvidia-smi -c DEFAULT"
    if mode == PROHIBITED:
        why = "In this mode no process gets a context: 'all CUDA-capable devices are busy'."
        return [Trouble(FAIL, "compute mode Prohibited", fields, "mode Default", why, (cure,))]
    if mode not in EXCLUSIVE or shared:
        return []
    if gpu.in_use_by_others.value or gpu.processes.get(0) > 0:
        return [
            Trouble(
                FAIL, f"compute mode {mode}, and a process is on it", fields,
                "a GPU that is free, or mode Default",
                "CUDA answers 'all CUDA-capable devices are busy or unavailable'.",
                ("nvidia-smi --query-compute-apps=pid,name --format=csv; end what is left", cure),
            )
        ]  # fmt: skip
    if several:
        return [
            Trouble(
                WARN, f"compute mode {mode}, and several ranks start", fields, "mode Default",
                "A rank that touches GPU 0 before it chooses its own (torch.cuda.set_device) shuts "
                "the others out: 'all CUDA-capable devices are busy or unavailable'.",
                (cure, "call torch.cuda.set_device(local_rank) before anything else of CUDA"),
            )
        ]  # fmt: skip
    return []


def mps_not_reachable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The environment points at an MPS daemon that cannot be reached.

    CUDA looks for the socket `control` in CUDA_MPS_PIPE_DIRECTORY (by default /tmp/nvidia-mps).
    Where a socket is left and nobody listens, cuInit ends with error 805 or hangs. Where the
    directory has none, CUDA runs without MPS: that warns, and only when the variable is set.

    Fix: start nvidia-cuda-mps-control -d, mount its directory into the container, or unset
    CUDA_MPS_PIPE_DIRECTORY.
    """
    hidden, mps = common.gpu_hidden(s), s.driver.mps
    variable = s.variable("CUDA_MPS_PIPE_DIRECTORY")
    if hidden:
        yield NotApplicable(hidden)
        return
    if not mps.known:
        if mps.absent or (not mps.looked and not variable.known):
            yield NotApplicable("nothing points at an MPS daemon")
        else:
            yield Undecided(("driver.mps",), "whether the MPS daemon can be reached")
        return
    daemon = mps.get(_NO_MPS)
    place = daemon.pipe_directory.value or variable.value or "its pipe directory"
    if daemon.reachable.unknown:
        yield Undecided(("driver.mps",), "whether the MPS daemon can be reached")
    elif daemon.reachable.value:
        yield Passed(f"the MPS daemon of {place} answers", "", evidence(s, "driver.mps"))
    elif daemon.reachable.absent and not variable.known:
        yield NotApplicable("no MPS daemon is here, and none is asked for")
    else:
        gone = daemon.reachable.absent
        yield Finding(
            summary=f"the environment points at an MPS daemon in {place}, and "
            + ("there is none: CUDA runs without MPS" if gone else "nobody listens there"),
            observed=f"{place}/control: "
            + ("is not there" if gone else daemon.reachable.source or "not reachable"),
            needed="a running nvidia-cuda-mps-control whose pipe directory is this one",
            why="CUDA then starts a context for each process, slower and with more memory."
            if gone
            else "cuInit ends with error 805 (MPS client failed to connect to the daemon).",
            fix=(
                f"export CUDA_MPS_PIPE_DIRECTORY={place}; nvidia-cuda-mps-control -d",
                f"docker run --ipc=host -v {place}:{place} … (the daemon of the host)",
                "unset CUDA_MPS_PIPE_DIRECTORY",
            ),
            evidence=evidence(s, "driver.mps", "env.CUDA_MPS_PIPE_DIRECTORY"),
            severity=WARN if gone else FAIL,
        )


def vgpu_peer_access(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A vGPU without the peer access or unified memory that NCCL would use.

    A virtual GPU has unified memory and peer access only where the hypervisor allows them (one
    vGPU with all memory of a physical GPU, and the switch set). NCCL between several vGPUs without
    unified memory stops with "operation not supported"; without peer access it copies through the
    host. It fails when unified memory is known to be off, warns when peer access is not there or
    not known.

    Fix: enable_uvm on the virtual machine, or whole GPUs; without peer access NCCL_P2P_DISABLE=1
    and NCCL_CUMEM_ENABLE=0.
    """
    if s.gpus.known and not any(one.vgpu.looked for one in s.gpus.get(())):
        yield NotApplicable("not known to be virtual GPUs")
        return
    devices = node.gpus_used(s, m, "whether these are virtual GPUs")
    if not isinstance(devices, list):
        yield devices
        return
    virtual = [one for one in devices if one.gpu.vgpu.value]
    ranks = node.ranks(s)
    if not virtual:
        unsure = [one for one in devices if one.gpu.vgpu.unknown and one.gpu.vgpu.looked]
        if unsure and (ranks.size or 2) > 1:
            yield Undecided((unsure[0].place + ".vgpu",), "whether these are virtual GPUs")
        else:
            yield NotApplicable("not known to be virtual GPUs")
        return
    if ranks.size is not None and ranks.size < 2:
        yield NotApplicable("one process on one GPU needs no peer access")
        return
    yield from _vgpu(s, virtual, ranks)


def _vgpu(s: Snapshot, virtual: List[common.Device], ranks: node.Ranks) -> Iterator[Outcome]:
    apart = any(one.gpu.unified_memory.value is False for one in virtual)
    if not apart and all(one.gpu.peer_access.value for one in virtual):
        places = [one.place + ".peer_access" for one in virtual]
        yield Passed("these virtual GPUs reach each other", "", evidence(s, *places))
        return
    told = all(one.gpu.peer_access.known for one in virtual)
    lack = "unified memory" if apart else "peer access" if told else "known peer access"
    fields = ("vgpu", "peer_access", "unified_memory")
    yield Finding(
        summary=f"{common.labels(virtual)}: virtual GPUs without {lack}, and several ranks",
        observed=f"vGPU, {lack}: none",
        needed="unified memory and peer access between the GPUs of one job",
        why="NCCL stops with 'operation not supported' (cudaErrorNotSupported) at its start."
        if apart
        else "NCCL copies through the host's memory where it may not use peer access; some "
        "releases stop instead ('operation not supported').",
        fix=(
            "hypervisor: allow unified memory (VMware: pciPassthruN.cfg.enable_uvm=1), or whole "
            "GPUs in the virtual machine",
            "export NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0",
        ),
        evidence=evidence(
            s, *(f"{one.place}.{name}" for one in virtual for name in fields), *ranks.places
        ),
        severity=FAIL if apart else WARN,
    )
