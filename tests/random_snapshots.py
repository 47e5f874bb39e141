"""Random snapshots of every field, from the dataclasses' own metadata; a seed gives the same again.

Values that rules look at are mostly plausible, so that a random snapshot reaches deep into them;
the rest, and now and then also those, is any text or number.
"""

from dataclasses import fields, replace
from random import Random

from preflight import snapshot as s

DRIVERS = ["384.81", "418.87", "440.33.01", "450.51.06", "450.80.02", "470.82.01", "510.47.03",
           "525.53", "525.60.13", "535.104.05", "550.54.15", "570.86.10", "575.57.08", "580.95.05",
           "590.44.01", "700.10"]  # fmt: skip
CUDAS = ["9.0", "10.2", "11.0", "11.1", "11.8", "12.1", "12.4", "12.6", "12.7", "12.8", "13.0",
         "13.5", "14.1"]  # fmt: skip
CAPABILITIES = ["3.7", "5.2", "6.1", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0",
                "10.3", "11.0", "12.0", "12.1", "99.9"]  # fmt: skip
TARGETS = ["sm_50", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100f", "sm_120",
           "compute_70", "compute_90", "compute_90a", "compute_120", "sm_", "gfx90a"]  # fmt: skip
TORCHES = [
    "1.7.1+cu102",
    "1.13.1+cu117",
    "2.1.0+cu121",
    "2.6.0+cu124",
    "2.6.0+cu124",
    "2.6.0+cu124",
    "2.7.1+cu128",
    "2.8.0",
    "2.9.0.dev20250801+cu130",
    "2.4.0a0+f70bd71a48.nv24.6",
    "2.6.0+cpu",
    "2.8.0+rocm6.4",
]
GPUS = ["NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA GeForce RTX 4090",
        "NVIDIA H100 80GB HBM3", "Tesla K80", "Tesla P100-PCIE-16GB", "NVIDIA RTX A6000",
        "NVIDIA B200", "A card nobody knows"]  # fmt: skip
VARIABLES = {
    "CUDA_VISIBLE_DEVICES": [
        "",
        "-1",
        "0",
        "0,1",
        "0,0",
        "7",
        "0;1",
        " 0, 1",
        "GPU-aa",
        "MIG-bb",
        "NoDevFiles",
        "0,x",
        "x",
    ],  # fmt: skip
    "NVIDIA_VISIBLE_DEVICES": ["all", "void", "none", "0", ""],
    "NPROC_PER_NODE": ["0", "8"],
    "DLC_JOB_ID": ["dlc1"],
    "WORLD_SIZE": ["1", "2", "2", "16", "0", "x"],
    "NVIDIA_DRIVER_CAPABILITIES": ["all", "utility", "compute,utility", ""],
    "CUDA_MPS_PIPE_DIRECTORY": ["/tmp/mps"],
    "RANK": ["0", "1", "2", "-1", ""],
    "LOCAL_RANK": ["0", "8"],
    "LOCAL_WORLD_SIZE": ["1", "8", "x"],
    "GROUP_WORLD_SIZE": ["2"],
    "TORCHELASTIC_RUN_ID": ["none"],
    "MASTER_ADDR": ["dlc1-master-0", "localhost", "10.1.0.1"],
    "MASTER_PORT": ["23456", "tcp"],
    "PET_NNODES": ["2", "1:4"],
    "PET_NODE_RANK": ["0", "9"],
    "OMPI_COMM_WORLD_SIZE": ["16"],
    "KUBERNETES_CONTAINER_RESOURCE_GPU": ["8", "0"],
    "TF_CONFIG": [
        '{"cluster": {"worker": ["h:2222"]}, "task": {"type": "worker", "index": 0}}',
        "{",
        '{"cluster": {"worker": []}, "task": {"type": "worker", "index": 3}}',
    ],
    "OMP_NUM_THREADS": ["1", "4", "64", "x"],
    "NCCL_TIMEOUT": ["1800"],
    "NCCL_ASYNC_ERROR_HANDLING": ["1"],
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ["1"],
    "PYTORCH_BUILD_VERSION": ["2.4.0a0+f70bd71a48.nv24.6"],
    "PYTHONPATH": ["/shared/site"],
    "LD_LIBRARY_PATH": ["/usr/local/cuda/compat", "/usr/local/cuda/lib64/stubs:/x"],
    "NCCL_SOCKET_IFNAME": [
        "eth0",
        "eth",
        "=eth1",
        "^docker",
        "^eth,lo",
        "lo",
        "eth0, eth1",
        '"a"',
        "",
    ],
    "GLOO_SOCKET_IFNAME": ["eth0", "eth0,eth1", "lo", "eth"],
    "NCCL_IB_HCA": ["mlx5", "=mlx5_0:1", "^mlx5", "erdma"],
    "NCCL_SOCKET_FAMILY": ["AF_INET", "AF_INET6"],
    "NCCL_IB_DISABLE": ["0", "1"],
    "NCCL_NET": ["Socket", "IB"],
    "NCCL_P2P_DISABLE": ["0", "1"],
    "NCCL_CUMEM_ENABLE": ["0", "1", ""],
    "NCCL_IB_TIMEOUT": ["22", "99", "two"],
    "NCCL_ALGO": ["Ring", "ring;allreduce:^tree", "Rong"],
    "NCCL_DEBUG": ["INFO", "info", "LOUD"],
    "NCCL_SOCKET_IF_NAME": ["eth0"],
    "NCCL_WHATEVER": ["1"],
}
#: What Lingjun presets, all together.
LINGJUN = {"NCCL_IB_TC": "136", "NCCL_IB_SL": "5", "NCCL_IB_GID_INDEX": "3",
           "NCCL_IB_TIMEOUT": "22", "NCCL_IB_QPS_PER_CONNECTION": "8", "NCCL_NET_PLUGIN": "none",
           "DLC_JOB_ID": "dlc1"}  # fmt: skip
