"""The facts of one look at one machine, image directory or described environment.

Everything here is a frozen dataclass without behaviour beyond reading itself. A leaf is a
:class:`Fact`: a value with the evidence it came from, known to be *absent*, or *unknown* with
the reason. Unknown is never absent: rules must tell them apart.

To add a fact: add one field to a section below (its kind drives JSON and the JSON Schema),
and let a probe or an intake fill it.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Generic, Mapping, Optional, Tuple, Type, TypeVar

from .records import record as record  # the rules know no more of preflight than this module

SCHEMA = "preflight.snapshot/1"

#: Reason of a fact nobody tried to observe (a field a report left out, a probe not run).
NOT_LOOKED = "not looked at"

T = TypeVar("T")


@record(frozen=True)
class Observation(Generic[T]):
    """What a second witness said about the same fact, where it differs from the first."""

    value: T
    source: str


@record(frozen=True)
class Fact(Generic[T]):
    """One observed value with its evidence.

    Known: ``value`` is not None. Absent (looked for, and not there): ``value`` is None and
    ``unknown`` is empty. Unknown: ``unknown`` says why it could not be observed.
    """

    value: Optional[T] = None
    source: str = ""
    unknown: str = ""
    assumed: bool = False
    differs: Tuple[Observation[Any], ...] = ()

    @property
    def known(self) -> bool:
        return self.value is not None

    @property
    def absent(self) -> bool:
        return self.value is None and not self.unknown

    @property
    def looked(self) -> bool:
        """False when nobody tried to observe this fact at all."""
        return self.unknown != NOT_LOOKED

    def get(self, default: T) -> T:
        """The value when known, else `default`."""
        return default if self.value is None else self.value


UNKNOWN: Fact[Any] = Fact(unknown=NOT_LOOKED)


def known(value: T, source: str, assumed: bool = False) -> Fact[T]:
    """A fact observed as `value` in `source`."""
    return Fact(value=value, source=source, assumed=assumed)


def absent(source: str) -> Fact[Any]:
    """A fact looked for in `source` and not there."""
    return Fact(source=source)


def unknown(reason: str, source: str = "") -> Fact[Any]:
    """A fact that could not be observed, and why."""
    return Fact(unknown=reason or "no reason given", source=source)


def merge(first: Fact[T], second: Fact[T]) -> Fact[T]:
    """`first` where it is known; otherwise `second`; what `second` says otherwise is kept.

    Absent for one witness while another could not look is unknown.
    """
    if not first.known:
        unsure = first.absent and second.unknown and second.looked
        return second if second.known or not first.looked or unsure else first
    if second.known and second.value != first.value:
        other = Observation(second.value, second.source)
        return replace(first, differs=first.differs + (other,) + second.differs)
    return first


# What a leaf holds. The kind drives the JSON codec and the JSON Schema.
TEXT, INT, NUMBER, FLAG, TEXTS, NAMES, RECORD, RECORDS, ROWS = (
    "text", "int", "number", "flag", "texts", "names", "record", "records", "rows",
)  # fmt: skip


def _fact(kind: str, item: Optional[Type[Any]] = None) -> Any:
    return field(default=UNKNOWN, metadata={"kind": kind, "item": item})


# Rows: where one witness says hundreds of alike things, they are one fact, and its rows plain
# texts and numbers. Empty: not said.


@record(frozen=True)
class Pin:
    """One entry of a lock file or requirements file."""

    name: str = ""  # normalized as PEP 503 does; of conda: as conda spells it
    spec: str = ""  # "==2.6.0+cu124", ">=2,<3"; of conda as MatchSpec has it: "=2.5.1", ">=3.10"
    line: int = 0  # from 1; 0: not known
    manager: str = ""  # empty: pip; conda
    applies: str = ""  # empty: it is for this job's Python and platform; else why it is not
    marker: str = ""  # PEP 508
    extras: str = ""  # "cuda,dev"
    group: str = ""  # only with one of these: "dev,extra:cu128"; "?": the file does not say
    url: str = ""  # of a direct reference, without credentials
    hash: str = ""  # "sha256:…" of the one artefact that `url` or `build` names
    hashed: int = 0  # how many hashes the entry has
    index: str = ""  # the index it comes from, where the file says so, without credentials
    wheels: str = ""  # tags of the wheels it may come from: "cp311-cp311-manylinux_2_28_x86_64"
    sdist: str = ""  # file name of the source distribution it may come from
    python: str = ""  # Requires-Python
    build: str = ""  # conda's build string
    platform: str = ""  # conda's: "linux-64"
    gone: str = ""  # "yes": it lies in a local file that is not there


@record(frozen=True)
class Unmet:
    """A requirement that what is there does not meet."""

    owner: str = ""  # who asks, with its version
    name: str = ""  # of what is asked for, normalized
    needs: str = ""  # the requirement as it is written
    found: str = ""  # the version that is there; empty: it is not
    source: str = ""  # the file that asks
    line: int = 0


@record(frozen=True)
class Altered:
    """A file of an installed distribution that is not as its installer recorded it."""

    package: str = ""
    file: str = ""
    problem: str = ""  # "is missing", "has 12 bytes, recorded are 4096", "has another sha256"


@record(frozen=True)
class Origin:
    """Where an installed distribution came from, where that was no index."""

    package: str = ""
    version: str = ""
    url: str = ""  # without credentials
    hash: str = ""  # "sha256:…"
    commit: str = ""
    editable: str = ""  # "yes" or empty
    installer: str = ""  # pip, uv, conda, …


@record(frozen=True)
class StoragePath:
    """A path that the policy declares: what is asked of it, and what was seen there."""

    path: str = ""  # as it is declared
    at: str = ""  # absolute, with its variables; those of secrets are masked
    role: str = ""  # data, output, checkpoint
    place: str = ""  # of the policy: "data[0]"
    kind: str = ""  # asked for: auto, tar, parquet, …
    glob: str = ""
    files_min: int = 0
    files_max: int = 0
    bytes_min: int = 0
    bytes_max: int = 0
    throughput_min: int = 0  # bytes a second
    free_min: int = 0
    inodes_min: int = 0
    may_be_empty: str = ""  # "yes"
    create: str = ""  # "yes": the job makes it
    unset: str = ""  # a variable of `path` that is not set
    state: str = ""  # directory, file, missing, other
    parent: str = ""  # of what is missing: the nearest directory that is there
    problem: str = ""  # why it cannot be read (or, of an output, written)
    blank: str = ""  # "yes": nothing lies there; "no"
    listed: str = ""  # all, "at least", or why it is not: "rank 0 lists it"
    files: int = 0
    bytes: int = 0
    weighed: str = ""  # as `listed`, of `bytes`
    names: str = ""  # the first ones, a line each
    empties: int = 0  # files of 0 bytes, of a kind that cannot be empty
    sampled: int = 0  # files opened
    partly: int = 0  # of them, those too large to be looked at to their end
    read: int = 0  # bytes, for `throughput`
    throughput: int = 0  # bytes a second
    writable: str = ""  # "yes", "no"
    free: int = 0
    space: int = 0  # of the whole file system; 0: it does not say
    inodes: int = 0
    inodes_all: int = 0  # 0: it does not say, or has no limit
    newest: str = ""  # of checkpoints
    newest_at: str = ""  # 2026-11-29T10:00:00Z
    mount: str = ""  # mount point
    mount_kind: str = ""  # file system type
    mount_words: str = ""  # "an OSS mount by ossfs"
    own_disk: str = ""  # "yes": nothing is mounted there for the job
    hung: str = ""  # "yes": it gave no answer in time, what is said was seen before
    note: str = ""  # what is not known, and why


@record(frozen=True)
class StorageFile:
    """A data file that is not whole, or cannot be read."""

    at: str = ""  # of its StoragePath
    name: str = ""
    bytes: int = 0
    kind: str = ""
    problem: str = ""
    mild: str = ""  # "yes": readers may go on without a word


@record(frozen=True)
class Interface:
    """A network interface of this network namespace, in the kernel's order."""

    name: str = ""
    state: str = ""  # "running", "up" (no carrier), "down"
    kind: str = ""  # loopback, physical, vf (of an SR-IOV card), bridge, bond, virtual
    addresses: str = ""  # "10.1.0.7/24 fe80::1/64", IPv4 first
    speed: int = 0  # Mbit/s


