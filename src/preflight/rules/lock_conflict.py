"""Whether a lock can be satisfied: by itself, with the wheels' own pins, with constraints."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Dict, Iterator, List, Tuple

from ..lockfiles.versions import satisfies
from ..matrix import Matrix, numbers
from ..snapshot import Pin, Snapshot, Unmet
from .locked import Held, evidence_of, exact, held, installed, matters, severity, some
from .registry import FAIL, INFO, WARN, Evidence, Finding, NotApplicable, Outcome, Passed

_OF_CUDA = re.compile(r"nvidia-([a-z-]+)-cu(\d+)")
#: Formats that hold the result of a resolver: their entries' own needs were checked there.
RESOLVED = (
    "uv", "poetry", "pdm", "pylock", "pipfile",
    "conda-lock", "conda-explicit", "conda-list", "pixi",
)  # fmt: skip


def conflict(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The lock cannot be satisfied, or contradicts the image's own constraints.

    Decided by the entries that are for this Python and platform: two that exclude each other; an
    entry that needs another one in a version that the lock does not give; torch with the
    nvidia-* libraries and triton that its own wheel pins, and with its torchvision and torchaudio;
    CUDA 11 and CUDA 12 wheels of one library, which overwrite each other; a Python that the lock
    excludes. Against constraints (``-c``, PIP_CONSTRAINT of NGC images) an entry that they
    exclude warns: pip refuses it, and what is installed may run. So does a file that people wrote
    and that was found beside an installed framework. What is installed against its own
    requirements (as `pip check`, and behind extras, which that leaves out) warns where it is about
    a framework, CUDA library or extension, and is mentioned elsewhere.

    Fix: the version that both admit, or one of the two entries less.
    """
    looked = list(held(s))
    found = False
    for one in looked:
        for problem in (*_itself(s, m, one), *_constrained(s, one, looked)):
            found = True
            yield problem
    for problem in _unmet(s, m):
        found = True
        yield problem
    if found:
        return
    if looked or s.python.unmet.known:
        yield Passed("no entry contradicts another")
    else:
        yield NotApplicable("no lock file here")


def _itself(s: Snapshot, m: Matrix, one: Held) -> Iterator[Finding]:
    yield from _twice(s, one)
    yield from _needs(s, one)
    if one.lock.format.value not in RESOLVED:
        yield from _torch_pins(s, m, one)
        yield from _companions(s, m, one)
    yield from _two_cudas(s, one)
    yield from _python(s, one)


def _finding(
    s: Snapshot,
    one: Held,
    pins: List[Pin],
    summary: str,
    needed: str,
    why: str,
    grade: str = "",
) -> Finding:
    return Finding(
        summary=f"{one.path}: {summary}",
        observed=", ".join(f"{pin.name}{pin.spec}" for pin in pins) or summary,
        needed=needed,
        why=why,
        fix=(f"change {_where(pins, one.path)}: {needed}",),
        evidence=evidence_of(one, pins),
        subject=one.path,
        severity=grade or (severity(one, s) if one.lock.named.known else FAIL),
    )


def _where(pins: List[Pin], path: str) -> str:
    """ "lines 3 and 4 of FILE"; the file where no line is known."""
    numbers_of = [str(pin.line) for pin in pins[:4] if pin.line]
    word = "line" if len(numbers_of) == 1 else "lines"
    return f"{word} {' and '.join(numbers_of)} of {path}" if numbers_of else path


def _twice(s: Snapshot, one: Held) -> Iterator[Finding]:
    """Two entries for one name that no version meets; resolvers write several on purpose."""
    if one.lock.format.value in RESOLVED:
        return
    for name, pins in one.by_name().items():
        for first, second in combinations([pin for pin in pins if not pin.manager], 2):
            version, other = exact(first), second
            if version is None:
                version, other = exact(second), first
            if version is None or satisfies(version, other.spec):
                continue
            yield _finding(
                s, one, [first, second],
                f"{name}{first.spec} and {name}{second.spec} exclude each other",
                f"one of {name}{first.spec}, {name}{second.spec}",
                "No version meets both, and the installer refuses the whole file.",
            )  # fmt: skip


def _needs(s: Snapshot, one: Held) -> Iterator[Finding]:
    for row in one.lock.conflicts.get(()):
        yield _finding(
            s, one, [Pin(row.name, f"=={row.found}", row.line)],
            f"{row.owner} needs {row.needs}, and it locks {row.name} {row.found}",
            row.needs or f"another {row.name or 'version'}",
            "What is locked contradicts what the package itself asks for.",
        )  # fmt: skip


def _torch_pins(s: Snapshot, m: Matrix, one: Held) -> Iterator[Finding]:
    """torch's wheel pins its CUDA libraries exactly: another version of one is no solution."""
    pins = one.by_name()
    torch = _only(pins, "torch")
    version = exact(torch) if torch else None
    if torch is None or version is None:
        return
    release, _, local = version.partition("+")
    arch = s.os.arch.get("x86_64")
    default = m.default_torch(release, arch)
    if default is None or local not in ("", default["variant"]):
        return
    for line in m.pins(release, arch):
        name, _, wanted = line.partition(";")[0].strip().partition("==")
        name = name.partition("[")[0].strip()
        mine = _only(pins, name)
        given = exact(mine) if mine else None
        if mine and given and wanted and not satisfies(given, f"=={wanted.strip()}"):
            yield _finding(
                s, one, [torch, mine],
                f"torch {version} needs {name}=={wanted.strip()}, and it says {name}{mine.spec}",
                f"{name}=={wanted.strip()}",
                "torch's wheel pins this library exactly: the resolver finds no solution "
                "(ResolutionImpossible), or, with --no-deps, another library is loaded than torch "
                "was built with.",
            )  # fmt: skip