#: Installed packages that rules look at, and versions that do and do not fit together.
PACKAGES = {
    "torchvision": ["0.21.0", "0.22.1+cu128", "0.23.0", "0.24.0.dev20250801", "0.14.1+cu117", "x"],
    "torchaudio": ["2.6.0", "2.8.0", "2.11.1", "2.1.0+cu121"],
    "triton": ["3.2.0"],
    "numpy": ["1.26.4", "2.1.0", "two"],
    "nvidia-nccl-cu11": ["2.21.5"],
    "nvidia-nccl-cu12": [*["2.21.5"] * 6, "2.26.2", "2.27.3"],
    "nvidia-nccl-cu13": ["2.27.7"],
    "jaxlib": ["0.4.30", "0.4.28+cuda12.cudnn89"],
    "jax-cuda12-plugin": ["0.4.30", "0.4.28"],
    "jax-cuda12-pjrt": ["0.4.30"],
}
NCCLS = ["2.14.3", "2.21.5", "2.27.3+cuda12.9", "2"]

#: Of a field ("Section.field"): what it could plausibly hold.
PLAUSIBLE = {
    "Driver.version": DRIVERS,
    "Driver.library_version": DRIVERS,
    "Driver.cuda": CUDAS,
    "Driver.libcuda": ["host", "host", "compat", "stub", "missing"],
    "Driver.libcuda_path": ["/usr/lib/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.575.57.08"],
    "Driver.device_nodes": [(), ("/dev/nvidia0", "/dev/nvidiactl"), ("/dev/dxg",)],
    "Driver.nvml": ["ok", "Driver/library version mismatch"],
    "Compat.cuda": CUDAS,
    "Compat.version": DRIVERS,
    "Compat.base_branches": [("470", "535"), ("535", "570"), ()],
    "Compat.device_brands": [("1", "3"), ()],
    "Gpu.name": GPUS,
    "Gpu.count": [1, 1, 8],
    "Gpu.compute_capability": CAPABILITIES,
    "Gpu.brand": ["1", "5"],
    "Gpu.uuid": ["GPU-aabb", "GPU-ccdd"],
    "Gpu.mig_devices": [(), ("MIG-bbbb",), ("1g.5gb",)],
    "Gpu.compute_mode": ["Default", "Exclusive_Process", "Prohibited"],
    "Gpu.lost": ["GPU is lost"],
    "Gpu.recovery": ["none", "gpu-reset", "drain-p2p"],
    "Gpu.ecc_now": [0, 0, 3],
    "Gpu.slowdowns": [(), ("hw-thermal",), ("hw-slowdown", "power-brake")],
    "Gpu.temperature": [35, 95],
    "Gpu.temperature_limit": [90],
    "Gpu.pcie_width": [8, 16],
    "Gpu.pcie_width_max": [16],
    "Gpu.nvlinks_up": [0, 12, 18],
    "Gpu.nvlinks_down": [0, 6],
    "Gpu.memory_used_gib": [0.0, 0.5, 40.0],
    "Gpu.processes": [0, 0, 2],
    "Gpu.fabric_state": ["completed", "in-progress", "not-started"],
    "Gpu.fabric_error": ["NVML error 999"],
    "Gpu.fabric_degraded": [(), ("route unhealthy",)],
    "FabricManager.version": DRIVERS,
    "FabricManager.state": ["running", "not-running", "in-progress"],
    "Mps.pipe_directory": ["/tmp/nvidia-mps"],
    "Host.shm_bytes": [64 << 20, 1 << 30, 16 << 30],
    "Host.shm_free_bytes": [10 << 20, 1 << 30, 15 << 30],
    "Host.memory_limit_bytes": [1 << 30, 64 << 30],
    "Host.memory_used_bytes": [1 << 20, 60 << 30],
    "Host.memory_free_bytes": [1 << 30, 200 << 30],
    "Host.disk_free_bytes": [0, 1 << 29, 100 << 30],
    "Host.nvswitches": [0, 6],
    "Host.first_process": ["tini", "bash", "python", "systemd"],
    "Image.entrypoint_problem": ["its first line ends with a carriage return"],
    "Framework.name": ["torch", "torch", "jax", "tensorflow"],
    "Framework.version": TORCHES,
    "Framework.cuda": CUDAS,
    "Framework.hip": ["6.4"],
    "Framework.build": ["pip", "pip", "conda", "ngc", "source"],
    "Framework.requires": [{"nvidia-nccl-cu12": "==2.21.5", "nvidia-cuda-nvrtc-cu12": ""}, {}],
    "Framework.arch_list": [tuple(TARGETS[i:]) for i in range(0, 12, 2)] + [tuple(TARGETS[:4]), ()],
    "BuiltFor.cuda": CUDAS,
    "BuiltFor.torch": [*TORCHES, "2.6", "2.8.0", "2.1.2.post304"],
    "BuiltFor.python": ["3.8", "3.11", "abi3"],
    "BuiltFor.numpy": ["1.26.4", "2.0.0"],
    "BuiltFor.arch_list": [("sm_80",), ("compute_90",), ("sm_50", "compute_70"), ()],
    "Extension.name": ["flash-attn", "bitsandbytes", "apex"],
    "Framework.nccl": NCCLS,
    "Library.name": ["libnvrtc.so.12", "libnvJitLink.so.12", "libcudnn.so.9", "libcudnn_ops.so.9",
                     "libnccl.so.2", "libc.so.6", "libstdc++.so.6", "libcuda.so", "libcuda.so",
                     "libcuda.so.1", "libnccl-net.so"],
    "Library.version": [*CUDAS, *NCCLS, "9.1.0", "9.5.1.17", "2.17", "2.35", "3.4.30"],
    "Library.needed_version": [*CUDAS, *NCCLS, "9.1.0", "GLIBC_2.28", "GLIBCXX_3.4.29"],
    "Library.needed_by": ["libtorch_cuda.so", "libcusparse.so.12", "triton", "cupy"],
    "Library.found_by": ["rpath", "runpath", "ld-library-path", "ld-preload", "ld-cache",
                         "default"],
    "Library.path": ["/opt/lib/x.so", "/x/site-packages/torch/lib/libc10.so", "x.so"],
    "Library.missing_symbols": [(), (), ("ncclCommRegister",), ("a", "b", "c", "d")],
    "Toolkit.version": CUDAS,
    "Host.interfaces": [("lo", "eth0"), ("lo",), ("eth0", "eth1", "docker0", "lo"), ()],
    "Host.infiniband": [("mlx5_0", "mlx5_1"), ("erdma_0",), ("efa_0",), ()],
    "Host.routes_to_master": [("eth0",), ("eth1",), ()],
    "Host.memlock_kib": [-1, 64, 8192, 1 << 20],
    "Network.rdma_nodes": [("/dev/infiniband/uverbs0",), ()],
    "Network.libraries": [{"libibverbs.so.1": "/usr/lib/libibverbs.so.1"}, {},
                          {"libnccl-net.so": "/opt/libnccl-net.so"}],
    "Network.providers": [("mlx5", "erdma"), ()],
    "Network.conf": [{}, {"NCCL_DEBUG": "INFO"}, {"NCCL_IB_DISABLE": "1"}],
    "System.arch": ["x86_64", "aarch64"],
    "Lock.format": ["requirements", "uv", "conda-explicit"],
    "Lock.role": ["lock", "requirements", "constraints"],
    "Lock.python": [">=3.10", "<3.8"],
    "Lock.platforms": [("linux-64",), ("osx-arm64",), ()],
    "Lock.indexes": [(), ("--extra-index-url https://download.pytorch.org/whl/cu124",)],
    "Storage.complete": [True],
    "Job.gpus_per_node": [0, 1, 8],
    "Job.nodes": [1, 2, 2, 16],
    "Job.node_rank": [0, 1],
    "Job.platform": ["pai-dlc", "pai-dlc", "kubeflow", "slurm", "ours"],
    "Job.command": [
        "python train.py",
        "torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=8 train.py",
        "torchrun --nnodes=2 --master-addr=$MASTER_ADDR --nproc-per-node=$NPROC_PER_NODE t.py",
        "torchrun --nproc-per-node='$N' train.py",
        "accelerate launch --num_machines 2 --num_processes 64 train.py",
        "srun --ntasks-per-node=8 torchrun --nproc-per-node=8 train.py",
        "swift sft",
        "bash run.sh",
    ],
    "Master.address": ["dlc1-master-0", "127.0.0.1"],
    "Master.port": ["23456", "x"],
    "Master.addresses": [("10.0.0.1",), ("127.0.1.1",), ()],
    "Master.state": ["connected", "refused", "timed out", "unreachable", "free", "taken"],
    "Host.cpus": [1, 8, 96.5],
    "PythonEnv.path": [("/shared/site", "/usr/lib/python3/dist-packages")],
    "PythonEnv.packages_conda": [{"pytorch": "2.1.0"}, {"jaxlib": "0.4.30"}, {}],
    "Image.base_entrypoint": [("/opt/nvidia/nvidia_entrypoint.sh",), ()],
    "Image.entrypoint": [
        ("/opt/nvidia/nvidia_entrypoint.sh",),
        ("sh",),
        (),
        ("/bin/sh", "-c", "train"),
        ("tini", "--", "train"),
        ("/usr/bin/train",),
    ],
    "PythonEnv.version": ["3.8.18", "3.11.7", "3.14"],
    "Snapshot.logs": [(), ("the provided PTX was compiled with an unsupported toolchain",)],
}  # fmt: skip

