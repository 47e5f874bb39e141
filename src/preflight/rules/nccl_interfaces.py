"""Rules about the interfaces that NCCL and Gloo are told to use, or would choose."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Interface, Snapshot
from . import ifnames, interconnect
from .ifnames import Ways
from .interconnect import Interfaces
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

NCCL, GLOO, HCA = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA"
#: Kinds of interfaces that never lead to another node.
_INSIDE = ("bridge",)
_INSIDE_NAMES = ("docker", "cni", "virbr", "flannel", "cali", "cilium", "lxc", "veth", "kube-")


class Choice(NamedTuple):
    """A variable that is set, and the interfaces that its list comes to."""

    name: str
    text: str
    found: Tuple[Interface, ...]
    here: Interfaces
    ways: Ways
    mistakes: Tuple[str, ...]

    @property
    def gloo(self) -> bool:
        return self.name == GLOO

    @property
    def excludes(self) -> bool:
        return not self.gloo and ifnames.parse(self.text).exclude

    @property
    def lost(self) -> List[str]:
        """The names that Gloo would not find, each of which stops it."""
        return [one for one in ifnames.gloo(self.text) if one not in {r.name for r in self.found}]

    @property
    def works(self) -> bool:
        """Whether what is used of the list can be used: the first, by Gloo every one."""
        return not self.lost if self.gloo else bool(self.found) and ifnames.usable(self.found[0])

    @property
    def shown(self) -> str:
        return f"{self.name}={self.text!r}"


def _choices(s: Snapshot) -> Iterator[Choice]:
    """The variables that are set, on the interfaces that are known."""
    here = interconnect.interfaces(s)
    for name in (NCCL, GLOO):
        text = interconnect.setting(s, name).value
        if here is None or text is None or not ifnames.is_set(text):
            continue
        if name == NCCL and interconnect.no_nccl(s):
            continue
        ways = interconnect.ways(s, here)
        found = _selected(name, text, here, ways)
        mistakes = tuple(ifnames.mistakes(text, name == GLOO))
        yield Choice(name, text, tuple(found), here, ways, mistakes)


def _selected(name: str, text: str, here: Interfaces, ways: Ways) -> List[Interface]:
    if name == GLOO:
        by_name = {row.name: row for row in here.rows if ifnames.addresses(row)}
        return [by_name[one] for one in ifnames.gloo(text) if one in by_name]
    return ifnames.chosen(text, here.rows, ways)


def _silent(s: Snapshot, variables: Tuple[str, ...] = (NCCL, GLOO)) -> Optional[Outcome]:
    """Why there is nothing to judge; None when there is."""
    facts = [interconnect.setting(s, name) for name in variables]
    if any(one.unknown for one in facts):
        return Undecided(("env",), f"whether {' or '.join(variables)} is set")
    if not any(ifnames.is_set(one.value) for one in facts):
        return NotApplicable(f"neither {' nor '.join(variables)} is set")
    if interconnect.interfaces(s) is None:
        return Undecided(("network.interfaces",), "which interfaces there are")
    return None


def _proof(s: Snapshot, one: Choice) -> Tuple[str, ...]:
    return (
        *interconnect.proof(s, one.name),
        "host.interfaces", one.here.place, "host.routes_to_master",
        "job.nodes", "env.MASTER_ADDR",
    )  # fmt: skip


def _weight(s: Snapshot, name: str) -> str:
    """A wrong interface stops processes that talk to each other; a lone one never looks.

    A job on GPUs may well create no Gloo group at all (init_process_group("nccl") does not).
    """
    with_gpus = bool(s.gpus.value) and not interconnect.no_nccl(s)
    perhaps = name == GLOO and with_gpus
    return "" if interconnect.communicates(s) and not perhaps else WARN


def _best(s: Snapshot, here: Interfaces, ways: Ways) -> str:
    """The interface to name: the one towards the master, else what NCCL would take."""
    ways = ways._replace(before=False)  # one that works, not one that would be taken
    there = {row.name for row in ifnames.ordered(here.rows, ways) if row.kind != "loopback"}
    towards = [one for one in s.host.routes_to_master.get(()) if one in there]
    found = [r.name for r in ifnames.automatic(here.rows, ways) if r.kind != "loopback"]
    return next(iter(towards + found), "")


def _fix(s: Snapshot, one: Choice) -> Tuple[str, ...]:
    best = _best(s, one.here, one.ways)
    lines = [f"export {one.name}={best if one.gloo else '=' + best}"] if best else []
    return (*lines, f"unset {one.name}")


def _listed(rows: Tuple[Interface, ...]) -> str:
    words = []
    for row in rows[:12]:
        usable = ifnames.usable(row)
        state = "" if usable else " (down)" if row.state != "running" else " (no address)"
        words.append(row.name + state)
    return ", ".join(words) + (", …" if len(rows) > 12 else "") or "none"


def interface_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names no interface that is here.

    NCCL takes the names as beginnings (after "=" as whole names) and considers interfaces that
    run and have an address; when none of them matches it stops with "Bootstrap : no socket
    interface found". Gloo wants each name of its list whole, and stops at the first that is not
    there ("Unable to find address for: eth2"). A job of one process never looks: a warning; so is
    a list of Gloo's where there are GPUs, as such a job may do with NCCL alone.

    Fix: name an interface that exists in the container, or leave the choice to NCCL.
    """
    silent = _silent(s)
    if silent:
        yield silent
        return
    for one in _choices(s):
        if one.mistakes or one.excludes:
            continue  # other rules speak
        if one.works:
            yield Passed(f"{one.shown} is {one.found[0].name} here", one.name)
            continue
        names = ", ".join(one.lost) if one.gloo else one.text.lstrip("=")
        yield Finding(
            summary=f"{one.name} names {names}, and no usable interface is called so",
            observed=f"{one.shown}; interfaces here: {_listed(one.here.rows)}",
            needed="an interface that runs and has an address",
            why="Gloo stops: 'Unable to find address for …'."
            if one.gloo
            else "NCCL finds nothing to listen on: 'Bootstrap : no socket interface found' "
            "(older ones go on with a broken address: 'family … is neither AF_INET nor AF_INET6').",
            fix=_fix(s, one),
            evidence=evidence(s, *_proof(s, one)),
            subject=one.name,
            severity=_weight(s, one.name),
        )
    yield from _otherwise(s)