@record(frozen=True)
class RdmaPort:
    """A port of an RDMA device (InfiniBand, RoCE, eRDMA)."""

    device: str = ""  # "mlx5_0"
    port: int = 0
    state: str = ""  # "ACTIVE", "DOWN", …
    link: str = ""  # "InfiniBand", "Ethernet"
    rate: str = ""  # "400 Gb/sec (4X NDR)"
    module: str = ""  # the kernel module that drives it: "mlx5_core", "erdma", "efa"


@record(frozen=True)
class Reader:
    """A library and the NCCL_* variables whose names are in its read-only data."""

    file: str = ""
    names: str = ""  # "NCCL_ALGO NCCL_DEBUG …"


@record(frozen=True)
class Disk:
    """A file system that the job writes to."""

    path: str = ""  # a directory of it
    purpose: str = ""  # "working directory, TMPDIR"
    kind: str = ""  # of the file system: overlay, nfs4, fuse.ossfs, …
    free: int = 0  # bytes, for this user
    size: int = 0
    inodes_free: int = 0
    inodes: int = 0  # 0: this kind counts none


@record(frozen=True)
class Limit:
    """A resource limit of this process (ulimit), in the kernel's own unit."""

    name: str = ""  # nofile, memlock, core, nproc
    soft: int = 0  # -1: unlimited
    hard: int = 0


