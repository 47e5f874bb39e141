"""Rules about NCCL's variables: does anything read them, what do they turn off, what is preset."""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..matrix import Matrix, Row, numbers
from ..snapshot import Snapshot
from . import common, interconnect
from .linked import first
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: What the masked value of a secret looks like (probes/system.py).
_MASKED = "(masked)"
#: GPUs of systems whose nodes share one NVLink network.
_MULTI_NODE_NVLINK = re.compile(r"\bGB[23]00\b|\bGB[23]\d\d\b")
#: NCCL stops at a word of NCCL_ALGO or NCCL_PROTO that it does not know since this release.
_STRICT = (2, 24)


class Readers(NamedTuple):
    """The names that NCCL and its plugins read; `names` None: no library was looked into."""

    names: Optional[FrozenSet[str]]
    file: str
    version: str


def _readers(s: Snapshot) -> Readers:
    rows = s.network.readers.get(())
    names = frozenset(name for row in rows for name in row.names.split())
    return Readers(names or None, rows[0].file if rows else "", interconnect.nccl_version(s))


def _set(s: Snapshot) -> Dict[str, str]:
    """The NCCL_* variables, from the environment and nccl.conf."""
    both: Mapping[str, str] = {**s.network.conf.get({}), **s.env.get({})}
    return {name: both[name] for name in sorted(both) if name.startswith("NCCL_")}


