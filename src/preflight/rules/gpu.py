"""Rules about the GPUs and the code that is there for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import Kernels, Matrix, numbers
from ..snapshot import Snapshot
from . import common
from .cures import torch_that_runs
from .registry import FAIL, INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: Of torch.compile's check before it asks Triton (torch/_inductor, "triton GPU compiler").
TRITON_FLOOR = (7, 0)
TRITON = ("triton", "pytorch-triton")


def no_kernels_for_architecture(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """No machine code or usable PTX for this GPU inside the framework or an extension.

    Machine code runs on the same major and an equal or higher minor compute capability (sm_80
    serves 8.6, never 9.0); `a` targets only on their own; PTX compiles for any equal or newer
    GPU. The targets come from the binaries where known, else from the table of public torch
    wheels; conda, NGC and source builds have other lists and stay undecided. When only PTX of a
    toolkit older than the GPU is there, it warns: CUDA's own libraries of that toolkit (cuBLAS,
    cuDNN) hold nothing for the GPU.

    Fix: a build that has this architecture.
    """
    found = common.builds(s, m)
    gpus = common.devices(s, m)
    extensions = [one for one in s.extensions.get(()) if one.built_for.known]
    if not found and not extensions and not _arch_lists(s):
        yield common.no_builds(s, m)
    elif s.gpus.value == () or common.gpu_hidden(s):
        yield NotApplicable("no GPU is used here")
    elif not gpus:
        yield Undecided(("gpus",), "which GPU the code must run on")
    else:
        kinds = [device for device, _count in common.alike(gpus)]
        for build in found or _arch_lists(s):
            yield from _of_kinds([_kernels_of_build(s, m, build, one) for one in kinds])
        for device in kinds:
            yield from _kernels_of_extensions(s, m, device)
            yield from _kernels_of_parts(s, m, device)


def _of_kinds(outcomes: List[Outcome]) -> List[Outcome]:
    """Where one kind of GPU is served, another beside it (a display card) is a warning."""
    if not any(isinstance(one, Passed) for one in outcomes):
        return outcomes
    return [replace(one, severity=WARN) if isinstance(one, Finding) else one for one in outcomes]


def _arch_lists(s: Snapshot) -> List[common.Build]:
    """Frameworks whose CUDA is not known but whose targets are (a pasted arch list)."""
    found = []
    for number, one in enumerate(s.frameworks.get(())):
        if one.arch_list.known and one.cuda.unknown:
            place = f"frameworks[{number}]"
            found.append(common.Build(place, one, common.framework_label(one), "", ()))
    return found


def _kernels_of_build(
    s: Snapshot, m: Matrix, build: common.Build, device: common.Device
) -> Outcome:
    codes = common.code_inside(s, m, build)
    if not device.capability:
        return Undecided(
            (device.place + ".compute_capability",), "which architecture this GPU is", device.label
        )
    if not codes and any(one.owner.value == build.framework.name.value for one in s.code.get(())):
        return _beside(s, m, build, device)
    if not codes:
        missing = build.place + ".arch_list"
        return Undecided((missing,), f"which architectures {build.label} holds", build.label)
    served = [m.kernels(device.capability, code.targets) for code in codes]
    if codes[0].place.startswith("code["):
        worst = [i for i, one in enumerate(served) if one.kind == "none"]
        worst += [i for i, one in enumerate(served) if one.kind == "ptx"] + [0]
        return _judged(s, m, build, device, codes[worst[0]], served[worst[0]])
    maybe = [m.kernels(device.capability, code.unsure) for code in codes if code.unsure]
    kinds = {one.kind for one in served}
    if kinds == {"none"} and {one.kind for one in maybe} - {"none"} or len(kinds) > 1:
        return Undecided(
            (build.place + ".arch_list",), f"whether {build.label} has {_sm(device)}", build.label
        )
    return _judged(s, m, build, device, codes[0], served[0])


def _beside(s: Snapshot, m: Matrix, build: common.Build, device: common.Device) -> Outcome:
    """Of a framework beside another, whose files are each judged as a part of the job."""
    inside = [one.targets.get(()) + one.partly.get(()) for one in s.code.get(())
              if one.owner.value == build.framework.name.value]  # fmt: skip
    if all(m.kernels(device.capability or "", one).kind != "none" for one in inside):
        return Passed(f"{build.label} has code for {device.label}", build.label)
    return NotApplicable(f"{build.label} is judged file by file")


def _judged(
    s: Snapshot, m: Matrix, build: common.Build, device: common.Device,
    code: common.Code, served: Kernels,
) -> Outcome:  # fmt: skip
    places = (*build.places, *([code.place] if code.place else []), *device.places)
    if served.kind == "sass":
        return Passed(f"served by {served.by} code", build.label, evidence(s, *places))
    if served.kind == "unknown":
        return Undecided(
            (build.place + ".arch_list",), f"whether {served.by} runs on this Jetson", build.label
        )
    foreign = served.kind == "ptx" and (
        build.cuda and m.libraries_know(build.cuda, device.capability or "") is False
    )
    if served.kind == "ptx" and not foreign:
        return Passed(f"served by {served.by} PTX, compiled by the driver", build.label)
    has = ", ".join(code.targets) or "none"
    where = "" if code.place else " (by the table of public wheels)"
    problem = (
        f"only old PTX ({served.by}) for {_sm(device)}" if foreign else f"no code for {_sm(device)}"
    )
    return Finding(
        summary=f"{build.label} has {problem}, which {device.label} needs",
        observed=f"targets in the build{where}: {has}",
        needed=f"{_sm(device)} code (or sm_{(device.capability or '').split('.')[0]}x of a lower "
        "minor), or PTX the driver can compile",
        why="CUDA stops at the first kernel: 'no kernel image is available for execution on the "
        "device'." if not foreign else
        f"CUDA {build.cuda}'s own libraries were built before this GPU and hold nothing for it.",
        fix=_other_builds(s, m, build, device),
        evidence=evidence(s, *places),
        sources=code.sources,
        subject=build.label,
        severity=WARN if foreign else FAIL,
    )  # fmt: skip


def _kernels_of_parts(s: Snapshot, m: Matrix, device: common.Device) -> Iterator[Outcome]:
    """Libraries of a framework that only some operations use, and extensions' modules."""
    frameworks = {one.name.value for one in s.frameworks.get(())}
    unserved = {
        one.owner.value
        for one in s.code.get(())
        if one.main.value and m.kernels(device.capability or "", one.targets.get(())).kind == "none"
    }
    for number, one in enumerate(s.code.get(())):
        owner = one.owner.get("")
        main = one.main.value and owner in frameworks
        if not device.capability or main or (owner in frameworks and owner in unserved):
            continue
        inside = one.targets.get(()) + one.partly.get(())
        if m.kernels(device.capability, inside).kind != "none":
            continue
        file, place = one.file.get(""), f"code[{number}]"
        what = f"{file} of {owner}"
        yield Finding(
            summary=f"{what} has no code for {_sm(device)}: what it computes fails on "
            f"{device.label}",
            observed=f"targets in {file}: {', '.join(inside) or 'none'}",
            needed=f"{_sm(device)} code or PTX the driver can compile",
            why="The rest runs; what calls this library stops with 'no kernel image is available'"
            + (" (torch.linalg)." if "linalg" in file else "."),
            fix=(f"leave out what uses {owner if owner not in frameworks else file} on this GPU",
                 f"a build of {owner} with {_sm(device)}"),
            evidence=evidence(s, place + ".file", place + ".targets", *device.places),
            subject=what,
            severity=WARN,
        )  # fmt: skip


