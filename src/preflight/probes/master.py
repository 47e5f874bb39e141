"""Whether the node that leads a job can be found and reached, as the job itself will try it.

A name is resolved, again and again within the time given, since the DNS of a fresh job comes
late. The leading node itself looks whether the port is free; the others try to connect once.
That is all that preflight ever asks of a network. `socket` is imported when there is a master.
"""

from __future__ import annotations

import errno
import time
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from .. import snapshot as s
from ..launching import counts, meeting
from ..launching.meeting import Meeting
from ..roots import Root
from .platform import launched, read

#: All of it, at most: a job that waits longer for its name server is told that.
SECONDS = 5.0
#: Between two attempts.
PAUSE = 0.2
#: Kept back, so that the answer is given before the time is up.
RESERVE = 0.3
OFFLINE = "--offline: no name was resolved, and nothing connected to"

Address = Tuple[int, str]  # family, number


def wanted(env: Mapping[str, str], command: Sequence[str]) -> bool:
    """Whether anything names a master at all (a quick look, before a child is started)."""
    return (
        "MASTER_ADDR" in env
        or "PET_MASTER_ADDR" in env
        or any(
            "torchrun" in one or "torch.distributed" in one or "master" in one or "rdzv" in one
            for one in command
        )
    )


def seconds(timeout: float) -> float:
    """How long the search may take: 5 s, or a third of a shorter whole."""
    return min(SECONDS, timeout / 3)


def look(
    root: Root, env: Mapping[str, str], command: Sequence[str], tables: Mapping[str, Any],
    timeout: float, offline: bool,
) -> s.Snapshot:  # fmt: skip
    """The `master` of a snapshot; nothing where this job has one node, or has started already."""
    deadline = time.monotonic() + max(seconds(timeout) - RESERVE, 0.1)
    launch = launched(command, env)
    where = meeting.meeting(launch, env)
    job = read(root, env, (), tables).job
    asked = meeting.asked_nodes(launch, env)
    nodes = max(asked[1] if asked else 1, job.nodes.get(1))
    if where is None or nodes < 2 or counts.within(env):
        return s.Snapshot()
    named = s.Master(
        address=s.known(where.address, where.source), port=s.known(where.port, where.source)
    )
    port = meeting.port_number(where.port)
    if meeting.is_loopback(where.address) or port is None:
        return s.Snapshot(master=named)
    if offline:
        return lost(s.unknown(OFFLINE, "--offline"), named)
    return _found(named, where, port, job.node_rank.value, deadline)


def lost(why: s.Fact[Any], named: Optional[s.Master] = None) -> s.Snapshot:
    """What is not known of the master, and why."""
    named = named or s.Master(address=why, port=why)
    return s.Snapshot(
        host=s.Host(master_resolves=why),
        master=s.Master(named.address, named.port, why, why, why, why),
    )


def _found(
    named: s.Master, where: Meeting, port: int, rank: Optional[int], deadline: float
) -> s.Snapshot:
    addresses, problem = _resolved(where.address, port, deadline)
    source = f"getaddrinfo({where.address})"
    if not addresses:
        host = s.Host(master_resolves=s.known(False, f"{source}: {problem}"))
        return s.Snapshot(host=host, master=s.Master(named.address, named.port))
    local = any(_is_own(one) for one in addresses)
    route, state = "", ""
    if local and rank in (0, None):
        state = _port_state(port)
    elif rank != 0:
        route = next(filter(None, (_route(one, port) for one in addresses)), "")
        state = _connect(addresses, port, deadline)
    how = f"{'bind' if local and rank in (0, None) else 'connect'} to port {port}"
    return s.Snapshot(
        host=s.Host(master_resolves=s.known(True, source)),
        master=s.Master(
            address=named.address,
            port=named.port,
            addresses=s.known(tuple(number for _family, number in addresses), source),
            local=s.known(local, "bind"),
            state=s.known(state, how) if state else s.UNKNOWN,
            route=s.known(route, "connect of UDP") if route else s.UNKNOWN,
        ),
    )


def _resolved(host: str, port: int, deadline: float) -> Tuple[List[Address], str]:
    """The addresses of a name, tried again until the deadline; else what the resolver said last."""
    import socket

    while True:
        try:
            rows = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
            return list(dict.fromkeys((row[0], str(row[4][0])) for row in rows)), ""
        except (OSError, UnicodeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        if time.monotonic() + PAUSE >= deadline:
            return [], problem
        time.sleep(PAUSE)


def _is_own(address: Address) -> bool:
    """Only an address of one's own can be bound."""
    import socket

    family, number = address
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((number, 0))
            return True
    except OSError:
        return False


def _route(address: Address, port: int) -> str:
    """The own address that packets to there would carry; nothing is sent. Empty: no route."""
    import socket

    family, number = address
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect((number, port))
            return str(one.getsockname()[0])
    except OSError:
        return ""


def _port_state(port: int) -> str:
    """Whether the store could listen on the port of this node."""
    import socket

    for family, any_address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                one.bind((any_address, port))
                return "free"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "taken"
            if error.errno == errno.EACCES:
                return "not permitted"
    return ""


def _connect(addresses: List[Address], port: int, deadline: float) -> str:
    """How the master's port answers. A refusal is an answer: its host is there."""
    states = []
    for number, address in enumerate(addresses):
        left = (deadline - time.monotonic()) / (len(addresses) - number)
        states.append(_state(address, port, time.monotonic() + max(left, 0.05)))
    for one in ("connected", "refused", "timed out"):
        if one in states:
            return one
    return states[0]


def _state(address: Address, port: int, deadline: float) -> str:
    """One connection; without a route it is tried again, since interfaces may still come up."""
    import socket

    family, number = address
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.settimeout(max(left, 0.05))
                one.connect((number, port))
                return "connected"
        except socket.timeout:
            return "timed out"
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                return "refused"
            if error.errno == errno.ETIMEDOUT:
                return "timed out"
        if time.monotonic() + PAUSE >= deadline:
            return "unreachable"
        time.sleep(PAUSE)