def _only(pins: Dict[str, List[Pin]], name: str) -> Pin | None:
    found = pins.get(name, [])
    return found[0] if len(found) == 1 else None


def _companions(s: Snapshot, m: Matrix, one: Held) -> Iterator[Finding]:
    pins = one.by_name()
    torch = _only(pins, "torch")
    version = exact(torch) if torch else None
    if torch is None or version is None:
        return
    release = version.partition("+")[0]
    for name in ("torchvision", "torchaudio"):
        mine = _only(pins, name)
        given = exact(mine) if mine else None
        if mine is None or given is None:
            continue
        public = given.partition("+")[0]
        fits = m.torches_of(name, public)
        belongs = any(numbers(each) == numbers(release) for each in fits)
        if fits and not belongs and not m.accepts(name, public, release):
            yield _finding(
                s, one, [torch, mine],
                f"{name} {given} is for torch {', '.join(fits)}, and it says torch {version}",
                f"torch=={fits[-1]}, or the {name} of torch {release}",
                f"{name}'s wheel requires its own torch: the resolver finds no solution, or, with "
                "--no-deps, importing it fails.",
            )  # fmt: skip


def _two_cudas(s: Snapshot, one: Held) -> Iterator[Finding]:
    """nvidia-nccl-cu11 and nvidia-nccl-cu12 own the same files."""
    libraries: Dict[str, List[Tuple[str, Pin]]] = {}
    for pin in one.pins:
        parts = _OF_CUDA.fullmatch(pin.name)
        if parts:
            libraries.setdefault(parts.group(1), []).append((parts.group(2), pin))
    for library, both in libraries.items():
        if len({cuda for cuda, _pin in both}) > 1 and library in ("nccl", "cudnn"):
            pins = [pin for _cuda, pin in both]
            yield _finding(
                s, one, pins,
                f"{' and '.join(pin.name for pin in pins)} overwrite each other",
                "the one that the framework was built with",
                "Both put their libraries under the same names into the same directory; the last "
                "one installed wins, and removing one breaks the other.",
                severity(one, s),
            )  # fmt: skip


def _python(s: Snapshot, one: Held) -> Iterator[Finding]:
    have = s.python.version.value
    asked = one.lock.python.value
    if have and asked and not satisfies(_full(have), asked):
        yield _finding(
            s, one, [], f"it is for Python {asked}, and the job has Python {have}",
            f"Python {asked}",
            "The installer refuses the lock under this Python.",
            severity(one, s),
        )  # fmt: skip
        return
    refused = [
        pin
        for pin in one.pins
        if have and pin.python and not satisfies(_full(have), pin.python)
        and installed(s, pin) is None
    ]  # fmt: skip
    if refused:
        yield _finding(
            s, one, refused,
            f"{some([f'{pin.name} needs Python {pin.python}' for pin in refused])}, and the job "
            f"has Python {have}",
            f"Python {refused[0].python}",
            "The installer refuses these entries under this Python.",
            severity(one, s),
        )  # fmt: skip


def _full(version: str) -> str:
    return version if version.count(".") > 1 else version + ".0"


# -- with others --------------------------------------------------------------------------------


def _constrained(s: Snapshot, one: Held, looked: List[Held]) -> Iterator[Finding]:
    """Entries that a constraints file excludes."""
    if one.constraints:
        return
    for other in (each for each in looked if each.constraints):
        bound = other.by_name()
        for pin in one.pins:
            for limit in bound.get(pin.name, []):
                fixed, asked = exact(limit), exact(pin)
                excluded = (fixed is not None and pin.spec and not satisfies(fixed, pin.spec)) or (
                    asked is not None and limit.spec and not satisfies(asked, limit.spec)
                )
                if excluded:
                    yield _finding(
                        s, one, [pin],
                        f"{pin.name}{pin.spec} is excluded by {other.path} ({limit.name}"
                        f"{limit.spec})",
                        f"{limit.name}{limit.spec}, or the constraint lifted (PIP_CONSTRAINT=)",
                        "pip obeys the constraints file in every installation, and refuses this "
                        "one; the image was tested with what they say.",
                        WARN,
                    )  # fmt: skip


def _unmet(s: Snapshot, m: Matrix) -> Iterator[Finding]:
    """What is installed against its own requirements."""
    rows = s.python.unmet.get(())
    grave = [row for row in rows if any(matters(m, n) for n in (row.name, _owner(row)))]
    rest = [row for row in rows if row not in grave]
    for group, grade in ((grave, WARN), (rest, INFO)):
        if group:
            yield _broken(group, grade)


def _owner(row: Unmet) -> str:
    return row.owner.partition(" ")[0]


def _broken(rows: List[Unmet], grade: str) -> Finding:
    words = [
        f"{row.owner} needs {row.needs}, and "
        + (f"{row.name} {row.found} is installed" if row.found else f"{row.name} is not installed")
        for row in rows
    ]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return Finding(
        summary=words[0] + more,
        observed="; ".join(words[:20]),
        needed="installed: " + ", ".join(row.needs for row in rows[:20]),
        why="The packages that are installed contradict their own requirements; the next run of "
        "an installer may change or refuse what is here.",
        fix=tuple(f"pip install {_quoted(row.needs)}" for row in rows[:5]),
        evidence=tuple(
            Evidence("python.unmet", f"{row.owner}: {row.needs}", row.source) for row in rows[:20]
        ),
        subject="installed packages",
        severity=grade,
    )


def _quoted(requirement: str) -> str:
    plain = requirement.partition(";")[0].strip()
    return f"'{plain}'" if re.search(r"[<>!~\[ ]", plain) else plain
