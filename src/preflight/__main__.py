"""The `preflight` command: signal handlers first, everything slow afterwards.

As PID 1 a process without handlers ignores SIGTERM, and Python needs its time to import things:
so this module imports next to nothing before the handlers are there.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without the time that importing typing takes
if TYPE_CHECKING:
    from types import FrameType
    from typing import List, Optional, Sequence

#: What ends the checks at once; the status is 128 + the number, as a shell reports it.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command line (`sys.argv` by default) and return its exit code.

    `exec` returns only when the job's command was not started.
    """
    _handle_signals()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _own_modules_first()
        if _switched_off(words):
            return _start(words)
        from preflight.cli import main as run

        return run(words)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it may not stop a job
        return _own_fault(words, error)


def _handle_signals() -> None:
    """End at once on SIGTERM, SIGINT and SIGHUP; one that was ignored (nohup) stays ignored."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _frame: Optional[FrameType]) -> None:
    isolate = sys.modules.get("preflight.isolate")
    try:
        if isolate is not None:
            isolate.kill_children()
    finally:
        os._exit(128 + number)


def _own_modules_first() -> None:
    """Look for modules in the job's PYTHONPATH and working directory last.

    They belong to the job's Python, often another version: a module there (a backport of typing,
    a `packaging` of its own) would shadow ours. The variable itself is left to the job.
    """
    if sys.flags.ignore_environment:
        return
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.environ.get("PYTHONPATH")
    try:
        foreign = {os.path.abspath(one) for one in path.split(os.pathsep)} if path else set()
    except OSError:  # a relative one, and the working directory is gone
        return
    if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
        foreign.add(sys.path[0])  # where python -m puts the working directory
    foreign.discard(home)
    sys.path.sort(key=lambda one: one in foreign)  # a stable sort: all else keeps its order


def _switched_off(words: List[str]) -> bool:
    """Whether PREFLIGHT_MODE=off decides: nothing is checked and nothing needs to be loaded."""
    off = os.environ.get("PREFLIGHT_MODE", "").strip().lower() == "off"
    if not off or words[:1] != ["exec"] or not _command(words):
        return False
    options = words[1 : words.index("--")]
    # A flag wins over the variable, and asking for help is no start of a job.
    return not any(one.startswith(("--mode", "--help")) or one == "-h" for one in options)


def _command(words: List[str]) -> List[str]:
    """What is to be started: everything after the first `--`."""
    return words[words.index("--") + 1 :] if "--" in words else []


def _start(words: List[str]) -> int:
    from preflight import handover

    code, problem = handover.replace(_command(words))
    handover.Log().say(problem)
    return code


def _own_fault(words: List[str], error: BaseException) -> int:
    """The last resort when a part of preflight cannot even be imported: start the job."""
    from preflight import handover

    job = words[:1] == ["exec"] and bool(_command(words))
    options = words[: words.index("--")] if job else []
    stops = handover.is_true(os.environ.get("PREFLIGHT_FAIL_CLOSED")) or "--fail-closed" in options
    goes_on = job and not stops
    handover.Log().say(handover.fault(error, "starting anyway" if goes_on else ""))
    return _start(words) if goes_on else 70


if __name__ == "__main__":
    sys.exit(main())