def _sm(device: common.Device) -> str:
    return "sm_" + (device.capability or "?").replace(".", "")


def _other_builds(
    s: Snapshot, m: Matrix, build: common.Build, device: common.Device
) -> Tuple[str, ...]:
    if build.framework.name.value != "torch":
        return (f"a build of {build.label} with {_sm(device)}",)
    return torch_that_runs(s, m, build.framework) or (
        f"a torch build whose list has {_sm(device)} (see `torch.cuda.get_arch_list()`)",
    )


def _kernels_of_extensions(s: Snapshot, m: Matrix, device: common.Device) -> Iterator[Outcome]:
    for number, one in enumerate(s.extensions.get(())):
        made_for = one.built_for.value
        if not made_for:
            continue
        name = one.name.value or "an extension"
        if not made_for.arch_list.known and s.code.known:
            yield from _kernels_read(s, m, device, name)
            continue
        if not made_for.arch_list.known or not device.capability:
            inside = f"extensions[{number}].built_for.arch_list"
            missing = device.places[-1] if made_for.arch_list.known else inside
            yield Undecided((missing,), f"whether {name} has code for this GPU", name)
            continue
        targets = made_for.arch_list.get(())
        if m.kernels(device.capability, targets).kind != "none":
            yield Passed(f"{name} has code for {device.label}", name)
            continue
        yield Finding(
            summary=f"{name} has no code for {_sm(device)}, which {device.label} needs",
            observed=f"targets in {name}: {', '.join(targets) or 'none'}",
            needed=f"{_sm(device)} code or PTX the driver can compile",
            why="The extension's kernels stop with 'no kernel image is available'.",
            fix=(f'rebuild {name} with TORCH_CUDA_ARCH_LIST="{device.capability}"',),
            evidence=evidence(s, f"extensions[{number}].name", *device.places),
            subject=name,
        )