@record(frozen=True)
class System:
    """The operating system of the container (not of the host, but for the kernel)."""

    name: Fact[str] = _fact(TEXT)
    arch: Fact[str] = _fact(TEXT)  # as `uname -m`: x86_64, aarch64
    glibc: Fact[str] = _fact(TEXT)
    kernel: Fact[str] = _fact(TEXT)
    wsl: Fact[bool] = _fact(FLAG)
    container: Fact[bool] = _fact(FLAG)


@record(frozen=True)
class PciDevice:
    """A GPU as the PCI bus shows it, whether or not a driver is loaded."""

    address: Fact[str] = _fact(TEXT)
    device: Fact[str] = _fact(TEXT)  # vendor:device, as in "10de:20b2"


@record(frozen=True)
class Host:
    """The side of the machine that the container lives on."""

    pci_gpus: Fact[Tuple[PciDevice, ...]] = _fact(RECORDS, PciDevice)
    shm_bytes: Fact[int] = _fact(INT)
    memlock_kib: Fact[int] = _fact(INT)  # -1: no limit
    interfaces: Fact[Tuple[str, ...]] = _fact(TEXTS)
    infiniband: Fact[Tuple[str, ...]] = _fact(TEXTS)
    master_resolves: Fact[bool] = _fact(FLAG)
    routes_to_master: Fact[Tuple[str, ...]] = _fact(TEXTS)  # interfaces
    disk_free_bytes: Fact[int] = _fact(INT)
    memory_limit_bytes: Fact[int] = _fact(INT)  # the smallest of the cgroup and those above it
    cpus: Fact[float] = _fact(NUMBER)  # by quota and cpuset, not those of the node
    shm_free_bytes: Fact[int] = _fact(INT)
    memory_used_bytes: Fact[int] = _fact(INT)  # in that cgroup, without what can be given back
    memory_free_bytes: Fact[int] = _fact(INT)  # of the node itself
    cpu_quota: Fact[float] = _fact(NUMBER)  # absent: none
    cpu_set: Fact[int] = _fact(INT)  # how many CPUs this process may run on
    cgroup: Fact[str] = _fact(TEXT)  # v1, v2
    numa_nodes: Fact[int] = _fact(INT)
    disks: Fact[Tuple[Disk, ...]] = _fact(ROWS, Disk)
    limits: Fact[Tuple[Limit, ...]] = _fact(ROWS, Limit)
    first_process: Fact[str] = _fact(TEXT)  # PID 1, by name; "preflight": this very process
    below_shell: Fact[bool] = _fact(FLAG)  # PID 1 is a shell, and waits for this process
    clock_behind_seconds: Fact[float] = _fact(NUMBER)  # of file times that a shared mount shows
    nvswitches: Fact[int] = _fact(INT)  # on the PCI bus


