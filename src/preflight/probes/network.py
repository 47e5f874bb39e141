"""The interfaces, routes and RDMA devices that a job's processes would find, and memory locking.

Names and addresses come from the kernel by ioctl, the rest from sysfs and /proc: those of this
network namespace. Nothing is sent: even the route to an address is only looked up.
"""

from __future__ import annotations

import fcntl
import posixpath
import re
import resource
import socket
import struct
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .. import snapshot as s
from ..binary import loader
from ..binary.elf import BadElf
from ..roots import Root

#: More of these than that are not told of.
INTERFACES, DEVICES = 1024, 256
NET, RDMA, VERBS = "/sys/class/net", "/sys/class/infiniband", "/dev/infiniband"
#: ioctls of <linux/sockios.h>, flags of <linux/if.h>.
_ADDRESS, _MASK, _FLAGS = 0x8915, 0x891B, 0x8913
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
#: Flags of <linux/route.h>.
_ROUTE_UP, _REJECT = 0x1, 0x200
#: CAP_IPC_LOCK of <linux/capability.h>: who has it is not held to RLIMIT_MEMLOCK.
_IPC_LOCK = 14
#: What NCCL opens for RDMA, and net plugins by their default name (NCCL, net_ib and net.cc).
OPENED = ("libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "libmlx5.so.1", "libnccl-net.so")
#: Where distributions put libibverbs's providers: libmlx5-rdmav34.so and the like.
PROVIDERS = (
    "/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib/aarch64-linux-gnu/libibverbs",
    "/usr/lib64/libibverbs", "/usr/lib/libibverbs", "/lib/x86_64-linux-gnu/libibverbs",
    "/usr/local/lib/libibverbs", "/opt/mellanox/lib/libibverbs",
)  # fmt: skip
#: Where each package of a provider says its name.
CONF = "/etc/libibverbs.d"
_PROVIDER = re.compile(r"lib([\w-]+?)-rdmav\d+\.so$")


class Answer(NamedTuple):
    """What the kernel says of an interface: its flags, IPv4 address and mask ("" for none)."""

    flags: int
    address: str
    mask: str


Ask = Callable[[str], Answer]


def read(root: Root, env: Mapping[str, str], arch: str) -> s.Snapshot:
    """Interfaces, RDMA devices and libraries, routes to the master, the limit of locked memory."""
    names = [name for _number, name in sorted(socket.if_nameindex())][:INTERFACES]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as open_socket:
        rows = interfaces(root, names, lambda name: _ask(open_socket, name))
    devices = root.names(RDMA)[:DEVICES]
    there = bool(devices)
    found = libraries(root, env, arch) if there else s.UNKNOWN
    return s.Snapshot(
        host=s.Host(
            interfaces=s.known(tuple(names), NET),
            infiniband=s.known(tuple(devices), RDMA),
            routes_to_master=master_routes(root, env, rows),
            memlock_kib=memlock(root),
        ),
        network=s.Network(
            interfaces=s.known(rows, f"ioctl, {NET}, /proc/net/if_inet6"),
            ports=s.known(tuple(_ports(root, devices)), RDMA),
            rdma_nodes=s.known(
                tuple(f"{VERBS}/{one}" for one in root.names(VERBS) if one.startswith("uverbs")),
                VERBS,
            ),
            libraries=found,
            providers=providers(root, found.get({})) if there else s.UNKNOWN,
        ),
    )


# -- interfaces -----------------------------------------------------------------------------


def interfaces(root: Root, names: List[str], ask: Ask) -> Tuple[s.Interface, ...]:
    """The interfaces of these names, which are in the kernel's order."""
    sixes = _ipv6(root)
    return tuple(_interface(root, name, ask, sixes.get(name, [])) for name in names)


def _interface(root: Root, name: str, ask: Ask, sixes: List[str]) -> s.Interface:
    try:
        flags, address, mask = ask(name)
    except OSError:  # gone meanwhile
        flags, address, mask = 0, "", ""
    found = [f"{address}/{_length(mask)}"] if address else []
    state = "running" if flags & _RUNNING and flags & _UP else "up" if flags & _UP else "down"
    return s.Interface(
        name=name,
        state=state,
        kind="loopback" if flags & _LOOPBACK else _kind(root, f"{NET}/{name}"),
        addresses=" ".join(found + sixes),
        speed=_number(root, f"{NET}/{name}/speed"),
    )


def _kind(root: Root, folder: str) -> str:
    if root.exists(folder + "/device/physfn"):
        return "vf"
    for name, kind in (("device", "physical"), ("bridge", "bridge"), ("bonding", "bond")):
        if root.exists(f"{folder}/{name}"):
            return kind
    return "virtual"


def _ask(open_socket: socket.socket, name: str) -> Answer:
    """The kernel's answer; raises OSError where there is no such interface."""
    request = struct.pack("256s", name.encode()[:15])
    flags = struct.unpack_from("<H", fcntl.ioctl(open_socket, _FLAGS, request), 16)[0]
    found = []
    for number in (_ADDRESS, _MASK):
        try:
            answer = fcntl.ioctl(open_socket, number, request)
            found.append(socket.inet_ntoa(answer[20:24]))
        except OSError:  # no IPv4 address
            found.append("")
    return Answer(flags, *found)


def _ipv6(root: Root) -> Dict[str, List[str]]:
    """{interface: its IPv6 addresses}, global ones first, as the kernel lists them."""
    found: Dict[str, List[str]] = {}
    text = root.first_text(("/proc/net/if_inet6",))
    for line in (text[1] if text else "").splitlines():
        parts = line.split()
        try:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(parts[0]))
            found.setdefault(parts[5], []).append(f"{address}/{int(parts[2], 16)}")
        except (IndexError, ValueError, OSError):
            continue
    return found


