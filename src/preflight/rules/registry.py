"""What a rule is, what it may answer, and the table of all rules.

A rule is a pure function of (snapshot, matrix) in the module named after its subject:
``driver/too-old-for-cuda`` is :func:`preflight.rules.driver.too_old_for_cuda`. It yields
outcomes; its docstring is its documentation (what it means, how it is decided, the fix).
No I/O, no clock, no environment.

A new rule is one function, one row in :data:`RULES` below, one test.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Optional, Tuple, Union

from ..snapshot import UNKNOWN, Fact, Snapshot, record

if TYPE_CHECKING:
    from ..matrix import Matrix

FAIL, WARN, INFO, OFF = "fail", "warn", "info", "off"


class Evidence(NamedTuple):
    """One fact a finding rests on: its place in the snapshot, value and witness."""

    fact: str
    value: str
    source: str
    assumed: bool = False


@record(frozen=True)
class Finding:
    """Something wrong or worth knowing. `severity` empty: the rule's own."""

    summary: str
    observed: str
    needed: str
    why: str
    fix: Tuple[str, ...] = ()
    evidence: Tuple[Evidence, ...] = ()
    sources: Tuple[str, ...] = ()
    subject: str = ""
    severity: str = ""
    lasting: bool = False  # no other try cures it, though the rule says that one may


class Undecided(NamedTuple):
    """Facts are missing: which, and what would be decided with them."""

    missing: Tuple[str, ...]
    note: str
    subject: str = ""


class NotApplicable(NamedTuple):
    """Outside the rule's range, and why."""

    why: str


class Passed(NamedTuple):
    """Decided, and nothing wrong; `note` says in which way."""

    note: str
    subject: str = ""
    evidence: Tuple[Evidence, ...] = ()


Outcome = Union[Finding, Undecided, NotApplicable, Passed]
Judge = Callable[[Snapshot, "Matrix"], Iterator[Outcome]]


@lru_cache(maxsize=None)
def _judge(name: str) -> Judge:
    subject, what = name.split("/")
    module: Any = import_module("." + subject, __package__)
    judge: Judge = getattr(module, what.replace("-", "_"))
    return judge


class Rule(NamedTuple):
    """One row of the table.

    `rung` is the link of the chain driver → libcuda → cuda → framework → link → nccl → gpu (or
    "container", "matrix") that the rule speaks about. `sources`: keys of compat/sources.toml
    that it rests on. `retry`: another node or a later try may cure it (exit code 75).
    """

    name: str
    severity: str
    rung: str
    meaning: str
    sources: Tuple[str, ...]
    retry: bool = False

    @property
    def function(self) -> Judge:
        return _judge(self.name)

    @property
    def documentation(self) -> str:
        """The rule's own words, from its docstring."""
        lines = (self.function.__doc__ or "").expandtabs().splitlines()
        body = [line[4:] if line.startswith("    ") else line for line in lines[1:]]
        return "\n".join(lines[:1] + body).strip()


