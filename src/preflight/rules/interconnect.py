"""What the rules about NCCL's network ask: the job's size, its settings, interfaces and RDMA."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple

from ..launching import command, meeting
from ..matrix import numbers
from ..snapshot import Fact, Interface, RdmaPort, Snapshot, known
from . import common, ifnames
from .linked import first

#: Variables in which launchers and schedulers say how many nodes there are.
NODE_COUNTS = ("PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
#: (all processes, those of a node) as launchers say them.
PROCESS_COUNTS = (
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)  # fmt: skip
LAUNCHERS = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate|deepspeed|mpirun|horovodrun|srun)\b"
)
#: Since this NCCL an interface has to run (ifnames).
RUNNING_ONLY = (2, 28)
#: The names by which RDMA devices are called where no module is known.
_MODULES = (("mlx5", "mlx5_core"), ("erdma", "erdma"), ("efa", "efa"), ("rdmap", "efa"))


def setting(s: Snapshot, name: str) -> Fact[str]:
    """A variable as NCCL finds it: in the environment, else in nccl.conf."""
    fact = s.variable(name)
    value = s.network.conf.get({}).get(name)
    if fact.known or value is None:
        return fact
    return known(value, s.network.conf.source)


def proof(s: Snapshot, *variables: str) -> Tuple[str, ...]:
    """The places of variables for evidence."""
    conf = s.network.conf.get({})
    there = any(name in conf for name in variables)
    return tuple("env." + name for name in variables) + (("network.conf",) if there else ())


def number(text: Optional[str]) -> Optional[int]:
    """What NCCL makes of a number (strtoll of any base): None where nothing is set."""
    if text is None or not text:
        return None
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]{1,15}|[0-9]{1,18})", text)
    if not found:
        return 0
    digits = found.group(2)
    base = 16 if digits[:2] in ("0x", "0X") else 8 if re.match(r"0[0-7]+$", digits) else 10
    return int(digits, base) * (-1 if found.group(1) == "-" else 1)


def switched_on(s: Snapshot, name: str) -> bool:
    """Whether a flag is set to what NCCL takes for yes."""
    return bool(number(setting(s, name).value))


def nodes(s: Snapshot) -> Optional[int]:
    """On how many nodes the job runs; None where nothing says so."""
    if s.job.nodes.known:
        return s.job.nodes.value
    if s.env.unknown:
        return None
    for everywhere, here in PROCESS_COUNTS:
        whole, part = _count(s, everywhere), _count(s, here)
        if whole and part:
            return max(1, whole // part)
    for name in NODE_COUNTS:
        count = _count(s, name)
        if count:
            return count
    # In DLC both count nodes until torchrun rewrites them.
    started = s.variable("LOCAL_RANK").known or s.variable("TORCHELASTIC_RUN_ID").known
    if s.variable("DLC_JOB_ID").known and not started:
        return _count(s, "WORLD_SIZE")
    return _asked_for(s)


def _asked_for(s: Snapshot) -> Optional[int]:
    """The nodes that the launch command asks for: torchrun's one where it names none."""
    if not s.job.command.known:
        return None
    env = s.env.get({})
    asked = meeting.asked_nodes(command.of_text(s.job.command.get(""), env.get), env)
    return asked[1] if asked else None


def _count(s: Snapshot, name: str) -> Optional[int]:
    """A number of processes or nodes; of a range ("1:4") the highest."""
    found = re.match(r"(?:[0-9]{1,6}:)?([0-9]{1,6})$", s.variable(name).get("").strip(), re.ASCII)
    return int(found.group(1)) if found else None


def communicates(s: Snapshot) -> bool:
    """Whether something says that several processes will talk to each other."""
    here, everywhere = nodes(s), _count(s, "WORLD_SIZE")
    if any((one or 0) > 1 for one in (here, s.job.processes_per_node.value, everywhere)):
        return True
    if s.variable("LOCAL_RANK").known:
        return True
    if s.variable("MASTER_ADDR").known and here != 1 and everywhere != 1:
        return True  # platforms set it for jobs of one process, too
    return bool(LAUNCHERS.search(s.job.command.get("")))


# -- interfaces -----------------------------------------------------------------------------


class Interfaces(NamedTuple):
    """The interfaces here; `sure`: with addresses, not only names."""

    rows: Tuple[Interface, ...]
    sure: bool
    place: str


def interfaces(s: Snapshot) -> Optional[Interfaces]:
    """What is known of them; None where nothing is."""
    if s.network.interfaces.known:
        return Interfaces(s.network.interfaces.get(()), True, "network.interfaces")
    if not s.host.interfaces.known:
        return None
    names = sorted(s.host.interfaces.get(()), key=lambda name: name != "lo")
    rows = tuple(
        Interface(
            name=name,
            state="running",
            kind="loopback" if name == "lo" else "",
            addresses="127.0.0.1/8" if name == "lo" else "?",
        )
        for name in names
        if name
    )
    return Interfaces(rows, False, "host.interfaces")


def ways(s: Snapshot, here: Interfaces) -> ifnames.Ways:
    """How the NCCL here chooses: by its release, and where addresses are known by family."""
    text = setting(s, "NCCL_SOCKET_FAMILY").get("")
    family = text if here.sure and text in ("AF_INET", "AF_INET6") else ""
    # Of an unknown release the lenient one: a carrier that is not seen stops nobody.
    return ifnames.Ways(family, numbers(nccl_version(s)) < RUNNING_ONLY)


def nccl_version(s: Snapshot) -> str:
    """The release of the NCCL that would be loaded, or is inside the framework; "" if unknown."""
    loaded = first(s, "libnccl.so")
    inside = next((one.nccl.get("") for one in s.frameworks.get(()) if one.nccl.known), "")
    return loaded.library.version.get(inside) if loaded else inside


# -- RDMA -----------------------------------------------------------------------------------


class Rdma(NamedTuple):
    """The RDMA devices of this node, and those of their ports that are up (None: not known)."""

    devices: Tuple[str, ...]
    active: Optional[Tuple[RdmaPort, ...]]
    modules: Tuple[str, ...]


def rdma(s: Snapshot) -> Optional[Rdma]:
    """The RDMA devices; None where there is none, or none that has a port up."""
    devices = s.host.infiniband.get(())
    if not devices:
        return None
    ports = s.network.ports
    active = tuple(one for one in ports.get(()) if one.state == "ACTIVE") if ports.known else None
    if active == () and ports.get(()):
        return None
    told = {one.module for one in ports.get(()) if one.module}
    told = told or {m for d in devices for begin, m in _MODULES if d.startswith(begin)}
    return Rdma(devices, active or None, tuple(sorted(told)))


def usable_rdma(s: Snapshot) -> bool:
    """Whether processes here can reach the devices (or nothing says that they cannot)."""
    return s.network.rdma_nodes.value != ()


def shown(found: Rdma) -> str:
    """ "mlx5_0, mlx5_1, …" for a list of devices."""
    few: List[str] = list(found.devices[:4])
    return ", ".join(few) + (", …" if len(found.devices) > 4 else "")


def no_nccl(s: Snapshot) -> Optional[str]:
    """Why NCCL has no say here; None when it may."""
    return common.gpu_hidden(s)


def several_nodes(s: Snapshot) -> Optional[bool]:
    """Whether the job runs on more than one node; None where nothing says so."""
    count = nodes(s)
    return None if count is None else count > 1
