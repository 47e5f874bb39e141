"""`platform/master-unresolvable` and `platform/master-unreachable`: where the nodes meet."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..launching import meeting
from ..matrix import Matrix
from ..snapshot import Snapshot
from .jobs import Job, job, told
from .registry import (
    FAIL,
    INFO,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Undecided,
    evidence,
)

_PLACES = ("master.address", "master.port", "host.master_resolves", "master.addresses",
           "master.local", "master.state", "master.route", "job.nodes", "job.node_rank",
           "job.command")  # fmt: skip


class Place(NamedTuple):
    """Where the nodes of a job of several meet, as the snapshot tells it."""

    job: Job
    address: str
    port: str
    source: str


def _place(s: Snapshot, m: Matrix) -> Tuple[Optional[Place], str]:
    """The place, or why there is none to judge."""
    if not told(s):
        return None, "nothing is known of how the job is started"
    j = job(s, m)
    asked = meeting.asked_nodes(j.launch, j.env)
    nodes = max(asked[1] if asked else 1, j.nodes or 1)
    if j.within:
        return None, f"{j.within} has started this process: the nodes have met"
    if nodes < 2:
        return None, "nothing says that the job has more than one node"
    where = meeting.meeting(j.launch, j.env)
    if s.master.address.known:
        port = s.master.port.value
        return Place(j, s.master.address.get(""), port or "", s.master.address.source), ""
    if where is None:
        return None, "no address of a master is given"
    return Place(j, where.address, where.port, where.source), ""


def master_unresolvable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """MASTER_ADDR does not resolve or MASTER_PORT is not a port.

    Of a job of several nodes: the address is that of --master-addr, --rdzv-endpoint or their PET_
    variables where torchrun is started, else MASTER_ADDR (which torchrun does not read). The name
    is resolved as the job will do it, again and again for up to 5 seconds (or a third of
    ``--timeout``), since the DNS of a fresh job comes late; another try may cure it, so it exits
    with 75. localhost is wrong with several nodes: each would meet itself. ``--offline`` asks
    nothing.

    Fix: the name or address of the first node, as the platform sets it: $MASTER_ADDR, and
    --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT for torchrun.
    """
    place, why = _place(s, m)
    if place is None:
        yield NotApplicable(why)
        return
    found = [one for one in (_loopback(s, place), _bad_port(s, place), _no_name(s, place)) if one]
    resolves = s.host.master_resolves
    if found:
        yield from found
    elif resolves.value:
        shown = ", ".join(s.master.addresses.get(())) or "an address"
        yield Passed(f"{place.address} resolves to {shown}")
    elif resolves.unknown:
        yield Undecided(("host.master_resolves",), f"whether {place.address} resolves")
    else:
        yield NotApplicable("nobody looked whether the name resolves")


def _loopback(s: Snapshot, place: Place) -> Optional[Finding]:
    literal = meeting.is_loopback(place.address)
    addresses = s.master.addresses.get(())
    if not literal and not (_all_loopback(s) and (place.job.rank or 0) > 0):
        return None
    shown = place.address if literal else f"{place.address} (here {addresses[0]})"
    return Finding(
        summary=f"the master is {shown}: with several nodes, each would meet itself",
        observed=f"{shown}, by {place.source}",
        needed="a name or address of the first node that all nodes can reach",
        why="Loopback is this node on every node: the others are never found, and rendezvous "
        "ends in a timeout.",
        fix=("torchrun --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT …",
             "MASTER_ADDR: the host name of the first node, as the platform sets it"),
        evidence=evidence(s, *_PLACES, "env.MASTER_ADDR"),
    )  # fmt: skip


def _all_loopback(s: Snapshot) -> bool:
    addresses = s.master.addresses.get(())
    return bool(addresses) and all(meeting.is_loopback(one) for one in addresses)


def _bad_port(s: Snapshot, place: Place) -> Optional[Finding]:
    if not place.port or meeting.port_number(place.port):
        return None
    return Finding(
        summary=f"the master's port is {place.port!r}, which is no port",
        observed=f"{place.port!r}, by {place.source}",
        needed="a number from 1 to 65535",
        why="The store of the first node listens there, and every other node must know it.",
        fix=("export MASTER_PORT=23456 (PAI opens this one between nodes)",),
        evidence=evidence(s, *_PLACES, "env.MASTER_PORT"),
    )


def _no_name(s: Snapshot, place: Place) -> Optional[Finding]:
    if s.host.master_resolves.value is not False or meeting.is_loopback(place.address):
        return None
    said = s.host.master_resolves.source.rpartition(": ")[2]
    return Finding(
        summary=f"{place.address}, where the nodes meet, does not resolve here",
        observed=f"{place.address} (by {place.source}): {said}",
        needed="a name that this node can resolve",
        why="Every node must find the first one by this name; init_process_group and torchrun "
        "wait for it until their timeout.",
        fix=(
            f"getent hosts {place.address} on this node; start again if the name is new",
            "name the first node by its full name or its address",
        ),
        evidence=evidence(s, *_PLACES, "env.MASTER_ADDR"),
    )


def master_unreachable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The master does not answer yet.

    Of a job of several nodes whose name resolves. Other nodes than the first try one connection:
    a refusal shows that its host is there and only the port not open yet, which is usual while
    the first node still starts, and is only mentioned; no answer at all, or no route, warns:
    another network's address, a wrong interface, a firewall, a node that is gone. On the first
    node the address must be its own (a Service of Kubernetes has another) and the port free: one
    that is taken fails when a command is to be started. Another try may cure all of it (75).

    Fix: look at the address, the port and the network between the nodes: ip route get ADDRESS.
    """
    place, why = _place(s, m)
    if place is None:
        yield NotApplicable(why)
        return
    state, resolves = s.master.state, s.host.master_resolves
    if not resolves.known and not resolves.unknown or resolves.value is False:
        yield NotApplicable("the name does not resolve, or nobody looked")
    elif state.unknown and state.looked:
        yield Undecided(("master.state",), f"whether {place.address} answers")
    elif meeting.is_loopback(place.address) or _all_loopback(s):
        yield NotApplicable("the address is this node's loopback: another rule speaks")
    elif not state.known and not s.master.local.known:
        yield NotApplicable("nobody looked whether the master answers")
    else:
        found: List[Outcome] = list(_answers(s, place))
        yield from found or [Passed(_word(s, place))]