@record(frozen=True)
class Network:
    """What NCCL and Gloo find to communicate with. The RDMA devices are `host.infiniband`."""

    interfaces: Fact[Tuple[Interface, ...]] = _fact(ROWS, Interface)
    ports: Fact[Tuple[RdmaPort, ...]] = _fact(ROWS, RdmaPort)
    rdma_nodes: Fact[Tuple[str, ...]] = _fact(TEXTS)  # /dev/infiniband/uverbs*
    libraries: Fact[Mapping[str, str]] = _fact(NAMES)  # {soname: path} of what NCCL opens
    providers: Fact[Tuple[str, ...]] = _fact(TEXTS)  # of libibverbs: "mlx5", "erdma"
    readers: Fact[Tuple[Reader, ...]] = _fact(ROWS, Reader)
    conf: Fact[Mapping[str, str]] = _fact(NAMES)  # of nccl.conf: what the environment leaves open


@record(frozen=True)
class FabricManager:
    """Fabric Manager of an NVSwitch system."""

    version: Fact[str] = _fact(TEXT)
    state: Fact[str] = _fact(TEXT)  # running, not-running, in-progress, failed


@record(frozen=True)
class Mps:
    """The MPS daemon that the environment points at."""

    pipe_directory: Fact[str] = _fact(TEXT)
    reachable: Fact[bool] = _fact(FLAG)  # absent: there is no socket at all


@record(frozen=True)
class Driver:
    """The kernel driver, and the user-mode driver library (libcuda) that would be loaded."""

    visible: Fact[bool] = _fact(FLAG)
    version: Fact[str] = _fact(TEXT)  # of the kernel module
    library_version: Fact[str] = _fact(TEXT)  # of the user-mode libraries
    cuda: Fact[str] = _fact(TEXT)  # highest CUDA of the libcuda in use: "12.2"
    libcuda: Fact[str] = _fact(TEXT)  # host, compat, stub, missing
    libcuda_path: Fact[str] = _fact(TEXT)
    device_nodes: Fact[Tuple[str, ...]] = _fact(TEXTS)
    uvm_device: Fact[bool] = _fact(FLAG)
    devices_openable: Fact[bool] = _fact(FLAG)
    nvml: Fact[str] = _fact(TEXT)  # "ok", or what NVML answered instead
    fabric_manager: Fact[FabricManager] = _fact(RECORD, FabricManager)
    mps: Fact[Mps] = _fact(RECORD, Mps)


@record(frozen=True)
class Compat:
    """A cuda-compat (forward compatibility) libcuda in the image."""

    cuda: Fact[str] = _fact(TEXT)
    version: Fact[str] = _fact(TEXT)
    path: Fact[str] = _fact(TEXT)
    resolved: Fact[bool] = _fact(FLAG)  # whether the loader would pick it
    base_branches: Fact[Tuple[str, ...]] = _fact(TEXTS)  # from its own ELF note
    device_brands: Fact[Tuple[str, ...]] = _fact(TEXTS)  # NVML brand numbers, from the note


