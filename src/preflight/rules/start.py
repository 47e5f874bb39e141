"""Rules about how the container starts its command: entrypoint, shell, PID 1, signals."""

from __future__ import annotations

import posixpath
import re
from typing import Iterator, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Snapshot
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: Programs that are made to be PID 1: they reap every child and pass signals on.
INITS = ("tini", "tini-static", "dumb-init", "docker-init", "catatonit", "systemd", "init",
         "s6-svscan", "s6-init", "runit", "runit-init", "pause", "podman-init")  # fmt: skip
#: Shells reap what is left to them while they wait, and pass no signal on.
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")

_NO_PROGRAM = re.compile(r"env: .?'?([^']*?)'?: No such file or directory|bad interpreter")
_PAI = ("DLC_JOB_ID", "PAI_TRAINING_JOB_ID")


def _name(words: Tuple[str, ...]) -> str:
    return posixpath.basename(words[0]) if words else ""


def _is_shell_form(words: Tuple[str, ...]) -> bool:
    """["/bin/sh", "-c", "train.py …"]: what Dockerfile's shell form becomes."""
    return len(words) > 1 and _name(words) in SHELLS and words[1].startswith("-")


def _is_script(words: Tuple[str, ...]) -> bool:
    shell = _name(words) in SHELLS and len(words) > 1 and not words[1].startswith("-")
    return _name(words).endswith(".sh") or shell


