"""Handing this process over to the job's command, as if preflight had never been in it.

Imports next to nothing: with PREFLIGHT_MODE=off this is all that runs.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

#: Signals that Python ignores from its start on, and that a program expects at their default.
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGXFZ")

#: Variables that give a process its number on its node. RANK is not among them: in some
#: platforms it is the number of the node.
LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "PALS_LOCAL_RANKID",
)

#: Where a command is looked for when there is no PATH, as execvp does.
DEFAULT_PATH = b"/bin:/usr/bin"

#: How long all lines together wait for a standard error that nobody reads.
PATIENCE = 1.0

_LOOK_FURTHER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ESTALE, errno.ENODEV)


def replace(command: Sequence[str]) -> Tuple[int, str]:
    """Become `command`: same PID, environment, directory, descriptors, argument bytes.

    Only returns when it cannot be run: (127 not found, else 126; one line that says why).
    """
    words = [os.fsencode(word) for word in command]
    entries = environment()
    hand_back_signals()
    refusal: Optional[OSError] = None
    for path in _candidates(words[0], entries):
        try:
            _execve(path, words, entries)
        except OSError as error:
            # EACCES is also the answer for a directory of PATH that may not be searched.
            found = error.errno not in _LOOK_FURTHER or os.path.exists(path)
            if found and (refusal is None or error.errno not in _LOOK_FURTHER):
                refusal = OSError(error.errno, error.strerror, path)
            if error.errno not in _LOOK_FURTHER:
                break
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # there is still something to say
    return _refused(command[0], refusal)


def _refused(name: str, refusal: Optional[OSError]) -> Tuple[int, str]:
    if refusal is None:
        return 127, f"cannot start {name}: not found"
    return 126, f"cannot start {os.fsdecode(refusal.filename)}: {_reason(refusal)}"


def _reason(refusal: OSError) -> str:
    if refusal.errno == errno.ENOENT:
        return "its interpreter (named in its #! line, or in its ELF header) is missing"
    if refusal.errno == errno.ENOEXEC:
        if _first_bytes(refusal.filename) == b"\x7fELF":
            return "it is built for another kind of processor"
        return "a script without a #! line; make #!/bin/sh its first, or start it with sh"
    if refusal.errno == errno.EACCES and os.path.isdir(refusal.filename):
        return "it is a directory"
    if refusal.errno == errno.EACCES:
        return "it is not executable (chmod +x, or a file system mounted noexec)"
    return refusal.strerror or "it cannot be run"


def _first_bytes(path: bytes) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(4)
    except OSError:
        return b""


def _candidates(name: bytes, entries: List[bytes]) -> Iterator[bytes]:
    """The paths to try, in the order in which execvp does; an empty directory is the current."""
    if b"/" in name:
        yield name
    if b"/" in name or not name:
        return
    path = next((one[5:] for one in entries if one.startswith(b"PATH=")), DEFAULT_PATH)
    for directory in path.split(b":"):
        yield os.path.join(directory, name)


def environment() -> List[bytes]:
    """NAME=VALUE entries exactly as this process was given them.

    Not `os.environ`: in a C locale Python puts an LC_CTYPE there (PEP 538) that would change how
    the job reads its files, and duplicates or entries without "=" get lost.
    """
    try:
        with open("/proc/self/environ", "rb") as stream:
            entries = stream.read().split(b"\0")[:-1]
        readable = True
    except OSError:
        entries, readable = [], False
    except_coerced = set(os.environb) - {b"LC_CTYPE"}
    if readable and not entries and not except_coerced:
        return []  # an empty environment, and what Python itself put there
    # Without /proc, or where it is emulated by half: what Python has is the next best.
    return entries or [name + b"=" + value for name, value in os.environb.items()]


class _Entries:
    """The mapping that os.execve wants, but with every entry, in order, duplicates too."""

    def __init__(self, entries: List[bytes]) -> None:
        # From 1 on: a name may start with "=", and may not be empty.
        cuts = [entry.index(b"=", 1) for entry in entries]
        self._names = [entry[:cut] for entry, cut in zip(entries, cuts)]
        self._values = [entry[cut + 1 :] for entry, cut in zip(entries, cuts)]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: bytes) -> bytes:
        return self._values[self._names.index(name)]

    def keys(self) -> List[bytes]:
        return self._names

    def values(self) -> List[bytes]:
        return self._values


def _execve(path: bytes, words: List[bytes], entries: List[bytes]) -> NoReturn:
    proper = [entry for entry in entries if b"=" in entry[1:]]
    if len(proper) < len(entries):
        _execve_raw(path, words, entries)
    mapping: Any = _Entries(proper)
    os.execve(path, words, mapping)


def _execve_raw(path: bytes, words: List[bytes], entries: List[bytes]) -> None:
    """By the C library, which takes entries without "=" too; returns where that is not to be."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        strings = ctypes.c_char_p
        arguments = (strings * (len(words) + 1))(*words, None)
        variables = (strings * (len(entries) + 1))(*entries, None)
    except (ImportError, OSError, AttributeError):
        return
    library.execve(path, arguments, variables)
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


def hand_back_signals() -> None:
    """Every disposition as before Python changed it, without losing a signal on the way.

    A signal that comes after the last look and before exec would be swallowed by a handler of
    ours; hence: block, let handlers run for what has come, put back, look once more, unblock.
    """
    ours = _handled()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    try:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        for name in IGNORED_BY_PYTHON:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        waiting = (signal.sigpending() & ours) - set(mask)
        if waiting:  # as PID 1 the default would be to ignore it
            os._exit(128 + min(waiting))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _handled() -> Set[int]:
    usual = range(1, signal.SIGSYS + 1)
    return {number for number in usual if callable(signal.getsignal(number))}


class Log:
    """Standard error as a job's log: whole lines, unbuffered, and never a reason to fail."""

    def __init__(self) -> None:
        self.silent = not is_first_on_node()
        self._patience = PATIENCE

    def say(self, text: str) -> None:
        """Write one line; where nobody reads, or nothing is open, it is dropped."""
        if self.silent:
            return
        line = "preflight: " + "".join(one if one.isprintable() else " " for one in text) + "\n"
        data = line.encode("utf-8", "backslashreplace")
        try:
            while data and self._writable():
                # A pipe that is writable takes this much without blocking.
                data = data[os.write(2, data[: select.PIPE_BUF]) :]
        except OSError:  # closed, or its reader is gone
            self._patience = 0

    def _writable(self) -> bool:
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        started = time.monotonic()
        answer = poll.poll(self._patience * 1000)
        self._patience = max(0, self._patience - (time.monotonic() - started))
        return bool(answer)


def is_first_on_node() -> bool:
    """Whether this is local rank 0, or no rank at all: the one that speaks."""
    ranks = (os.environ.get(name) for name in LOCAL_RANKS)
    return next((rank for rank in ranks if rank), "0").strip() == "0"


def is_true(text: Optional[str]) -> bool:
    """Whether a variable's value switches something on."""
    return (text or "").strip().lower() in ("1", "true", "yes", "on")


def fault(error: BaseException, then: str) -> str:
    """One line about an error of preflight's own: what, where, and what happens now."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code.co_filename if trace else ""
    place = f" ({os.path.basename(code)}:{trace.tb_lineno})" if trace else ""
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    ending = f"; {then}" if then else ""
    return f"a fault of preflight itself, not of the job: {what}{place}{ending}"
