"""Rules about RDMA: present and turned off, without its libraries or devices, without memory."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Snapshot
from . import ifnames, interconnect
from .interconnect import Rdma
from .linked import libraries
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: libibverbs's provider for the devices of a kernel module.
PROVIDER = {
    "mlx5_core": "mlx5", "mlx4_core": "mlx4", "erdma": "erdma", "irdma": "irdma",
    "bnxt_re": "bnxt_re", "hns_roce": "hns", "efa": "efa",
}  # fmt: skip
#: Only a net plugin can use these: NCCL's own transport cannot.
BY_PLUGIN = ("efa",)
#: Below the first nothing can be registered; the second is the least with which jobs are seen to
#: run (kernels give 64 KiB, or 8 MiB since 5.16).
MEMLOCK_NONE, MEMLOCK_ENOUGH = 1024, 64 << 10


def _silent(s: Snapshot, purpose: str) -> Optional[Outcome]:
    """Why RDMA is no matter here; None when it is."""
    if s.host.infiniband.unknown:
        return Undecided(("host.infiniband",), purpose)
    if not interconnect.rdma(s):
        return NotApplicable("no RDMA device with a port that is up")
    hidden = interconnect.no_nccl(s)
    if hidden:
        return NotApplicable(hidden)
    if interconnect.several_nodes(s) is False:
        return NotApplicable("one node: NCCL needs no network")
    return None


def _off(s: Snapshot) -> List[str]:
    """The settings that turn RDMA off."""
    found = ["NCCL_IB_DISABLE"] if interconnect.switched_on(s, "NCCL_IB_DISABLE") else []
    if interconnect.setting(s, "NCCL_NET").get("").lower() == "socket":
        found.append("NCCL_NET")
    return found


def _selects_none(s: Snapshot, found: Rdma) -> bool:
    """Whether NCCL_IB_HCA selects none of the ports that are up."""
    text = interconnect.setting(s, "NCCL_IB_HCA").get("")
    if not text:
        return False
    wanted = ifnames.parse(text)
    if found.active is None:
        return not any(wanted.matches(name) for name in found.devices)
    return not any(wanted.matches(one.device, one.port) for one in found.active)


def _is_ppu(s: Snapshot, m: Matrix) -> bool:
    """Whether everything is as PAI presets it for PPU, where there is no RDMA to use."""
    preset = next((row for row in m.nccl_presets() if not row.get("module")), None)
    parts = [str(one).partition("=") for one in preset["settings"]] if preset else []
    return bool(parts) and all(interconnect.setting(s, n).value == value for n, _, value in parts)


def ib_disabled(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """RDMA is turned off on a node that has it.

    NCCL_IB_DISABLE=1, NCCL_NET=Socket, or an NCCL_IB_HCA that selects none of the devices: NCCL
    then uses TCP. It works, at a fraction of the bandwidth, and is mostly a workaround that was
    left behind. On PAI-PPU it is as it should be.

    Fix: unset it, and cure what it worked around (GID index, relaxed ordering, a newer NCCL).
    """
    silent = _silent(s, "whether there is RDMA to turn off")
    found = interconnect.rdma(s)
    if silent or found is None:
        yield silent or NotApplicable("no RDMA device")
        return
    if s.env.unknown:
        yield Undecided(("env",), "whether RDMA is turned off")
        return
    off, none = _off(s), _selects_none(s, found)
    if not off and not none:
        yield Passed(f"RDMA is not turned off: {interconnect.shown(found)}")
    elif _is_ppu(s, m):
        yield NotApplicable("the settings of PAI-PPU, which has no RDMA")
    elif interconnect.several_nodes(s) is None:
        yield Undecided(("job.nodes",), "whether the job needs a network")
    elif off:
        shown = ", ".join(f"{name}={interconnect.setting(s, name).value}" for name in off)
        yield _finding(s, found, f"{shown}: NCCL uses TCP though this node has RDMA", off)
    else:
        text = interconnect.setting(s, "NCCL_IB_HCA").value
        what = f"NCCL_IB_HCA={text!r} selects none of the RDMA devices here: NCCL uses TCP"
        yield _finding(s, found, what, ["NCCL_IB_HCA"])


def _finding(s: Snapshot, found: Rdma, what: str, names: List[str]) -> Finding:
    return Finding(
        summary=what,
        observed=f"RDMA devices: {interconnect.shown(found)}",
        needed="RDMA between the nodes",
        why="Sockets reach a fraction of its bandwidth, and load the processors.",
        fix=(
            f"unset {' '.join(names)}",
            "NCCL_DEBUG=INFO shows 'NET/IB' when it is used; a wrong NCCL_IB_GID_INDEX is the "
            "usual reason why it was turned off (show_gids)",
        ),
        evidence=evidence(
            s, *interconnect.proof(s, *names), "host.infiniband", "network.ports", "job.nodes"
        ),
    )


def rdma_libraries_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The node has RDMA, and the image lacks the libraries to use it.

    NCCL opens libibverbs.so.1, which opens a provider for the card (mlx5, erdma); for EFA it
    needs a net plugin (libnccl-net.so). Without them it falls back to sockets, with one line in
    its debug output. The plugin is not needed for InfiniBand and RoCE.

    Fix: apt-get install libibverbs1 ibverbs-providers librdmacm1 (eRDMA: the packages of the
    cloud; EFA: aws-ofi-nccl).
    """
    silent = _silent(s, "whether RDMA needs its libraries")
    found = interconnect.rdma(s)
    if silent or found is None:
        yield silent or NotApplicable("no RDMA device")
    elif _off(s):
        yield NotApplicable(f"{_off(s)[0]} turns RDMA off: another rule speaks")
    else:
        yield _libraries(s, found)