def _word(s: Snapshot, place: Place) -> str:
    if s.master.state.value == "connected":
        return f"{place.address} answers on port {place.port}"
    return f"port {place.port} is free here, where the nodes meet"


def _answers(s: Snapshot, place: Place) -> Iterator[Finding]:
    state, local, first = s.master.state.value, s.master.local.value, place.job.rank == 0
    if first and local is False:
        yield _elsewhere(s, place)
    if state == "taken":
        yield _taken(s, place)
    elif state in ("timed out", "unreachable"):
        yield _silent(s, place, state)
    elif state == "refused" and local and (place.job.rank or 0) > 0:
        yield _itself(s, place)
    elif state == "refused":
        yield _refused(s, place)


def _finding(
    s: Snapshot, place: Place, severity: str, summary: str, needed: str, why: str, *fix: str
) -> Finding:
    shown = ", ".join(s.master.addresses.get(())) or "its address"
    return Finding(
        summary=summary,
        observed=f"{place.address} ({shown}) port {place.port}: {s.master.state.get('not asked')}",
        needed=needed, why=why, fix=fix, severity=severity, evidence=evidence(s, *_PLACES),
    )  # fmt: skip


def _elsewhere(s: Snapshot, place: Place) -> Finding:
    service = "KUBERNETES_SERVICE_HOST" in place.job.env
    return _finding(
        s, place, INFO if service else WARN,
        f"this is the first node, and {place.address} is no address of it",
        "an address of this node",
        "The first node opens the store, and the others look for it at that address."
        + (" A Service of Kubernetes leads here all the same." if service else ""),
        f"getent hosts {place.address}; hostname -I: one of these addresses",
    )  # fmt: skip


def _taken(s: Snapshot, place: Place) -> Finding:
    starting = bool(place.job.launch)
    return _finding(
        s, place, FAIL if starting else WARN,
        f"port {place.port}, where the nodes meet, is taken on this node",
        "a free port",
        "The store cannot listen there: 'Address already in use'. What listens is another job, "
        "a process that was left over, or this job if it runs already.",
        f"ss -ltnp 'sport = :{place.port}' shows who; end it, or choose another MASTER_PORT",
    )  # fmt: skip


def _silent(s: Snapshot, place: Place, state: str) -> Finding:
    route = s.master.route.value
    how = "there is no route to it" if state == "unreachable" else "it does not answer at all"
    way = f" (from {route} here)" if route else ""
    return _finding(
        s, place, WARN, f"{place.address} resolves, and {how}{way}",
        "a network between this node and the first one",
        "A host that is there refuses a closed port at once. No answer means that the address is "
        "of a network this node is not on, of an interface that is not up, behind a firewall, or "
        "of a node that is gone.",
        f"ip route get {(s.master.addresses.get(()) or (place.address,))[0]}",
        "name the first node by its address on the network that all nodes share",
    )  # fmt: skip


def _itself(s: Snapshot, place: Place) -> Finding:
    return _finding(
        s, place, WARN,
        f"{place.address} is this node, which is not the first (its rank is {place.job.rank})",
        "the address of the first node, the same on all",
        "Where every node names itself (hostname -i), none meets another. Two nodes of a job on "
        "one host, with its network, share their addresses: then it is right.",
        "MASTER_ADDR: the first node's name, as the platform sets it",
    )  # fmt: skip


def _refused(s: Snapshot, place: Place) -> Finding:
    return _finding(
        s, place, INFO, f"{place.address} is there, and nobody listens on port {place.port} yet",
        "the first node's store, within the timeout of the job",
        "Usual while the first node is still starting; wrong if it stays so.",
        f"nc -vz {place.address} {place.port} again in a minute",
    )  # fmt: skip