#: The same of the rows.
ROWS = {
    "Pin.name": [
        "torch",
        "torch",
        "torch",
        "torchvision",
        "numpy",
        "nvidia-nccl-cu12",
        "pytorch",
        "flash-attn",
        "",
    ],
    "Pin.spec": [
        "==2.6.0",
        "==2.7.1+cu128",
        "==1.13.1+cu117",
        "==2.6.0+cu124",
        ">=2.0",
        "",
        "==1.26.4",
        "=2.5.1",
        "==2.*",
        "==x",
    ],
    "Pin.manager": ["", "", "conda"],
    "Pin.applies": ["", "", "only with dev"],
    "Pin.url": ["", "", "file:///tmp/torch-2.6.0-cp311-cp311-linux_x86_64.whl"],
    "Pin.hash": ["", "sha256:aa"],
    "Pin.wheels": ["", "cp311-cp311-manylinux_2_28_x86_64", "py3-none-any", "cp311-cp311-win32"],
    "Pin.build": ["", "py3.11_cuda12.4_cudnn9.1.0_0", "cpu_0"],
    "Pin.platform": ["", "linux-64", "osx-arm64"],
    "Pin.python": ["", ">=3.10", "<3.8"],
    "Unmet.owner": ["torch 2.6.0", ""],
    "Unmet.name": ["nvidia-nccl-cu12", "numpy"],
    "Unmet.needs": ["nvidia-nccl-cu12==2.21.5", "numpy>=2"],
    "Unmet.found": ["", "1.26.4"],
    "Altered.package": ["torch", "numpy"],
    "Disk.path": ["/tmp", "/work"],
    "Disk.free": [0, 1 << 20, 100 << 30],
    "Limit.name": ["nofile", "memlock"],
    "Limit.soft": [64, 65536, -1],
    "StoragePath.at": ["/mnt/data", "/mnt/data", "/mnt/out put", ""],
    "StoragePath.path": ["/mnt/data", "${DATA}/x"],
    "StoragePath.role": ["data", "data", "output", "checkpoint", ""],
    "StoragePath.place": ["data[0]", "output"],
    "StoragePath.state": ["directory", "directory", "directory", "file", "missing", "other", ""],
    "StoragePath.unset": ["", "", "", "DATA"],
    "StoragePath.problem": ["", "", "", "Permission denied", "Read-only file system"],
    "StoragePath.blank": ["no", "no", "yes", ""],
    "StoragePath.listed": ["all", "all", "at least", ""],
    "StoragePath.weighed": ["all", "at least", ""],
    "StoragePath.writable": ["yes", "yes", "no", ""],
    "StoragePath.create": ["", "yes"],
    "StoragePath.hung": ["", "", "yes"],
    "StoragePath.newest": ["", "step-20"],
    "StoragePath.own_disk": ["", "yes"],
    "StoragePath.mount_words": ["", "an OSS mount by ossfs"],
    "StoragePath.files_min": [0, 0, 3],
    "StoragePath.files_max": [0, 0, 6],
    "StoragePath.bytes_min": [0, 0, 3],
    "StoragePath.bytes_max": [0, 0, 6],
    "StoragePath.throughput_min": [0, 0, 10**9],
    "StoragePath.throughput": [0, 10**6, 2 * 10**9],
    "StoragePath.read": [0, 10**8],
    "StoragePath.free_min": [0, 0, 3],
    "StoragePath.inodes_min": [0, 0, 3],
    "StorageFile.at": ["/mnt/data"],
    "StorageFile.name": ["a.tar", "x/b.parquet", ""],
    "StorageFile.problem": ["is cut off", "cannot be read: Input/output error", ""],
    "StorageFile.mild": ["", "yes"],
    "StorageFile.kind": ["tar", "parquet", "safetensors"],
    "Origin.package": ["torch", "flash-attn"],
    "Interface.name": ["lo", "eth0", "eth1", "ib0", "docker0"],
    "Interface.state": ["running", "running", "up", "down"],
    "Interface.kind": ["loopback", "physical", "vf", "bridge"],
    "Interface.addresses": ["10.1.0.7/24", "10.2.0.7/24 fe80::1/64", "fe80::1/64", "127.0.0.1/8"],
    "RdmaPort.device": ["mlx5_0", "mlx5_1", "erdma_0"],
    "RdmaPort.state": ["ACTIVE", "ACTIVE", "DOWN"],
    "RdmaPort.module": ["mlx5_core", "erdma", "efa", ""],
    "Reader.file": ["/x/libnccl.so.2"],
    "Reader.names": ["NCCL_DEBUG NCCL_IB_DISABLE NCCL_SOCKET_IFNAME NCCL_IB_TIMEOUT NCCL_ALGO"],
    "Origin.hash": ["", "sha256:bb"],
}