def _libraries(s: Snapshot, found: Rdma) -> Outcome:
    verbs, plugin = _there(s, "libibverbs.so"), _there(s, "libnccl-net.so")
    by_plugin = bool(found.modules) and all(one in BY_PLUGIN for one in found.modules)
    wanted = [PROVIDER[one] for one in found.modules if one in PROVIDER]
    providers = s.network.providers
    lacking = [one for one in wanted if providers.known and one not in providers.get(())]
    if verbs is False:
        return _lacks(s, found, "libibverbs.so.1", plugin)
    if by_plugin and plugin is False:
        return _lacks(s, found, "a net plugin (libnccl-net.so)", None)
    if wanted and len(lacking) == len(wanted):
        return _lacks(s, found, f"libibverbs's provider for {lacking[0]}", plugin)
    if verbs is None or (by_plugin and plugin is None):
        return Undecided(("network.libraries",), "whether the RDMA libraries are there")
    return Passed(f"libibverbs is there for {interconnect.shown(found)}")


def _there(s: Snapshot, name: str) -> Optional[bool]:
    """Whether a library is found; None where nobody looked."""
    told = [one.library.missing.value for one in libraries(s, name)]
    if told:
        return not all(told)
    if s.network.libraries.known:
        return any(one.startswith(name) for one in s.network.libraries.get({}))
    return None


def _lacks(s: Snapshot, found: Rdma, what: str, plugin: Optional[bool]) -> Outcome:
    if interconnect.several_nodes(s) is None:
        return Undecided(("job.nodes",), f"whether the job needs {what}")
    places = [p for one in libraries(s, "libibverbs", "libnccl-net")
              for p in one.places("name", "missing")]  # fmt: skip
    return Finding(
        summary=f"this node has RDMA ({interconnect.shown(found)}), and the image lacks {what}",
        observed=f"{what} is not found" + ("; there is a net plugin" if plugin else ""),
        needed="libibverbs.so.1, and a provider for the card",
        why="NCCL falls back to sockets: 'NET/IB : No device found'.",
        fix=_packages(found),
        evidence=evidence(
            s, *places, "host.infiniband", "network.ports", "network.libraries",
            "network.providers", "job.nodes",
        ),
        severity=INFO if plugin else "",
    )  # fmt: skip


