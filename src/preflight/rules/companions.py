"""Packages that belong to one release of a framework: the `framework/*-mismatch` rules on them."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from ..matrix import Matrix, cuda_numbers, cuda_of_tag, numbers
from ..snapshot import Framework, Snapshot
from . import common
from .registry import FAIL, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

COMPANIONS = ("torchvision", "torchaudio")
PLUGINS = ("plugin", "pjrt")
#: From and below: releases that ask for the CUDA minor of torch as well; the others for its major.
BY_MINOR = {"torchvision": ((0,), (0, 16)), "torchaudio": ((2, 0, 2), (2, 10))}


def companion_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """torchvision, torchaudio or triton do not belong to this torch.

    Each torchvision and most torchaudio releases are built against one torch release and register
    operators in it. Decided by the table of which belongs to which; builds of vendors (NGC) and
    source builds have pairs of their own and stay undecided. Another minor release fails; another
    patch release of the same minor is a warning.

    Fix: the release that belongs to this torch, from the same index.
    """
    torch = next((one for one in s.frameworks.get(()) if one.name.value == "torch"), None)
    packages = s.python.packages.get({})
    present = {name: packages[name] for name in COMPANIONS if name in packages}
    if torch is not None and s.python.packages.unknown and s.python.packages.looked:
        yield Undecided(("python.packages",), "which companions of torch are installed")
        return
    if torch is None or not torch.version.known or not present:
        yield NotApplicable("no torch with a companion here")
        return
    if torch.build.get("pip") not in ("pip", "conda") or ".nv" in torch.version.get(""):
        kind = torch.build.get("vendor's")
        yield NotApplicable(f"a {kind} build has companions of its own")
        return
    for name, version in present.items():
        yield _cuda(s, m, torch, name, version) or _companion(s, m, torch, name, version)


def _cuda(s: Snapshot, m: Matrix, torch: Framework, name: str, version: str) -> Optional[Outcome]:
    """What is wrong with the CUDA that a companion's local version names (0.20.1+cu124)."""
    theirs, mine = cuda_of_tag(version.partition("+")[2]), common.cuda_of(s, m, torch)
    cpu = torch.cuda.absent or torch.version.get("").endswith("+cpu")
    if not theirs or not (mine or cpu):
        return None
    made, have = cuda_numbers(theirs), cuda_numbers(mine or "0")
    first, last = BY_MINOR[name]
    by_minor = first <= numbers(version) < last
    if made and have and (made == have or made[0] == have[0] and not by_minor):
        return None
    label, kind = f"{name} {version}", f"a CUDA {mine} build" if mine else "no CUDA build"
    return Finding(
        summary=f"{label} is built for CUDA {theirs}, and torch {torch.version.value} is {kind}",
        observed=f"{label} with torch {torch.version.value} ({kind})",
        needed=f"the {name} of the index that torch is from",
        why="It compares at import and stops: 'Detected that PyTorch and "
        f"{name} were compiled with different CUDA versions' (on a CPU build: 'operator "
        "torchvision::nms does not exist').",
        fix=(f"reinstall {name} together with torch, from one index",),
        evidence=evidence(s, "python.packages", *_torch_places(s)),
        sources=(name + "-extension",),
        subject=label,
    )