RULES: Tuple[Rule, ...] = (
    Rule(
        "container/gpu-not-requested", FAIL, "driver",
        "The container was started without GPUs though the host has them.",
        sources=("nvidia-container-toolkit",),
    ),
    Rule(
        "container/driver-capabilities-missing", FAIL, "driver",
        "NVIDIA_DRIVER_CAPABILITIES leaves out compute or utility.",
        sources=("nvidia-container-toolkit", "nvidia-container-docs"),
    ),
    Rule(
        "container/device-access-denied", FAIL, "container",
        "Device nodes are there but may not be opened (device cgroup, permissions).",
        sources=("toolkit-issue-48", "nvidia-container-troubleshooting"),
        retry=True,
    ),
    Rule(
        "driver/not-visible", FAIL, "driver",
        "A CUDA job, and no NVIDIA driver or GPU can be seen from inside the container.",
        sources=("nvidia-container-toolkit", "cuda-headers-13-5"),
    ),
    Rule(
        "driver/library-mismatch", FAIL, "driver",
        "User-mode driver libraries and the kernel module are of different versions.",
        sources=("nvidia-container-toolkit", "cuda-headers-13-5"),
        retry=True,
    ),
    Rule(
        "link/stub-libcuda", FAIL, "libcuda",
        "The toolkit's stub libcuda would be loaded instead of the driver's.",
        sources=("cuda-headers-13-5",),
    ),
    Rule(
        "compat/older-than-driver", FAIL, "libcuda",
        "The compat libcuda that would be loaded is older than the host's driver (error 803).",
        sources=("nvidia-forward-v615", "nvidia-compat-faq"),
    ),
    Rule(
        "compat/unsupported-gpu", FAIL, "libcuda",
        "A forward-compatibility libcuda is in use on a GPU that does not support it (error 804).",
        sources=("nvidia-forward-v615", "probe-fwd-note"),
    ),
    Rule(
        "compat/unsupported-branch", FAIL, "libcuda",
        "The compat package does not support this base driver branch.",
        sources=("nvidia-forward-v615", "probe-fwd-note"),
    ),
    Rule(
        "compat/not-active", FAIL, "libcuda",
        "A compat libcuda that would make this image run is present but would not be loaded.",
        sources=("nvidia-forward-v615", "nvidia-container-toolkit"),
    ),
    Rule(
        "driver/too-new-for-gpu", FAIL, "gpu",
        "This driver branch (or the libcuda in use) no longer supports this GPU.",
        sources=("nvidia-arch-matrix",),
    ),
    Rule(
        "driver/too-old-for-gpu", FAIL, "gpu",
        "This driver branch does not know this GPU yet.",
        sources=("nvidia-arch-matrix", "open-kernel-readme"),
    ),
    Rule(
        "driver/too-old-for-cuda", FAIL, "cuda",
        "The libcuda in use is older than the framework's CUDA allows.",
        sources=("nvidia-minor-version", "nvidia-forward-v615"),
    ),
    Rule(
        "driver/too-old-for-ptx", FAIL, "gpu",
        "Code reaches the GPU only as PTX from a toolkit newer than the driver can compile.",
        sources=("nvidia-minor-version", "probe-ptxas"),
    ),
    Rule(
        "gpu/no-kernels-for-architecture", FAIL, "gpu",
        "No machine code or usable PTX for this GPU inside the framework or an extension.",
        sources=("cuda-programming-guide", "torch-wheels"),
    ),
    Rule(
        "gpu/visible-devices-invalid", FAIL, "gpu",
        "CUDA_VISIBLE_DEVICES names a device that does not exist.",
        sources=("cuda-programming-guide",),
    ),
    Rule(
        "container/uvm-device-missing", FAIL, "container",
        "/dev/nvidia-uvm is not there.",
        sources=("nvidia-container-toolkit",),
        retry=True,
    ),
    Rule(
        "gpu/unhealthy", FAIL, "health",
        "Uncorrectable ECC errors, pending row remap or retired pages, failed NVLink, GPU fallen "
        "off the bus.",
        sources=("nvidia-gpu-memory", "nvidia-nvml-api", "cuda-headers-13-5"),
        retry=True,
    ),
    Rule(
        "gpu/mig-device-unset", FAIL, "gpu",
        "MIG is on and no MIG device is selected or exposed.",
        sources=("nvidia-mig-guide",),
    ),
    Rule(
        "gpu/exclusive-mode-busy", FAIL, "gpu",
        "Exclusive compute mode, and the GPU is taken.",
        sources=("nvidia-nvml-api", "nvidia-mps"),
        retry=True,
    ),
    Rule(
        "gpu/mps-not-reachable", FAIL, "gpu",
        "The environment points at an MPS daemon that cannot be reached.",
        sources=("nvidia-mps", "cuda-headers-13-5"),
        retry=True,
    ),
    Rule(
        "gpu/vgpu-peer-access", FAIL, "gpu",
        "Virtual GPUs without the peer access or unified memory that NCCL would use.",
        sources=("nccl-2101", "cuda-headers-13-5"),
    ),
    Rule(
        "fabric/manager-version-mismatch", FAIL, "health",
        "Fabric Manager and driver versions differ on an NVSwitch system.",
        sources=("nvidia-fabric-manager", "fabric-reports"),
        retry=True,
    ),
    Rule(
        "fabric/not-ready", FAIL, "health",
        "An NVSwitch system whose fabric is not up (CUDA error 802).",
        sources=("nvidia-fabric-manager", "fabric-reports", "nvidia-nvml-api"),
        retry=True,
    ),
    Rule(
        "gpu/throttled", WARN, "health",
        "Thermal or power slowdown active, temperature over the limit.",
        sources=("nvidia-nvml-api",),
        retry=True,
    ),
    Rule(
        "gpu/memory-in-use", WARN, "health",
        "Another process holds GPU memory before the job starts.",
        sources=("nvidia-nvml-api",),
        retry=True,
    ),
    Rule(
        "container/shell-missing", FAIL, "container",
        "The platform needs a shell or tool that the image lacks.",
        sources=("job-starts", "docker-run"),
    ),
    Rule(
        "container/entrypoint-broken", FAIL, "container",
        "The entrypoint cannot be executed (missing, not executable, bad interpreter line, CRLF).",
        sources=("linux-man-pages", "job-starts"),
    ),
    Rule(
        "container/entrypoint-replaced", WARN, "container",
        "The base image's entrypoint (or the platform's) is replaced, and what it did is lost.",
        sources=("ngc-entrypoint", "docker-run"),
    ),
    Rule(
        "container/no-init", WARN, "container",
        "PID 1 reaps no children.",
        sources=("linux-man-pages", "docker-run", "job-starts"),
    ),
    Rule(
        "container/signals-not-forwarded", WARN, "container",
        "A shell form or wrapper keeps SIGTERM from the training process.",
        sources=("linux-man-pages", "docker-run", "job-starts"),
    ),
    Rule(
        "container/shm-too-small", WARN, "host",
        "/dev/shm is too small for multi-process loaders or NCCL shared memory on this many GPUs.",
        sources=("docker-run", "torch-shm", "nccl-guide"),
    ),
    Rule(
        "host/memory-low", WARN, "host",
        "Little memory left, by the cgroup's limit.",
        sources=("kernel-cgroups",),
        retry=True,
    ),
    Rule(
        "host/disk-low", WARN, "host",
        "Little free space or inodes where the job writes.",
        sources=("linux-man-pages",),
        retry=True,
    ),
    Rule(
        "host/cpus-low", WARN, "host",
        "Fewer CPUs than ranks, or far fewer than loader workers, by quota and cpuset.",
        sources=("kernel-cgroups",),
    ),
    Rule(
        "host/open-files-low", WARN, "host",
        "The limit of open files is too low for ranks and loader workers.",
        sources=("linux-man-pages", "docker-run"),
    ),
    Rule(
        "link/missing-library", FAIL, "link",
        "A needed shared library cannot be found.",
        sources=("ld-so-manual",),
    ),
    Rule(
        "link/undefined-symbol", FAIL, "link",
        "A needed symbol or symbol version has no provider among the libraries.",
        sources=("ld-so-manual",),
    ),
    Rule(
        "link/library-shadowed", WARN, "link",
        "The search path puts another copy in place of the one the framework ships.",
        sources=("ld-so-manual", "torch-wheels"),
    ),
    Rule(
        "link/cudnn-mismatch", FAIL, "link",
        "The cuDNN that would be loaded is older than the build needs, or its parts differ.",
        sources=("cudnn-guide",),
    ),
    Rule(
        "link/libcuda-unversioned-missing", WARN, "link",
        "The driver's libcuda.so.1 is there and libcuda.so is not: linking the bare name fails.",
        sources=("nvidia-container-toolkit",),
    ),
    Rule(
        "link/glibc-too-old", FAIL, "link",
        "A binary needs a newer glibc than the image has.",
        sources=("ld-so-manual", "torch-wheels"),
    ),
    Rule(
        "link/libstdcxx-too-old", FAIL, "link",
        "A binary needs a newer libstdc++ than would be loaded.",
        sources=("ld-so-manual",),
    ),
    Rule(
        "nccl/duplicate", FAIL, "nccl",
        "Several NCCL packages overwrite or hide each other.",
        sources=("torch-wheels",),
    ),
    Rule(
        "nccl/older-shadows-framework", FAIL, "nccl",
        "An older libnccl would be loaded than the framework was built against.",
        sources=("nccl-guide",),
    ),
    Rule(
        "nccl/version-mismatch", WARN, "nccl",
        "NCCL loaded, pinned and compiled against differ in a way that matters.",
        sources=("torch-wheels", "nccl-guide"),
    ),
    Rule(
        "nccl/interface-missing", FAIL, "nccl",
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names no existing interface.",
        sources=("nccl-env-docs", "nccl-sources", "gloo-sources"),
    ),
    Rule(
        "nccl/interface-loopback", FAIL, "nccl",
        "Multi-node traffic is pinned to loopback.",
        sources=("nccl-sources", "nccl-probe"),
    ),
    Rule(
        "nccl/interface-syntax", FAIL, "nccl",
        "The interface list is written in a way NCCL does not read as meant.",
        sources=("nccl-env-docs", "nccl-sources"),
    ),
    Rule(
        "nccl/interface-unroutable", WARN, "nccl",
        "The chosen interface has no route to the master, or the choice is ambiguous between "
        "nodes.",
        sources=("nccl-sources",),
    ),
    Rule(
        "nccl/no-interface", FAIL, "nccl",
        "No usable network interface.",
        sources=("nccl-sources",),
    ),
    Rule(
        "nccl/ib-disabled", WARN, "nccl",
        "NCCL_IB_DISABLE=1 on a node that has RDMA.",
        sources=("nccl-env-docs", "pai-rdma"),
    ),
    Rule(
        "nccl/rdma-libraries-missing", WARN, "nccl",
        "The node has RDMA and the image lacks libibverbs or its providers, or the net plugin: "
        "NCCL falls back to sockets.",
        sources=("nccl-sources", "pai-rdma"),
    ),
    Rule(
        "nccl/p2p-disabled", WARN, "nccl",
        "NCCL_P2P_DISABLE or NCCL_SHM_DISABLE left set.",
        sources=("nccl-env-docs",),
    ),
    Rule(
        "nccl/cumem-disabled", INFO, "nccl",
        "NCCL_CUMEM_ENABLE=0 costs features.",
        sources=("nccl-env-docs",),
    ),
    Rule(
        "nccl/variable-unknown", WARN, "nccl",
        "An NCCL_* variable that this NCCL does not read (misspelt, renamed, invented).",
        sources=("nccl-env-docs", "nccl-probe"),
    ),
    Rule(
        "nccl/preset-differs", INFO, "nccl",
        "NCCL's settings are not those that the platform presets for this kind of node.",
        sources=("pai-rdma", "pai-erdma"),
    ),
    Rule(
        "container/rdma-device-missing", WARN, "container",
        "The host has RDMA NICs that this container cannot use.",
        sources=("nccl-sources",),
    ),
    Rule(
        "container/memlock-too-low", FAIL, "container",
        "RLIMIT_MEMLOCK is too low for RDMA memory registration.",
        sources=("nccl-sources",),
    ),
    Rule(
        "framework/extension-abi-mismatch", FAIL, "framework",
        "A compiled extension was built against another torch, CUDA or C++ ABI.",
        sources=("torch-release-md", "torch-wheels"),
    ),
    Rule(
        "framework/companion-mismatch", FAIL, "framework",
        "The torchvision or torchaudio here does not belong to this torch.",
        sources=("torch-wheels",),
    ),
    Rule(
        "framework/plugin-mismatch", FAIL, "framework",
        "A framework and its CUDA plugin do not belong together.",
        sources=("jax-wheels", "jax-sources"),
    ),
    Rule(
        "framework/python-abi-mismatch", FAIL, "framework",
        "Compiled modules are for another Python.",
        sources=("python-abi-tags",),
    ),
    Rule(
        "framework/numpy-abi-mismatch", FAIL, "framework",
        "Built against another NumPy major.",
        sources=("numpy-2-notes",),
    ),
    Rule(
        "framework/user-site-shadows", FAIL, "framework",
        "Packages in the user site or PYTHONPATH hide the image's.",
        sources=("python-site",),
    ),
    Rule(
        "framework/mixed-installers", WARN, "framework",
        "The same framework was installed by pip and by conda.",
        sources=("torch-wheels",),
    ),
    Rule(
        "framework/build-replaced", WARN, "framework",
        "A vendor's framework build was replaced by a public wheel (or part of it overwritten).",
        sources=("ngc-release-notes",),
    ),
    Rule(
        "framework/toolkit-major-mismatch", WARN, "framework",
        "The nvcc in the image is of another CUDA major than the framework.",
        sources=("torch-cpp-extension",),
    ),
    Rule(
        "gpu/too-old-for-triton", WARN, "gpu",
        "The GPU is older than the installed Triton supports.",
        sources=("torch-inductor",),
    ),
    Rule(
        "lock/unreadable", FAIL, "lock",
        "A lock file cannot be parsed: file, line and reason.",
        sources=("pypa-lock-formats",),
    ),
    Rule(
        "lock/not-pinned", WARN, "lock",
        "The lock file leaves versions open.",
        sources=("pypa-lock-formats",),
    ),
    Rule(
        "lock/drifted", WARN, "lock",
        "What is installed is not what the lock says.",
        sources=("pypa-lock-formats", "pypa-versions"),
    ),
    Rule(
        "lock/hash-mismatch", FAIL, "lock",
        "Installed files or downloads do not match their recorded hashes.",
        sources=("pypa-record",),
    ),
    Rule(
        "lock/local-version-lost", FAIL, "lock",
        "The lock dropped the +cuNNN local version (or its index), so another build installs.",
        sources=("pypa-versions", "torch-previous"),
    ),
    Rule(
        "lock/conflict", FAIL, "lock",
        "The lock cannot be satisfied, or contradicts the image's own constraints.",
        sources=("pypa-lock-formats", "torch-wheels"),
    ),
    Rule(
        "lock/platform-dependencies-missing", FAIL, "lock",
        "The lock was made on another platform and lacks this one's dependencies.",
        sources=("pypa-lock-formats", "torch-wheels"),
    ),
    Rule(
        "lock/artifact-gone", WARN, "lock",
        "The lock names an artefact that its index no longer has.",
        sources=("torch-previous",),
    ),
    Rule(
        "lock/framework-unsupported", FAIL, "lock",
        "The locked framework build cannot run on this driver and GPU.",
        sources=("nvidia-minor-version", "torch-wheels"),
    ),
    Rule(
        "platform/world-size-mismatch", FAIL, "platform",
        "WORLD_SIZE, RANK, NPROC_PER_NODE, the GPUs and the launch command contradict each other.",
        sources=("pai-env", "torchrun-guide", "kubedl-pytorch"),
    ),
    Rule(
        "platform/rank-out-of-range", FAIL, "platform",
        "RANK, LOCAL_RANK or node rank is not below its world size, or not a number.",
        sources=("pai-env", "torchrun-guide"),
    ),
    Rule(
        "platform/master-unresolvable", FAIL, "platform",
        "MASTER_ADDR does not resolve or MASTER_PORT is not a port.",
        sources=("pai-env", "torchrun-guide"),
        retry=True,
    ),
    Rule(
        "platform/master-unreachable", WARN, "platform",
        "The master does not answer yet.",
        sources=("pai-env", "torchrun-guide"),
        retry=True,
    ),
    Rule(
        "platform/variable-malformed", FAIL, "platform",
        "A platform variable (TF_CONFIG and the like) cannot be read.",
        sources=("pai-env",),
    ),
    Rule(
        "platform/variable-renamed", WARN, "platform",
        "A variable is set that was renamed, or that nobody reads.",
        sources=("torch-nccl-names",),
    ),
    Rule(
        "platform/omp-threads", INFO, "platform",
        "OMP_NUM_THREADS starves or oversubscribes the CPU.",
        sources=("torchrun-guide",),
    ),
    Rule(
        "matrix/outdated", INFO, "matrix",
        "The tables this preflight judges by are older than a year.",
        sources=(),
    ),
    Rule(
        "host/path-unusable", FAIL, "storage",
        "A declared data, output or checkpoint path is missing, unreadable, empty or not writable.",
        sources=("linux-mountinfo", "alibaba-csi"),
        retry=True,
    ),
    Rule(
        "framework/cpu-only-build", FAIL, "framework",
        "A CPU-only (or other-vendor) framework build on a GPU job.",
        sources=("torch-wheels", "torch-previous"),
    ),
)  # fmt: skip