#: Rows that hardly ever are without a finding.
SELDOM = (s.Unmet, s.Altered, s.StoragePath)

_LETTERS = "abcXYZ 0123456789.,;:/_-+=[]{}\"'\\\n\t\x00é中😀"


def snapshot(random, odd=0.1):
    """A snapshot of random facts; `odd` is the share of implausible values."""
    return replace(
        _whole(random, odd),
        origin=random.choice(["live", "directory", "described"]),
        root=random.choice(["", "/", "/image"]),
        taken=random.choice(["", "2026-12-01", "2029-02-28", "no day"]),
    )


def _whole(random, odd):
    """Each section from a seed of its own: a new field in one leaves the others as they were."""
    seed = random.getrandbits(64)
    values = {}
    for one in fields(s.Snapshot):
        own = Random(f"{seed} {one.name}")
        if "section" in one.metadata:
            values[one.name] = _record(one.metadata["section"], own, odd)
        elif "kind" in one.metadata:
            values[one.name] = _fact(f"Snapshot.{one.name}", one.metadata, own, odd)
    return s.Snapshot(**values)


def _record(kind, random, odd):
    values = {}
    for one in fields(kind):
        if "section" in one.metadata:
            values[one.name] = _record(one.metadata["section"], random, odd)
        elif "kind" in one.metadata:
            place = f"{kind.__name__}.{one.name}"
            values[one.name] = _fact(place, one.metadata, random, odd)
    return kind(**values)


