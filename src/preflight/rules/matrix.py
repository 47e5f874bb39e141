"""Rules about the tables that everything here is judged by."""

from __future__ import annotations

import re
from typing import Iterator

from ..matrix import Matrix
from ..snapshot import Snapshot
from .registry import Finding, NotApplicable, Outcome

DAYS = 365
_DAY = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")


def outdated(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The tables this preflight judges by are older than a year.

    The matrix says on which day its newest source was read. What is newer than the tables (a
    driver, a CUDA, a GPU, a torch) is judged by what can be said for certain and is unknown
    for the rest, so this is only mentioned.

    Fix: a newer preflight, or an overlay with the missing rows (PREFLIGHT_COMPAT).
    """
    days = _days(s.taken) - _days(m.date) if _DAY.match(s.taken) else 0
    if days <= DAYS:
        yield NotApplicable(f"the tables are of {m.date}")
        return
    yield Finding(
        summary=f"the tables of this preflight are of {m.date}, {days} days old",
        observed=f"newest source read on {m.date}",
        needed=f"tables of the last {DAYS} days",
        why="Drivers, CUDA and frameworks that came since are not in them.",
        fix=("pip install --upgrade pai-preflight",),
    )


def _days(day: str) -> int:
    """Days since year 0, near enough to compare two ISO dates."""
    year, month, date = (int(part) for part in day.split("-"))
    # Days before a month, counting years from March (proleptic Gregorian).
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + date