def rule(name: str) -> Optional[Rule]:
    """The rule of a name, or None."""
    for one in RULES:
        if one.name == name:
            return one
    return None


def evidence(snapshot: Snapshot, *places: str) -> Tuple[Evidence, ...]:
    """Evidence of facts by place ("driver.version", "gpus[0].name"); unknown ones are left out."""
    found = []
    for place in places:
        fact = fact_at(snapshot, place)
        if fact.unknown:
            continue
        value = "absent" if fact.value is None else _words(fact.value)
        found.append(Evidence(place, value, fact.source, fact.assumed))
        for other in fact.differs:
            found.append(Evidence(place, _words(other.value), other.source))
    return tuple(found)


def fact_at(snapshot: Snapshot, place: str) -> Fact[Any]:
    """The fact at a place of the snapshot; "env.NAME" is one environment variable."""
    if place.startswith("env."):
        return snapshot.variable(place[4:])
    here: Any = snapshot
    for name, index in _steps(place):
        here = here.value if isinstance(here, Fact) else here
        here = getattr(here, name)
        if index >= 0:
            many = here.value or ()
            if index >= len(many):
                return UNKNOWN
            here = many[index]
    assert isinstance(here, Fact)
    return here


@lru_cache(maxsize=1024)
def _steps(place: str) -> Tuple[Tuple[str, int], ...]:
    """ "gpus[0].name" as (("gpus", 0), ("name", -1)): the same places are asked for again."""
    parts = (part.partition("[") for part in place.replace("]", "").split("."))
    return tuple((name, int(index) if index else -1) for name, _, index in parts)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_label, value)) or "none"
    return str(value)


def _label(one: Any) -> str:
    """A text itself; of a row its first text (a name, a file); of anything else no more than it
    is there."""
    text = one if isinstance(one, str) else getattr(one, fields(one)[0].name)
    return text if isinstance(text, str) and text else "…"
