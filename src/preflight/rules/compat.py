"""Rules about forward compatibility: a cuda-compat libcuda on an older kernel driver."""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..matrix import MINOR, NO, Matrix, cuda_numbers, numbers
from ..snapshot import Compat, Snapshot
from . import common
from .registry import FAIL, INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

NOT_IN_USE = "no compat libcuda is in use"
REMOVE = (
    "take the compat directory off LD_LIBRARY_PATH and out of /etc/ld.so.conf.d, then run ldconfig",
)


def older_than_driver(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The compat libcuda that would be loaded is older than the host's driver.

    Decided by the driver version in the compat library's file name against the kernel driver's,
    else by its CUDA against the CUDA of the driver's branch. An older user-mode library on a
    newer kernel module does not work (error 803).

    Fix: remove the compat library from the search path; the driver's own is newer and better.
    """
    compat, place = common.compat_in_use(s)
    if not compat:
        yield _not_in_use(s)
        return
    age = _age(s, m, compat)
    if age is None:
        yield Undecided(
            _unknown_of(s, compat, place), "whether the compat libcuda is older than the driver"
        )
    elif age < 0:
        label = compat.version.value or compat.cuda.value
        yield Finding(
            summary=f"compat libcuda {label} is older than driver {s.driver.version.value}",
            observed=f"compat libcuda {label} would be loaded, kernel driver "
            f"{s.driver.version.value}",
            needed="the driver's own libcuda (newer), or no compat library at all",
            why="User-mode and kernel driver do not fit: CUDA stops with error 803.",
            fix=REMOVE,
            evidence=evidence(s, "driver.version", *common.libcuda(s, m).places),
        )
    else:
        yield Passed("the compat libcuda is not older than the driver")


def unsupported_gpu(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A forward-compatibility libcuda is in use on a GPU that does not support it.

    Forward compatibility is for data-center GPUs (and selected NGC-ready RTX cards). Decided by
    the compat library's own list of brands where it has one and NVML told the GPU's brand, else
    by the product's class. GeForce and TITAN cards stop with error 804.

    Fix: remove the compat library from the search path; then minor-version compatibility or a
    newer driver must carry the job.
    """
    compat, place = common.compat_in_use(s)
    gpus = common.devices(s, m)
    if not compat:
        yield _not_in_use(s)
    elif not s.driver.version.known:
        yield Undecided(("driver.version",), "whether the compat libcuda is newer than the driver")
    elif _age(s, m, compat) in (-1, 0):
        yield NotApplicable("the compat libcuda is not newer than the driver")
    elif not gpus:
        yield Undecided(("gpus",), "whether the GPU supports forward compatibility")
    else:
        for device, _count in common.alike(gpus):
            yield _gpu_fits(s, m, compat, place, device)


def _gpu_fits(s: Snapshot, m: Matrix, compat: Compat, place: str, device: common.Device) -> Outcome:
    eligible = m.forward_eligible(device.gpu.name.get(""))
    brands, brand = compat.device_brands, device.gpu.brand
    if brands.known and brand.known:
        eligible = "yes" if brand.value in brands.get(()) else "no"
    if eligible == "yes":
        return Passed("this GPU supports forward compatibility", device.label)
    if eligible != "no":
        return Undecided(
            (device.place + ".brand",), "whether this card supports forward compatibility",
            device.label,
        )  # fmt: skip
    places = ("driver.version", *common.libcuda(s, m).places, *device.places)
    if place:
        places += (place + ".device_brands", device.place + ".brand")
    return Finding(
        summary=f"a compat libcuda is in use on {device.label}, which does not support it",
        observed=f"forward compatibility on {device.label}",
        needed="a data-center GPU, or the driver's own libcuda",
        why="Forward compatibility is a data-center feature: CUDA stops with error 804.",
        fix=(*REMOVE, "a node with a newer driver"),
        evidence=evidence(s, *places),
        sources=m.class_sources("no"),
        subject=device.label,
    )


def unsupported_branch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The compat package does not support this base driver branch.

    The library's own ELF note (`.note.cuda.fwd_compatibility`) lists the branches it accepts and
    is believed first; then the tables. A branch that no source lists, and none excludes, is a
    warning: it may work, and nobody promises it.

    Fix: a compat package that lists this branch, or a newer driver.
    """
    compat, place = common.compat_in_use(s)
    driver = s.driver.version.value
    if not compat:
        yield _not_in_use(s)
        return
    cuda = compat.cuda.value or common.libcuda(s, m).cuda
    if not driver or not cuda:
        yield Undecided(
            _unknown_of(s, compat, place), "whether the compat package fits this driver"
        )
        return
    if (_age(s, m, compat) or 0) <= 0:
        yield NotApplicable("the compat libcuda is not newer than the driver")
        return
    branch = str((numbers(driver) or (0,))[0])
    if numbers(compat.version.get(""))[:1] == numbers(branch):
        yield NotApplicable("the compat libcuda is of the driver's own branch")
        return
    verdict, sources = m.compat_base(cuda, driver)
    if compat.base_branches.known:
        verdict = "yes" if branch in compat.base_branches.get(()) else "no"
    if verdict == "yes":
        yield Passed(f"compat of CUDA {cuda} supports branch {branch}")
        return
    refused = verdict == "no"
    yield Finding(
        summary=f"cuda-compat of CUDA {cuda} "
        + ("does not support" if refused else "is not documented for")
        + f" driver branch {branch}",
        observed=f"compat libcuda of CUDA {cuda} on driver {driver}",
        needed="a base driver branch that this compat package lists",
        why="The compat library only works on the kernel drivers it was made for (error 803).",
        fix=("a node with a newer driver branch", "a cuda-compat package that lists this branch"),
        evidence=evidence(
            s, "driver.version", *([place + ".base_branches"] if place else []),
            *common.libcuda(s, m).places,
        ),
        sources=sources,
        severity=FAIL if refused else WARN,
    )  # fmt: skip


def not_active(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A compat libcuda that would make this image run is present but would not be loaded.

    It fails when the framework's CUDA does not run with the driver's own libcuda and would with
    the compat one. It warns when minor-version compatibility carries the job anyway but the
    base image's entrypoint, which switches the compat library on, was replaced: what the image
    counted on is lost. Otherwise it is only mentioned.

    Fix: put the compat directory first on LD_LIBRARY_PATH, or keep the base image's entrypoint.
    """
    idle = [
        (f"compats[{number}]", one)
        for number, one in enumerate(s.compats.get(()))
        if one.resolved.value is False
    ]
    if not idle or s.driver.libcuda.value in ("compat", "stub"):
        yield NotApplicable("no compat libcuda lies idle here")
        return
    place, compat = max(idle, key=lambda one: numbers(_cuda_of(m, one[1]) or ""))
    cuda = _cuda_of(m, compat)
    driver = s.driver.version.value
    if not cuda or not (driver or s.driver.cuda.known):
        yield Undecided(_unknown_of(s, compat, place), "whether the compat libcuda would be needed")
        return
    yield _idle(s, m, place, compat, cuda)


def _idle(s: Snapshot, m: Matrix, place: str, compat: Compat, cuda: str) -> Outcome:
    wanted = [build.cuda for build in common.builds(s, m)]
    if not wanted and not s.frameworks.looked:
        # Nobody said which framework: what the image was built around stands in for it.
        wanted = [s.toolkit.version.value or cuda]
    needed = max(wanted, key=lambda one: cuda_numbers(one) or (0, 0), default="")
    now = common.way(s, m, needed)
    base = m.compat_base(cuda, s.driver.version.get(""))[0]
    unfit = [one for one in common.devices(s, m) if m.forward_eligible(one.label) == "no"]
    lifts = m.way(needed, ceiling=cuda, compat=True).runs and not unfit and base != "no"
    replaced = bool(s.image.base_entrypoint.value) and (
        s.image.entrypoint.known and s.image.entrypoint.value != s.image.base_entrypoint.value
    )
    if not needed or not lifts or now.kind not in (NO, MINOR):
        return Passed("the compat libcuda is not needed here")
    severity = FAIL if now.kind == NO else (WARN if replaced else INFO)
    path = compat.path.value or f"/usr/local/cuda-{cuda}/compat"
    directory = path.rsplit("/", 1)[0] if "/libcuda" in path else path
    effect = (
        "does not run" if now.kind == NO else "runs with the limits of minor-version compatibility"
    )
    return Finding(
        summary=f"a compat libcuda of CUDA {cuda} is in the image and would not be loaded; "
        f"CUDA {needed} {effect} without it",
        observed=f"libcuda offers CUDA {now.ceiling}; the compat libcuda lies idle",
        needed="the compat directory first on the loader's path",
        why="cuda-compat is only a file until the loader finds it: the base image's entrypoint, "
        "the container toolkit's hook or LD_LIBRARY_PATH must switch it on."
        + (" Here the base image's entrypoint was replaced." if replaced else ""),
        fix=(
            f"export LD_LIBRARY_PATH={directory}:$LD_LIBRARY_PATH",
            "keep the base image's ENTRYPOINT in front of the command",
        ),
        evidence=evidence(
            s, place + ".cuda", place + ".path", place + ".resolved", "driver.version",
            "driver.cuda", "image.entrypoint", "image.base_entrypoint",
        ),
        severity=severity,
    )  # fmt: skip


def _cuda_of(m: Matrix, compat: Compat) -> Optional[str]:
    version = compat.version.value
    return compat.cuda.value or (m.newest_cuda(version) if version else None)


def _age(s: Snapshot, m: Matrix, compat: Compat) -> Optional[int]:
    """-1, 0 or 1: the compat libcuda is older, the same, newer than the driver; None: unknown."""
    driver, version = s.driver.version.value, compat.version.value or s.driver.library_version.value
    if not driver:
        return None
    if version:
        return _compare(numbers(version), numbers(driver))
    cuda = compat.cuda.value or s.driver.cuda.value
    if not cuda or m.newer_than_known(driver):
        return None
    return _compare(cuda_numbers(cuda) or (), cuda_numbers(m.newest_cuda(driver) or "") or ())


def _compare(one: Tuple[int, ...], other: Tuple[int, ...]) -> int:
    return (one > other) - (one < other)


def _not_in_use(s: Snapshot) -> Outcome:
    kind = s.driver.libcuda
    if kind.known or (kind.looked and not kind.unknown) or s.compats.value == ():
        return NotApplicable(NOT_IN_USE)
    return Undecided(("driver.libcuda",), "whether a compat libcuda would be loaded")


def _unknown_of(s: Snapshot, compat: Compat, place: str) -> Tuple[str, ...]:
    missing = [] if s.driver.version.known else ["driver.version"]
    if place:
        missing += [place + "." + n for n in ("version", "cuda") if not getattr(compat, n).known]
    return tuple(missing or ["driver.libcuda_path"])
