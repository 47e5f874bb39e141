"""The report as plain text for a terminal: the chain, the findings, the verdict."""

from __future__ import annotations

import re
import textwrap
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import __version__
from .. import snapshot as s
from ..matrix import cuda_of_tag
from ..rules import storage
from ..rules.registry import Evidence, Finding, NotApplicable, Outcome, Passed, Undecided
from ..verdict import LOCK, MAIN, Judged, Missing, Report
from . import room

#: The chain, top to bottom, and what each link is called.
RUNGS = (
    ("driver", "driver"),
    ("libcuda", "libcuda"),
    ("cuda", "CUDA"),
    ("framework", "framework"),
    ("link", "libraries"),
    ("nccl", "NCCL"),
    ("gpu", "GPU"),
    ("health", "GPU health"),
    ("container", "container"),
    ("host", "host"),
    ("platform", "platform"),
    ("storage", "storage"),
    ("lock", "locks"),
)
#: Links that are left out when nothing is to be said of them.
OPTIONAL = ("health", "container", "host", "link", "nccl", "lock", "platform", "storage")
#: The rule whose answer is worth a word beside a link that holds.
TELLING = {"cuda": "driver/too-old-for-cuda", "gpu": "gpu/no-kernels-for-architecture"}
MARKS = {"fail": "FAIL", "warn": "WARN", "unknown": "?", "info": "info", "pass": "ok", "": "-"}
COLOURS = {"FAIL": "31;1", "WARN": "33;1", "?": "35", "ok": "32", "info": "36", "PASS": "32;1",
           "UNKNOWN": "35;1"}  # fmt: skip


class Style(NamedTuple):
    """How to print: colour or not, and how wide."""

    colour: bool = False
    width: int = 80

    def paint(self, text: str, mark: str) -> str:
        code = COLOURS.get(mark, "")
        return f"\033[{code}m{text}\033[0m" if self.colour and code else text


PLAIN = Style()


def render(report: Report, style: Style = PLAIN, explain: bool = False) -> str:
    """The report as text, ending in a newline."""
    lines = [_title(report), ""]
    lines += _chain(report, style)
    for one in report.findings:
        lines += [""] + finding_lines(one, style, explain)
    if explain:
        lines += _unknowns(report, style)
        lines += _replaced(report, style)
    lines += ["", verdict_line(report, style)]
    return "\n".join(lines) + "\n"


def _title(report: Report) -> str:
    what = {"live": "this machine", "directory": report.snapshot.root}
    origin = printable(what.get(report.snapshot.origin, "a described environment"))
    return f"preflight {__version__} (matrix of {report.matrix_date}) looked at {origin}"


# -- the chain ------------------------------------------------------------------------------


def _chain(report: Report, style: Style) -> List[str]:
    lines: List[str] = []
    for rung, name in RUNGS:
        mark, note = _state(report, rung)
        seen = _seen(report.snapshot, rung)
        told = rung == "platform" and report.snapshot.job.platform.known
        if rung in OPTIONAL and mark in ("-", "?") and not told:
            continue
        head = f"  {style.paint(f'{mark:>4}', mark)}  {name:<10} "
        lines += _wrapped(seen + (f"; {note}" if note else ""), head, 18, style)
    return lines


def _state(report: Report, rung: str) -> Tuple[str, str]:
    """The mark of a link and a word on how it holds."""
    severities = [one.severity for one in report.findings if one.rule.rung == rung and one.counts]
    outcomes = [one for rule, one in report.outcomes if rule.rung == rung]
    for severity in ("fail", "warn"):
        if severity in severities:
            return MARKS[severity], ""
    blocked = [one for one in outcomes if isinstance(one, Undecided)]
    passed = [one.note for one in outcomes if isinstance(one, Passed)]
    telling = [
        one.note
        for rule, one in report.outcomes
        if isinstance(one, Passed) and TELLING.get(rung) == rule.name
    ]
    looked = {(one.rule, one.fact) for one in report.unknowns if one.looked}
    if blocked and (not passed or any(rule == r.name for r, _ in report.outcomes
                                      for rule, _fact in looked if r.rung == rung)):  # fmt: skip
        return MARKS["unknown"], blocked[0].note + " is not known"
    if passed:
        return MARKS["pass"], telling[0] if telling else ""
    return MARKS[""], ""


def _seen(snapshot: s.Snapshot, rung: str) -> str:
    return {
        "driver": _driver,
        "libcuda": _libcuda,
        "cuda": _cuda,
        "framework": _frameworks,
        "gpu": _gpus,
        "health": room.health,
        "host": room.host,
        "container": _container,
        "link": _libraries,
        "nccl": _nccl,
        "storage": _storage,
        "lock": _locks,
        "platform": _platform,
    }[rung](snapshot)


def _driver(snapshot: s.Snapshot) -> str:
    driver = snapshot.driver
    if driver.version.known:
        return _fact(driver.version)
    if driver.visible.value is False or driver.version.absent:
        return "none that can be seen"
    return "unknown: " + (driver.version.unknown or driver.nvml.unknown or "not looked at")


