"""Running something that may hang, crash or lie, in a forked child with a deadline.

The driver's libraries are loaded only in such children, and every probe runs in one, so that
nothing waits past the deadline and no crash reaches the job. What a child answers is JSON.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set

#: More than this from one child is garbage.
ANSWER_LIMIT = 64 << 20

#: Ends an answer: a process that a driver library left behind may hold the pipe open for ever.
END = b"\n"

#: Children that have not been reaped yet; whoever ends the process early kills these.
children: Set[int] = set()

#: Held back around fork: a handler that ran in between would not know of the new child.
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)


class Task(NamedTuple):
    """A call to make in a child: returns something JSON can hold, within `seconds`.

    With `here` it is made in this process, once the others run: short, and to be done anyway.
    """

    call: Callable[[], Any]
    seconds: float
    here: bool = False


class Answer(NamedTuple):
    """What a child answered, or in `problem` why it did not; `milliseconds` it took."""

    value: Any
    problem: str
    milliseconds: float


class _Child:
    def __init__(self, pid: int, pipe: int, started: float, deadline: float) -> None:
        self.pid = pid
        self.pipe = pipe
        self.started = started
        self.deadline = deadline
        self.data: List[bytes] = []
        self.size = 0
        self.status: Optional[int] = None


def run(tasks: Mapping[str, Task], deadline: Optional[float] = None) -> Dict[str, Answer]:
    """Run all `tasks` at once; one answer each, at the latest at `deadline` (`time.monotonic`)."""
    reap()
    answers: Dict[str, Answer] = {}
    running: Dict[str, _Child] = {}
    for name, task in tasks.items():
        if task.here:
            continue
        try:
            running[name] = _start(task, deadline)
        except OSError as error:
            answers[name] = Answer(None, f"no child process could be started: {error.strerror}", 0)
    answers.update((name, _here(task)) for name, task in tasks.items() if task.here)
    while running:
        _wait(running)
        now = time.monotonic()
        for child in running.values():
            if child.pipe >= 0 and now >= child.deadline:
                _signal(child.pid)  # all that are late at once: then each is gone when reaped
        for name in [one for one, child in running.items() if _finished(child, now)]:
            answers[name] = _answer(running.pop(name), now)
    return answers


def _here(task: Task) -> Answer:
    started = time.monotonic()
    value, problem = None, ""
    try:
        value = task.call()
    except Exception as error:  # noqa: BLE001 - as of any other task
        problem = f"{type(error).__name__}: {error}"
    return Answer(value, problem, (time.monotonic() - started) * 1000)


def kill_children() -> None:
    """End every running child at once (on the way out of the process)."""
    for pid in list(children):
        _kill(pid)


def reap() -> None:
    """Reap the children that had been killed and took longer to die than they were waited for."""
    for pid in list(children):
        _reap(pid, 0.0)


def _start(task: Task, deadline: Optional[float]) -> _Child:
    started = time.monotonic()
    limit = started + task.seconds
    limit = limit if deadline is None else min(limit, deadline)
    read, write = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        pid = os.fork()
        if pid == 0:
            _child(task.call, write, mask)
        children.add(pid)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return _Child(pid, read, started, limit)


def _child(call: Callable[[], Any], write: int, mask: Iterable[int]) -> None:
    """The child's whole life; never returns."""
    code = 1
    try:
        for number in _HELD:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _silence(write)
        gc.disable()  # it ends soon, and what it has is not worth looking through until then
        try:
            answer = {"value": call()}
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"problem": f"{type(error).__name__}: {error}"}
        data = json.dumps(answer).encode() + END
        while data:
            data = data[os.write(write, data) :]
        code = 0
    finally:
        os._exit(code)


def _silence(keep: int) -> None:
    """Driver libraries print; nothing of that may reach the job's streams."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if stream != keep:
            os.dup2(null, stream)


def _wait(running: Mapping[str, _Child]) -> None:
    pipes = {child.pipe: child for child in running.values() if child.pipe >= 0}
    left = min(child.deadline for child in running.values()) - time.monotonic()
    if len(pipes) < len(running):  # one has answered, and is about to end
        left = min(left, 0.0005)
    poll = select.poll()  # not select(): descriptors may be above 1023
    for pipe in pipes:
        poll.register(pipe, select.POLLIN | select.POLLHUP)
    for pipe, _event in poll.poll(max(0.0, left) * 1000 + 1):
        child = pipes[pipe]
        chunk = os.read(pipe, 1 << 16)
        child.size += len(chunk)
        child.data.append(chunk)
        if not chunk or chunk.endswith(END) or child.size > ANSWER_LIMIT:
            os.close(pipe)
            child.pipe = -1


def _finished(child: _Child, now: float) -> bool:
    """Whether the child answered and ended, or its time is over."""
    if child.pipe < 0 and child.status is None and child.size <= ANSWER_LIMIT:
        child.status = _reap(child.pid, now)
    return child.status is not None or child.size > ANSWER_LIMIT or now >= child.deadline


def _answer(child: _Child, now: float) -> Answer:
    spent = (now - child.started) * 1000
    if child.pipe >= 0:
        os.close(child.pipe)
        _kill(child.pid)
        return Answer(None, f"no answer within {now - child.started:.1f} s", spent)
    if child.size > ANSWER_LIMIT:
        _kill(child.pid)
        return Answer(None, "answered too much", spent)
    if child.status is None:
        _kill(child.pid)
        return Answer(None, "did not end after its answer", spent)
    if os.WIFSIGNALED(child.status):
        return Answer(None, f"crashed ({_signal_name(os.WTERMSIG(child.status))})", spent)
    return _read(b"".join(child.data), os.WEXITSTATUS(child.status), spent)


def _read(data: bytes, code: int, spent: float) -> Answer:
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or len({"value", "problem"} & set(document)) != 1:
        return Answer(None, f"ended with status {code} and no answer", spent)
    return Answer(document.get("value"), str(document.get("problem", "")), spent)


def _reap(pid: int, deadline: float) -> Optional[int]:
    """The child's wait status; None when it does not end by `deadline`."""
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            children.discard(pid)
            return 0
        if done:
            children.discard(pid)
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.0005)


def _kill(pid: int) -> None:
    """Kill and reap; a child stuck in the kernel cannot be reaped and is left behind."""
    _signal(pid)
    _reap(pid, time.monotonic() + 0.2)


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
