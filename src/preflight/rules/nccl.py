"""Rules about which NCCL would be loaded; those about its variables and network are beside."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Optional, Tuple

from ..matrix import Matrix, numbers
from ..snapshot import Snapshot
from . import common
from .linked import Linked, asked_by, first, older, served, where
from .nccl_interfaces import (
    interface_loopback,
    interface_missing,
    interface_syntax,
    interface_unroutable,
    no_interface,
)
from .nccl_settings import cumem_disabled, p2p_disabled, preset_differs, variable_unknown
from .rdma import ib_disabled, rdma_libraries_missing
from .registry import INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

__all__ = [
    "cumem_disabled", "duplicate", "ib_disabled", "interface_loopback", "interface_missing",
    "interface_syntax", "interface_unroutable", "no_interface", "older_shadows_framework",
    "p2p_disabled", "preset_differs", "rdma_libraries_missing", "variable_unknown",
    "version_mismatch",
]  # fmt: skip

WHEEL = "nvidia-nccl-cu"


def duplicate(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Several NCCL packages overwrite or hide each other.

    nvidia-nccl-cu11, -cu12 and -cu13 install the same file, nvidia/nccl/lib/libnccl.so.2: pip
    shows both, the last one unpacked wins, and removing one deletes the other's.

    Fix: remove all of them and install the one that the framework asks for.
    """
    if s.python.packages.unknown:
        yield Undecided(("python.packages",), "whether several NCCL packages are installed")
        return
    wheels = _wheels(s)
    if len(wheels) < 2:
        yield Passed("one NCCL package") if wheels else NotApplicable("no NCCL package")
        return
    shown = ", ".join(f"{name} {version}" for name, version in wheels.items())
    same = len(set(wheels.values())) == 1 or served(s) or _all_serve(s, m, wheels)
    wanted = _wanted(s, m) or max(wheels, key=lambda name: numbers(wheels[name]))
    yield Finding(
        summary=f"several NCCL packages share one file: {shown}",
        observed=shown,
        needed="one NCCL package",
        why="Each overwrites nvidia/nccl/lib/libnccl.so.2 of the other; which one is there depends "
        "on the order of installation. An older one lacks symbols (ncclCommRegister and others).",
        fix=(f"pip uninstall -y {' '.join(wheels)} && pip install --no-deps {wanted}",),
        evidence=evidence(s, "python.packages"),
        severity=WARN if same else "",
    )


def _all_serve(s: Snapshot, m: Matrix, wheels: Mapping[str, str]) -> bool:
    """Whether the copy that is loaded, or whichever won, is new enough for torch."""
    pin, loaded = _pin(s, m), first(s, "libnccl.so")
    version = loaded.library.version.value if loaded else None
    built = _built_with(s, loaded) or (pin[1] if pin else None)
    if not built:
        return False
    candidates = [version] if version else list(wheels.values())
    return all(numbers(one) >= numbers(built) for one in candidates)


def _wheels(s: Snapshot) -> Dict[str, str]:
    packages = s.python.packages.get({})
    return {name: packages[name] for name in sorted(packages) if name.startswith(WHEEL)}


def _wanted(s: Snapshot, m: Matrix) -> Optional[str]:
    pin = _pin(s, m)
    return f"{pin[0]}=={pin[1]}" if pin else None


def _pin(s: Snapshot, m: Matrix) -> Optional[Tuple[str, str]]:
    """(package, version) of the NCCL that the torch wheel here asks for: each variant its own."""
    for build in common.builds(s, m):
        one = build.framework
        release, _, local = (one.version.value or "").partition("+")
        if one.name.value != "torch" or one.build.get("pip") != "pip":
            continue
        variant = local or "cu" + build.cuda.replace(".", "")
        detail = m.torch_detail(release, s.os.arch.get("x86_64"), variant)
        if detail.get("nccl_linkage") == "dynamic" and "nccl" in detail:
            return WHEEL + build.cuda.partition(".")[0], str(detail["nccl"])
    return None


def _static(s: Snapshot, m: Matrix) -> bool:
    """Whether the torch here (may) carry NCCL inside: wheels up to 1.13, conda's."""
    for build in common.builds(s, m):
        one = build.framework
        release, _, local = (one.version.value or "").partition("+")
        variant = local or "cu" + build.cuda.replace(".", "")
        detail = m.torch_detail(release, s.os.arch.get("x86_64"), variant)
        kind = one.build.get("pip")
        if one.name.value == "torch" and (
            kind == "conda" or kind == "pip" and detail.get("nccl_linkage") == "static"
        ):
            return True
    return False


