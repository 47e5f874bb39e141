"""What a lock would install: the build of the framework, for which platform, and from where."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Iterator, List, NamedTuple, Optional, Tuple

from .. import builds
from ..lockfiles.applying import SUBDIRS, Target, holds
from ..lockfiles.model import LOCK, of_default_index
from ..matrix import Matrix, Row
from ..snapshot import Fact, Framework, Pin, Snapshot, absent, known, unknown
from . import driver, gpu
from .common import framework_label, gpu_hidden
from .locked import BY_BUILD, Held, evidence_of, exact, held, installed, severity, some, written
from .registry import (
    FAIL,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Undecided,
    evidence,
)

WHEELS = "https://download.pytorch.org/whl/"
#: The packages that the torch index has beside PyPI.
OF_INDEX = ("torch", "torchvision", "torchaudio")
_INDEX = re.compile(
    r"(?:download(?:-r2)?\.pytorch\.org|pytorch-wheels|/pytorch)\S*?/(cu\d+|cpu|rocm[\d.]+)\b"
)
_NVIDIA = re.compile(r"nvidia-[a-z-]+-cu(\d+)")


def local_version_lost(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The lock dropped the +cuNNN local version (or its index), so another build installs.

    PyPI has one build of each torch release: another CUDA than many jobs need, and on aarch64 up
    to 2.10.0 none at all. Two losses are looked for. An entry with a local version
    (``torch==2.4.0+cu118``) and no index line, variable or index of the entry that has such
    builds: it cannot be installed. A plain ``torch==2.4.0`` without such an index, where another
    build was meant: torchvision or torchaudio beside it, the nvidia-* wheels, or the torch that is
    installed name another CUDA than PyPI's build has. What is installed as the entry says only
    warns: it runs, and cannot be installed again.

    Fix: the entry with its local version, and the line
    ``--extra-index-url https://download.pytorch.org/whl/cuNNN``.
    """
    looked = [one for one in held(s) if any(pin.name in OF_INDEX for pin in one.pins)]
    if not looked:
        yield NotApplicable("no lock file with torch here")
        return
    for one in looked:
        found = _without_index(s, one) or _plain(s, m, one)
        yield found or Passed(f"{one.path} installs the build of torch that it means", one.path)


def _indexes(s: Snapshot, one: Held) -> List[str]:
    """The indexes that an installer would ask besides PyPI and its mirrors: of the file, of
    variables and pip's configuration."""
    asked = [*one.lock.indexes.get(()), *s.python.indexes.get(())]
    return [each for each in asked if not of_default_index(each)]


def _without_index(s: Snapshot, one: Held) -> Optional[Finding]:
    if one.lock.format.value not in ("requirements", "conda-environment", None):
        return None  # the other formats say of each entry where it is from
    lost = [
        pin
        for pin in one.pins
        if pin.name in OF_INDEX and "+" in (exact(pin) or "") and not pin.url and not pin.index
    ]
    if not lost or _indexes(s, one):
        return None  # another index may be a mirror that has them
    tag = (exact(lost[0]) or "").partition("+")[2]
    there = all(installed(s, pin) == exact(pin) for pin in lost)
    return Finding(
        summary=f"{one.path} asks for {some([written(pin) for pin in lost])} and names no index "
        "that has it",
        observed=", ".join(written(pin) for pin in lost),
        needed=f"--extra-index-url {WHEELS}{tag}",
        why="The default index has no version with this local part: 'No matching distribution "
        "found'."
        + (" It is installed here, and cannot be installed again from this file." if there else ""),
        fix=(f"add to {one.path}: --extra-index-url {WHEELS}{tag}",),
        evidence=evidence_of(one, lost),
        subject=one.path,
        severity=WARN if there else severity(one, s),
    )