def _companion(s: Snapshot, m: Matrix, torch: Framework, name: str, version: str) -> Outcome:
    release = (torch.version.value or "").partition("+")[0]
    public = version.partition("+")[0]
    label = f"{name} {version}"
    if not _same_kind(public):  # nightlies go together by their day, whatever their numbers
        return NotApplicable(f"{label} is a development or vendor build")
    fits = m.torches_of(name, public)
    expected = _expected(m, release, name)
    if not fits and not expected:
        return Undecided(("frameworks",), f"which torch {label} belongs to", label)
    same = any(numbers(one) == numbers(release) for one in fits)
    if _same_kind(release) and (same or m.accepts(name, public, release)):
        return Passed(f"{label} belongs to torch {release}", label)
    if not fits and numbers(public) > max(map(numbers, expected)):
        return Undecided(("frameworks",), f"which torch {label} belongs to", label)
    mine = {numbers(one)[:2] for one in fits} or {numbers(one)[:2] for one in expected}
    near = numbers(release)[:2] in mine if fits else numbers(public)[:2] in mine
    if near and torch.build.value == "conda":
        return Passed(f"{label} is of the line of torch {release}, which conda pins", label)
    if near and not _same_kind(release):
        return Undecided(("frameworks",), f"whether {label} was built for this snapshot", label)
    belongs = f"torch {', '.join(fits)}" if fits else "another torch"
    want = f"{name}=={expected[-1]}" if expected else f"the {name} of torch {release}"
    return Finding(
        summary=f"{label} is built for {belongs}, and torch {torch.version.value} is installed",
        observed=f"{label} with torch {torch.version.value}",
        needed=want,
        why="It registers operators in the torch it was built with: 'operator torchvision::nms "
        "does not exist', 'undefined symbol', or a failing import.",
        fix=(f"pip install {want}" if expected else f"reinstall {name} together with torch",),
        evidence=evidence(s, "python.packages", *_torch_places(s)),
        subject=label,
        severity=WARN if near else FAIL,
    )


def _same_kind(release: str) -> bool:
    """Whether a torch release is one (not a nightly or a vendor's alpha), rebuilt or not."""
    return all(part.isdigit() or part.startswith("post") for part in release.split("."))


def _expected(m: Matrix, release: str, name: str) -> List[str]:
    """The versions of a companion that belong to a torch release (for a nightly: to its minor)."""
    row = m.companion(release)
    if row is None and not _same_kind(release):
        rows = [m.companion(one) for one in m.torch_releases()
                if numbers(one)[:2] == numbers(release)[:2]]  # fmt: skip
        return [v for r in rows if r for v in r.get(name, [])]
    return list(row.get(name, [])) if row else []


def _torch_places(s: Snapshot) -> Tuple[str, ...]:
    for number, one in enumerate(s.frameworks.get(())):
        if one.name.value == "torch":
            return (f"frameworks[{number}].version",)
    return ()


def plugin_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A framework and its CUDA plugin do not belong together.

    JAX loads CUDA through jax-cudaNN-plugin and jax-cudaNN-pjrt, which must be of jaxlib's own
    version: others are refused or crash at the first device ('Mismatched PJRT plugin').

    Fix: install all of them with one command: pip install "jax[cudaNN]==VERSION".
    """
    packages = s.python.packages.get({})
    jaxlib = packages.get("jaxlib")
    plugins = _plugins(packages)
    if s.python.packages.unknown and s.python.packages.looked:
        yield Undecided(("python.packages",), "which JAX plugins are installed")
        return
    if not jaxlib or not plugins:
        yield NotApplicable("no JAX plugin here")
        return
    base = jaxlib.partition("+")[0]
    # As jaxlib compares them (plugin_support.py): by the leading numbers alone.
    wrong = {name: v for name, v in plugins.items() if numbers(v) != numbers(base)}
    if not wrong:
        yield Passed(f"the JAX plugins are of jaxlib's version {base}")
        return
    shown = ", ".join(f"{name} {version}" for name, version in wrong.items())
    major = "".join(c for c in next(iter(wrong)).split("-")[1] if c.isdigit())
    yield Finding(
        summary=f"{shown} with jaxlib {jaxlib}: plugin and jaxlib must be of one version",
        observed=f"jaxlib {jaxlib}, {shown}",
        needed=f"jaxlib and its plugins of one version ({base})",
        why="The plugin's interface is tied to jaxlib: it is refused, and JAX falls back to the "
        "CPU or stops ('Mismatched PJRT plugin PJRT API version').",
        fix=(f'pip install "jax[cuda{major}]=={packages.get("jax", base)}"',),
        evidence=evidence(s, "python.packages"),
        subject="jax",
    )


def _plugins(packages: Mapping[str, str]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for name, version in packages.items():
        parts = name.split("-")
        cuda = len(parts) == 3 and parts[0] == "jax" and parts[1].startswith("cuda")
        if cuda and parts[2] in PLUGINS:
            found[name] = version.partition("+")[0]
    return found