def _length(mask: str) -> int:
    return bin(struct.unpack("!I", socket.inet_aton(mask or "0.0.0.0"))[0]).count("1")


def _number(root: Root, path: str) -> int:
    """A number in a file of sysfs; 0 where it says none (-1), or cannot be read."""
    try:
        return max(0, int(root.text(path, 4096)))
    except (OSError, ValueError):
        return 0


# -- the way to the master ------------------------------------------------------------------


def master_routes(
    root: Root, env: Mapping[str, str], rows: Tuple[s.Interface, ...]
) -> s.Fact[Tuple[str, ...]]:
    """The interfaces by which MASTER_ADDR is reached, where it is an address or in /etc/hosts.

    Other names are resolved where resolving is waited for, not here.
    """
    master = env.get("MASTER_ADDR", "").strip()
    if not master:
        return s.UNKNOWN
    address = master if _is_address(master) else _of_hosts(root, master)
    if not address:
        return s.UNKNOWN
    return routes_to(root, address, rows)


def routes_to(root: Root, address: str, rows: Tuple[s.Interface, ...]) -> s.Fact[Tuple[str, ...]]:
    """The interfaces by which an address is reached; none where there is no route to it.

    The kernel's own choice, which knows its policy rules, before what the table shows.
    """
    found = list(_by_table(root, address))
    if root.live:
        chosen = _by_kernel(address, rows)
        if chosen is None:
            return s.known((), f"no route to {address}")
        found = [chosen, *found] if chosen else found
    return s.known(tuple(dict.fromkeys(found)), f"route to {address}")


