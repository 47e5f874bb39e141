"""Rules about the kernel driver and the CUDA it offers."""

from __future__ import annotations

from typing import Iterator, List, Tuple

from ..matrix import FORWARD, MINOR, UNDECIDED, Matrix, Way, cited, numbers
from ..snapshot import Fact, Gpu, Snapshot
from . import common, ptx
from .cures import torch_that_runs
from .registry import (
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Undecided,
    evidence,
    fact_at,
)

MIG_FIX = "on the node: sudo nvidia-smi mig -cgi PROFILE -C, then give the container that device"


def not_visible(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A CUDA job is here, and no NVIDIA driver or GPU can be seen.

    Decided from the kernel's own files, the device nodes, NVML, and the libcuda that the loader
    would find. It applies when a framework here is a CUDA build or the job asks for GPUs, and
    not when the job hides the GPUs on purpose (CUDA_VISIBLE_DEVICES empty or -1,
    NVIDIA_VISIBLE_DEVICES void or none, a CPU job). A container that was started without GPUs
    on a host that has some is `container/gpu-not-requested`.

    Fix: run on a node with a driver, and start the container with GPUs.
    """
    wanted = common.gpu_wanted(s, m)
    asked = s.variable("NVIDIA_VISIBLE_DEVICES").get("")
    if not wanted and s.driver.visible.value and asked not in common.NO_DEVICES:
        wanted = f"NVIDIA_VISIBLE_DEVICES={asked} gives this container GPUs"
    hidden = common.gpu_hidden(s)
    if not wanted or hidden:
        yield NotApplicable(hidden or "nothing here needs a GPU")
        return
    problem, places = _invisible(s)
    silent = [p for p in ("driver.nvml", "driver.cuda") if _failed(s, p)]
    if silent and not problem:
        yield Undecided(tuple(silent), "whether the driver answers")
    elif problem:
        yield Finding(
            summary=f"{problem}, and {wanted}",
            observed=problem,
            needed="a loaded NVIDIA driver whose libcuda.so.1 and devices are in the container",
            why="CUDA cannot start without the driver: the framework falls back to the CPU or "
            "stops with 'Found no NVIDIA driver on your system' or error 35 or 100.",
            fix=(
                MIG_FIX
                if problem.startswith("MIG")
                else "on a GPU node: docker run --gpus all …, or ask the scheduler for GPUs",
                "for a job that is meant to run on the CPU: export CUDA_VISIBLE_DEVICES=",
            ),
            evidence=evidence(s, *places),
        )
    elif s.driver.visible.known or s.driver.version.known or s.gpus.known:
        yield Passed("driver and GPUs are visible", evidence=evidence(s, *places))
    else:
        yield Undecided(("driver.visible", "gpus"), "whether a driver can be seen")


def _failed(s: Snapshot, place: str) -> bool:
    """Whether a driver library was asked and hung, crashed or answered nonsense."""
    fact = fact_at(s, place)
    return bool(fact.unknown) and fact.looked and s.origin == "live"


def _invisible(s: Snapshot) -> Tuple[str, Tuple[str, ...]]:
    places = ("driver.visible", "driver.version", "driver.libcuda", "driver.device_nodes", "gpus")
    if s.driver.visible.value is False or s.driver.visible.absent:
        return "no NVIDIA driver can be seen here", places
    if s.driver.libcuda.value == "missing":
        return "no libcuda.so.1 can be found here", places
    if s.gpus.value == ():
        return "the driver shows no GPU", places
    gpus = s.gpus.get(())
    if gpus and all(one.mig_mode.value is True and one.mig_devices.value == () for one in gpus):
        return "MIG is on and no MIG device exists here", (*places, "gpus[0].mig_devices")
    return "", places


def library_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The user-mode driver libraries and the kernel module are of different versions.

    Decided by comparing the kernel module's version with that of the driver libraries that would
    be loaded (their file names, or NVML's own answer 'driver/library version mismatch'). A
    compat libcuda is meant to differ and is judged by the `compat/*` rules.

    Fix: on the node, reload the driver or reboot after a driver update; in the image, remove the
    driver libraries it carries of its own (libnvidia-compute, cuda-drivers and the like).
    """
    kernel, library = s.driver.version.value, s.driver.library_version.value
    nvml = s.driver.nvml.get("")
    mismatch = "version mismatch" in nvml.lower()
    if s.driver.libcuda.value in ("compat", "stub", "missing") and not mismatch:
        yield NotApplicable(f"libcuda is {s.driver.libcuda.value}: other rules speak")
    elif s.driver.visible.value is False and not kernel:
        yield NotApplicable("no driver can be seen here")
    elif mismatch or (kernel and library and _differ(kernel, library)):
        yield Finding(
            summary=f"driver libraries {library or '(NVML)'} do not belong to kernel driver "
            f"{kernel or 'that is loaded'}",
            observed=f"kernel module {kernel or 'unknown'}, libraries {library or nvml}",
            needed="libraries of exactly the kernel module's version",
            why="The two halves of the driver speak a private protocol: NVML stops with error 18, "
            "CUDA with error 803.",
            fix=(
                "on the node: reload the driver or reboot after its update (or another node)",
                "in the image: remove driver packages; the container runtime brings the host's",
            ),
            evidence=evidence(
                s, "driver.version", "driver.library_version", "driver.libcuda_path", "driver.nvml"
            ),
        )
    elif kernel and library:
        yield Passed(f"driver libraries and kernel module are both {kernel}")
    else:
        missing = [p for p in ("version", "library_version") if not getattr(s.driver, p).known]
        yield Undecided(tuple("driver." + p for p in missing), "whether the two halves match")


def _differ(one: str, other: str) -> bool:
    """Whether two versions differ as far as both are told ("580" is any driver of that branch)."""
    first, second = numbers(one), numbers(other)
    told = min(len(first), len(second))
    return first[:told] != second[:told]


def too_old_for_cuda(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The libcuda in use is older than the framework's CUDA allows.

    What counts is the CUDA the framework was built with (not nvcc's, not the number nvidia-smi
    prints) and the libcuda that would be loaded. It runs natively when libcuda's own CUDA is at
    least as new; by minor-version compatibility within one CUDA major (11 and later) from the
    major's floor on (11.x: 450.80.02, 12.x: 525.60.13, 13.x: 580.65.06); by forward
    compatibility when a compat libcuda is loaded. Otherwise CUDA stops with error 35.

    Fix: a newer driver, a build for an older CUDA, or (data-center GPUs) a compat libcuda.
    """
    found = common.builds(s, m)
    if not found:
        yield common.no_builds(s, m)
    elif s.driver.libcuda.value in ("missing", "stub"):
        yield NotApplicable(f"libcuda is {s.driver.libcuda.value}: another rule speaks")
    elif common.gpu_hidden(s):
        yield NotApplicable(common.gpu_hidden(s) or "")
    elif s.driver.visible.value is False and not s.driver.cuda.known:
        yield NotApplicable("no driver can be seen: another rule speaks")
    else:
        for build in found:
            yield _old_for(s, m, build)


def _old_for(s: Snapshot, m: Matrix, build: common.Build) -> Outcome:
    way = common.way(s, m, build.cuda)
    lib = common.libcuda(s, m)
    proof = evidence(s, *build.places, "driver.version", *lib.places)
    offers = f"libcuda offers CUDA {way.ceiling}" if way.ceiling else "older than CUDA 9.0's"
    if s.driver.version.known:
        offers = f"driver {s.driver.version.value}, {offers}"
    if way.kind == UNDECIDED:
        missing = tuple(
            p for p, f in (("driver.version", s.driver.version), ("driver.cuda", s.driver.cuda))
            if not f.known
        )  # fmt: skip
        if m.oldest_driver(build.cuda) is None or not missing:  # beyond the tables
            told = "cuda" if build.framework.cuda.known else "version"
            missing = (f"{build.place}.{told}",)
        return Undecided(missing, f"whether this driver runs CUDA {build.cuda}", build.label)
    lifts = _compat_perhaps(s, m, build.cuda)
    if not way.runs and lifts:
        return Undecided((lifts,), "whether the compat libcuda is in use at start", build.label)
    if way.runs:
        return Passed(f"runs {_how(way)}", build.label, proof)
    return Finding(
        summary=f"{offers}; {build.label} needs CUDA {build.cuda}"
        + (f" (driver {way.oldest_driver} or newer)" if way.oldest_driver else ""),
        observed=offers,
        needed=f"driver {way.oldest_driver} or newer, or a compat libcuda of CUDA {build.cuda}",
        why=_why_too_old(build.cuda, way),
        fix=_cures(s, m, build, way),
        evidence=proof,
        sources=way.sources,
        subject=build.label,
    )


def _compat_perhaps(s: Snapshot, m: Matrix, cuda: str) -> str:
    """The place of a compat libcuda that would run `cuda` and might be the one in use.

    In an image that is not running, the container toolkit's hook or the image's entrypoint may
    switch it on at start.
    """
    if s.driver.libcuda.known and s.origin != "directory":
        return ""
    for number, one in enumerate(s.compats.get(())):
        version = one.version.value
        offered = one.cuda.value or (m.newest_cuda(version) if version else None)
        lifts = bool(offered) and m.way(cuda, ceiling=offered, compat=True).runs
        if one.resolved.value is not False and lifts:
            return f"compats[{number}].resolved" if one.resolved.unknown else "driver.libcuda"
    return ""


def _how(way: Way) -> str:
    if way.kind == MINOR:
        return "by minor-version compatibility (without PTX newer than the driver's)"
    return "by forward compatibility" if way.kind == FORWARD else "natively"


def _why_too_old(cuda: str, way: Way) -> str:
    major = cuda.split(".")[0]
    if int(major) < 11:
        return (
            f"CUDA {cuda} has no minor-version compatibility (that starts with CUDA 11): "
            f"it needs its own driver, {way.oldest_driver}, or newer."
        )
    return (
        f"Minor-version compatibility starts at driver {way.oldest_driver} for CUDA {cuda}; "
        f"below it only forward compatibility (a compat libcuda, data-center GPUs) helps."
    )


def _cures(s: Snapshot, m: Matrix, build: common.Build, way: Way) -> Tuple[str, ...]:
    """What the job's owner can change first, then what only the node's owner can."""
    cures = list(torch_that_runs(s, m, build.framework)) if _is_torch(build) else []
    gpus = common.devices(s, m)
    unfit = [one for one in gpus if m.forward_eligible(one.label) == "no"]
    base = m.compat_base(build.cuda, s.driver.version.get(""))[0]
    there = s.driver.libcuda.value == "compat" or bool(s.compats.value)
    if gpus and not unfit and not there and base == "yes":
        package = "cuda-compat-" + "-".join(build.cuda.split(".")[:2])
        cures.append(
            f"install {package} in the image and put its directory first on LD_LIBRARY_PATH"
        )
    if way.oldest_driver:
        cures.append(f"a node with driver {way.oldest_driver} or newer")
    return tuple(cures)


def _is_torch(build: common.Build) -> bool:
    return build.framework.name.value == "torch"


def too_old_for_ptx(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """Code reaches the GPU only as PTX, made by a toolkit newer than the driver can compile.

    Under minor-version compatibility the driver runs machine code of a newer toolkit but refuses
    its PTX (error 222, 'the provided PTX was compiled with an unsupported toolchain'). It fails
    when a build's only code for a GPU is such PTX. What compiles at run time (NVRTC) is only
    mentioned. An extension whose code is not known stays undecided, unless the job's log holds
    that very error: then the facts and the log agree, and it fails. PTX ISA versions are
    compared, not CUDA numbers (12.5 and 12.6 share one).

    Fix: a newer driver, or a build with machine code for this GPU.
    """
    judged = list(ptx.outcomes(s, m))
    if not judged:
        yield NotApplicable("nothing here would be compiled by the driver")
    yield from judged


def too_new_for_gpu(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """This driver branch, or the libcuda in use, no longer supports this GPU.

    R396 dropped Fermi, R495 Kepler, R590 Maxwell, Pascal and Volta. A compat libcuda of a CUDA
    newer than the last branch's drops them likewise.

    Fix: the last branch that supports the GPU (V100, P100, P40: R580), or another GPU.
    """
    gpus = common.devices(s, m) or _on_the_bus(s, m)
    if not gpus:
        yield _no_gpus(s, "whether the driver still supports the GPU")
    for device, _count in common.alike(gpus):
        yield _new_for(s, m, device)


def _on_the_bus(s: Snapshot, m: Matrix) -> List[common.Device]:
    """GPUs on the PCI bus, when the driver shows none: it may have dropped them."""
    found = []
    for number, one in enumerate(s.host.pci_gpus.get(()) if s.gpus.value == () else ()):
        row = m.gpu_on_bus(one.device.get(""))
        if row and s.driver.version.known:
            place = f"host.pci_gpus[{number}]"
            gpu = Gpu(name=Fact(value=str(row["name"]), source=one.device.source))
            capability = str(row["capability"])
            device = common.Device(place, gpu, str(row["name"]), capability, (place + ".device",))
            found.append(device)
    return found


def _new_for(s: Snapshot, m: Matrix, device: common.Device) -> Outcome:
    row = m.architecture(device.capability) if device.capability else None
    if row is None:
        return Undecided(device.places[-1:], "which architecture this GPU is", device.label)
    last = row.get("last_branch")
    if last is None:
        return Passed(f"{row['name']} is supported by every newer driver", device.label)
    branch = (numbers(s.driver.version.get("")) or (0,))[0]
    lib = common.libcuda(s, m)
    last_cuda = m.newest_cuda(str(last)) or ""
    by_library = bool(lib.cuda) and numbers(lib.cuda or "") > numbers(last_cuda)
    if not branch and not lib.cuda:
        return Undecided(("driver.version",), "whether the driver still supports it", device.label)
    if branch <= last and not by_library:
        return Passed(f"{row['name']} is supported up to R{last}", device.label)
    what = f"driver {s.driver.version.value}" if branch > last else f"libcuda of CUDA {lib.cuda}"
    return Finding(
        summary=f"{what} no longer supports {device.label} ({row['name']}): its last branch is "
        f"R{last}",
        observed=f"{what}, {device.label} (compute capability {device.capability})",
        needed=f"a driver of branch {last} or older, and a libcuda of CUDA {last_cuda} or older",
        why=f"NVIDIA dropped {row['name']} after R{last}: the device disappears from CUDA "
        "(error 100).",
        fix=(f"a node with driver branch {last}", "a newer GPU"),
        evidence=evidence(s, "driver.version", *lib.places, *device.places),
        sources=cited(row),
        subject=device.label,
    )


def too_old_for_gpu(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """This driver branch does not know this GPU yet.

    Judged only where driver or GPU are assumed (a build machine, `what if`): a GPU that the
    driver itself reports is one that it knows. The first branch is taken by architecture.

    Fix: a driver of the GPU's first branch or newer.
    """
    gpus = common.devices(s, m)
    if not (s.gpus.assumed or s.driver.version.assumed) or not gpus:
        yield NotApplicable("the driver itself reports the GPUs")
        return
    if s.driver.version.absent or s.driver.visible.value is False:
        yield NotApplicable("no driver to judge")
        return
    for device, _count in common.alike(gpus):
        yield _unknown_to(s, m, device)


def _unknown_to(s: Snapshot, m: Matrix, device: common.Device) -> Outcome:
    row = m.architecture(device.capability) if device.capability else None
    branch = (numbers(s.driver.version.get("")) or (0,))[0]
    if row is None or not branch or (row.get("jetson") and "first_branch" not in row):
        missing = (*(() if branch else ("driver.version",)), *device.places[-1:][: row is None])
        return Undecided(
            missing or ("driver.version",), "whether the driver knows it", device.label
        )
    if "first_branch" not in row:
        return Passed(f"{row['name']} is older than the driver branches known", device.label)
    first = row["first_branch"]
    if branch >= first:
        return Passed(f"{row['name']} is supported from R{first} on", device.label)
    return Finding(
        summary=f"driver {s.driver.version.value} does not know {device.label}: "
        f"{row['name']} starts with R{first}",
        observed=f"driver {s.driver.version.value}, {device.label}",
        needed=f"a driver of branch {first} or newer",
        why="A driver older than the GPU does not drive it: no device appears.",
        fix=(f"a node with driver branch {first} or newer",),
        evidence=evidence(s, "driver.version", *device.places),
        sources=cited(row),
        subject=device.label,
    )


def _no_gpus(s: Snapshot, note: str) -> Outcome:
    if s.gpus.value == () or s.gpus.absent:
        return NotApplicable("no GPU here")
    return Undecided(("gpus",), note)