def _otherwise(s: Snapshot) -> Iterator[Outcome]:
    """An answer where no list was left to judge."""
    if all(one.mistakes or one.excludes for one in _choices(s)):
        yield NotApplicable("no list of interfaces to use, or one that another rule speaks of")


def interface_loopback(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Traffic between nodes is pinned to the loopback interface.

    NCCL's bootstrap listens on the first interface that the list selects, in the kernel's order,
    and "lo" is the kernel's first. So a list that names lo, and a list that excludes others but
    not lo ("^docker0"), both end on 127.0.0.1, which other nodes cannot reach.

    Fix: name the interface, or exclude lo as well: NCCL_SOCKET_IFNAME=^lo,docker.
    """
    silent = _silent(s)
    if silent:
        yield silent
        return
    for one in _choices(s):
        loops = [row for row in one.found if row.kind == "loopback"]
        if not loops or (not one.gloo and one.found[0].kind != "loopback"):
            if one.found:
                yield Passed(f"{one.shown} does not lead to the loopback interface", one.name)
            continue
        several = interconnect.several_nodes(s)
        if several is None:
            yield Undecided(("job.nodes",), f"whether {one.shown} is for one node", one.name)
        elif not several:
            yield Passed("one node: the loopback interface will do", one.name)
        else:
            yield _loopback(s, one)
    if not any(one.found for one in _choices(s)):
        yield NotApplicable("the list selects no interface: another rule speaks")


def _loopback(s: Snapshot, one: Choice) -> Finding:
    wanted = ifnames.parse(one.text)
    listed = ",".join(["lo", *(name for name, _port in wanted.items)])
    begin = "^=" if wanted.exact else "^"
    exclude = (f"export {one.name}={begin}{listed}",) if one.excludes else ()
    return Finding(
        summary=f"{one.shown} makes the nodes talk to each other over the loopback interface",
        observed=f"{one.shown} selects {', '.join(row.name for row in one.found[:4])}"
        " in this order",
        needed="an interface that other nodes can reach",
        why="The first interface selected is the one that NCCL listens on, and lo comes first."
        if not one.gloo
        else "Gloo opens a device on every interface of its list.",
        fix=(*exclude, *_fix(s, one)),
        evidence=evidence(s, *_proof(s, one)),
        subject=one.name,
        severity=_weight(s, one.name) if one.gloo else "",
    )


def interface_syntax(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A list of interfaces is written in a way that is not read as it was meant.

    There are no blanks, quotes, wildcards or semicolons in a list: they become part of a name.
    "^" and "=" stand at the very beginning, once, and hold for the whole list; Gloo knows neither.
    Where what was meant is chosen all the same, it is a warning; where nothing or another
    interface is, it stops the job. NCCL_IB_HCA is read in the same way.

    Fix: names, separated by commas: NCCL_SOCKET_IFNAME=eth0,eth1 or =eth0 or ^lo,docker.
    """
    variables = (NCCL, GLOO, HCA)
    facts = {name: interconnect.setting(s, name) for name in variables}
    if any(one.unknown for one in facts.values()):
        yield Undecided(("env",), f"whether one of {', '.join(variables)} is set")
        return
    there = {name: one.get("") for name, one in facts.items() if ifnames.is_set(one.value)}
    if not there:
        yield NotApplicable("no list of interfaces is set")
    for name, text in there.items():
        mistakes = ifnames.mistakes(text, name == GLOO)
        if not mistakes:
            yield Passed(f"{name}={text!r} is read as it is written", name)
            continue
        meant = ifnames.meant(text, name == GLOO)
        harmless, effect = _effect(s, name, text, meant)
        yield Finding(
            summary=f"{name}={text!r}: {mistakes[0]}",
            observed=f"{name}={text!r}: {'; '.join(mistakes)}{effect}",
            needed="names, separated by commas and nothing else" if meant else "names",
            why="The list is taken as it stands, character by character.",
            fix=(f"export {name}={meant}" if meant.strip("^=") else f"unset {name}",),
            evidence=evidence(
                s, *interconnect.proof(s, name), "host.interfaces", "host.infiniband"
            ),
            subject=name,
            severity=WARN if harmless or name == HCA else _weight(s, name),
        )


def _effect(s: Snapshot, name: str, text: str, meant: str) -> Tuple[bool, str]:
    """Whether what was meant comes out all the same (or cannot be told), and what comes out."""
    here = interconnect.interfaces(s)
    if name == HCA or here is None or not ifnames.is_set(meant):
        return True, ""
    ways = interconnect.ways(s, here)
    is_read = _selected(name, text, here, ways)
    wanted = _selected(name, meant, here, ways)
    if name == GLOO:
        whole = len(is_read) == len(ifnames.gloo(text))
        return whole, "" if whole else "; not every name is found"
    if not is_read:
        return False, "; no interface matches"
    same = bool(wanted) and wanted[0].name == is_read[0].name
    return same, f"; {is_read[0].name} is used"


def interface_unroutable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The interface that NCCL would take has no route to the master, or chance decides on it.

    NCCL's bootstrap takes the first interface of its selection, in the kernel's order, and tells
    its address to the other nodes. Where nothing names one interface (no list, or one that only
    excludes) and the first is not the one by which the master is reached, nodes wait for each
    other at addresses that do not meet: virtual functions, storage networks, bridges. An interface
    that is named outright is taken for a network of its own, and only mentioned.

    Fix: name the interface by which the master is reached.
    """
    here, several = interconnect.interfaces(s), interconnect.several_nodes(s)
    text, routes = interconnect.setting(s, NCCL), s.host.routes_to_master
    if several is False:
        yield NotApplicable("one node: no other has to be reached")
    elif several is None or here is None or text.unknown:
        missing = ("env",) if text.unknown else ("network.interfaces",)
        yield Undecided(("job.nodes",) if several is None else missing, "what NCCL would choose")
    elif interconnect.no_nccl(s):
        yield NotApplicable(interconnect.no_nccl(s) or "")
    else:
        yield _routed(s, here, text.get("")) if routes.known else _unrouted(s, here, text.get(""))


def _taken(s: Snapshot, here: Interfaces, text: str) -> List[Interface]:
    ways = interconnect.ways(s, here)
    if ifnames.is_set(text):
        return ifnames.chosen(text, here.rows, ways)
    return ifnames.automatic(here.rows, ways)


def _unrouted(s: Snapshot, here: Interfaces, text: str) -> Outcome:
    """Where the way to the master is not known, one candidate is certain."""
    taken = [row for row in _taken(s, here, text) if row.kind != "loopback"]
    if not taken:
        return NotApplicable("no interface is selected: another rule speaks")
    if len(taken) == 1 and not _inside(taken[0]):
        return Passed(f"there is one interface to choose: {taken[0].name}")
    if ifnames.is_set(text) and not ifnames.parse(text).exclude and not _inside(taken[0]):
        return Passed(f"{NCCL} names {taken[0].name}")
    return Undecided(("host.routes_to_master",), f"whether {taken[0].name} leads to the master")


def _routed(s: Snapshot, here: Interfaces, text: str) -> Outcome:
    routes = s.host.routes_to_master.get(())
    taken = [row for row in _taken(s, here, text) if row.kind != "loopback"]
    if not routes:
        look = ('ip route get "$MASTER_ADDR"',)
        return _unroutable(s, here, "the master has no route from here", text, look, WARN)
    if not taken:
        return NotApplicable("no interface is selected: another rule speaks")
    named = ifnames.is_set(text) and not ifnames.parse(text).exclude
    first, others = taken[0], [row.name for row in taken if row.name not in routes]
    if first.name in routes and (here.sure or not others):
        return Passed(f"{first.name} leads to the master")
    best = next((one for one in routes), "")
    fix = (f"export {NCCL}=={best}",)
    if named and not _inside(first):
        if not here.sure and any(row.name in routes for row in taken):
            return Passed(f"{NCCL} names {best}, which leads to the master")
        what = f"{NCCL} names {first.name}, and the master is reached by {best}"
        return _unroutable(s, here, what, text, fix, INFO)
    what = (
        f"NCCL would take {first.name}, and the master is reached by {best}"
        if here.sure or first.name not in routes
        else f"NCCL may take any of {len(taken)} interfaces, and {best} leads to the master"
    )
    return _unroutable(s, here, what, text, fix, WARN)


def _unroutable(
    s: Snapshot, here: Interfaces, what: str, text: str, fix: Tuple[str, ...], severity: str
) -> Finding:
    taken = ", ".join(row.name for row in _taken(s, here, text)[:6]) or "none"
    return Finding(
        summary=what,
        observed=f"{NCCL}={text!r} selects {taken}" if text else f"NCCL's own choice: {taken}",
        needed="an interface whose network is the same on all nodes",
        why="The first one's address is told to the other nodes, which connect to it.",
        fix=fix,
        evidence=evidence(
            s, *interconnect.proof(s, NCCL), "host.interfaces", here.place, "host.routes_to_master",
            "env.MASTER_ADDR", "job.nodes",
        ),
        severity=severity,
    )  # fmt: skip


def _inside(row: Interface) -> bool:
    """Whether an interface leads nowhere but to containers, or has an address of its own making."""
    local = [one for one in row.addresses.split() if not one.startswith(("fe80:", "169.254."))]
    return row.kind in _INSIDE or row.name.startswith(_INSIDE_NAMES) or not local


def no_interface(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """There is no interface that NCCL could use.

    Interfaces count that run and have an address (of the family of NCCL_SOCKET_FAMILY). A list
    that excludes every one of them stops each job of several processes; where only the loopback
    interface is left, one node can work and several cannot.

    Fix: exclude less; or give the container a network (docker run --network host, hostNetwork).
    """
    here, text = interconnect.interfaces(s), interconnect.setting(s, NCCL)
    if here is None or text.unknown:
        yield Undecided(
            ("network.interfaces",) if here is None else ("env",), "what NCCL would choose"
        )
    elif interconnect.no_nccl(s):
        yield NotApplicable(interconnect.no_nccl(s) or "")
    else:
        yield from _none(s, here, text.get(""), interconnect.several_nodes(s))


def _none(s: Snapshot, here: Interfaces, text: str, several: Optional[bool]) -> Iterator[Outcome]:
    listed = ifnames.is_set(text)
    taken = _taken(s, here, text)
    beside = [row for row in taken if row.kind != "loopback"]
    if listed and not ifnames.parse(text).exclude:
        yield NotApplicable(f"{NCCL} names interfaces: another rule speaks")
    elif beside or (taken and listed):
        yield Passed(f"NCCL finds {taken[0].name}")
    elif several is False and taken:
        yield Passed("one node: the loopback interface will do")
    elif several is None and taken:
        yield Undecided(("job.nodes",), "whether the loopback interface is enough")
    else:
        ways = interconnect.ways(s, here)
        what = f"{NCCL}={text!r} excludes" if listed else "there is"
        left = "every interface that could be used" if listed else "no interface NCCL could use"
        better = _best(s, here, ways)
        yield Finding(
            summary=f"{what} {left}" + (f" ({ways.family} only)" if ways.family else ""),
            observed=f"interfaces here: {_listed(here.rows)}",
            needed="an interface that runs and has an address",
            why="NCCL finds nothing to listen on: 'Bootstrap : no socket interface found'.",
            fix=(
                f"export {NCCL}=={better}" if listed and better else
                "docker run --network host … (Kubernetes: hostNetwork: true, or a working CNI)",
            ),
            evidence=evidence(
                s, *interconnect.proof(s, NCCL, "NCCL_SOCKET_FAMILY"),
                "host.interfaces", here.place,
                "job.nodes",
            ),
            severity=_weight(s, NCCL),
        )  # fmt: skip
