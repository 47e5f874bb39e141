"""The whole way: look, assume, judge. What every judging command of the live machine runs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Sequence

from . import assume, inspect, progress
from .roots import Root
from .settings import Settings

if TYPE_CHECKING:
    from . import verdict


def check(settings: Settings, command: Sequence[str] = (), timeout: float = 0) -> verdict.Report:
    """The report on `settings.root`; `command` is what would be started there.

    Raises assume.BadAssumption and tables.BadTables; everything else that goes wrong while looking
    is an unknown fact.
    """
    started = time.monotonic()
    if settings.overlays:
        _get_ready(settings)  # what is wrong with them is said before anybody waits
    seen = inspect.look(
        inspect.Look(
            root=Root(settings.root),
            env=settings.env,
            env_source=settings.env_source,
            python=settings.python,
            command=command,
            timeout=timeout or settings.timeout,
            locks=settings.locks,
            thorough=settings.thorough,
            declared=settings.policy.paths,
            offline=settings.offline,
            overlays=settings.overlays,
            progress=progress.on_terminal() if settings.thorough else None,
        ),
        meanwhile=lambda: _get_ready(settings),
    )
    from . import matrix, verdict

    table = matrix.load(settings.overlays)
    today = time.strftime("%Y-%m-%d")
    snapshot = assume.apply(replace(seen.snapshot, taken=today), settings.assume, table)
    looked = time.monotonic()
    report = verdict.judge(snapshot, table, settings.policy, today)
    ended = time.monotonic()
    times = dict(seen.milliseconds)
    times["judge"] = round((ended - looked) * 1000, 1)
    times["total"] = round((ended - started) * 1000, 1)
    return verdict.with_times(report, times)


def _get_ready(settings: Settings) -> None:
    """Import what judges, and read its tables: while the probes run there is time for it."""
    from . import matrix, verdict

    matrix.load(settings.overlays)
    verdict.prepare()
