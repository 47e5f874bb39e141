"""Rules about who installed what over whom: user site, conda beside pip, replaced builds, nvcc."""

from __future__ import annotations

import posixpath
import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import Matrix, cuda_numbers
from ..snapshot import Snapshot
from . import common, locked
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

_USER_SITE = re.compile(r"/\.local/lib/python[\d.]+t?/(site|dist)-packages(/|$)")


# -- user site and PYTHONPATH -------------------------------------------------------------------


class Hidden(NamedTuple):
    """A distribution that another copy hides, and by what the other comes first."""

    name: str
    version: str
    where: str
    by: str


def user_site_shadows(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Packages in the user site or PYTHONPATH hide the image's.

    Both come before the site-packages of the interpreter on sys.path. When a home directory is
    mounted into the container, or PYTHONPATH points at a shared disk, what somebody installed there
    for another image is imported instead. Decided by the order of sys.path and the distributions
    in each directory: the same name in another version further behind is hidden. A framework, a
    CUDA library or an extension warns (it may be meant, after ``pip install --user``); others are
    mentioned. A description that shows a library loaded from the user site, while the framework
    itself is not there, fails.

    Fix: export PYTHONNOUSERSITE=1 (python -s), unset PYTHONPATH, or install into the image.
    """
    hidden = _hidden(s)
    stray = _stray_libraries(s)
    if hidden:
        yield from _shadows(s, m, hidden)
    elif stray and s.origin == "described":
        yield _stray(s, stray)
    elif s.python.path.known and s.python.packages.known:
        yield Passed("nothing in the user site or PYTHONPATH hides what is installed here")
    else:
        yield NotApplicable("sys.path and what lies on it are not known")


def _hidden(s: Snapshot) -> List[Hidden]:
    path = list(s.python.path.get(()))
    found = []
    for other in s.python.packages.differs:
        folder = posixpath.dirname(other.source)
        earlier = path[: path.index(folder)] if folder in path else []
        by = [_early(s, one) for one in earlier]
        if by and all(by) and isinstance(other.value, dict):
            found += [Hidden(name, str(v), other.source, by[0]) for name, v in other.value.items()]
    return found


def _early(s: Snapshot, entry: str) -> str:
    """By what a directory of sys.path comes before the site-packages; empty: by neither."""
    given = s.variable("PYTHONPATH").get("").split(":")
    if entry in (one.rstrip("/") for one in given if one):
        return "PYTHONPATH"
    base = s.variable("PYTHONUSERBASE").value
    mine = bool(base) and entry.startswith(str(base).rstrip("/") + "/")
    return "the user site" if mine or _USER_SITE.search(entry) else ""


def _shadows(s: Snapshot, m: Matrix, hidden: List[Hidden]) -> Iterator[Finding]:
    groups = [[one for one in hidden if locked.matters(m, one.name) is weighty]
              for weighty in (True, False)]  # fmt: skip
    for severity, group in zip((WARN, INFO), groups):
        if group:
            yield _shadow(s, severity, group)


def _shadow(s: Snapshot, severity: str, group: List[Hidden]) -> Finding:
    now = s.python.packages.get({})
    words = [f"{one.name} {now.get(one.name, '?')} instead of {one.version}" for one in group]
    by = group[0].by
    cure = "unset PYTHONPATH" if by == "PYTHONPATH" else "export PYTHONNOUSERSITE=1"
    return Finding(
        summary=f"{by} hides what this image has: {locked.some(words)}",
        observed=", ".join(words[:20]),
        needed="one copy of each, the image's",
        why="It comes before site-packages on sys.path: what was installed there, perhaps for "
        "another image, is imported instead of what this image was built and tested with.",
        fix=(cure, f"or, where it is meant: pip uninstall {group[0].name} in the image"),
        evidence=(
            *(Evidence("python.packages", f"{one.name} {one.version}", one.where)
              for one in group[:20]),
            *evidence(s, "env.PYTHONPATH", "env.PYTHONNOUSERSITE"),
        ),
        severity=severity,
    )  # fmt: skip


def _stray_libraries(s: Snapshot) -> List[Tuple[str, str]]:
    """(place, path) of libraries that would come from a user site which no framework is in."""
    if any(_USER_SITE.search(one.path.get("")) for one in s.frameworks.get(())):
        return []
    if s.variable("PYTHONNOUSERSITE").get(""):
        return []
    places = ((f"libraries[{n}].path", one.path.get("")) for n, one in
              enumerate(s.libraries.get(())))  # fmt: skip
    return [(place, path) for place, path in places if _USER_SITE.search(path)]


def _stray(s: Snapshot, stray: List[Tuple[str, str]]) -> Finding:
    return Finding(
        summary=f"{stray[0][1]} of a user's home would be loaded instead of the image's",
        observed=", ".join(path for _place, path in stray[:10]),
        needed="the libraries of the image",
        why="The user site comes before site-packages on sys.path: packages that somebody "
        "installed at home, for another Python or image, are picked up in the container.",
        fix=("export PYTHONNOUSERSITE=1", "do not mount the home directory into the container"),
        evidence=evidence(s, *(place for place, _path in stray[:10]), "env.HOME"),
        severity=FAIL,
    )


# -- conda and pip ----------------------------------------------------------------------------

#: What conda calls packages that pip calls otherwise.
_CONDA = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch",
          "torchvision": "torchvision", "torchaudio": "torchaudio", "tensorflow": "tensorflow",
          "tensorflow-gpu": "tensorflow", "jax": "jax", "jaxlib": "jaxlib"}  # fmt: skip


def mixed_installers(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The same framework was installed by pip and by conda.

    conda's records (conda-meta) name one release, the metadata that Python finds another: one
    copy has been written over the other, or lies beside it. Conda's own packages have that
    metadata too, so equal releases are one installation.

    Fix: keep one: conda remove --force pytorch, or pip uninstall torch, then install it again.
    """
    conda, pip = s.python.packages_conda, s.python.packages
    if not conda.known or not pip.known:
        yield NotApplicable("not both of conda's and pip's packages are known")
        return
    both, mixed = [], []
    for name, plain in _CONDA.items():
        first, second = conda.get({}).get(name), pip.get({}).get(plain)
        if first and second:
            both.append(plain)
            if _release(first) != _release(second):
                mixed.append((name, plain, first, second))
    yield from (_mixed(s, *one) for one in mixed)
    if both and not mixed:
        yield Passed(f"conda and pip agree on {', '.join(dict.fromkeys(both))}")
    elif not both:
        yield NotApplicable("no framework is known to both conda and pip")


def _release(version: str) -> str:
    return re.sub(r"(\.0)+$", "", re.split(r"[+_]|\.?(post|dev|a|b|rc)\d", version)[0])


def _mixed(s: Snapshot, conda: str, plain: str, first: str, second: str) -> Finding:
    return Finding(
        summary=f"{plain} is here twice: {first} by conda, {second} by pip",
        observed=f"conda: {conda} {first}; metadata in site-packages: {plain} {second}",
        needed=f"one {plain}",
        why="Which one is imported depends on the order of directories and on which was written "
        "last; what asks for its version gets the other one's, and their CUDA libraries mix.",
        fix=(f"pip uninstall {plain}; then conda install --force-reinstall {conda}",
             f"or conda remove --force {conda}; then pip install --force-reinstall {plain}"),
        evidence=(
            Evidence("python.packages_conda", f"{conda} {first}", s.python.packages_conda.source),
            Evidence("python.packages", f"{plain} {second}", s.python.packages.source),
        ),
        subject=plain,
        severity=WARN,
    )  # fmt: skip


# -- a vendor's build -------------------------------------------------------------------------

_INCOMPATIBLE = re.compile(
    r"([\w.-]+)(?: \S+)?.* requires ([\w.-]+).* but you have ([\w.-]+) (\S+) which is incompatible"
)


def build_replaced(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A vendor's framework build was replaced by a public wheel (or part of it overwritten).

    NVIDIA's images say which build of torch they were made with (PYTORCH_BUILD_VERSION): another
    one in its place was installed over it, and the image's extensions, built against the first,
    no longer fit. In such an image, a package that a later installation changed against what
    another of its packages requires is a part of it overwritten.

    Fix: start again from the image, and install with its constraint file
    (pip install -c /etc/pip/constraint.txt) or without the framework among the requirements.
    """
    shipped = s.variable("PYTORCH_BUILD_VERSION").value or ""
    vendor = [one for one in s.frameworks.get(()) if one.build.value in ("ngc", "vendor")]
    torch = next((one for one in s.frameworks.get(()) if one.name.value == "torch"), None)
    if "nv" in shipped and torch and torch.version.known:
        yield _against_image(s, shipped, torch.version.get(""))
        return
    if not vendor:
        yield NotApplicable("no vendor's build of a framework is told of")
        return
    overwritten = _overwritten(s, m)
    if overwritten:
        yield _part(s, overwritten)
    elif s.python.unmet.known:
        yield Passed("the vendor's packages have what they require")
    else:
        yield NotApplicable("what the vendor's packages require is not known")


def _against_image(s: Snapshot, shipped: str, here: str) -> Outcome:
    if here == shipped or "nv" in here:
        return Passed(f"torch {here} is the image's build")
    return Finding(
        summary=f"torch {here} has replaced the image's own build {shipped}",
        observed=f"torch {here}; PYTORCH_BUILD_VERSION={shipped}",
        needed=f"torch {shipped}",
        why="The image's extensions (Transformer Engine, apex, flash-attn, torchvision) were "
        "built against NVIDIA's build: with another they end in undefined symbols.",
        fix=("pip install -c /etc/pip/constraint.txt …, in a fresh container of this image",
             "take torch out of the requirements"),
        evidence=evidence(s, "env.PYTORCH_BUILD_VERSION"),
        subject="torch",
        severity=WARN,
    )  # fmt: skip


class Overwritten(NamedTuple):
    """A package that no longer is what another one requires."""

    owner: str
    name: str
    found: str
    proof: Optional[Evidence]


def _overwritten(s: Snapshot, m: Matrix) -> List[Overwritten]:
    found = [
        Overwritten(one.owner, one.name, one.found,
                    Evidence("python.unmet", one.needs or one.name, one.source))
        for one in s.python.unmet.get(())
        if one.found and one.name and locked.matters(m, one.name)
    ]  # fmt: skip
    installed = s.python.packages.get({})
    for line in s.logs.get(()):
        said = _INCOMPATIBLE.search(line)
        # pip's own words, about what the facts show to be here.
        for owner in (one for one in installed if said and one in line.split(" requires ")[0]):
            if said and installed.get(said.group(3)) == said.group(4):
                proof = Evidence("logs", line[:200], s.logs.source)
                found.append(Overwritten(owner, said.group(3), said.group(4), proof))
    return found


def _part(s: Snapshot, overwritten: List[Overwritten]) -> Finding:
    words = [f"{one.name} {one.found} against what {one.owner or 'another package'} requires"
             for one in overwritten]  # fmt: skip
    return Finding(
        summary=f"part of the image's build was overwritten: {locked.some(words)}",
        observed=", ".join(words[:20]),
        needed="the versions that the image was built with",
        why="In a vendor's image the packages are one matched set; a requirements file that "
        "installs one of them again breaks the others.",
        fix=(f"take {overwritten[0].name} out of the requirements, and start from the image",
             "pip install -c /etc/pip/constraint.txt …"),
        evidence=tuple(one.proof for one in overwritten[:20] if one.proof),
        severity=WARN,
    )  # fmt: skip


# -- nvcc -------------------------------------------------------------------------------------


def toolkit_major_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """nvcc in the image is of another CUDA major than the framework: building extensions fails.

    torch.utils.cpp_extension refuses to build with an nvcc of another major than torch's CUDA
    ("The detected CUDA version mismatches the version that was used to compile PyTorch"); another
    minor of the same major is only warned of there. It says nothing about running what is built.
    It warns where the job is known to build extensions; otherwise it is only mentioned.

    Fix: an image with the toolkit of the framework's CUDA, or the framework's build for this one.
    """
    here = s.toolkit.version.value
    own = cuda_numbers(here) if here else None
    found = [one for one in common.builds(s, m) if cuda_numbers(one.cuda)]
    if own is None or not here:
        # Where nothing is known to be built, the answer would only be mentioned.
        unsure = s.toolkit.version.looked and s.job.builds_extensions.value is True
        unsure = unsure and bool(s.toolkit.version.unknown)
        known = Undecided(("toolkit.version",), "which nvcc is here")
        yield known if unsure and found else NotApplicable("no CUDA toolkit is known here")
        return
    if not found:
        yield common.no_builds(s, m)
        return
    for build in found:
        theirs = cuda_numbers(build.cuda)
        if theirs and theirs[0] == own[0]:
            yield Passed(f"nvcc {here} is of the same major as {build.label}", build.label)
        else:
            yield _toolkit(s, here, build)


def _toolkit(s: Snapshot, here: str, build: common.Build) -> Finding:
    builds = s.job.builds_extensions.value is True
    major = build.cuda.partition(".")[0]
    return Finding(
        summary=f"nvcc {here} is here, and {build.label} was built with CUDA {build.cuda}: "
        "building extensions fails",
        observed=f"CUDA toolkit {here}; {build.label} with CUDA {build.cuda}",
        needed=f"an nvcc of CUDA {major}, {build.cuda} at best",
        why="torch.utils.cpp_extension refuses an nvcc of another major. What is installed "
        "already runs all the same: the framework brings its own libraries.",
        fix=(f"an image nvidia/cuda:{build.cuda}.*-devel, or CUDA_HOME of that toolkit",
             f"or the framework's build for CUDA {here}"),
        evidence=evidence(s, "toolkit.version", "toolkit.nvcc", "job.builds_extensions",
                          *build.places),
        subject=build.label,
        severity=WARN if builds else INFO,
    )  # fmt: skip
