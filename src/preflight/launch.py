"""Becoming the job's command: check, say what matters, and exec.

The order of things that a job must never feel: nothing of the checks survives into the command
(children, timers, signal handlers, descriptors, environment), a fault of preflight's own does not
stop it, and nothing waits past the deadline.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

from preflight import handover

#: Exit code for preflight's own fault, where a job may not start without a verdict.
OWN_FAULT = 70

#: The alarm rings again after this long, should somebody have swallowed the first.
AGAIN_SECONDS = 1.0


class Judgement(NamedTuple):
    """What the checks say about starting the command."""

    exit_code: int  #: 0 go on; else what to stop with in enforce mode (75, 78, or as mapped)
    lines: Tuple[str, ...]  #: findings to print, most important first, without prefix
    verdict: str  #: the last line, without prefix


def become(
    command: Sequence[str],
    judge: Callable[[], Judgement],
    mode: str = "enforce",
    fail_closed: bool = False,
    timeout: float = 30.0,
) -> int:
    """Judge, then become `command`; returns only when that was not started, with the exit code.

    The judgement's own code (stopped, in mode `enforce`), 126 or 127 (cannot be run), or 70
    (preflight's own fault or no verdict within `timeout`, and `fail_closed`). Mode `warn` says
    the same and goes on; `off` does not judge. `judge` should be done well within `timeout`
    (see `probing_seconds`): that is the last net, and what falls into it is no verdict.
    """
    _fill_standard_streams()
    log = handover.Log()
    if mode != "off":
        log.say("checking before: " + shortened(command))
        code = _checked(judge, mode, fail_closed, timeout, log)
        if code:
            return code
    code, problem = handover.replace(command)
    log.say(problem)
    return code


def probing_seconds(timeout: float) -> float:
    """How much of the whole `timeout` the probes may take, so that judging has time left."""
    return max(timeout * 0.9, timeout - 2.0)


def shortened(command: Sequence[str]) -> str:
    """What is being started, as a log may show it: no options and no values, for secrets' sake."""
    shown = []
    for word in command[:4]:
        if word.startswith("-"):
            break
        name, equals, _value = word.partition("=")
        shown.append(name + "=..." if equals else word)
    text = " ".join(shown)[:80]
    return text if len(shown) == len(command) else text + " ..."


class _Late(BaseException):
    """No verdict in time. Not an Exception: the checks' own handlers must not swallow it."""


class _Deadline:
    """SIGALRM after `seconds`; a timer that the job was started with is left alone instead."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._set = False

    def start(self) -> None:
        """From here on the alarm can strike at any line, until it is cancelled."""
        if signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0):
            self._before = signal.signal(signal.SIGALRM, self._late)
            self._set = True
            signal.setitimer(signal.ITIMER_REAL, max(self._seconds, 0.001), AGAIN_SECONDS)

    def cancel(self) -> None:
        """No alarm from here on (a timer would survive exec and kill the job)."""
        if self._set:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._set = False

    def _late(self, _number: int, _frame: Optional[FrameType]) -> None:
        raise _Late(f"no verdict within {self._seconds:g} s")


def _checked(
    judge: Callable[[], Judgement],
    mode: str,
    fail_closed: bool,
    timeout: float,
    log: handover.Log,
) -> int:
    """The exit code to stop with, or 0 to go on; says why."""
    deadline = _Deadline(timeout)
    try:
        return _said(_judged(judge, deadline), mode, log)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it may not stop the job
        deadline.cancel()
        then = "not starting (fail-closed)" if fail_closed else "starting anyway"
        log.say(f"{error}; {then}" if isinstance(error, _Late) else handover.fault(error, then))
        return OWN_FAULT if fail_closed else 0
    finally:
        _end_children()


def _judged(judge: Callable[[], Judgement], deadline: _Deadline) -> Judgement:
    try:
        deadline.start()
        code, lines, verdict = judge()
        _flush()
        return Judgement(int(code), tuple(lines), str(verdict))
    finally:
        deadline.cancel()


def _said(judgement: Judgement, mode: str, log: handover.Log) -> int:
    for line in judgement.lines:
        log.say(line)
    anyway = judgement.exit_code != 0 and mode == "warn"
    log.say(judgement.verdict + ("; starting anyway (mode warn)" if anyway else ""))
    return 0 if anyway else judgement.exit_code


def _flush() -> None:
    """What the checks wrote to Python's own streams: exec would drop it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # nobody reads it; or closed
            pass


def _end_children() -> None:
    isolate = sys.modules.get("preflight.isolate")
    if isolate is not None:
        isolate.kill_children()


def _fill_standard_streams() -> None:
    """Where descriptor 0, 1 or 2 is closed, /dev/null until exec closes it again.

    Otherwise the next file opened would become the job's standard error for a while.
    """
    try:
        opened = os.open(os.devnull, os.O_RDWR)
        while opened <= 2:
            opened = os.open(os.devnull, os.O_RDWR)
        os.close(opened)
    except OSError:  # no /dev/null, no descriptors left: then so be it
        pass