@record(frozen=True)
class Gpu:
    """GPUs as the driver reports them; `count` alike ones in one record."""

    name: Fact[str] = _fact(TEXT)
    count: Fact[int] = _fact(INT)
    compute_capability: Fact[str] = _fact(TEXT)  # "9.0"
    memory_gib: Fact[float] = _fact(NUMBER)
    uuid: Fact[str] = _fact(TEXT)
    brand: Fact[str] = _fact(TEXT)  # NVML brand number
    mig_mode: Fact[bool] = _fact(FLAG)
    mig_devices: Fact[Tuple[str, ...]] = _fact(TEXTS)
    compute_mode: Fact[str] = _fact(TEXT)
    in_use_by_others: Fact[bool] = _fact(FLAG)
    vgpu: Fact[bool] = _fact(FLAG)
    # What NVML says of its health. Absent: this GPU or driver has no such thing.
    lost: Fact[str] = _fact(TEXT)  # what NVML answers of one it cannot reach; absent: reached
    recovery: Fact[str] = _fact(TEXT)  # what the driver asks for: none, gpu-reset, node-reboot, …
    ecc_now: Fact[int] = _fact(INT)  # uncorrectable errors since the driver was loaded
    ecc_ever: Fact[int] = _fact(INT)
    remap_pending: Fact[bool] = _fact(FLAG)
    remap_failed: Fact[bool] = _fact(FLAG)
    retired_pending: Fact[bool] = _fact(FLAG)
    slowdowns: Fact[Tuple[str, ...]] = _fact(TEXTS)  # of the clocks: hw-thermal, power-brake, …
    idle: Fact[bool] = _fact(FLAG)
    temperature: Fact[int] = _fact(INT)  # Celsius
    temperature_limit: Fact[int] = _fact(INT)  # where this GPU slows down
    pcie_generation: Fact[int] = _fact(INT)
    pcie_generation_max: Fact[int] = _fact(INT)  # of this GPU in this slot
    pcie_width: Fact[int] = _fact(INT)
    pcie_width_max: Fact[int] = _fact(INT)
    nvlinks_up: Fact[int] = _fact(INT)
    nvlinks_down: Fact[int] = _fact(INT)
    persistence: Fact[bool] = _fact(FLAG)
    memory_used_gib: Fact[float] = _fact(NUMBER)
    processes: Fact[int] = _fact(INT)  # that compute on it
    fabric_state: Fact[str] = _fact(TEXT)  # completed, in-progress, not-started
    fabric_error: Fact[str] = _fact(TEXT)  # what a completed registration ended with; absent: none
    fabric_degraded: Fact[Tuple[str, ...]] = _fact(TEXTS)
    peer_access: Fact[bool] = _fact(FLAG)  # to every other GPU here
    unified_memory: Fact[bool] = _fact(FLAG)


@record(frozen=True)
class Toolkit:
    """The CUDA toolkit in the image. It says nothing about the framework's CUDA."""

    version: Fact[str] = _fact(TEXT)
    home: Fact[str] = _fact(TEXT)
    nvcc: Fact[str] = _fact(TEXT)  # path, or version where only that is known


@record(frozen=True)
class PythonEnv:
    """The Python environment that the job would use, read from its files."""

    version: Fact[str] = _fact(TEXT)
    executable: Fact[str] = _fact(TEXT)
    prefix: Fact[str] = _fact(TEXT)
    kind: Fact[str] = _fact(TEXT)  # venv, conda, system
    path: Fact[Tuple[str, ...]] = _fact(TEXTS)  # sys.path, without the standard library
    packages: Fact[Mapping[str, str]] = _fact(NAMES)
    packages_conda: Fact[Mapping[str, str]] = _fact(NAMES)
    builds_conda: Fact[Mapping[str, str]] = _fact(NAMES)  # {name: build string}
    locals: Fact[Mapping[str, str]] = _fact(NAMES)  # {name: "cu130"}, what version.py adds
    indexes: Fact[Tuple[str, ...]] = _fact(TEXTS)  # "--index-url URL": variables, pip.conf
    origins: Fact[Tuple[Origin, ...]] = _fact(ROWS, Origin)
    origins_conda: Fact[Tuple[Origin, ...]] = _fact(ROWS, Origin)  # of what locks name
    unmet: Fact[Tuple[Unmet, ...]] = _fact(ROWS, Unmet)  # of the requirements in metadata
    altered: Fact[Tuple[Altered, ...]] = _fact(ROWS, Altered)


@record(frozen=True)
class Framework:
    """One framework build. `cuda` absent: a CPU build; `hip` known: a ROCm build."""

    name: Fact[str] = _fact(TEXT)  # torch, tensorflow, jax, ...
    version: Fact[str] = _fact(TEXT)
    cuda: Fact[str] = _fact(TEXT)
    hip: Fact[str] = _fact(TEXT)
    cudnn: Fact[str] = _fact(TEXT)
    nccl: Fact[str] = _fact(TEXT)
    arch_list: Fact[Tuple[str, ...]] = _fact(TEXTS)  # sm_80, sm_90a, compute_90
    build: Fact[str] = _fact(TEXT)  # pip, conda, ngc, source, vendor
    index: Fact[str] = _fact(TEXT)  # cu124, cpu, ...
    cxx11_abi: Fact[bool] = _fact(FLAG)
    git_version: Fact[str] = _fact(TEXT)
    path: Fact[str] = _fact(TEXT)
    requires: Fact[Mapping[str, str]] = _fact(NAMES)  # NVIDIA's wheels by its metadata: specifiers
    import_problem: Fact[str] = _fact(TEXT)  # what importing it would end with; absent: it works


