"""Rules about lock files: can they be read, do they pin, are they what is installed."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Altered, Pin, Snapshot
from .lock_build import (
    artifact_gone,
    framework_unsupported,
    local_version_lost,
    platform_dependencies_missing,
)
from .lock_conflict import conflict
from .locked import (
    Held,
    admits,
    complete,
    evidence_of,
    exact,
    foreign,
    held,
    installed,
    is_open,
    matters,
    of_cuda,
    severity,
    some,
    written,
)
from .registry import (
    FAIL,
    INFO,
    WARN,
    Evidence,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Undecided,
    evidence,
)

#: How what is installed is brought to what a lock says, by its format.
SYNC = {
    "requirements": "pip install -r {path}",
    "pylock": "uv pip sync {path}",
    "uv": "uv sync --frozen",
    "poetry": "poetry sync",
    "pdm": "pdm sync",
    "pipfile": "pipenv sync",
    "conda-environment": "conda env update --file {path}",
    "conda-lock": "conda-lock install {path}",
    "conda-list": "conda install --file {path}",
    "conda-explicit": "conda install --file {path}",
    "pixi": "pixi install --frozen",
}
#: A file that is changed or gone and changes nothing that runs.
TEXTS = (
    ".pem", ".md", ".txt", ".rst", ".pyi", ".typed", ".h", ".cuh", ".hpp", ".cmake", ".json", ".a",
    "METADATA", "WHEEL", "LICENSE", "NOTICE",
)  # fmt: skip


def no_locks(s: Snapshot) -> Outcome:
    """Why a rule about lock files has none."""
    if s.locks.unknown and s.locks.looked:
        return Undecided(("locks",), "which lock files are here")
    return NotApplicable("no lock file here")


def unreadable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A lock file cannot be parsed.

    Each format is read strictly, as the tool that installs from it would: a line that pip would
    refuse, a truncated TOML or YAML file, a format without its version, an included file that is
    not there. A file in a working directory that no tool wrote and nobody named is a warning.
    Where reading it needs a library that is not installed (PyYAML), or a newer preflight than
    this, since the format is newer, that is said instead: its own tool can read it.

    Fix: write the lock again with its tool, or mend the line that is named.
    """
    if not s.locks.get(()):
        yield no_locks(s)
        return
    for number, lock in enumerate(s.locks.get(())):
        path, place = lock.path.get("lock"), f"locks[{number}]"
        if lock.problem.known:
            meant = lock.named.value or path.endswith((".lock", "pylock.toml")) or (
                not lock.named.known
            )  # fmt: skip
            yield Finding(
                summary=f"{path} cannot be read: {lock.problem.value}",
                observed=f"{path}: {lock.problem.value}",
                needed="a file that its tool can read",
                why="Nothing can be installed from it, and nothing can be checked against it.",
                fix=(f"mend {path}, or write it again with the tool it is from",),
                evidence=evidence(s, place + ".problem"),
                sources=("pypa-lock-formats",),
                subject=path,
                severity=FAIL if meant else WARN,
            )
        elif lock.entries.known:
            yield Passed(f"{path}: {len(lock.entries.get(()))} entries", path)
        elif lock.named.value:
            yield Undecided((f"{place}.entries",), f"what {path} says", path)
        else:
            yield NotApplicable(f"{path} is not read: {lock.entries.unknown}")