def _kernels_read(s: Snapshot, m: Matrix, device: common.Device, name: str) -> Iterator[Outcome]:
    """Of an extension whose files were read: a lack is found file by file."""
    inside = [one.targets.get(()) + one.partly.get(()) for one in s.code.get(())
              if one.owner.value == name]  # fmt: skip
    if not inside:
        yield NotApplicable(f"{name} has no GPU code inside")
    elif not device.capability:
        yield Undecided((device.places[-1],), f"whether {name} has code for this GPU", name)
    elif all(m.kernels(device.capability, one).kind != "none" for one in inside):
        yield Passed(f"{name} has code for {device.label}", name)


class _Token(NamedTuple):
    text: str
    problem: str


def visible_devices_invalid(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """CUDA_VISIBLE_DEVICES names a device that does not exist.

    CUDA reads the list from the left and stops at the first entry that names no device: what
    comes after it is hidden without a word, and a bad first entry hides every GPU. Indices are
    compared with the number of GPUs in this container, UUIDs (or their beginnings) with the
    UUIDs the driver reports. An empty list or -1 hides the GPUs on purpose.

    Fix: indices from 0 to the number of GPUs in this container less one.
    """
    given = s.variable("CUDA_VISIBLE_DEVICES")
    if not given.known:
        yield NotApplicable("CUDA_VISIBLE_DEVICES is not set")
        return
    hidden = common.gpu_hidden(s)
    if hidden:
        yield NotApplicable(hidden)
        return
    if not s.gpus.known:
        yield Undecided(("gpus",), "whether the named devices exist")
        return
    if not s.gpus.value:
        yield NotApplicable("no GPU here: another rule speaks")
        return
    count = sum(one.count.get(1) for one in s.gpus.get(()))
    bad: Optional[_Token] = None
    seen: List[str] = []
    entries = [one.strip() for one in (given.value or "").split(",")]
    for number, entry in enumerate(entries):
        problem = _entry_problem(s, entry, entries[:number], count)
        if problem is None:
            yield Undecided(("gpus[0].uuid",), f"whether {entry} exists")
            return
        if problem:
            bad = _Token(entry, problem)
            break
        seen.append(entry)
    if bad is None:
        yield Passed(f"CUDA_VISIBLE_DEVICES={given.value} names devices that exist")
        return
    kept = 0 if bad.problem == "is named twice" else len(seen)  # a repeated index hides all
    enough = 0 < kept >= s.job.gpus_per_node.get(0)
    if enough and bad.text in ("-1", ""):
        yield Passed(f"CUDA_VISIBLE_DEVICES={given.value} shows {kept} GPU(s) and ends there")
        return
    yield Finding(
        summary=f"CUDA_VISIBLE_DEVICES={given.value}: {bad.text!r} {bad.problem}",
        observed=f"CUDA_VISIBLE_DEVICES={given.value} with {count} GPU(s) in this container",
        needed="indices below the number of GPUs, or UUIDs the driver reports, comma-separated",
        why="CUDA stops reading at the first entry that names no device: "
        + ("no GPU is left" if kept == 0 else f"only the first {kept} of {len(entries)} are left")
        + ".",
        fix=(
            "unset CUDA_VISIBLE_DEVICES",
            "export CUDA_VISIBLE_DEVICES=" + ",".join(str(n) for n in range(min(count, 64))),
        ),
        evidence=evidence(s, "env.CUDA_VISIBLE_DEVICES", "gpus"),
        severity=WARN if enough else FAIL,  # what is left may be all that the job uses
    )


def _entry_problem(s: Snapshot, entry: str, before: List[str], count: int) -> Optional[str]:
    """What is wrong with an entry: "" when nothing, None when it cannot be decided."""
    if entry.upper().startswith(("GPU-", "MIG-")):
        return _uuid_problem(s, entry)
    digits = entry[1:] if entry[:1] == "+" else entry
    if not (digits.isascii() and digits.isdecimal()):
        return "is not a device index or UUID"
    if int(digits) >= count:
        return "does not exist here"
    return "is named twice" if entry in before else ""


def _uuid_problem(s: Snapshot, entry: str) -> Optional[str]:
    gpus = s.gpus.get(())
    if entry.upper().startswith("MIG-"):
        names = [name for one in gpus for name in one.mig_devices.get(())]
        names = [name for name in names if name.startswith("MIG-")]
        if entry.upper().startswith("MIG-GPU-") and not any(
            n.startswith("MIG-GPU-") for n in names
        ):
            return None  # the form of R450 and R460, MIG-GPU-UUID/GI/CI: NVML no longer prints it
        return None if not names else ("" if entry in names else "does not exist here")
    uuids = [one.uuid.value for one in gpus if one.uuid.value]
    if len(uuids) < len(gpus) or not uuids:
        return None
    return "" if any(uuid.startswith(entry) for uuid in uuids) else "does not exist here"


def too_old_for_triton(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The GPU is older than the installed Triton supports.

    torch.compile's GPU backend and Triton kernels need compute capability 7.0 (Volta) or newer;
    torch itself may well have code for older GPUs. It warns when the job uses torch.compile, is
    mentioned when Triton is only installed.

    Fix: run without torch.compile on this GPU (TORCHDYNAMO_DISABLE=1), or take a newer GPU.
    """
    uses = s.job.uses_torch_compile.value
    packages = s.python.packages
    installed = any(name in packages.get({}) for name in TRITON)
    if uses is not False and not (uses or installed) and packages.unknown and packages.looked:
        yield Undecided(("python.packages",), "whether Triton is here")
        return
    if uses is False or not (uses or installed):
        yield NotApplicable("nothing here uses Triton")
        return
    if s.gpus.value == () or s.gpus.absent or common.gpu_hidden(s):
        yield NotApplicable("no GPU is used here")
        return
    gpus = common.devices(s, m)
    if not gpus:
        yield Undecided(("gpus",), "whether Triton supports the GPU")
    for device, _count in common.alike(gpus):
        if not device.capability:
            yield Undecided((device.places[-1],), "which architecture this GPU is", device.label)
        elif numbers(device.capability) >= TRITON_FLOOR:
            yield Passed("Triton supports this GPU", device.label)
        else:
            yield Finding(
                summary=f"{device.label} (compute capability {device.capability}) is older than "
                "Triton supports (7.0)",
                observed=f"{device.label}, compute capability {device.capability}",
                needed="compute capability 7.0 or newer for torch.compile and Triton kernels",
                why="Compiling stops: 'too old to be supported by the triton GPU compiler'; eager "
                "mode runs.",
                fix=("export TORCHDYNAMO_DISABLE=1",),
                evidence=evidence(s, *device.places, "job.uses_torch_compile"),
                subject=device.label,
                severity=WARN if uses else INFO,
            )