def no_init(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """PID 1 reaps no children.

    Processes whose parent ended become children of PID 1. An init or a shell reaps them; a
    training process, or a script that waits for one command, leaves them as zombies, which hold
    their PIDs and, as long as a thread of theirs lives, shared memory. It warns where the image
    is known to start without an init; PID 1 of a running container that is no init is told of.

    Fix: docker run --init; or ENTRYPOINT ["tini", "--", …]; Kubernetes: shareProcessNamespace:
    true.
    """
    image, first = s.image, s.host.first_process
    entry = image.entrypoint.get(())
    if s.os.container.value is False:
        yield NotApplicable("not in a container")
    elif image.init.value or _name(entry) in INITS:
        proof = evidence(s, "image.init", "image.entrypoint")
        yield Passed("the image starts with an init", "", proof)
    elif image.init.known:
        yield _unreaped(s, f"entrypoint {' '.join(entry)}" if entry else "no init", WARN)
    elif first.value in INITS:
        yield Passed(f"PID 1 is {first.value}", "", evidence(s, "host.first_process"))
    elif first.value in SHELLS:
        yield Passed(f"PID 1 is {first.value}, which reaps", "", evidence(s, "host.first_process"))
    elif first.known and s.os.container.value:
        yield _unreaped(s, f"PID 1 is {first.value}", INFO)
    else:
        missing = "host.first_process" if first.unknown else "os.container"
        yield Undecided((missing,), "whether PID 1 reaps its children")


def _unreaped(s: Snapshot, seen: str, severity: str) -> Finding:
    return Finding(
        summary=f"no init is PID 1 of this container ({seen}): ended processes stay as zombies",
        observed=seen,
        needed="an init as PID 1 (tini, dumb-init, docker-init)",
        why="Workers that lose their parent are left to PID 1, which does not wait for them; and a "
        "PID 1 without a handler ignores SIGTERM.",
        fix=(
            "docker run --init …",
            'Dockerfile: ENTRYPOINT ["tini", "-g", "--", …]',
            "Kubernetes: shareProcessNamespace: true",
        ),
        evidence=evidence(
            s, "image.init", "image.entrypoint", "host.first_process", "os.container"
        ),
        severity=severity,
    )


def signals_not_forwarded(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A shell form or wrapper keeps SIGTERM from the training process.

    A platform ends a job with SIGTERM to PID 1. A shell that is PID 1 drops it while it waits for
    its command: no last checkpoint is written, and after the grace period comes SIGKILL (137). By
    the entrypoint of the image, or on the running machine by PID 1: a shell among our parents that
    has no handler. Where the platform put the shell there (PAI DLC) it is told of, no more.

    Fix: exec before the last command of the script; or the exec form of ENTRYPOINT.
    """
    entry, below = s.image.entrypoint, s.host.below_shell
    words = entry.get(())
    if s.os.container.value is False:
        yield NotApplicable("not in a container")
    elif words and _name(words) in INITS:
        yield Passed(f"{_name(words)} passes signals on", "", evidence(s, "image.entrypoint"))
    elif _is_shell_form(words) and not _execs(words):
        yield _kept(s, f"entrypoint {' '.join(words)}", WARN)
    elif below.value and s.os.container.value:
        platform = any(s.variable(name).known for name in _PAI)
        yield _kept(
            s, f"PID 1 is {s.host.first_process.get('a shell')}", INFO if platform else WARN
        )
    elif below.known:
        proof = evidence(s, "host.below_shell", "host.first_process")
        yield Passed("no shell stands between PID 1 and the job", "", proof)
    elif words and not _is_script(words):
        yield Passed("the entrypoint is no shell", "", evidence(s, "image.entrypoint"))
    else:
        missing = "image.entrypoint" if not words else "host.below_shell"
        yield Undecided((missing,), "whether SIGTERM reaches the training process")


def _execs(words: Tuple[str, ...]) -> bool:
    """Whether a shell form replaces the shell by its command: `sh -c "exec …"`, `"$@"` alone."""
    text = words[2].strip() if len(words) > 2 else ""
    return text.startswith("exec ") or " exec " in text


def _kept(s: Snapshot, seen: str, severity: str) -> Finding:
    return Finding(
        summary=f"SIGTERM does not reach the training process: {seen}, a shell that waits for it",
        observed=seen,
        needed="the training process, or an init, as PID 1",
        why="The kernel drops a signal that PID 1 has no handler for: the job gets no time for a "
        "checkpoint and is killed after the grace period (exit code 137).",
        fix=(
            "put exec before the command: exec preflight exec -- torchrun …",
            'Dockerfile: ENTRYPOINT ["program", "argument"], not ENTRYPOINT program argument',
        ),
        evidence=evidence(s, "image.entrypoint", "host.first_process", "host.below_shell"),
        severity=severity,
    )


def shell_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The platform needs a shell or tool that the image lacks.

    An entrypoint or command that is /bin/sh, and every PAI job (which runs the user's command by
    /bin/sh -c), needs a shell in the image. Distroless and scratch images have none.

    Fix: a base image with a shell (debian:slim, or gcr.io/distroless/base:debug), or the exec
    form with the program itself.
    """
    shell = s.image.shell
    needs = _needs_shell(s)
    if not needs:
        yield NotApplicable("nothing known here starts a shell")
    elif shell.value:
        yield Passed("there is a shell", "", evidence(s, "image.shell"))
    elif not shell.known:
        yield Undecided(("image.shell",), "whether the image has a shell")
    else:
        yield Finding(
            summary=f"the image has no shell, and {needs}",
            observed="no /bin/sh in the image",
            needed="a /bin/sh",
            why='Starting the container fails: exec: "/bin/sh": stat /bin/sh: no such file.',
            fix=(
                "a base image with a shell: FROM debian:stable-slim; of distroless the :debug tags",
                'the exec form: ENTRYPOINT ["/app/program", "argument"]',
            ),
            evidence=evidence(s, "image.shell", "image.entrypoint", "image.command"),
        )


def _needs_shell(s: Snapshot) -> str:
    for name, words in (("entrypoint", s.image.entrypoint), ("command", s.image.command)):
        if _name(words.get(())) in SHELLS:
            return f"its {name} is {words.get(())[0]}"
    if any(s.variable(name).known for name in _PAI) or s.job.platform.get("").startswith("pai"):
        return "PAI starts every job by /bin/sh -c"
    return ""


def entrypoint_broken(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    r"""The entrypoint cannot be executed (missing, not executable, bad interpreter line, CRLF).

    The kernel executes a file with the x permission that is a program of this architecture or
    begins with #! and an interpreter that is there; a carriage return or another character after
    the interpreter's name belongs to the name. By the file; else by the log of a container whose
    entrypoint is a script.

    Fix: chmod +x; sed -i 's/\r$//' the script; the right path in ENTRYPOINT.
    """
    entry, problem = s.image.entrypoint, s.image.entrypoint_problem
    line = _log(s)
    words = " ".join(entry.get(())) or "the command"
    if problem.known:
        yield _broken(s, words, problem.get("").strip() or "the kernel refuses it")
    elif problem.absent:
        yield Passed(f"{words} can be executed", "", evidence(s, "image.entrypoint_problem"))
    elif entry.value == () or entry.absent:
        yield NotApplicable("the image has no entrypoint")
    elif entry.known and line and _is_script(entry.get(())):
        yield _broken(s, words, line)
    else:
        missing = "image.entrypoint_problem" if entry.known else "image.entrypoint"
        yield Undecided((missing,), "whether the entrypoint can be executed")


def _log(s: Snapshot) -> Optional[str]:
    return next((line for line in s.logs.get(()) if _NO_PROGRAM.search(line)), None)


def _broken(s: Snapshot, words: str, problem: str) -> Finding:
    return Finding(
        summary=f"{words} cannot be executed: {problem}",
        observed=problem,
        needed="a file that the kernel executes: there, with the x permission, its interpreter too",
        why="The container ends at its start, with 126 or 127.",
        fix=(
            r"sed -i 's/[[:space:]]*$//' FILE && chmod +x FILE  # CRLF and blanks at line ends",
            "head -1 FILE | cat -A: what the first line really says",
        ),
        evidence=evidence(s, "image.entrypoint", "image.entrypoint_problem"),
    )


def entrypoint_replaced(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The base image's entrypoint (or the platform's) is replaced, and what it did is lost.

    NGC images start by /opt/nvidia/nvidia_entrypoint.sh, which makes the compat libcuda active
    where the driver needs it. ENTRYPOINT in a derived image, --entrypoint, and `command` of
    Kubernetes replace it. It is kept when the new entrypoint calls it first.

    Fix: ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "preflight", "exec", "--"].
    """
    base, entry = s.image.base_entrypoint, s.image.entrypoint
    if base.value == () or base.absent:
        yield NotApplicable("the base image has no entrypoint")
    elif not base.known:
        yield Undecided(("image.base_entrypoint",), "which entrypoint the base image has")
    elif not entry.known and not entry.absent:
        yield Undecided(("image.entrypoint",), "which entrypoint the image has")
    elif base.get(("",))[0] in entry.get(()):
        proof = evidence(s, "image.base_entrypoint", "image.entrypoint")
        yield Passed("the base image's entrypoint is kept", "", proof)
    else:
        first = base.get(("",))[0] or "the base image's entrypoint"
        now = " ".join(entry.get(())) or "none"
        yield Finding(
            summary=f"the base image's entrypoint {first} is replaced, and what it did is lost",
            observed=f"entrypoint of the image: {now}",
            needed=f"an entrypoint that begins with {first}",
            why="NGC's makes the compat libcuda active for older drivers and checks the driver; "
            "without it that is left out silently."
            if "nvidia" in first
            else "What the base image prepares at its start is left out silently.",
            fix=(
                f'ENTRYPOINT ["{first}", "preflight", "exec", "--"]',
                f"docker run --entrypoint {first} …",
            ),
            evidence=evidence(s, "image.base_entrypoint", "image.entrypoint"),
        )
