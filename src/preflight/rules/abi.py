"""Compiled extensions against the torch, CUDA, Python and NumPy they were built for."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import Matrix, cuda_numbers, numbers
from ..snapshot import BuiltFor, Extension, Framework, Snapshot
from . import common
from .registry import Finding, NotApplicable, Outcome, Passed, Undecided, evidence


class Built(NamedTuple):
    """An extension, and what it was built for."""

    place: str
    label: str
    name: str
    made_for: BuiltFor
    missing: Optional[Tuple[str, ...]] = None


def extensions(s: Snapshot) -> List[Built]:
    """The extensions whose build is known in part at least."""
    found = []
    for number, one in enumerate(s.extensions.get(())):
        if one.built_for.value:
            place, missing = f"extensions[{number}]", one.missing_symbols.value
            found.append(Built(place, _label(one), one.name.get(""), one.built_for.value, missing))
    return found


def _label(one: Extension) -> str:
    return " ".join(filter(None, (one.name.value or "an extension", one.version.value)))


def _torch(s: Snapshot) -> Tuple[Optional[Framework], str]:
    for number, one in enumerate(s.frameworks.get(())):
        if one.name.value == "torch":
            return one, f"frameworks[{number}]"
    return None, ""


def extension_abi_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A compiled extension was built against another torch, CUDA or C++ ABI.

    torch keeps no binary interface between minor releases, nor between a nightly or vendor's
    build and a release of the same number. The C++ ABI is that of std::string (CXX11 ABI):
    torch's wheels changed to the new one with 2.6.0+cu126 and 2.7. CUDA must be of one major.

    Fix: a build of the extension for this torch, or the torch it was built for.
    """
    torch, place = _torch(s)
    found = extensions(s)
    if torch is None or not found:
        yield NotApplicable("no extension whose build is known, or no torch")
        return
    for one in found:
        yield _abi(s, m, torch, place, one)


def _abi(s: Snapshot, m: Matrix, torch: Framework, place: str, one: Built) -> Outcome:
    made_for, label = one.made_for, common.framework_label(torch)
    abi, cuda = made_for.cxx11_abi, made_for.cuda
    problems, agreed = [], []
    if abi.known and torch.cxx11_abi.known:
        agreed.append("cxx11_abi")
    if agreed and abi.value != torch.cxx11_abi.value:
        problems.append((
            f"the {'new' if abi.value else 'old'} C++ ABI",
            f"{label} has the {'new' if torch.cxx11_abi.value else 'old'} one",
        ))  # fmt: skip
    bound = made_for.torch.known and torch.version.known and m.binds(one.name) != "cuda-version"
    same = _same_torch(made_for.torch.get(""), torch.version.get("")) if bound else None
    if same is False:
        problems.append((f"torch {made_for.torch.value}", f"{label} is installed"))
    own = common.cuda_of(s, m, torch)
    theirs = cuda_numbers(cuda.value) if cuda.value else None
    mine = cuda_numbers(own) if own else None
    if theirs and mine and theirs[0] != mine[0]:
        problems.append((f"CUDA {cuda.value}", f"{label} is a CUDA {own} build"))
    by_cuda = m.binds(one.name) == "cuda-version"
    if theirs and not by_cuda and (torch.cuda.absent or torch.version.get("").endswith("+cpu")):
        problems.append((f"CUDA {cuda.value}", f"{label} is no CUDA build"))
    if one.missing:
        shown = ", ".join(one.missing[:2])
        problems.append(("another torch", f"{label} lacks {shown}"))
    if not problems:
        agreed += ["torch"] if same else []
        agreed += ["cuda"] if theirs and mine else []
        agreed += ["symbols"] if one.missing is not None else []
        if agreed and (same or not bound or one.missing is not None):
            return Passed(f"{one.label} fits {label} ({', '.join(agreed)})", one.label)
        missing = [one.place + (".built_for.cuda" if by_cuda else ".built_for.torch")]
        missing += [place + ".version"] if not torch.version.known else []
        return Undecided(tuple(missing), f"whether {one.label} fits {label}", one.label)
    built, have = problems[0]
    return Finding(
        summary=f"{one.label} was built for {built}, and {have}",
        observed=f"{one.label} built for {', '.join(b for b, _ in problems)}",
        needed=f"a build of {one.name or 'the extension'} for {label}",
        why="The CUDA it was built with is not loaded by this torch: 'libcudart.so.N: cannot open "
        "shared object file', or two CUDA runtimes in one process."
        if built.startswith("CUDA")
        else "Its symbols are not in this torch: the import stops with 'undefined symbol' "
        "(_ZN3c10…, _ZN2at…).",
        fix=(
            f"pip install --force-reinstall --no-build-isolation --no-cache-dir {one.name}"
            if one.name
            else "rebuild the extension in this environment",
        ),
        evidence=evidence(s, one.place + ".name", one.place + ".version",
                          *[f"{one.place}.built_for.{n}" for n in ("torch", "cuda", "cxx11_abi")],
                          place + ".version", place + ".cuda", place + ".cxx11_abi"),
        subject=one.label,
    )  # fmt: skip


