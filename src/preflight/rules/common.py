"""What several rules ask of a snapshot: the libcuda in use, the GPUs, the CUDA builds, the job."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..matrix import UNDECIDED, Matrix, Way, cited, cuda_of_tag, targets
from ..snapshot import Code as FileCode
from ..snapshot import Compat, Fact, Framework, Gpu, Snapshot
from .registry import NotApplicable, Outcome, Undecided

#: Values of NVIDIA_VISIBLE_DEVICES that give a container no GPU (NVIDIA Container Toolkit docs).
NO_DEVICES = ("", "void", "none")


_GPU_NODE = re.compile(r"/dev/(nvidia\d+|dxg|nvhost-gpu)$")


class Libcuda(NamedTuple):
    """The libcuda that would be loaded: kind ("" when unknown), its CUDA, its driver version."""

    kind: str
    cuda: Optional[str]
    version: Optional[str]
    places: Tuple[str, ...]


class Device(NamedTuple):
    """GPUs with their compute capability, from the driver or by product name."""

    place: str
    gpu: Gpu
    label: str
    capability: Optional[str]
    places: Tuple[str, ...]


class Build(NamedTuple):
    """A CUDA build of a framework."""

    place: str
    framework: Framework
    label: str
    cuda: str
    places: Tuple[str, ...]


def compat_in_use(s: Snapshot) -> Tuple[Optional[Compat], str]:
    """(the compat library that is loaded, its place), (None, "") when none is."""
    if s.driver.libcuda.value != "compat":
        return None, ""
    for number, one in enumerate(s.compats.get(())):
        if one.resolved.value is not False:
            return one, f"compats[{number}]"
    return Compat(), ""


def libcuda(s: Snapshot, m: Matrix) -> Libcuda:
    """The libcuda in use, as far as the facts tell."""
    kind = s.driver.libcuda.get("")
    places = ["driver.libcuda", "driver.libcuda_path"]
    cuda, version = s.driver.cuda.value, s.driver.library_version.value
    if s.driver.cuda.known:
        places.append("driver.cuda")
    compat, place = compat_in_use(s)
    if compat:
        version = compat.version.value or version
        cuda = cuda or compat.cuda.value or (m.newest_cuda(version) if version else None)
        places += [place + ".cuda", place + ".version", place + ".path"] if place else []
    elif not cuda and s.driver.version.value and kind in ("", "host"):
        cuda = m.newest_cuda(s.driver.version.value)
    return Libcuda(kind, cuda, version, tuple(places))


def way(s: Snapshot, m: Matrix, cuda: str) -> Way:
    """In which way the libcuda in use runs `cuda` (see :meth:`Matrix.way`)."""
    lib = libcuda(s, m)
    measured = s.driver.cuda.known or lib.kind == "compat"
    driver = s.driver.version.value
    if lib.kind == "compat" and not lib.cuda:
        return Way(UNDECIDED, "", m.oldest_driver(cuda) or "", ())
    return m.way(
        cuda,
        driver=driver,
        ceiling=lib.cuda if measured else None,
        compat=lib.kind == "compat",
    )


def devices(s: Snapshot, m: Matrix) -> List[Device]:
    """The known GPUs (empty also when nothing is known of them)."""
    found = []
    for number, gpu in enumerate(s.gpus.get(())):
        place = f"gpus[{number}]"
        name = gpu.name.value or ""
        capability = gpu.compute_capability.value
        places = [place + ".name"]
        if capability:
            places.append(place + ".compute_capability")
        elif name:
            capability = m.capability(name)
        label = name or (f"GPU of compute capability {capability}" if capability else "GPU")
        found.append(Device(place, gpu, label, capability, tuple(places)))
    return _chosen(s, found)


def _chosen(s: Snapshot, all_of: List[Device]) -> List[Device]:
    """Those of different GPUs that CUDA_VISIBLE_DEVICES names; all where that cannot be told.

    CUDA numbers the fastest first: an index is NVML's only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    entries = [one.strip() for one in s.variable("CUDA_VISIBLE_DEVICES").get("").split(",")]
    picked: List[Device] = []
    if all(one.startswith("GPU-") for one in entries):
        picked = [d for d in all_of if d.gpu.uuid.get("").startswith(tuple(entries))]
    elif s.variable("CUDA_DEVICE_ORDER").value == "PCI_BUS_ID" and all(
        one.isascii() and one.isdecimal() and int(one) < len(all_of) for one in entries
    ):
        alone = all(d.gpu.count.get(1) == 1 for d in all_of)
        picked = [all_of[int(one)] for one in entries] if alone else []
    return picked or all_of


def builds(s: Snapshot, m: Matrix) -> List[Build]:
    """The frameworks that are CUDA builds."""
    found = []
    for number, one in enumerate(s.frameworks.get(())):
        cuda = cuda_of(s, m, one)
        if cuda:
            place = f"frameworks[{number}]"
            places = (place + ".version", place + ".cuda", place + ".build")
            found.append(Build(place, one, framework_label(one), cuda, places))
    return found