def _libcuda(snapshot: s.Snapshot) -> str:
    driver = snapshot.driver
    if driver.libcuda.value == "missing":
        return "none found"
    words = [f"CUDA {driver.cuda.value}"] if driver.cuda.known else []
    words += [_fact(driver.libcuda)] if driver.libcuda.known else []
    words += [driver.libcuda_path.value] if driver.libcuda_path.value else []
    if not driver.cuda.known and driver.cuda.looked and driver.cuda.unknown:
        words.append(driver.cuda.unknown)
    return ", ".join(words) or "unknown: " + (driver.libcuda.unknown or "not looked at")


def _cuda(snapshot: s.Snapshot) -> str:
    builds = [one for one in snapshot.frameworks.get(()) if one.cuda.known]
    if builds:
        return ", ".join(f"{one.cuda.value} for {one.name.value}" for one in builds)
    unread = [one for one in snapshot.frameworks.get(()) if not one.cuda.absent]
    if unread:
        told = [(cuda_of_tag(one.version.get("").partition("+")[2]), one) for one in unread]
        words = [f"{cuda or 'unknown'} for {one.name.value}" for cuda, one in told]
        return ", ".join(words)
    return "no framework needs it" if snapshot.frameworks.known else "unknown"


def _frameworks(snapshot: s.Snapshot) -> str:
    found = snapshot.frameworks
    if found.value:
        return ", ".join(_framework(one) for one in found.get(()))
    if found.known or found.absent:
        return "none in " + (snapshot.python.executable.value or "any Python here")
    return "unknown: " + (found.unknown or "not looked at")


def _framework(one: s.Framework) -> str:
    cuda = f"CUDA {one.cuda.value}" if one.cuda.known else "no CUDA" if one.cuda.absent else ""
    inside = ", ".join(filter(None, (cuda, one.build.value)))
    name = " ".join(filter(None, (one.name.value, one.version.value)))
    return f"{name} ({inside})" if inside else name


def _gpus(snapshot: s.Snapshot) -> str:
    found = snapshot.gpus
    if not found.known:
        return "unknown: " + (found.unknown or "none")
    counts: dict[str, int] = {}
    for gpu in found.get(()):
        name = gpu.name.value or "GPU"
        capability = gpu.compute_capability.value
        label = f"{name} (sm_{capability.replace('.', '')})" if capability else name
        counts[label] = counts.get(label, 0) + gpu.count.get(1)
    text = ", ".join(f"{n} x {label}" if n > 1 else label for label, n in counts.items())
    return (text or "none") + (" (assumed)" if found.assumed else "")


def _libraries(snapshot: s.Snapshot) -> str:
    return f"{len(snapshot.libraries.get(()))} looked at"


def _nccl(snapshot: s.Snapshot) -> str:
    known = [one.nccl.value for one in snapshot.frameworks.get(()) if one.nccl.value]
    return ", ".join(dict.fromkeys(known)) or "not known"


def _locks(snapshot: s.Snapshot) -> str:
    return ", ".join(one.path.get("lock") for one in snapshot.locks.get(())) or "none"


def _storage(snapshot: s.Snapshot) -> str:
    return "; ".join(map(storage.seen, snapshot.storage.paths.get(()))) or "no path is declared"


def _platform(snapshot: s.Snapshot) -> str:
    """Which, by what, and how large the job is."""
    job = snapshot.job
    if not job.platform.known:
        return "none that is recognised"
    name = " ".join(filter(None, (job.platform.value, job.kind.value)))
    words = [f"{name} (by {job.platform.source})" if job.platform.source else name]
    if job.nodes.known:
        rank = f" {job.node_rank.value} of" if job.node_rank.known else ""
        words.append(f"node{rank} {job.nodes.value}" if rank else f"{job.nodes.value} node(s)")
    words += [f"within {', '.join(job.launchers.get(()))}"] if job.launchers.value else []
    return ", ".join(words)


def _container(snapshot: s.Snapshot) -> str:
    return ", ".join(snapshot.driver.device_nodes.get(())) or "devices"


def _fact(fact: s.Fact[str]) -> str:
    words = str(fact.value) + (" (assumed)" if fact.assumed else "")
    for other in fact.differs:
        words += f" ({other.source} says {other.value})"
    return words


# -- findings -------------------------------------------------------------------------------


def finding_lines(one: Judged, style: Style, explain: bool) -> List[str]:
    """A finding: its summary and fix, with `explain` everything it rests on."""
    mark = MARKS[one.severity]
    head = f"{style.paint(mark, mark)} {one.rule.name}: "
    lines = _wrapped(one.finding.summary, head, 2, style)
    if one.waived:
        lines += _labelled("waived", f"{one.waived.reason} (until {one.waived.until})", style)
    if explain:
        return lines + _explained(one, style)
    if not one.waived:
        for number, fix in enumerate(one.finding.fix):
            lines += _labelled("or" if number else "fix", fix, style)
    return lines