@record(frozen=True)
class Code:
    """The GPU code inside one library of a framework or extension, read from the file."""

    file: Fact[str] = _fact(TEXT)
    owner: Fact[str] = _fact(TEXT)  # torch, flash-attn, ...
    targets: Fact[Tuple[str, ...]] = _fact(TEXTS)  # in every fatbin: what all kernels have
    partly: Fact[Tuple[str, ...]] = _fact(TEXTS)  # in some fatbins only
    fatbins: Fact[int] = _fact(INT)
    main: Fact[bool] = _fact(FLAG)  # false: a part that only some operations use


@record(frozen=True)
class BuiltFor:
    """What a compiled extension was built against."""

    torch: Fact[str] = _fact(TEXT)
    cuda: Fact[str] = _fact(TEXT)
    python: Fact[str] = _fact(TEXT)
    arch_list: Fact[Tuple[str, ...]] = _fact(TEXTS)
    cxx11_abi: Fact[bool] = _fact(FLAG)
    numpy: Fact[str] = _fact(TEXT)


@record(frozen=True)
class Extension:
    """A compiled extension."""

    name: Fact[str] = _fact(TEXT)
    version: Fact[str] = _fact(TEXT)
    built_for: Fact[BuiltFor] = _fact(RECORD, BuiltFor)
    path: Fact[str] = _fact(TEXT)
    missing_symbols: Fact[Tuple[str, ...]] = _fact(TEXTS)  # of torch's, which this torch lacks


@record(frozen=True)
class Library:
    """A shared library as the loader would resolve it."""

    name: Fact[str] = _fact(TEXT)
    version: Fact[str] = _fact(TEXT)
    path: Fact[str] = _fact(TEXT)
    found_by: Fact[str] = _fact(TEXT)
    needed_version: Fact[str] = _fact(TEXT)
    needed_by: Fact[str] = _fact(TEXT)
    missing: Fact[bool] = _fact(FLAG)
    damaged: Fact[str] = _fact(TEXT)  # missing too, though it lies at `path`: why it is refused
    missing_symbols: Fact[Tuple[str, ...]] = _fact(TEXTS)
    required: Fact[bool] = _fact(FLAG)  # false: only a module that may never be imported needs it


@record(frozen=True)
class Job:
    """How the job is launched."""

    nodes: Fact[int] = _fact(INT)
    gpus_per_node: Fact[int] = _fact(INT)
    processes_per_node: Fact[int] = _fact(INT)
    command: Fact[str] = _fact(TEXT)
    platform: Fact[str] = _fact(TEXT)
    uses_torch_compile: Fact[bool] = _fact(FLAG)
    builds_extensions: Fact[bool] = _fact(FLAG)
    loader_workers: Fact[int] = _fact(INT)
    kind: Fact[str] = _fact(TEXT)  # of a job of PAI DLC: pytorch, tensorflow, mpi, ray, slurm
    launchers: Fact[Tuple[str, ...]] = _fact(TEXTS)  # platforms and launchers recognised besides
    node_rank: Fact[int] = _fact(INT)
    mounts: Fact[Tuple[str, ...]] = _fact(TEXTS)  # of PAI's metadata: "oss /mnt/data"


@record(frozen=True)
class Master:
    """The node that leads rendezvous, as name resolution and one connection found it."""

    address: Fact[str] = _fact(TEXT)  # as it is named
    port: Fact[str] = _fact(TEXT)  # as it is written
    addresses: Fact[Tuple[str, ...]] = _fact(TEXTS)  # what the name resolves to
    local: Fact[bool] = _fact(FLAG)  # one of them is an address of this node
    state: Fact[str] = _fact(TEXT)  # connected, refused, timed out, unreachable; here: free, taken
    route: Fact[str] = _fact(TEXT)  # the own address that leads there


