"""`preflight exec`: the check as a judgement that launch can act on."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, List, Sequence, Tuple

from . import assume, check, handover, launch, settings
from .policy import BadPolicy
from .snapshot import Snapshot
from .tables import BadTables

if TYPE_CHECKING:
    from . import verdict


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Check, then become `command`; the exit code when it was not started.

    Raises settings.BadUsage or BadPolicy for wrong input, unless the mode (flag or variable)
    lets everything start.
    """
    lenient = (args.mode or os.environ.get("PREFLIGHT_MODE", "")).strip().lower()
    try:
        asked = settings.gather(args, os.environ)
        if asked.assume or asked.overlays:  # what is wrong with them is said before, not late
            from . import matrix

            assume.apply(Snapshot(), asked.assume, matrix.load(asked.overlays))
    except (settings.BadUsage, BadPolicy, assume.BadAssumption, BadTables) as error:
        if lenient == "warn":
            handover.Log().say(f"{error}; starting anyway (mode warn)")
        if lenient in ("off", "warn"):
            return launch.become(command, _never, mode="off")
        raise
    return launch.become(
        command,
        lambda: judgement(asked, args, command),
        mode=asked.mode,
        fail_closed=asked.fail_closed,
        timeout=asked.timeout,
    )


def judgement(
    asked: settings.Settings, args: argparse.Namespace, command: Sequence[str]
) -> launch.Judgement:
    """What the checks say about starting `command`, with the reports asked for written."""
    seconds = launch.probing_seconds(asked.timeout)
    report = check.check(asked, command, timeout=seconds)
    lines = _lines(report, args)
    lines += _written(report, asked, args)
    from . import verdict  # imported by now, while the probes ran
    from .reports import text

    code = verdict.exit_code(report, asked.fail_on, asked.policy.retry_exit_code)
    last = f"{report.verdict.upper()} {text.verdict_words(report)}"
    return launch.Judgement(code, tuple(lines), last)


def _lines(report: verdict.Report, args: argparse.Namespace) -> List[str]:
    """A few lines for a log: what failed or warns; everything with -v."""
    if args.verbose or args.explain:
        from .reports import text

        return text.render(report, text.Style(width=100), args.explain).rstrip().splitlines()
    counted = [one for one in report.findings if one.counts and one.severity in ("fail", "warn")]
    shown: Tuple[verdict.Judged, ...] = tuple(counted[1:] if counted else ())
    return [f"{one.severity.upper()} {one.rule.name}: {one.finding.summary}" for one in shown[:6]]


def _written(
    report: verdict.Report, asked: settings.Settings, args: argparse.Namespace
) -> List[str]:
    """Report files are written; one that cannot be is said, and is no reason to stop a job."""
    from .cli import _render, _write

    problems = []
    for output in asked.outputs:
        try:
            _write(output.path, _render(report, output.format, args, colour=False))
        except settings.BadUsage as error:
            problems.append(str(error))
    return problems


def _never() -> launch.Judgement:
    return launch.Judgement(0, (), "")