def _fact(place, metadata, random, odd):
    state = random.random()
    source = random.choice(["", "/proc/somewhere", "nvml"])
    assumed = random.random() < 0.1
    if state < 0.15:
        return s.UNKNOWN
    if state < 0.25:
        return s.Fact(unknown=text(random) or "no reason", source=source, assumed=assumed)
    if state < 0.35:
        return s.Fact(source=source, assumed=assumed)
    differs = ()
    if random.random() < 0.1 and metadata["kind"] not in (s.RECORD, s.RECORDS):
        witness = "/usr/lib/python3/dist-packages/torch-2.1.0.dist-info"
        witness = witness if place == "PythonEnv.packages" else "another witness"
        differs = (s.Observation(_value(place, metadata, random, odd), witness),)
    value = _value(place, metadata, random, odd)
    return s.Fact(value=value, source=source, assumed=assumed, differs=differs)


def _value(place, metadata, random, odd):
    kind, item = metadata["kind"], metadata["item"]
    if kind == s.RECORD:
        return _record(item, random, odd)
    if kind == s.RECORDS:
        # Locks seldom: hardly a random one is without a finding, and no verdict would pass.
        many = [0, 1, 1] if item is s.Lock else [0, 1, 1, 2, 3]
        return tuple(_record(item, random, odd) for _ in range(random.choice(many)))
    if kind == s.ROWS:
        many = [0, 0, 0, 0, 1] if item in SELDOM else [0, 1, 2, 5]
        return tuple(_row(item, random, odd) for _ in range(random.choice(many)))
    if place == "Snapshot.env":
        found = _some(VARIABLES, random)
        if random.random() < 0.5:  # otherwise hardly one would have nothing of NCCL's
            found = {name: one for name, one in found.items() if not name.startswith("NCCL_")}
        return {**found, **LINGJUN} if random.random() < 0.1 else found
    if place == "PythonEnv.packages" and random.random() >= odd:
        return _some(PACKAGES, random, 0.5)
    if place in PLAUSIBLE and random.random() >= odd:
        return random.choice(PLAUSIBLE[place])
    return _any_value(kind, random)