def _by_kernel(address: str, rows: Tuple[s.Interface, ...]) -> Optional[str]:
    """The interface whose address would be the source; "" where none has it, None: no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # of a datagram socket: looks up the route, sends nothing
            source = probe.getsockname()[0].partition("%")[0]
    except OSError:
        return None
    for row in rows:
        if source in (one.partition("/")[0] for one in row.addresses.split()):
            return row.name
    return ""


def _by_table(root: Root, address: str) -> Iterator[str]:
    """The interfaces of the best routes to an IPv4 address, by /proc/net/route."""
    text = root.first_text(("/proc/net/route",))
    if ":" in address or not text:
        return
    wanted = struct.unpack("<I", socket.inet_aton(address))[0]
    found = []
    for line in text[1].splitlines()[1:]:
        parts = line.split()
        try:
            to, flags, mask = int(parts[1], 16), int(parts[3], 16), int(parts[7], 16)
            metric = int(parts[6])
        except (IndexError, ValueError):
            continue
        if flags & _ROUTE_UP and not flags & _REJECT and wanted & mask == to:
            found.append((-bin(mask).count("1"), metric, parts[0]))
    best = min(found)[:2] if found else ()
    yield from (one[2] for one in sorted(found) if one[:2] == best)


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
            return True
        except (OSError, ValueError):
            continue
    return False


def _of_hosts(root: Root, name: str) -> str:
    text = root.first_text(("/etc/hosts",))
    for line in (text[1] if text else "").splitlines():
        parts = line.partition("#")[0].split()
        if name in parts[1:] and _is_address(parts[0]):
            return parts[0]
    return ""


# -- RDMA -----------------------------------------------------------------------------------


def _ports(root: Root, devices: List[str]) -> Iterator[s.RdmaPort]:
    for device in devices:
        folder = f"{RDMA}/{device}"
        module = _module(root, folder)
        for port in root.names(folder + "/ports")[:DEVICES]:
            at = f"{folder}/ports/{port}"
            yield s.RdmaPort(
                device=device,
                port=int(port) if port.isdigit() and port.isascii() else 0,
                state=_word(root, at + "/state").partition(": ")[2],
                link=_word(root, at + "/link_layer"),
                rate=_word(root, at + "/rate"),
                module=module,
            )


def _module(root: Root, folder: str) -> str:
    try:
        return posixpath.basename(root.resolve(folder + "/device/driver"))
    except OSError:
        return ""


def _word(root: Root, path: str) -> str:
    try:
        return root.text(path, 4096).strip()
    except OSError:
        return ""


def libraries(root: Root, env: Mapping[str, str], arch: str) -> s.Fact[Mapping[str, str]]:
    """{name: path} of the RDMA libraries that opening them by name would find."""
    found: Dict[str, str] = {}
    try:
        for name in OPENED:
            hit = loader.find(root, env, name, arch)
            if hit:
                found[name] = hit.path
    except (OSError, BadElf) as error:
        return s.unknown(f"the loader's search cannot be played: {error}")
    return s.known(found, "the loader's search, played")


def providers(root: Root, found: Mapping[str, str]) -> s.Fact[Tuple[str, ...]]:
    """The providers of libibverbs (one for each kind of device), beside it or where they use to be.

    Unknown where /etc/libibverbs.d names one that is in none of these directories.
    """
    verbs = found.get("libibverbs.so.1")
    beside = (posixpath.join(posixpath.dirname(verbs), "libibverbs"),) if verbs else ()
    there = {
        match.group(1): folder
        for folder in (*beside, *PROVIDERS)
        for match in map(_PROVIDER.match, root.names(folder))
        if match
    }
    named = {one[: -len(".driver")] for one in root.names(CONF) if one.endswith(".driver")}
    if named - set(there):
        return s.unknown(f"{CONF} names providers that are in no usual directory", CONF)
    return s.known(tuple(sorted(there)), ", ".join(sorted(set(there.values()))) or PROVIDERS[0])


# -- memory that may be locked ----------------------------------------------------------------


def memlock(root: Root) -> s.Fact[int]:
    """RLIMIT_MEMLOCK in KiB, -1 where there is none or it does not bind us (CAP_IPC_LOCK)."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return s.known(-1, "RLIMIT_MEMLOCK")
    if _has_ipc_lock(root):
        return s.known(-1, "CAP_IPC_LOCK, which RLIMIT_MEMLOCK does not bind")
    return s.known(soft // 1024, "RLIMIT_MEMLOCK")


def _has_ipc_lock(root: Root) -> bool:
    """Whether this process may lock memory at will: by right of the initial user namespace."""
    status = root.first_text(("/proc/self/status",))
    users = root.first_text(("/proc/self/uid_map",))
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status[1] if status else "", re.MULTILINE)
    initial = bool(users) and users is not None and users[1].split() == ["0", "0", "4294967295"]
    return initial and effective is not None and bool(int(effective.group(1), 16) >> _IPC_LOCK & 1)