def _explained(one: Judged, style: Style) -> List[str]:
    finding: Finding = one.finding
    lines = _labelled("seen", finding.observed, style)
    for proof in finding.evidence:
        lines += _labelled("", _proof(proof), style)
    lines += _labelled("needed", finding.needed, style)
    lines += _labelled("why", finding.why, style)
    for number, fix in enumerate(finding.fix):
        lines += _labelled("or" if number else "fix", fix, style)
    for number, reference in enumerate(one.references):
        text = " ".join(filter(None, reference))
        lines += _labelled("" if number else "source", text, style)
    return lines


def _proof(proof: Evidence) -> str:
    assumed = " (assumed)" if proof.assumed and "assumed" not in proof.source else ""
    return f"{proof.fact} = {proof.value}  [{proof.source}]{assumed}"


def _replaced(report: Report, style: Style) -> List[str]:
    if not report.replaced:
        return []
    lines = ["", "rows of the matrix that overlays replace:"]
    for one in report.replaced:
        lines += _wrapped(one, "  ", 4, style)
    return lines


def _unknowns(report: Report, style: Style) -> List[str]:
    """What is not known, once a fact; on a machine only what was looked for in vain."""
    described = report.snapshot.origin == "described"
    seen: Dict[str, Missing] = {}
    for one in report.unknowns:
        if one.looked or described:
            seen.setdefault(one.fact or one.note, one)
    lines = ["", "not known:"] if seen else []
    for name, one in seen.items():
        lines += _wrapped(f"{name} ({one.reason}); to know it: {one.how_to_know}", "  ", 4, style)
    return lines


def verdict_line(report: Report, style: Style = PLAIN) -> str:
    """The verdict and its reason on one line."""
    word = report.verdict.upper()
    return style.paint(word, word) + ": " + printable(verdict_words(report))


def verdict_words(report: Report) -> str:
    """The verdict in one clause: the worst finding, what is unknown, or why it passes."""
    worst = next((one for one in report.findings if one.counts), None)
    if report.verdict in ("fail", "warn") and worst:
        return _worst(worst)
    if report.verdict == "unknown":
        return _undecided(report)
    return "; ".join(_runs(report)) or "nothing found that would stop the job"


def _runs(report: Report) -> List[str]:
    """What runs, and in which way: "torch 2.8.0+cu128 runs natively"."""
    return [
        f"{one.subject} {one.note}"
        for rule, one in report.outcomes
        if rule.name == "driver/too-old-for-cuda" and isinstance(one, Passed)
    ]


def _worst(worst: Judged) -> str:
    fix = f"; fix: {worst.finding.fix[0]}" if worst.finding.fix else ""
    return f"{worst.rule.name}: {worst.finding.summary}{fix}"


def _undecided(report: Report) -> str:
    found = report.snapshot.frameworks
    of_locks = all(rule.rung == LOCK for rule, _one in report.outcomes)
    if (found.value == () or found.absent) and not of_locks:
        where = report.snapshot.python.executable.value or "any Python here"
        return f"no framework found in {where}: nothing to judge"
    blocking: Optional[Missing] = next((one for one in report.unknowns if one.looked), None)
    if blocking:
        return f"{blocking.note}: {blocking.reason}; to know it: {blocking.how_to_know}"
    asked = next((one for one in report.unknowns if one.rule == MAIN), None)
    if asked:
        return f"{asked.note}; to know it: {asked.how_to_know}"
    return "the facts given decide nothing"


# -- layout ---------------------------------------------------------------------------------


def _labelled(label: str, text: str, style: Style) -> List[str]:
    return _wrapped(text, f"  {label:<7} ", 10, style)


_CODE = re.compile("\033\\[[0-9;]*m")


def printable(text: str) -> str:
    """Without control characters: what is looked at may not write to the terminal itself."""
    return "".join(char if char.isprintable() else " " for char in text)


def _wrapped(text: str, head: str, indent: int, style: Style) -> List[str]:
    plain = _CODE.sub("", head)
    wrapper = textwrap.TextWrapper(
        width=max(40, style.width), initial_indent=" " * min(len(plain), 60),
        subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    lines = wrapper.wrap(printable(text)) or [""]
    return [head + lines[0].lstrip(), *lines[1:]]


def answers(report: Report, style: Style = PLAIN) -> str:
    """Every rule's answer in a line or two, for `-v`."""
    lines = ["", "rules:"]
    for rule, outcome in report.outcomes:
        lines += _wrapped(f"{rule.name}: {_answer(outcome)}", "  ", 4, style)
    return "\n".join(lines) + "\n"


def _answer(outcome: Outcome) -> str:
    if isinstance(outcome, NotApplicable):
        return "not applicable: " + outcome.why
    if isinstance(outcome, Undecided):
        return "unknown: " + outcome.note
    return "ok: " + outcome.note if isinstance(outcome, Passed) else "found: " + outcome.summary