def _plain(s: Snapshot, m: Matrix, one: Held) -> Optional[Finding]:
    """A plain entry for torch that would bring another build than is meant."""
    pins = [pin for pin in one.pins if pin.name == "torch"]
    version = exact(pins[0]) if len(pins) == 1 else None
    if version is None or "+" in version or pins[0].url or pins[0].manager:
        return None
    if of_other_index(one, pins[0], s):
        return None
    row = m.default_torch(version, s.os.arch.get("x86_64"))
    if row is None:
        return None
    meant = _meant(s, one, version)
    if meant is None or _same_build(meant.tag, row):
        return None
    given = f"CUDA {row['cuda']}" if "cuda" in row else "no CUDA"
    want = f"torch=={version}+{meant.tag}"
    return Finding(
        summary=f"{one.path} says torch=={version}, which installs the build with {given}, and "
        f"{meant.why}",
        observed=f"torch=={version} without an index: {row['variant']}",
        needed=want,
        why="The default index has one build of each release, and the local version that chose "
        "another one is lost.",
        fix=(f"{want} and --extra-index-url {WHEELS}{meant.tag}",),
        evidence=evidence_of(one, pins),
        sources=tuple(row.get("source", ())),
        subject=one.path,
        severity=WARN if meant.only_installed and not one.strict else severity(one, s),
    )


def of_other_index(one: Held, pin: Pin, s: Snapshot) -> bool:
    """Whether a plain entry comes from another index than the default one."""
    if pin.index:
        return not of_default_index(pin.index)
    return bool(_indexes(s, one))


class Meant(NamedTuple):
    """The build that somebody wants: its tag, and what says so."""

    tag: str
    why: str
    only_installed: bool = False


def _meant(s: Snapshot, one: Held, version: str) -> Optional[Meant]:
    for pin in one.pins:
        tag = (exact(pin) or "").partition("+")[2].partition(".")[0]
        if pin.name in OF_INDEX[1:] and re.fullmatch(r"cu\d+|cpu|rocm\d+", tag):
            return Meant(tag, f"{written(pin)} beside it is for {tag}")
    majors = {
        found.group(1) for pin in one.pins for found in [_NVIDIA.fullmatch(pin.name)] if found
    }
    if len(majors) == 1:
        major = majors.pop()
        return Meant(f"cu{major}", f"its nvidia-*-cu{major} libraries are for CUDA {major}")
    there = installed(s, Pin("torch")) or ""
    release, _, tag = there.partition("+")
    if release == version and re.fullmatch(r"cu\d+", tag):
        return Meant(tag, f"torch {there} is installed", True)
    return None


def _same_build(tag: str, row: Row) -> bool:
    if tag == row["variant"]:
        return True
    # "cu12" of nvidia-nccl-cu12 is any CUDA 12.
    return re.fullmatch(r"cu\d\d", tag) is not None and str(row.get("cuda", "")).startswith(tag[2:])


# -- platform -----------------------------------------------------------------------------------