def _same_torch(built: str, have: str) -> Optional[bool]:
    """Whether a build for `built` loads in `have`: one release line; a nightly only in itself.

    None when it cannot be told: no version, a line alone ("2.6") beside a nightly, or two
    snapshots of one development version.
    """
    one, _, mine = built.partition("+")
    other, _, theirs = have.partition("+")
    made, there = numbers(one)[:2], numbers(other)[:2]
    if made[: len(there)] != there[: len(made)]:
        return False
    if len(made) < 2 or len(there) < 2:
        return None
    if _release(one) and _release(other):
        return True
    if one.count(".") < 2 and _release(one):  # "2.6" alone
        return None
    if one != other:
        return False
    return None if "a" in one and mine != theirs else True  # an alpha is told by its commit


def _release(version: str) -> bool:
    """A release, rebuilt (2.1.2.post304 of conda-forge) or not."""
    return all(part.isdigit() or part.startswith("post") for part in version.split("."))


def python_abi_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Compiled modules are for another Python.

    A module built for one minor version of CPython is not even looked at by another: the file
    name carries the tag (cpython-311), except for the limited API (abi3).

    Fix: install the packages anew with this Python.
    """
    python = numbers(s.python.version.get(""))[:2]
    judged = [one for one in extensions(s) if numbers(one.made_for.python.get(""))]  # no abi3
    if not judged:
        yield NotApplicable("no compiled module whose Python is known")
        return
    if not python:
        yield Undecided(("python.version",), "whether the compiled modules are for this Python")
        return
    wrong = [one for one in judged if not _same_python(one.made_for.python.get(""), python)]
    for one in wrong:
        yield Finding(
            summary=f"{one.label} is compiled for Python {one.made_for.python.value}, and this is "
            f"{s.python.version.value}",
            observed=f"{one.label} for Python {one.made_for.python.value}",
            needed=f"a build for Python {s.python.version.value}",
            why="The interpreter does not find it: 'No module named …', or a missing _C.",
            fix=(f"pip install --force-reinstall {one.name or 'it'}",),
            evidence=evidence(s, "python.version", one.place + ".built_for.python"),
            subject=one.label,
        )
    if not wrong:
        yield Passed("every compiled module is for this Python")


def _same_python(built: str, python: Tuple[int, ...]) -> bool:
    made = numbers(built)[:2]
    return made == python[: len(made)]


def numpy_abi_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Built against another NumPy major.

    A module compiled with NumPy 1 cannot be run in NumPy 2 (2.0 changed the C interface); one
    compiled with NumPy 2 runs in both (NumPy 2.0 release notes).

    Fix: numpy<2, or a build of the module for NumPy 2.
    """
    have = numbers(s.python.packages.get({}).get("numpy", ""))
    judged = [one for one in extensions(s) if numbers(one.made_for.numpy.get(""))]
    if judged and s.python.packages.unknown:
        yield Undecided(("python.packages",), "which NumPy is installed")
        return
    if not have or not judged:
        yield NotApplicable("no compiled module whose NumPy is known")
        return
    wrong = [one for one in judged if (numbers(one.made_for.numpy.get("")) or (0,))[0] < have[0]]
    for one in wrong:
        yield Finding(
            summary=f"{one.label} was compiled with NumPy {one.made_for.numpy.value}, and NumPy "
            f"{'.'.join(map(str, have))} is installed",
            observed=f"{one.label} for NumPy {one.made_for.numpy.value}",
            needed=f"NumPy {(numbers(one.made_for.numpy.get('')) or (1,))[0]}.x, or another build",
            why="'A module that was compiled using NumPy 1.x cannot be run in NumPy 2'.",
            fix=('pip install "numpy<2"', f"pip install --upgrade {one.name or 'the module'}"),
            evidence=evidence(s, "python.packages", one.place + ".built_for.numpy"),
            subject=one.label,
        )
    if not wrong:
        yield Passed("every compiled module fits this NumPy")