def _packages(found: Rdma) -> Tuple[str, ...]:
    if "erdma" in found.modules:
        return ("install the eRDMA packages of Alibaba Cloud's mirror (libibverbs1, "
                "ibverbs-providers with erdma, librdmacm1)",)  # fmt: skip
    if "efa" in found.modules:
        return ("install aws-ofi-nccl and libfabric (the EFA installer), as in AWS's images",)
    return (
        "apt-get install -y libibverbs1 ibverbs-providers librdmacm1",
        "or dnf install -y libibverbs librdmacm",
    )


def rdma_device_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The host has RDMA NICs that this container cannot use.

    /sys shows the host's devices in every container; /dev/infiniband comes only with a container
    that was given it. Without it NCCL falls back to sockets.

    Fix: docker run --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1; Kubernetes:
    the RDMA device plugin's resource; PAI: an instance type with RDMA, EnableRDMA.
    """
    silent = _silent(s, "whether there are RDMA devices")
    nodes = s.network.rdma_nodes
    if silent:
        yield silent
    elif nodes.unknown:
        yield Undecided(("network.rdma_nodes",), "whether /dev/infiniband is here")
    elif nodes.get(()):
        yield Passed(f"{nodes.get(())[0]} is here")
    elif s.os.container.value is not True:
        yield NotApplicable("not in a container: load ib_uverbs on the node")
    elif interconnect.several_nodes(s) is None:
        yield Undecided(("job.nodes",), "whether the job needs a network")
    else:
        yield Finding(
            summary="the host has RDMA devices, and this container was not given them",
            observed=f"/sys/class/infiniband has {', '.join(s.host.infiniband.get(())[:4])}; "
            "there is no /dev/infiniband/uverbs*",
            needed="/dev/infiniband in the container",
            why="NCCL cannot open the devices and falls back to sockets.",
            fix=(
                "docker run --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1 …",
                "Kubernetes: the resource of the RDMA device plugin (rdma/hca: 1), IPC_LOCK",
            ),
            evidence=evidence(
                s, "host.infiniband", "network.ports", "network.rdma_nodes", "os.container"
            ),
        )


def memlock_too_low(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """RLIMIT_MEMLOCK is too low for RDMA memory registration.

    A NIC reads and writes only memory that is locked, and a process without CAP_IPC_LOCK may lock
    no more than RLIMIT_MEMLOCK. With the 64 KiB of older kernels not even a completion queue can
    be made; with the 8 MiB of newer ones NCCL's buffers do not fit: a warning, as small jobs may.

    Fix: docker run --ulimit memlock=-1 --cap-add IPC_LOCK; Kubernetes: LimitMEMLOCK=infinity for
    the container runtime.
    """
    limit = s.host.memlock_kib
    silent = _silent(s, "whether RDMA needs locked memory")
    unreachable = not interconnect.usable_rdma(s)
    value = limit.get(-1)
    if silent or _off(s) or unreachable:
        yield silent or NotApplicable("RDMA is turned off, or its devices are not here")
    elif limit.unknown or limit.absent:
        yield Undecided(("host.memlock_kib",), "whether memory can be locked")
    elif value < 0 or value >= MEMLOCK_ENOUGH:
        yield Passed("no limit of locked memory" if value < 0 else f"{value} KiB may be locked")
    elif interconnect.several_nodes(s) is None and (s.origin == "live" or s.job.command.known):
        yield Undecided(("job.nodes",), "whether the job needs RDMA")
    else:
        yield Finding(
            summary=f"only {value} KiB of memory may be locked, and RDMA needs more",
            observed=f"RLIMIT_MEMLOCK is {value} KiB, without CAP_IPC_LOCK",
            needed="no limit",
            why="'ibv_create_cq failed: Cannot allocate memory', or ibv_reg_mr the same.",
            fix=(
                "docker run --ulimit memlock=-1 --cap-add IPC_LOCK …",
                "on a host: ulimit -l unlimited, and 'memlock unlimited' in limits.conf",
            ),
            evidence=evidence(s, "host.memlock_kib", "host.infiniband", "network.ports"),
            severity="" if value < MEMLOCK_NONE else WARN,
        )