def platform_dependencies_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The lock was made on another platform and lacks this one's dependencies.

    Decided by what the lock says it is for (conda's platforms, the environments of pylock.toml,
    uv's required environments), by wheels that an entry names of which none is for this Python
    and machine while there is no source distribution, and, of a lock that a tool wrote in full,
    by the nvidia-* wheels that this torch needs on Linux and that it does not have.

    Fix: write the lock on the platform of the job, or for several platforms at once
    (`uv lock`, `pip-compile` in the image, `conda-lock -p linux-64`).
    """
    looked = [one for one in held(s) if not one.constraints]
    if not looked:
        yield NotApplicable("no lock file here")
        return
    arch = s.os.arch.get("x86_64")
    for one in looked:
        yield (
            _elsewhere(s, one, arch)
            or _no_wheels(s, one, arch)
            or _no_cuda_wheels(s, m, one, arch)
            or Passed(f"{one.path} is for this platform", one.path)
        )


def _elsewhere(s: Snapshot, one: Held, arch: str) -> Optional[Finding]:
    platforms = one.lock.platforms.get(())
    if not platforms or any(_is_here(text, s, arch) for text in platforms):
        return None
    here = SUBDIRS.get(arch, arch)
    return _platform_finding(
        s, one, list(one.pins), f"it is for {some(list(platforms))}, and this is {here}", here
    )


def _is_here(text: str, s: Snapshot, arch: str) -> bool:
    if re.fullmatch(r"[a-z]+-\w+|noarch", text):  # conda's
        return text in (SUBDIRS.get(arch), "noarch")
    if re.search(r"[<>=]| in ", text):
        return holds(text, Target(s.python.version.get(""), arch)) is not False
    return "linux" in text.lower()


def _no_wheels(s: Snapshot, one: Held, arch: str) -> Optional[Finding]:
    tag = "cp" + "".join(s.python.version.get("").split(".")[:2])
    lacking = [
        pin
        for pin in one.pins
        if pin.wheels.split()
        and not pin.sdist
        and not any(_fits(wheel, tag, arch) for wheel in pin.wheels.split())
    ]
    if not lacking or all(installed(s, pin) for pin in lacking):
        return None
    names = some([f"{pin.name} ({pin.wheels.split()[0]})" for pin in lacking])
    what = f"it has no file for this Python and machine of {names}"
    return _platform_finding(s, one, lacking, what, f"{tag} on {arch}")


def _fits(wheel: str, tag: str, arch: str) -> bool:
    """Whether a wheel's tags can be of this Python ("cp" when unknown) and machine."""
    pythons, abis, platforms = (wheel.split("-") + ["", ""])[:3]
    on = any(
        one == "any" or (one.endswith("_" + arch) and ("linux" in one))
        for one in platforms.split(".")
    )
    if not on or tag == "cp":
        return on
    for python in pythons.split("."):
        stable = "abi3" in abis and python.startswith("cp3") and _minor(python) <= _minor(tag)
        if python == tag or stable:
            return True
        if python.startswith("py") and _minor(python) <= _minor(tag):
            return True
    return False


def _minor(tag: str) -> Tuple[int, int]:
    digits = re.sub(r"\D", "", tag)
    return (int(digits[:1] or 0), int(digits[1:] or 0))


def _no_cuda_wheels(s: Snapshot, m: Matrix, one: Held, arch: str) -> Optional[Finding]:
    """A complete lock with torch's own release and none of the libraries that it needs."""
    torch = [pin for pin in one.pins if pin.name == "torch"]
    version = exact(torch[0]) if len(torch) == 1 else None
    written_in_full = one.lock.format.value == "requirements" and one.strict and (
        len(one.pins) >= 5 and all(exact(pin) or pin.url for pin in one.pins)
    )  # fmt: skip
    if version is None or "+" in version or not written_in_full or of_other_index(one, torch[0], s):
        return None
    row = m.default_torch(version, arch)
    if row is None or "cuda" not in row:
        return None
    needed = [line.partition(";")[0].partition("==")[0].strip() for line in m.pins(version, arch)]
    cuda = [name.partition("[")[0] for name in needed if name.startswith(("nvidia-", "cuda-"))]
    have = {pin.name for pin in one.pins}
    packages = s.python.packages.get({})
    if not cuda or any(name in have for name in cuda) or any(name in packages for name in cuda):
        return None
    return _platform_finding(
        s, one, torch, f"torch {version} needs {some(cuda)} on Linux, and it has none of them",
        ", ".join(cuda),
    )  # fmt: skip


def _platform_finding(s: Snapshot, one: Held, pins: List[Pin], what: str, needed: str) -> Finding:
    return Finding(
        summary=f"{one.path}: {what}",
        observed=what,
        needed=f"a lock for {needed}",
        why="What is only needed on the job's platform is not in a lock that was made on another: "
        "the installer refuses it, or leaves out libraries without which the import fails.",
        fix=(f"write {one.path} again on the job's platform",),
        evidence=evidence_of(one, pins, 5) + evidence(s, one.place + ".platforms"),
        subject=one.path,
        severity=severity(one, s),
    )


# -- artefacts ----------------------------------------------------------------------------------


def artifact_gone(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The lock names an artefact that its index no longer has.

    Nothing is fetched. An entry that lies in a local file (``name @ file:///…``, as `pip freeze`
    writes in images built from source) is gone where that file is not there; a torch build is
    where the tables know the release and its index has no such variant for this platform.

    Fix: the version or file that there is.
    """
    looked = [one for one in held(s) if not one.constraints]
    if not looked:
        yield NotApplicable("no lock file here")
        return
    for one in looked:
        gone = [pin for pin in one.pins if pin.gone]
        never = [pin for pin in one.pins if pin.name == "torch" and _never_built(s, m, pin)]
        if gone:
            yield _gone(one, gone, f"{some([written(pin) for pin in gone])}: no such file here")
        if never:
            version = exact(never[0]) or ""
            yield _gone(one, never, f"there is no public build torch {version} for this platform")
        if not gone and not never:
            yield Passed(f"{one.path} names nothing that is known to be gone", one.path)


def _never_built(s: Snapshot, m: Matrix, pin: Pin) -> bool:
    version = exact(pin)
    release, _, local = (version or "").partition("+")
    arch = s.os.arch.value
    if not version or not re.fullmatch(r"cu\d+", local) or not arch:
        return False
    rows = m.torch_builds(release, arch)
    return bool(rows) and not any(row["variant"] == local for row in rows) and (
        installed(s, pin) != version
    )  # fmt: skip


def _gone(one: Held, pins: List[Pin], what: str) -> Finding:
    return Finding(
        summary=f"{one.path}: {what}",
        observed=what,
        needed="an artefact that can be installed again",
        why="The environment cannot be made again from this file.",
        fix=(f"replace {', '.join(pin.name for pin in pins[:5])} in {one.path} by what there is",),
        evidence=evidence_of(one, pins),
        subject=one.path,
    )


# -- the locked framework -----------------------------------------------------------------------


def framework_unsupported(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The locked framework build cannot run on this driver and GPU.

    The torch, TensorFlow or JAX build that a lock pins is judged by the same rules as an
    installed one: driver, CUDA, GPU code, Python. So a lock is refused before the image is
    built. Where that very build is installed, the other rules have judged it already.

    Fix: as the rule that it fails says.
    """
    looked = [one for one in held(s) if not one.constraints]
    said = False
    for one in looked:
        for locked in _frameworks(s, m, one):
            said = True
            yield from _judged(s, m, one, locked)
    if not said:
        yield NotApplicable("no lock file here that pins a framework which is not installed")


class Locked(NamedTuple):
    """A framework that a lock pins, and the table's row of it where there is one."""

    pin: Pin
    framework: Framework
    row: Optional[Row]


def _frameworks(s: Snapshot, m: Matrix, one: Held) -> Iterator[Locked]:
    arch = s.os.arch.get("x86_64")
    source = one.path
    for pin in one.pins:
        version = exact(pin)
        if version is None or installed(s, pin) is not None and _same(s, pin):
            continue
        if pin.manager:
            if pin.name in BY_BUILD:
                yield Locked(pin, _of_conda(one, pin, version, source), None)
            continue
        release, _, local = version.partition("+")
        if pin.name == "torch":
            tag = local or _index_tag(s, m, one, pin)
            if tag is None:
                yield Locked(pin, _of_unknown_index(release, source), None)
                continue
            variant = f"{release}+{tag}" if tag else release
            row = m.torch_build(release, tag, arch) if tag else m.default_torch(release, arch)
            yield Locked(pin, builds.torch(m, variant, arch, source), row)
        elif pin.name in ("tensorflow", "tensorflow-gpu"):
            found = builds.tensorflow(m, pin.name, version, source)
            if found:
                yield Locked(pin, found, m.tensorflow(pin.name, version))
        elif pin.name.startswith("jax-cuda") and pin.name.endswith("-plugin"):
            found = builds.jax_plugin(m, pin.name, version, source)
            if found:
                yield Locked(pin, found, m.jax(pin.name, version))


def _of_conda(one: Held, pin: Pin, version: str, source: str) -> Framework:
    """conda's build of a framework: its build string says which CUDA it has ("cuda126_…").

    So does pytorch-cuda beside it, which only the CUDA builds of that version go with.
    """
    name = {"pytorch": "torch", "pytorch-gpu": "torch", "libtorch": "torch", "jaxlib": "jax"}
    found = re.search(r"cuda_?(\d+?)\.?(\d)(?:_|$|cudnn)", pin.build)
    cuda: Fact[str] = unknown(f"the build of {pin.name} is not said")
    beside = next((each.spec for each in one.pins if each.name == "pytorch-cuda"), "")
    chosen = re.fullmatch(r"=+(\d+\.\d+)(\.\*)?", beside)
    if found:
        cuda = known(f"{found.group(1)}.{found.group(2)}", source)
    elif chosen and not pin.build:
        cuda = known(chosen.group(1), source)
    elif "cpu" in pin.build:
        cuda = absent(source)
    return Framework(
        name=known(name.get(pin.name, "tensorflow"), source),
        version=known(version, source),
        cuda=cuda,
        arch_list=unknown("the code inside conda's build is in no table"),
        build=known("conda", source),
    )


def _same(s: Snapshot, pin: Pin) -> bool:
    there = installed(s, pin) or ""
    version = exact(pin) or ""
    if "+" in version:
        return there == version
    return there.partition("+")[0] == version


def _index_tag(s: Snapshot, m: Matrix, one: Held, pin: Pin) -> Optional[str]:
    """The variant that the indexes give a plain version; empty: PyPI's; None: not known.

    What a tool resolved has a version as its index has it, and only PyPI's has no local part.
    """
    places = [pin.index] if pin.index else _indexes(s, one)
    tags = {found.group(1) for found in map(_INDEX.search, places) if found}
    release = exact(pin) or ""
    arch = s.os.arch.get("x86_64")
    if any(each.startswith("--torch-backend") for each in places):
        return None  # uv takes it by the driver, or as it says
    if len(tags) == 1:
        tag = tags.pop()
        if m.torch_build(release, tag, arch) or not m.torch_builds(release, arch):
            return tag
        # The index has no such release: PyPI's is taken, where it is asked too.
        extra = all(each.startswith("--extra-index-url") for each in places)
        return "" if extra and not pin.index else None
    resolved = pin.index or one.lock.role.value == LOCK
    return "" if not places or (resolved and not tags) else None


_WHICH = "which build of torch the indexes have"


def _of_unknown_index(release: str, source: str) -> Framework:
    return Framework(
        name=known("torch", source),
        version=known(release, source),
        cuda=unknown(_WHICH),
    )


def _judged(s: Snapshot, m: Matrix, one: Held, locked: Locked) -> Iterator[Outcome]:
    python = s.python.version.get("")
    label = framework_label(locked.framework)
    if locked.framework.cuda.unknown == _WHICH:
        note = f"{_WHICH} ({some(_indexes(s, one))}); a lock that a tool writes says it"
        yield Undecided((f"{one.place}.indexes", "python.indexes"), note, one.path)
        return
    if locked.row is not None and not builds.serves_python(locked.row, python):
        have = f"Python {'.'.join(python.split('.')[:2])}"
        yield _refused(
            s, one, locked, f"{label} has no wheel for {have}", f"Python {locked.row['pythons']}",
            "'No matching distribution found', or a build from source.",
            tuple(locked.row.get("source", ())),
        )  # fmt: skip
        return
    there = replace(s, frameworks=known((locked.framework,), one.path), code=known((), one.path),
                    extensions=known((), one.path))  # fmt: skip
    blocked: List[Undecided] = []
    passed = False
    for judge in (driver.too_old_for_cuda, driver.too_old_for_ptx, gpu.no_kernels_for_architecture):
        for outcome in judge(there, m):
            if isinstance(outcome, Finding) and outcome.severity in ("", FAIL):
                yield _refused(
                    s, one, locked, outcome.summary, outcome.needed, outcome.why,
                    outcome.sources, outcome.fix,
                )  # fmt: skip
                return
            passed |= isinstance(outcome, Passed)
            blocked += [outcome] if isinstance(outcome, Undecided) else []
    if locked.framework.cuda.absent and s.gpus.value and not gpu_hidden(s):
        yield _refused(
            s, one, locked, f"{label} is no CUDA build, and GPUs are here", "a CUDA build",
            "The GPUs would not be used.",
        )  # fmt: skip
    elif passed and not blocked:
        yield Passed(f"{label} of {one.path} runs here", one.path)
    elif blocked:
        yield NotApplicable(f"whether {label} of {one.path} runs here: {blocked[0].note}")
    else:
        yield NotApplicable(f"{label} of {one.path}: nothing to judge it by")


def _refused(
    s: Snapshot,
    one: Held,
    locked: Locked,
    what: str,
    needed: str,
    why: str,
    sources: Tuple[str, ...] = (),
    fix: Tuple[str, ...] = (),
) -> Finding:
    return Finding(
        summary=f"{one.path} pins a build that cannot run here: {what}",
        observed=f"{written(locked.pin)} in {one.path}",
        needed=needed,
        why=why,
        fix=fix or (f"pin another build of {locked.pin.name}",),
        evidence=evidence_of(one, [locked.pin])
        + evidence(s, "driver.version", "driver.cuda", "gpus[0].name", "python.version"),
        sources=sources,
        subject=one.path,
        severity=severity(one, s),
    )