def not_pinned(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A lock file leaves versions open.

    An entry is pinned by ``==`` or ``===`` without a wildcard, by a file, or by a commit of a
    repository; of conda by ``==``, a build or a version of three numbers, and a framework only
    by its build, which alone says whether it has CUDA, and which. Ranges, bare names and branches
    let the next installation take something else. Constraints files are no locks.

    Fix: the line with the version that is installed, or a lock that a tool writes
    (`preflight lock --write`).
    """
    looked = [one for one in held(s) if not one.constraints]
    if not looked:
        yield no_locks(s)
        return
    for one in looked:
        open_ones = [pin for pin in one.pins if is_open(pin)]
        if not open_ones:
            yield Passed(f"{one.path} pins its {len(one.pins)} entries", one.path)
            continue
        open_ones.sort(key=lambda pin: not matters(m, pin.name))
        names = [_opened(pin) for pin in open_ones]
        yield Finding(
            summary=f"{one.path} leaves {len(open_ones)} of {len(one.pins)} versions open: "
            + some(names),
            observed=f"{one.path}: " + ", ".join(names[:20]),
            needed="one exact version of each",
            why="The next installation may take other versions than the last: 'it worked last "
            "week' is nearly always an environment that moved.",
            fix=_pasted(s, open_ones),
            evidence=evidence_of(one, open_ones),
            sources=("pypa-lock-formats",),
            subject=one.path,
        )


def _opened(pin: Pin) -> str:
    """An entry that leaves something open, and what that is where the version is not."""
    lacks = pin.manager and exact(pin) is not None
    return written(pin) + (" (its CUDA is in its build, which is not said)" if lacks else "")


def _pasted(s: Snapshot, pins: List[Pin]) -> Tuple[str, ...]:
    """The lines to paste: of what is installed."""
    lines = []
    for pin in pins[:20]:
        version = installed(s, pin)
        if version:
            lines.append(_line(s, pin, version))
    return tuple(lines) or ("preflight lock --write requirements.lock.txt",)


def _line(s: Snapshot, pin: Pin, version: str) -> str:
    if not pin.manager:
        return f"{pin.name}=={version}"
    build = s.python.builds_conda.get({}).get(pin.name)
    return f"{pin.name}={version}" + (f"={build}" if build else "")


# -- drift ------------------------------------------------------------------------------------

#: What comes with a build of torch.
_WITH_FRAMEWORK = ("triton", "pytorch-triton", "torchvision", "torchaudio")


def _witness(s: Snapshot, pin: Pin) -> str:
    """The fact that says which version of an entry's package is there."""
    if pin.manager:
        return "python.packages_conda"
    return "python.packages" if s.python.packages.known else "frameworks"


class Drift(NamedTuple):
    """An entry that what is installed does not meet; `found` empty: not installed."""

    pin: Pin
    found: str

    def __str__(self) -> str:
        wanted = self.pin.spec or self.pin.url or "any version"
        return f"{self.pin.name} {self.found or 'is missing'} ({wanted})"


def drifted(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """What is installed is not what the lock says.

    Entries are compared that are for the job's own Python and platform, by the rules of pip: a
    plain ``==2.6.0`` takes 2.6.0+cu124, ``==2.6.0+cu124`` takes nothing else; the local version
    that METADATA leaves out is read from version.py. Of several entries for one name, one must
    fit. A framework, CUDA library, NCCL or extension that differs from a lock which a tool wrote
    or somebody named fails, other drift warns. It only warns, too, where a vendor's build stands
    in for the framework and its libraries, where a lock that nobody named has nvidia-* wheels
    that are not there beside a framework that is (images bring CUDA otherwise; the ``link/*``
    rules say whether it is found), and where most of the lock is not installed: then it is
    another environment's.

    Fix: install what the lock says, or write the lock anew.
    """
    looked = [one for one in held(s) if not one.constraints]
    if not looked:
        yield no_locks(s)
        return
    if not s.python.packages.known and (s.python.packages.looked or s.origin != "described"):
        place = "python.packages" if s.python.packages.looked else "python.executable"
        yield Undecided((place,), "what is installed")
        return
    yield from _extra(s, looked)
    for one in looked:
        drift = list(_drift(s, one))
        there = sum(1 for pin in one.pins if pin.name and installed(s, pin) is not None)
        if not drift:
            if there:
                yield Passed(f"{there} entries of {one.path} are installed as it says", one.path)
            else:
                yield NotApplicable(f"nothing of {one.path} is known to be installed")
            continue
        others = foreign(s, one)
        grave = [d for d in drift if matters(m, d.pin.name) and not _stood_in_for(s, one, d)]
        hard = grave if one.strict and not others else []
        kept = set(hard)
        soft = [d for d in drift if d not in kept]
        if hard:
            yield _drift_finding(s, one, hard, FAIL)
        if soft:
            yield _drift_finding(s, one, soft, WARN, others)


def _drift(s: Snapshot, one: Held) -> Iterator[Drift]:
    for name, pins in one.by_name().items():
        if not name or name in ("python", "pip") or name.startswith("__"):
            continue
        found = installed(s, pins[0])
        if found is None:
            if complete(s) and _looked_for(s, pins[0]) and pins[0].group != "?":
                yield Drift(pins[0], "")
            continue
        build = s.python.builds_conda.get({}).get(name, "")
        if not any(admits(pin, found, build) for pin in pins):
            yield Drift(pins[0], found)


def _extra(s: Snapshot, looked: List[Held]) -> Iterator[Finding]:
    """What is installed and in none of the locks, where that was asked for."""
    if not any(one.lock.exact.value for one in looked) or not complete(s):
        return
    named = {pin.name for one in looked for pin in one.pins} | {"pip", "setuptools", "wheel"}
    # Groups and extras are in the lock too, whether this environment was made with them or not.
    named |= {pin.name for one in looked for pin in one.lock.entries.get(()) if pin.group}
    if "" in named or any(one.lock.format.value != "requirements" for one in looked):
        # "-e ." has no name, and the project of uv.lock, poetry.lock, … is no entry of its own.
        named |= {one.package for one in s.python.origins.get(()) if one.editable}
    extra = sorted(f"{name} {v}" for name, v in s.python.packages.get({}).items()
                   if name not in named)  # fmt: skip
    if extra:
        yield Finding(
            summary=f"{len(extra)} packages are installed and in no lock: {some(extra)}",
            observed=", ".join(extra[:50]),
            needed="nothing but what the lock says",
            why="What is not in the lock is not there the next time.",
            fix=(f"pip uninstall {' '.join(one.split(' ')[0] for one in extra[:20])}",
                 "add them to the lock"),
            subject="installed packages",
            severity=WARN,
        )  # fmt: skip


def _looked_for(s: Snapshot, pin: Pin) -> bool:
    return not pin.manager or s.python.packages_conda.known


def _stood_in_for(s: Snapshot, one: Held, drift: Drift) -> bool:
    """Whether something else is there in place of an entry.

    A vendor's or own build, which no public version names, brings its libraries along, or finds
    the image's. So do images that take the wheels of CUDA's libraries out again.
    """
    name = drift.pin.name
    library = of_cuda(name) or name in _WITH_FRAMEWORK
    own = [f for f in s.frameworks.get(()) if f.build.value in ("ngc", "source", "vendor")]
    if own and (library or any(f.name.value == name for f in own)):
        return True
    left_out = of_cuda(name) and not drift.found and not one.lock.named.value
    return left_out and bool(s.frameworks.value)


def _drift_finding(
    s: Snapshot, one: Held, drift: List[Drift], grade: str, foreign: bool = False
) -> Finding:
    words = [str(each) for each in drift]
    what = f"{len(drift)} packages are" if len(drift) > 1 else "one package is"
    summary = f"{what} not what {one.path} says: {some(words)}"
    if foreign:
        summary = f"{one.path} is not the lock of this environment: {some(words)}"
    sync = SYNC.get(one.lock.format.get(""), "install what {path} says")
    return Finding(
        summary=summary,
        observed=", ".join(words[:30]),
        needed=", ".join(written(each.pin) for each in drift[:30]),
        why="What was tested is what the lock says. An environment that moved fails in ways that "
        "name something else, or trains something else.",
        fix=(sync.format(path=one.path),
             "preflight lock --write FILE, if what is installed is what is wanted"),
        evidence=evidence_of(one, [each.pin for each in drift])
        + tuple(Evidence(_witness(s, d.pin), f"{d.pin.name} {d.found}", "installed")
                for d in drift[:20] if d.found and s.python.packages.known),
        sources=("pypa-lock-formats",),
        subject=one.path,
        severity=grade,
    )  # fmt: skip


# -- hashes -----------------------------------------------------------------------------------


def hash_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Installed files or downloads do not match their recorded hashes.

    Installers record the size and hash of every file (RECORD). By default the shared libraries of
    frameworks, of CUDA's wheels and of extensions are compared by size; with ``--thorough`` every
    file by its hash. Where an entry of a lock names one artefact with its hash (a URL, a conda
    package), and the installation says which one it was from, those two are compared. Code that
    was changed in a distribution that matters fails; a file that is gone warns here, since the
    ``link/*`` rules say whether it is needed, and so does a library of another size that is
    whole (images strip and patch them); texts and metadata are only mentioned.

    After an installation from an index nothing records the hash of the wheel itself, so the hashes
    of most lock entries cannot be checked any more.

    Fix: install the distribution again.
    """
    altered = s.python.altered
    said = False
    for package, files in _by_package(altered.get(())).items():
        said = True
        yield _altered(s, m, package, files)
    for one in held(s):
        for pin in one.pins:
            other = _other_hash(s, pin)
            if other:
                said = True
                yield _download(one, pin, other, severity(one, s))
    if said:
        return
    if altered.known:
        yield Passed("the files that were compared are as they were installed")
    elif altered.unknown and altered.looked:
        yield Undecided(("python.altered",), "whether the installed files are as recorded")
    else:
        yield NotApplicable("no recorded hash was looked at")


def _by_package(rows: Tuple[Altered, ...]) -> Dict[str, List[Altered]]:
    found: Dict[str, List[Altered]] = {}
    for one in rows:
        found.setdefault(one.package, []).append(one)
    return found


def _altered(s: Snapshot, m: Matrix, package: str, files: List[Altered]) -> Finding:
    code = [one for one in files if not one.file.endswith(TEXTS)]
    changed = [one for one in code if "missing" not in one.problem]
    damaged = [one for one in changed if "is whole" not in one.problem]
    grade = FAIL if damaged and matters(m, package) else WARN if code else INFO
    first = (damaged or changed or code or files)[0]
    more = f", and {len(files) - 1} more of its files" if len(files) > 1 else ""
    return Finding(
        summary=f"{first.file} of {package} {first.problem}{more}",
        observed=f"{package}: " + ", ".join(f"{one.file} {one.problem}" for one in files[:10]),
        needed="the files that were installed",
        why="A file that changed after its installation is damaged, was overwritten by another "
        "package, or was edited: what runs is not what the version says.",
        fix=(f"pip install --force-reinstall --no-deps {package}"
             + _pinned_to(s, package),),
        evidence=tuple(
            Evidence("python.altered", f"{one.file} {one.problem}", one.package)
            for one in files[:20]
        ),
        sources=("pypa-record",),
        subject=package,
        severity=grade,
    )  # fmt: skip


def _pinned_to(s: Snapshot, package: str) -> str:
    version = s.python.packages.get({}).get(package)
    return f"=={version}" if version else ""


def _other_hash(s: Snapshot, pin: Pin) -> Optional[str]:
    """The hash of what was installed, where it is another than the entry's."""
    if not pin.hash:
        return None
    kind = pin.hash.partition(":")[0]
    for one in (s.python.origins_conda if pin.manager else s.python.origins).get(()):
        same = one.package == pin.name and one.hash.startswith(kind + ":")
        if same and one.hash != pin.hash:
            return one.hash
    return None


def _origins(pin: Pin) -> str:
    return "python.origins_conda" if pin.manager else "python.origins"


def _download(one: Held, pin: Pin, other: str, grade: str) -> Finding:
    return Finding(
        summary=f"{pin.name} was installed from another file than {one.path} names",
        observed=f"{pin.name}: {other}",
        needed=pin.hash,
        why="The hash of the artefact that was installed is not the one in the lock.",
        fix=(f"install {pin.name} again from {pin.url or 'the file that the lock names'}",),
        evidence=(*evidence_of(one, [pin]), Evidence(_origins(pin), other, pin.name)),
        sources=("pypa-record",),
        subject=pin.name,
        severity=grade,
    )


__all__ = [
    "artifact_gone",
    "conflict",
    "framework_unsupported",
    "local_version_lost",
    "platform_dependencies_missing",
]
