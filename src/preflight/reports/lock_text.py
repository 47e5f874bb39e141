"""`preflight lock` as text: a table of entries with a mark each, the findings, the verdict."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple

from ..rules import locked
from ..rules.locked import Held
from ..snapshot import Pin, Snapshot
from ..verdict import Report
from .text import Style, finding_lines, printable, verdict_line

#: More rows than this are shown only where something is wrong, unless all are asked for.
ROWS = 60
OK, OPEN, DRIFT, MISSING, OTHER, UNKNOWN = "ok", "open", "DRIFT", "missing", "-", "?"


class Row(NamedTuple):
    """One entry: its mark, what the lock says, what is installed, a remark."""

    mark: str
    entry: str
    installed: str
    note: str = ""


def render(report: Report, style: Style, everything: bool = False, explain: bool = False) -> str:
    """The report on lock files, ending in a newline."""
    lines: List[str] = []
    for number, lock in enumerate(report.snapshot.locks.get(())):
        path = printable(lock.path.get("lock"))
        if not lock.entries.known:
            why = lock.problem.value or lock.entries.unknown
            lines += [f"{path}: not read: {printable(why)}", ""]
            continue
        pins = lock.entries.get(())
        one = Held(lock, f"locks[{number}]", path, tuple(p for p in pins if not p.applies))
        lines.append(_title(one, len(pins)))
        if everything or not one.constraints:
            lines += _table(report.snapshot, one, style, everything)
        lines.append("")
    for each in report.findings:
        lines += [*finding_lines(each, style, explain), ""]
    return "\n".join([*lines, verdict_line(report, style)]) + "\n"


def _title(one: Held, count: int) -> str:
    kind = f"{one.lock.format.get('')}, {one.lock.role.get('')}"
    left = count - len(one.pins)
    rest = f", {left} not for this Python and platform" if left else ""
    return f"{one.path} ({kind}): {len(one.pins)} entries{rest}"


def _table(snapshot: Snapshot, one: Held, style: Style, everything: bool) -> Iterator[str]:
    pins = one.lock.entries.get(()) if everything else one.pins
    rows = [row(snapshot, pin, one.constraints) for pin in pins]
    shown = rows if everything or len(rows) <= ROWS else [r for r in rows if r.mark != OK]
    wide = min(48, max((len(each.entry) for each in shown), default=0))
    paint = {OK: "ok", DRIFT: "FAIL", MISSING: "FAIL", OPEN: "WARN", UNKNOWN: "?"}
    for each in shown:
        mark = style.paint(f"{each.mark:>7}", paint.get(each.mark, ""))
        text = f"  {mark}  {each.entry:<{wide}}  {each.installed}"
        yield (text + (f"  {printable(each.note)}" if each.note else "")).rstrip()
    if len(shown) < len(rows):
        yield f"       and {len(rows) - len(shown)} that are as the lock says (-v shows them)"


def row(snapshot: Snapshot, pin: Pin, bound: bool = False) -> Row:
    """An entry with its mark: ok, DRIFT, missing, open (leaves its version open), - (not here).

    `bound`: of constraints, which need not be installed and may leave versions open.
    """
    entry = printable(locked.written(pin) or pin.url)
    if pin.applies:
        return Row(OTHER, entry, "", pin.applies)
    there = locked.installed(snapshot, pin)
    build = snapshot.python.builds_conda.get({}).get(pin.name, "") if pin.manager else ""
    pinned = not locked.is_open(pin)
    if there is None:
        mark = MISSING if locked.complete(snapshot) and pin.name and not bound else UNKNOWN
        return Row(mark if pinned or bound or mark == MISSING else OPEN, entry, "")
    if not locked.admits(pin, there, build):
        return Row(DRIFT, entry, printable(there))
    return Row(OK if pinned or bound else OPEN, entry, printable(there))
