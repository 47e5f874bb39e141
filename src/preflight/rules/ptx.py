"""Which code here the driver would have to compile, and whether it would refuse.

The parts of `driver/too-old-for-ptx`.
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..matrix import Matrix, numbers
from ..snapshot import Snapshot
from . import common
from .registry import FAIL, INFO, Finding, Outcome, Passed, Undecided, evidence

#: What the driver answers when its compiler is older than the PTX (CUDA error 222).
PTX_ERRORS = ("unsupported toolchain", "unsupported PTX")


def outcomes(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """What the driver would compile, part by part; nothing when it compiles nothing."""
    yield from _ptx_of_builds(s, m)
    yield from _ptx_of_extensions(s, m)
    yield from _ptx_of_nvrtc(s, m)
    yield from _ptx_of_log(s, m)


def _ceiling(s: Snapshot, m: Matrix) -> Optional[str]:
    lib = common.libcuda(s, m)
    newer = lib.kind != "compat" and m.newer_than_known(s.driver.version.get(""))
    return None if newer and not s.driver.cuda.known else lib.cuda


def _refused(s: Snapshot, m: Matrix, cuda: Optional[str]) -> bool:
    """Whether the driver would refuse PTX of this CUDA."""
    ceiling = _ceiling(s, m)
    return bool(cuda and ceiling and m.compiles_ptx(cuda, ceiling) is False)


def _same_major(s: Snapshot, m: Matrix, cuda: Optional[str]) -> bool:
    """Of another major nothing runs at all, and another rule speaks."""
    return numbers(cuda or "")[:1] == numbers(_ceiling(s, m) or "")[:1]


def _log_confirms(s: Snapshot) -> bool:
    return any(error in line for line in s.logs.get(()) for error in PTX_ERRORS)


def _ptx_of_builds(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    for build in common.builds(s, m):
        for device, _count in common.alike(common.devices(s, m)):
            codes = common.code_inside(s, m, build)
            kinds = {m.kernels(device.capability or "", code.targets).kind for code in codes}
            if not device.capability or kinds != {"ptx"}:
                continue
            by = m.kernels(device.capability, codes[0].targets).by
            if _refused(s, m, build.cuda):
                what = f"{build.label} holds only PTX ({by}) for {device.label}"
                places = (*build.places, codes[0].place, *device.places)
                yield _ptx_finding(s, m, what, build.cuda, build.label, FAIL, places)
            elif _ceiling(s, m):
                yield Passed(f"{by} PTX is compiled for {device.label} by the driver", build.label)
            else:
                yield Undecided(
                    ("driver.cuda",), "whether the driver compiles the PTX", build.label
                )


def _ptx_of_extensions(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    for number, one in enumerate(s.extensions.get(())):
        place = f"extensions[{number}]"
        made_for = one.built_for.value
        cuda = made_for.cuda.value if made_for else None
        if not made_for or not _refused(s, m, cuda):
            continue
        name = one.name.value or "an extension"
        if made_for.arch_list.known:
            capabilities = [one.capability for one in common.devices(s, m)]
            kinds = [m.kernels(c or "", made_for.arch_list.get(())).kind for c in capabilities]
            if "ptx" in kinds:
                what = f"{name} holds only PTX for this GPU"
                places = (place + ".name", place + ".built_for")
                yield _ptx_finding(s, m, what, cuda or "", name, FAIL, places[:1])
            continue
        if _log_confirms(s):
            what = f"{name} was built by CUDA {cuda}, and the log shows the refusal"
            yield _ptx_finding(s, m, what, cuda or "", name, FAIL, (place + ".name", "logs"))
            continue
        yield Undecided(
            (place + ".built_for.arch_list",), f"whether {name} holds machine code", name
        )


def _ptx_of_nvrtc(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    for number, one in enumerate(s.libraries.get(())):
        if not (one.name.value or "").startswith("libnvrtc.so"):
            continue
        if not _refused(s, m, one.version.value) or not _same_major(s, m, one.version.value):
            continue
        place = f"libraries[{number}]"
        what = f"NVRTC {one.version.value} compiles kernels at run time"
        severity = FAIL if _log_confirms(s) else INFO
        places = (place + ".name", place + ".version", "logs")
        yield _ptx_finding(s, m, what, one.version.value or "", "NVRTC", severity, places)


def _ptx_of_log(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The log names the error, and the framework's CUDA is one whose PTX the driver refuses."""
    if not _log_confirms(s) or s.extensions.get(()) or s.libraries.get(()):
        return
    for build in common.builds(s, m):
        if _refused(s, m, build.cuda):
            what = f"{build.label} is of CUDA {build.cuda}, and the log shows the refusal"
            places = (*build.places, "logs")
            yield _ptx_finding(s, m, what, build.cuda, build.label, FAIL, places)


def _ptx_finding(
    s: Snapshot,
    m: Matrix,
    what: str,
    cuda: str,
    subject: str,
    severity: str,
    places: Tuple[str, ...],
) -> Finding:
    ceiling = _ceiling(s, m) or ""
    newer = m.branch_for_cuda(cuda)
    lib = common.libcuda(s, m)
    return Finding(
        summary=f"{what}; the driver compiles PTX only up to CUDA {ceiling}",
        observed=f"{what}; libcuda offers CUDA {ceiling}",
        needed=f"a libcuda of CUDA {cuda}, or machine code for this GPU",
        why="The driver's PTX compiler refuses PTX of a newer toolkit (error 222); machine code "
        "would run by minor-version compatibility.",
        fix=((f"a node with driver branch {newer['branch']} or newer",) if newer else ())
        + ("a build by a CUDA no newer than the driver's, or with machine code",),
        evidence=evidence(s, *[p for p in places if p], "driver.version", *lib.places),
        subject=subject,
        severity=severity,
    )