@record(frozen=True)
class Image:
    """The image's own configuration."""

    name: Fact[str] = _fact(TEXT)
    env: Fact[Mapping[str, str]] = _fact(NAMES)
    entrypoint: Fact[Tuple[str, ...]] = _fact(TEXTS)
    command: Fact[Tuple[str, ...]] = _fact(TEXTS)
    base_entrypoint: Fact[Tuple[str, ...]] = _fact(TEXTS)
    shell: Fact[bool] = _fact(FLAG)
    init: Fact[bool] = _fact(FLAG)
    entrypoint_problem: Fact[str] = _fact(TEXT)  # why it cannot be executed; absent: it can
    require_cuda: Fact[str] = _fact(TEXT)


@record(frozen=True)
class Lock:
    """A lock file, requirements file or constraints file, as it was read."""

    path: Fact[str] = _fact(TEXT)
    text: Fact[str] = _fact(TEXT)  # of a description, which is read into the rest
    pins: Fact[Mapping[str, str]] = _fact(NAMES)  # of a description: {name: specifier}
    platforms: Fact[Tuple[str, ...]] = _fact(TEXTS)  # that it was made for: "linux-64", a marker
    problem: Fact[str] = _fact(TEXT)  # "line 3: …": why it cannot be read
    format: Fact[str] = _fact(TEXT)  # requirements, pylock, uv, poetry, conda-explicit, …
    role: Fact[str] = _fact(TEXT)  # lock (a tool wrote it), requirements (people), constraints
    named: Fact[bool] = _fact(FLAG)  # asked for by name; false: found
    python: Fact[str] = _fact(TEXT)  # Requires-Python of the whole
    indexes: Fact[Tuple[str, ...]] = _fact(TEXTS)  # as pip would ask them, without credentials
    entries: Fact[Tuple[Pin, ...]] = _fact(ROWS, Pin)
    conflicts: Fact[Tuple[Unmet, ...]] = _fact(ROWS, Unmet)  # among its own entries
    exact: Fact[bool] = _fact(FLAG)  # asked for: nothing but what it says may be installed


@record(frozen=True)
class Storage:
    """The paths that the policy declares."""

    paths: Fact[Tuple[StoragePath, ...]] = _fact(ROWS, StoragePath)
    damaged: Fact[Tuple[StorageFile, ...]] = _fact(ROWS, StorageFile)
    complete: Fact[bool] = _fact(FLAG)  # unknown: what could not be seen of them, and why


def _section(kind: Type[Any]) -> Any:
    return field(default_factory=kind, metadata={"section": kind})


@record(frozen=True)
class Snapshot:
    """All facts of one look.

    `origin`: live, directory or described; `root`: what was looked at; `taken`: the day (ISO
    date), empty when it does not matter.
    """

    origin: str = "described"
    root: str = ""
    taken: str = field(default="", metadata={"optional": True})
    os: System = _section(System)
    host: Host = _section(Host)
    storage: Storage = _section(Storage)
    network: Network = _section(Network)
    driver: Driver = _section(Driver)
    gpus: Fact[Tuple[Gpu, ...]] = _fact(RECORDS, Gpu)
    compats: Fact[Tuple[Compat, ...]] = _fact(RECORDS, Compat)
    toolkit: Toolkit = _section(Toolkit)
    python: PythonEnv = _section(PythonEnv)
    frameworks: Fact[Tuple[Framework, ...]] = _fact(RECORDS, Framework)
    extensions: Fact[Tuple[Extension, ...]] = _fact(RECORDS, Extension)
    code: Fact[Tuple[Code, ...]] = _fact(RECORDS, Code)
    libraries: Fact[Tuple[Library, ...]] = _fact(RECORDS, Library)
    env: Fact[Mapping[str, str]] = _fact(NAMES)
    job: Job = _section(Job)
    master: Master = _section(Master)
    image: Image = _section(Image)
    locks: Fact[Tuple[Lock, ...]] = _fact(RECORDS, Lock)
    logs: Fact[Tuple[str, ...]] = _fact(TEXTS)

    def variable(self, name: str) -> Fact[str]:
        """One environment variable of the job: known, absent, or unknown with the whole."""
        if not self.env.known:
            whole: Fact[Any] = self.env  # absent or unknown like all of them
            return whole
        value = self.env.get({}).get(name)
        source = "environment variable " + name
        return absent(source) if value is None else known(value, source)