def older_shadows_framework(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """An older libnccl would be loaded than the framework was built against.

    NCCL 2 keeps its interface: a newer library serves an older build, not the other way round.
    Where every symbol that is called was found in the older one, it is a warning. Decided by the
    version of the libnccl.so.2 that the loader would pick against the one the framework was built
    with.

    Fix: let the framework's own copy be found, or install its version.
    """
    loaded = first(s, "libnccl.so")
    built = _built_with(s, loaded)
    if s.libraries.unknown and s.libraries.looked:
        yield Undecided(("libraries",), "which NCCL would be loaded")
        return
    if not loaded or not built:
        yield NotApplicable("no NCCL would be loaded, or nobody said what was built with")
        return
    if not loaded.library.needed_by.known and _static(s, m):
        yield Undecided(
            loaded.places("needed_by"), "whether a torch with NCCL inside uses this one"
        )
        return
    if not numbers(loaded.library.version.get("")) or not numbers(built):
        yield Undecided(loaded.places("version"), "which NCCL would be loaded")
        return
    version = loaded.library.version.get("")
    if not older(version, built):
        yield Passed(f"NCCL {version} is not older than {built}")
        return
    yield Finding(
        summary=f"NCCL {version} would be loaded, and {asked_by(loaded)} was built with {built}",
        observed=f"{loaded.label} at {where(loaded)}",
        needed=f"NCCL {built} or newer",
        why="It has every symbol that is called, and torch was not tested with it."
        if served(s)
        else "An older NCCL lacks what the framework calls: 'undefined symbol: nccl…'.",
        fix=(
            "take its directory off LD_LIBRARY_PATH (or the library out of LD_PRELOAD)"
            if loaded.from_environment
            else f"install NCCL {built}",
        ),
        evidence=evidence(s, *loaded.proof, "env.LD_LIBRARY_PATH", "env.LD_PRELOAD"),
        severity=WARN if served(s) else "",
    )


def _built_with(s: Snapshot, loaded: Optional[Linked]) -> Optional[str]:
    if loaded and loaded.library.needed_version.known:
        return loaded.library.needed_version.value
    asked = (loaded.library.needed_by.value if loaded else None) or ""
    for one in s.frameworks.get(()):
        if one.nccl.known and (not asked or one.name.get("?") in asked):
            return one.nccl.value
    return None


def version_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """NCCL loaded, pinned and compiled against differ in a way that matters.

    An NCCL package older than the one torch pins is a warning (what is loaded decides: see
    `nccl/older-shadows-framework`); a newer one is a deliberate override and only mentioned; one
    for another CUDA major is a warning. NCCL_VERSION in the environment says nothing here: it is
    that of the base image's package.

    Fix: the version that torch pins.
    """
    pin, wheels = _pin(s, m), _wheels(s)
    if s.python.packages.unknown and s.python.packages.looked:
        yield Undecided(("python.packages",), "which NCCL package is installed")
        return
    if not pin or not wheels:
        yield NotApplicable("no NCCL package, or no torch that pins one")
        return
    name, version = pin
    if name not in wheels:
        yield _mismatch(s, f"{', '.join(wheels)} is installed, torch asks for {name}", pin, WARN)
    elif numbers(wheels[name]) < numbers(version):
        yield _mismatch(s, f"{name} {wheels[name]} is older than torch's {version}", pin, WARN)
    elif numbers(wheels[name]) > numbers(version):
        yield _mismatch(s, f"{name} {wheels[name]} is newer than torch's {version}", pin, INFO)
    else:
        yield Passed(f"{name} {version}, as torch pins it")


def _mismatch(s: Snapshot, what: str, pin: Tuple[str, str], severity: str) -> Finding:
    return Finding(
        summary=what,
        observed=what,
        needed=f"{pin[0]}=={pin[1]}",
        why="torch was tested with the NCCL it pins; NCCL keeps its interface upwards only.",
        fix=(f"pip install --no-deps {pin[0]}=={pin[1]}",),
        evidence=evidence(s, "python.packages"),
        severity=severity,
    )
