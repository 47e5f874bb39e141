"""TensorFlow and JAX take the CPU without an error where a CUDA library cannot be opened."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from ..matrix import Matrix, numbers
from ..snapshot import Framework, Snapshot
from . import common
from .lacking import LISTED, few
from .linked import Linked, asked_by, libraries
from .registry import INFO, WARN, Finding, evidence

#: What each says of it, in its log only.
SAYS = {
    "tensorflow": "'Cannot dlopen some GPU libraries. … Skipping registering GPU devices'",
    "jax": "'Jax plugin configuration error', 'Unable to load … Is it installed?'",
}


def is_quiet(one: Linked) -> bool:
    """Whether one of them looks for it, and goes on without."""
    return asked_by(one) in SAYS and one.library.required.value is False


def unopened(s: Snapshot, m: Matrix, found: List[Linked]) -> Iterator[Finding]:
    """One finding for each of them: all that it cannot open has one cause and one cure."""
    for name in SAYS:
        lost = [one for one in found if asked_by(one) == name]
        if lost:
            yield _finding(s, m, name, lost)


def _finding(s: Snapshot, m: Matrix, name: str, lost: List[Linked]) -> Finding:
    names = list(dict.fromkeys(one.name for one in lost))
    label, cuda = _label(s, name)
    return Finding(
        summary=f"{few(names)} cannot be opened, and {label} takes the CPU without "
        f"{'it' if len(names) == 1 else 'them'}",
        observed=f"no {few(names, LISTED)} where {name} looks",
        needed=f"each library that {name} opens for a GPU",
        why=f"It says so in its log only: {SAYS[name]}. The job goes on, on the CPU.",
        fix=_fix(s, name, lost, cuda),
        evidence=evidence(s, *[place for one in lost for place in one.proof],
                          "env.LD_LIBRARY_PATH"),
        subject=label,
        severity=INFO if _elsewhere(s, m, name) else WARN,
    )  # fmt: skip


def _elsewhere(s: Snapshot, m: Matrix, name: str) -> bool:
    """Whether the job has no GPU, or another framework that it may well be about."""
    beside = [one for one in common.builds(s, m) if one.framework.name.value != name]
    quiet = {asked_by(one) for one in _quiet(s)}
    fine = [one for one in beside if one.framework.name.value not in quiet]
    return bool(fine) or s.gpus.value == () or common.gpu_hidden(s) is not None


def _quiet(s: Snapshot) -> Iterator[Linked]:
    return (one for one in libraries(s) if one.library.missing.value and is_quiet(one))


def _label(s: Snapshot, name: str) -> Tuple[str, str]:
    """(the framework with its version, its CUDA major)."""
    for one in s.frameworks.get(()):
        if one.name.value == name:
            return common.framework_label(one), str((numbers(one.cuda.get("")) or ("",))[0])
    return name, ""


def _fix(s: Snapshot, name: str, lost: List[Linked], cuda: str) -> Tuple[str, ...]:
    """What lies in a wheel that is installed only needs to be looked for there."""
    folders: Dict[str, None] = {}
    for one in lost:
        path = one.library.path.get("")
        if one.library.damaged.known:
            return (f"reinstall the package that brings {one.name}",)
        if path:
            folders[path.rpartition("/")[0]] = None
    if folders and all(one.library.path.known for one in lost):
        return (f"export LD_LIBRARY_PATH={':'.join(folders)}:$LD_LIBRARY_PATH",)
    build = next((one for one in s.frameworks.get(()) if one.name.value == name), Framework())
    if build.build.get("pip") != "pip":
        return (f"install {few([one.name for one in lost])} where the loader looks",)
    version = build.version.get("")
    extra = "and-cuda" if name == "tensorflow" else f"cuda{cuda}" if cuda else "cuda"
    pin = f"=={version.partition('+')[0]}" if numbers(version) else ""
    return (f'pip install "{name}[{extra}]{pin}"',)