def _row(item, random, odd):
    """A row: plain texts and numbers, where plausible those of ROWS."""
    values = {}
    for one in fields(item):
        place = f"{item.__name__}.{one.name}"
        if isinstance(one.default, int):
            plausible = place in ROWS and random.random() >= odd
            values[one.name] = random.choice(ROWS[place]) if plausible else random.randrange(9)
        elif random.random() < odd:
            values[one.name] = text(random)
        else:
            values[one.name] = random.choice(ROWS.get(place, [""]))
    return item(**values)


def _some(table, random, share=0.3):
    return {
        name: random.choice(values) for name, values in table.items() if random.random() < share
    }


def _any_value(kind, random):
    if kind == s.TEXT:
        return text(random)
    if kind == s.INT:
        return random.choice([-1, 0, 1, 7, 2**62])
    if kind == s.NUMBER:
        return random.choice([0, 0.5, -1.25, 80.0, 1e300])
    if kind == s.FLAG:
        return random.random() < 0.5
    if kind == s.TEXTS:
        return tuple(text(random) for _ in range(random.randrange(3)))
    return {text(random): text(random) for _ in range(random.randrange(3))}


def text(random):
    """Any text, empty too: quotes, control characters, more than ASCII."""
    return "".join(random.choice(_LETTERS) for _ in range(random.randrange(8)))