def variable_unknown(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """An NCCL_* variable that nothing here reads, or a value that it does not take.

    NCCL ignores a variable that it does not know, silently. Which ones it knows is read from the
    library itself (the names stand in its data), those of its plugins from theirs; torch, base
    images and builds have some of their own. Where the library is not at hand, NVIDIA's guide
    decides, by the release, and a name that is in no list is only judged when it is close to one.
    Values are held against the guide: a number that is none is read as 0, without a word. Names
    in the environment that were renamed or invented are left to `platform/variable-renamed`.

    Fix: the name or value that is suggested.
    """
    if s.env.unknown:
        yield Undecided(("env",), "which NCCL_* variables are set")
        return
    others = {row["name"] for row in m.renamed()} & set(s.env.get({}))
    there = {name: text for name, text in _set(s).items() if name not in others}
    if not there:
        yield NotApplicable("no NCCL_* variable is set that another rule does not speak of")
        return
    readers, table = _readers(s), m.nccl_variables()
    outcomes = [_judged(s, m, table, readers, name, text) for name, text in there.items()]
    found = [one for one in outcomes if isinstance(one, Finding)]
    unsure = [one for one in outcomes if isinstance(one, Undecided)]
    yield from found
    if unsure:
        names = ", ".join(one.note for one in unsure[:4])
        yield Undecided(("network.readers",), f"whether NCCL reads {names}")
    elif not found:
        who = f"NCCL {readers.version}".strip()
        yield Passed(f"{who} reads what is set, or another does: {', '.join(list(there)[:6])}")


def _judged(
    s: Snapshot, m: Matrix, table: Mapping[str, Row], readers: Readers, name: str, text: str
) -> Optional[Outcome]:
    """What is to be said of one variable; None for nothing."""
    row = table.get(name, {})
    if row.get("renamed_since"):
        return _torchs(s, name, row)
    if readers.names is not None and name in readers.names:
        return _value(s, name, text, row, readers)
    other = m.nccl_reader(name)
    if other and (other["who"] != "nccl" or readers.names is None):
        return None
    if readers.names is not None:
        return _unread(s, name, row, readers, sorted(readers.names))
    return _by_the_guide(s, table, name, text, readers)


def _by_the_guide(
    s: Snapshot, table: Mapping[str, Row], name: str, text: str, readers: Readers
) -> Optional[Outcome]:
    """Without the library: by release where that is known, else by the name alone."""
    row, version = table.get(name, {}), readers.version
    known = [one for one, each in table.items() if each["kind"] != "none"]
    if row and row["kind"] != "none" and _in_release(row, version) is not False:
        return _value(s, name, text, row, readers)
    if row or _near(name, known):
        return _unread(s, name, row, readers, known)
    return Undecided(("network.readers",), name)


def _in_release(row: Row, version: str) -> Optional[bool]:
    """Whether a release reads a variable; None where neither of both says so."""
    have = numbers(version)
    if not have or not (row.get("since") or row.get("until")):
        return None
    gone = row.get("until") and have >= numbers(str(row["until"]))
    return not gone and have >= numbers(str(row.get("since", "0")))


def _unread(s: Snapshot, name: str, row: Row, readers: Readers, known: Sequence[str]) -> Finding:
    nccl = f"NCCL {readers.version}".strip()
    instead = str(row.get("instead", ""))
    near = str(row.get("renamed", "")) or ("" if instead else _near(name, known))
    history = ""
    if row.get("since") and _in_release(row, readers.version) is False and not row.get("until"):
        history = f"; it came with NCCL {row['since']}"
    elif row.get("until"):
        history = f"; NCCL had it until {row['until']}"
    fix = [f"export {near}={_shown(s, name)}"] if near else []
    fix += [instead] if instead else []
    return Finding(
        summary=f"{name} is read by nothing here" + (f": {near}?" if near else ""),
        observed=f"{name} is set, and {nccl} does not know it{history}",
        needed=f"{near}, which it reads" if near else "a variable that it reads",
        why="NCCL ignores what it does not know without a word: the setting has no effect.",
        fix=(*fix, f"unset {name}"),
        evidence=evidence(s, *interconnect.proof(s, name), *_library_places(s)),
        subject=name,
        sources=tuple(str(one) for one in row.get("source", ())),
    )


def _shown(s: Snapshot, name: str) -> str:
    text = interconnect.setting(s, name).get("")
    return text if re.fullmatch(r"[\w.,:=^/+-]{1,60}", text) else "…"


def _library_places(s: Snapshot) -> Tuple[str, ...]:
    loaded = first(s, "libnccl.so")
    return (*(loaded.places("path", "version") if loaded else ()), "network.readers")


def _near(name: str, known: Sequence[str]) -> str:
    """The name that is most like it; "" where none is."""
    for key in (_bare, _sorted):  # joined or parted otherwise; in another order
        same = [one for one in known if key(one) == key(name)]
        if same:
            return same[0]
    import difflib

    beginning = len("NCCL_")
    found = difflib.get_close_matches(name[beginning:], [k[beginning:] for k in known], 1, 0.8)
    return "NCCL_" + found[0] if found else ""


def _bare(name: str) -> str:
    return name.replace("_", "")


def _sorted(name: str) -> str:
    return " ".join(sorted(name.split("_")))


def _torchs(s: Snapshot, name: str, row: Row) -> Optional[Outcome]:
    """A variable of torch's that has another name in newer releases."""
    torch = next((one for one in s.frameworks.get(()) if one.name.value == "torch"), None)
    version = numbers(torch.version.get("")) if torch else ()
    since = str(row["renamed_since"])
    if not version:
        return Undecided(("frameworks",), f"{name} (torch's)")
    if version < numbers(since):
        return None
    new = str(row["renamed"])
    return Finding(
        summary=f"{name} is called {new} since torch {since}",
        observed=f"{name} is set, torch is {torch.version.value if torch else ''}",
        needed=new,
        why="torch reads the old name too for now, and warns at every start.",
        fix=(f"export {new}={_shown(s, name)}", f"unset {name}"),
        evidence=evidence(s, *interconnect.proof(s, name)),
        subject=name,
        sources=tuple(str(one) for one in row["source"]),
        severity=INFO,
    )


# -- values ---------------------------------------------------------------------------------


def _value(s: Snapshot, name: str, text: str, row: Row, readers: Readers) -> Optional[Outcome]:
    """What is wrong with a value; None where nothing is, or NCCL takes it for not set."""
    if not row or not text or text == _MASKED:
        return None
    kind = str(row["kind"])
    if kind in ("flag", "number"):
        effect, needed = _number(name, text, row, readers.version)
    elif kind == "choice":
        effect, needed = _choice(text, row)
    elif kind == "tokens":
        effect, needed = _tokens(text, row, readers.version)
    else:
        return None
    if not effect:
        return None
    return Finding(
        summary=f"{name}={text!r} {effect}",
        observed=f"{name}={text!r}",
        needed=needed,
        why="NCCL says nothing of it, or says it in its debug output only."
        if kind != "tokens"
        else "Since 2.24 NCCL stops at a word in this list that it does not know.",
        fix=(f"unset {name}", f"or set it to {needed}"),
        evidence=evidence(s, *interconnect.proof(s, name), *_library_places(s)),
        subject=name,
        sources=tuple(str(one) for one in row["source"]),
        severity=INFO if name == "NCCL_DEBUG" else "",
    )


def _number(name: str, text: str, row: Row, version: str) -> Tuple[str, str]:
    low, _, high = str(row.get("bounds", "")).partition("..")
    if name in ("NCCL_MAX_CTAS", "NCCL_MIN_CTAS") and () < numbers(version) < (2, 25):
        high = "32"
    wanted = "0 or 1" if row["kind"] == "flag" else "a number"
    if low:
        wanted = f"{low} to {high}" if high else f"{low} or more"
    value = interconnect.number(text)
    if not re.match(r"\s*[+-]?\d", text):
        return "is no number and is read as 0", wanted
    below = low and value is not None and value < int(low)
    above = high and value is not None and value > int(high)
    return ("is outside of what NCCL takes" if below or above else "", wanted)


def _choice(text: str, row: Row) -> Tuple[str, str]:
    choices = [str(one) for one in row["choices"]]
    if text.strip().upper() in (one.upper() for one in choices):
        return "", ""
    return "is none of the values that NCCL takes", ", ".join(choices[:10])


def _tokens(text: str, row: Row, version: str) -> Tuple[str, str]:
    """A list of words, since 2.24 for each function: "ring;allreduce:^tree"."""
    known = {str(one).upper() for one in row["choices"]}
    words = []
    for part in text.split(";"):
        listed = part.rpartition(":")[2].strip().lstrip("^")
        words += [one.strip() for one in listed.split(",") if one.strip()]
    strange = [one for one in words if one.upper() not in known]
    if not strange or () < numbers(version) < _STRICT:
        return "", ""
    names = ", ".join(str(one) for one in row["choices"])
    return f"has a word that NCCL does not know: {strange[0]}", f"words of {names}"


# -- what is turned off -----------------------------------------------------------------------


def p2p_disabled(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NCCL_P2P_DISABLE or NCCL_SHM_DISABLE is left set.

    Both are meant for finding a fault. Without P2P the GPUs of a node talk through host memory,
    without shared memory through the network; NVLink lies idle. With one GPU nothing is lost, and
    GeForce cards from the 40 series on have no P2P to lose.

    Fix: cure what it worked around (PCIe ACS or the IOMMU: iommu=pt, ACS off in the BIOS; a larger
    /dev/shm), and unset it.
    """
    if s.env.unknown:
        yield Undecided(("env",), "whether NCCL_P2P_DISABLE or NCCL_SHM_DISABLE is set")
        return
    off = [n for n in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if interconnect.switched_on(s, n)]
    if interconnect.setting(s, "NCCL_P2P_LEVEL").get("").strip().upper() in ("LOC", "0"):
        off.append("NCCL_P2P_LEVEL")
    hidden, count = common.gpu_hidden(s), _gpus_per_node(s, m)
    if not off or hidden:
        reason = hidden or "neither NCCL_P2P_DISABLE nor NCCL_SHM_DISABLE is set"
        yield Passed(reason) if not hidden and s.env.known and _any(s) else NotApplicable(reason)
    elif count == 1:
        yield NotApplicable("one GPU: it has no peer")
    elif count is None:
        yield Undecided(("gpus",), "how many GPUs the job has on a node")
    else:
        shown = ", ".join(f"{name}={interconnect.setting(s, name).value}" for name in off)
        geforce = off == ["NCCL_P2P_DISABLE"] and _without_p2p(s)
        yield Finding(
            summary=f"{shown}: the {count} GPUs of a node do not talk to each other directly",
            observed=shown,
            needed="not set",
            why="These cards have no P2P anyway."
            if geforce
            else "Their traffic takes the way through host memory or the network: it works, "
            "several times slower.",
            fix=(
                f"unset {' '.join(off)}",
                "where it hangs without: turn PCIe ACS off, boot with iommu=pt, enlarge /dev/shm",
            ),
            evidence=evidence(s, *interconnect.proof(s, *off), "gpus", "job.gpus_per_node"),
            severity=INFO if geforce else "",
        )


def _any(s: Snapshot) -> bool:
    return any(name.startswith("NCCL_") for name in s.env.get({}))


def _gpus_per_node(s: Snapshot, m: Matrix) -> Optional[int]:
    if s.job.gpus_per_node.known:
        return s.job.gpus_per_node.value
    counts = [one.gpu.count.get(1) for one in common.devices(s, m)] if s.gpus.known else []
    return sum(counts) or None


def _without_p2p(s: Snapshot) -> bool:
    names = [one.name.get("") for one in s.gpus.get(())]
    return bool(names) and all(re.search(r"GeForce RTX [45]0\d\d", one) for one in names)


def cumem_disabled(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NCCL_CUMEM_ENABLE=0 costs features.

    Without cuMem allocations there is no NVLink between nodes (GB200 and the like: a warning
    there), no NVLink SHARP and no user buffers in symmetric memory. Some frameworks set it.

    Fix: unset it.
    """
    text = interconnect.setting(s, "NCCL_CUMEM_ENABLE")
    if text.unknown:
        yield Undecided(("env",), "whether NCCL_CUMEM_ENABLE is set")
    elif not text.value:
        yield NotApplicable("NCCL_CUMEM_ENABLE is not set")
    elif common.gpu_hidden(s):
        yield NotApplicable(common.gpu_hidden(s) or "")
    elif interconnect.number(text.value) != 0:
        yield Passed(f"NCCL_CUMEM_ENABLE={text.value}")
    else:
        names = [one.name.get("") for one in s.gpus.get(())]
        multi = any(_MULTI_NODE_NVLINK.search(one) for one in names)
        lost = multi and interconnect.several_nodes(s)
        yield Finding(
            summary="NCCL_CUMEM_ENABLE=0: no NVLink between the nodes"
            if lost
            else "NCCL_CUMEM_ENABLE=0 turns NVLink SHARP and registered buffers off",
            observed=f"NCCL_CUMEM_ENABLE={text.value}",
            needed="not set (NCCL finds out whether the system can do it)",
            why="Multi-node NVLink, NVLink SHARP and symmetric memory need cuMem allocations.",
            fix=("unset NCCL_CUMEM_ENABLE",),
            evidence=evidence(s, *interconnect.proof(s, "NCCL_CUMEM_ENABLE"), "gpus", "job.nodes"),
            severity=WARN if lost else "",
        )


# -- what the platform presets -----------------------------------------------------------------


def preset_differs(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NCCL's settings differ from those that the platform gives this kind of node.

    The presets of PAI contradict each other, so the one is taken that belongs to the RDMA devices
    here: Mellanox cards are Lingjun's, erdma is eRDMA. Names of interfaces and devices are not
    compared: which ones exist is judged by other rules. To differ is no fault, and worth a line.

    Fix: the platform's values, unless they were changed on purpose.
    """
    found = interconnect.rdma(s)
    pai = s.job.platform.get("").startswith("pai") or s.variable("DLC_JOB_ID").known
    presets = m.nccl_presets() if found and pai else []
    preset = next((row for row in presets if found and row.get("module") in found.modules), None)
    if s.env.unknown:
        yield Undecided(("env",), "what is set for NCCL")
    elif not preset:
        yield NotApplicable("no platform whose presets are known, or no RDMA device of theirs")
    elif interconnect.several_nodes(s) is False:
        yield NotApplicable("one node: its network is not used")
    else:
        differences = _differences(s, preset)
        if not differences:
            yield Passed(f"as {preset['name']} has it")
            return
        yield Finding(
            summary=f"NCCL is set otherwise than {preset['name']} presets it: {differences[0]}",
            observed="; ".join(differences),
            needed=", ".join(str(one) for one in preset["settings"]),
            why="The values fit the switches: without them it is slower, or breaks off.",
            fix=tuple(
                f"export {one}" for one in preset["settings"] if _differs(s, str(one))
            ) or ("unset " + " ".join(str(one) for one in preset.get("without", ())),),
            evidence=evidence(
                s,
                *interconnect.proof(s, *(str(o).partition("=")[0] for o in preset["settings"])),
                "host.infiniband", "job.platform", "env.DLC_JOB_ID",
            ),
            sources=tuple(str(one) for one in preset["source"]),
        )  # fmt: skip


#: Judged by what there is, not by how it is called; and a matter of taste.
_NOT_COMPARED = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG")


def _differs(s: Snapshot, preset: str) -> bool:
    name, _, wanted = preset.partition("=")
    return name not in _NOT_COMPARED and interconnect.setting(s, name).value != wanted


def _differences(s: Snapshot, preset: Row) -> List[str]:
    found = []
    for one in preset["settings"]:
        name, _, wanted = str(one).partition("=")
        if _differs(s, str(one)):
            value = interconnect.setting(s, name).value
            said = "is not set" if value is None else f"is {value!r}"
            found.append(f"{name} {said}, there {wanted}")
    for name in preset.get("without", ()):
        if interconnect.setting(s, str(name)).known:
            found.append(f"{name} is set, and has no effect there")
    return found