def cuda_of(s: Snapshot, m: Matrix, one: Framework) -> Optional[str]:
    """The CUDA a framework was built with; None for a CPU build or when it cannot be told.

    Where nobody looked at the build's own record, the local version tells it (2.4.0+cu121), and
    a plain torch release that pip installed is the build that the default index gives.
    """
    if one.cuda.known or one.cuda.looked:
        return one.cuda.value
    release, _, local = one.version.get("").partition("+")
    tagged = cuda_of_tag(local)
    if tagged:
        return tagged
    if local or one.name.value != "torch" or one.build.value != "pip" or not release:
        return None
    row = m.default_torch(release, s.os.arch.get("x86_64"))
    return row.get("cuda") if row else None


def no_builds(s: Snapshot, m: Matrix) -> Outcome:
    """Why a rule about CUDA builds has none: none is here, or it could not be seen."""
    if not s.frameworks.known and s.frameworks.unknown and s.frameworks.looked:
        return Undecided(("frameworks",), "which framework builds are here")
    for number, one in enumerate(s.frameworks.get(())):
        if one.cuda.unknown and not cuda_of(s, m, one):
            label = framework_label(one)
            place = f"frameworks[{number}].cuda"
            return Undecided((place,), f"which CUDA {label} was built with", label)
    return NotApplicable("no CUDA build of a framework here")


def framework_label(one: Framework) -> str:
    """ "torch 2.6.0+cu124", or "torch" when the version is unknown."""
    return " ".join(filter(None, (one.name.value or "framework", one.version.value)))


def gpu_wanted(s: Snapshot, m: Matrix) -> Optional[str]:
    """Why this job needs a GPU (a CUDA build, or it asks for GPUs); None when nothing says so."""
    for build in builds(s, m):
        return f"{build.label} is a CUDA {build.cuda} build"
    if s.job.gpus_per_node.get(0) > 0:
        return f"the job asks for {s.job.gpus_per_node.value} GPUs per node"
    return None


def gpu_hidden(s: Snapshot) -> Optional[str]:
    """What hides the GPUs from this job on purpose; None when nothing does."""
    visible = s.variable("CUDA_VISIBLE_DEVICES").value
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
    given = s.variable("NVIDIA_VISIBLE_DEVICES").value
    # CDI sets "void" in a container that it gives GPUs (NVIDIA/nvidia-container-toolkit#395).
    if given is not None and given.strip() in ("void", "none") and not _has_gpu(s):
        return f"NVIDIA_VISIBLE_DEVICES={given} asks for no GPU"
    if s.job.gpus_per_node.value == 0:
        return "the job asks for no GPU"
    if s.variable("NPROC_PER_NODE").value == "0" and s.variable("DLC_JOB_ID").known:
        return "NPROC_PER_NODE=0: a CPU job of PAI DLC"
    if s.gpus.assumed and s.gpus.value == ():
        return "assumed to have no GPU"
    return None


def _has_gpu(s: Snapshot) -> bool:
    """Whether GPUs were given to this container, whatever its variables say."""
    nodes = s.driver.device_nodes
    if s.driver.nvml.value == "ok" or not nodes.known:
        return bool(s.gpus.value)
    return any(_GPU_NODE.match(one) for one in nodes.get(()))


class Code(NamedTuple):
    """The targets inside a build, where known; `unsure` adds those the source is unsure of."""

    targets: Tuple[str, ...]
    unsure: Tuple[str, ...]
    place: str
    sources: Tuple[str, ...]


def code_inside(s: Snapshot, m: Matrix, build: Build) -> List[Code]:
    """What GPU code a framework build holds: from its files, else from the matrix.

    More than one entry: several libraries, or the platform is unknown and the builds differ by
    it. Empty: unknown, as for conda, NGC and source builds, whose lists are not those of the
    public wheels, where the files were not read.
    """
    read = [
        Code(
            one.targets.get(()),
            one.targets.get(()) + one.partly.get(()),
            f"code[{number}].file",
            (),
        )
        for number, one in enumerate(s.code.get(()))
        if one.owner.value == build.framework.name.value and one.main.value
    ]
    if read:
        return read
    inside: Fact[Tuple[str, ...]] = build.framework.arch_list
    if inside.known:
        return [Code(inside.get(()), (), build.place + ".arch_list", ())]
    if build.framework.name.value != "torch" or build.framework.build.get("pip") != "pip":
        return []
    release, _, local = (build.framework.version.value or "").partition("+")
    if not release:
        return []
    variant = local.partition(".")[0] if local.startswith("cu") else local
    variant = variant or "cu" + build.cuda.replace(".", "")
    return [
        Code(targets(row), targets(row, unsure=True), "", cited(row))
        for row in m.torch_builds(release, s.os.arch.get(""))
        if row["variant"] == variant
    ]


def _all(code: FileCode) -> Tuple[str, ...]:
    return code.targets.get(()) + code.partly.get(())


def labels(all_of: List[Device]) -> str:
    """ "8 x NVIDIA A100-SXM4-80GB, Tesla T4" for a list of devices."""
    counts: Dict[str, int] = {}
    for one in all_of:
        counts[one.label] = counts.get(one.label, 0) + one.gpu.count.get(1)
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())


def alike(all_of: List[Device]) -> Iterator[Tuple[Device, int]]:
    """One device for each kind, with how many there are: eight alike GPUs are judged once."""
    seen: Dict[Tuple[str, Optional[str]], Tuple[Device, int]] = {}
    for one in all_of:
        key = (one.label, one.capability)
        first, count = seen.get(key, (one, 0))
        seen[key] = (first, count + one.gpu.count.get(1))
    for first, count in seen.values():
        yield first, count
