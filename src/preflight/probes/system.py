"""The system the job runs on, and the environment variables that rules read."""

from __future__ import annotations

import os
import re
from typing import Dict, Mapping

from .. import snapshot as s
from ..lockfiles.model import without_credentials
from ..roots import Root

#: Variables kept in a snapshot; everything else stays out of reports.
_KEPT = re.compile(
    r"^(CUDA_|NVIDIA_|NV_|NCCL_|GLOO_|TORCH_|PYTORCH_|TF_|XLA_|JAX_|DLC_|PAI_|DSW_|SLURM_|OMPI_|PMI"
    r"|PET_|TORCHELASTIC_|OMP_NUM_THREADS$|LD_LIBRARY_PATH$|LD_PRELOAD$|PATH$|PYTHON|VIRTUAL_ENV$"
    r"|CONDA_PREFIX$|CONDA_DEFAULT_ENV$|WORLD_SIZE$|RANK$|LOCAL_|NODE_RANK$|NPROC_PER_NODE$"
    r"|MASTER_ADDR$|MASTER_PORT$|VLLM_ENABLE_CUDA_COMPATIBILITY$|PIP_CONSTRAINT$|HOME$"
    # Of platforms and launchers (compat/platforms): what recognises them, and what they count.
    r"|SM_(CURRENT_HOST|HOSTS|NUM_GPUS|TRAINING_ENV|NETWORK_INTERFACE_NAME)$"
    r"|AZUREML_(RUN|EXPERIMENT)_ID$|MA_(JOB_DIR|TASK_NAME|CURRENT_IP|NUM_GPUS|NUM_HOSTS)$|VC_|VK_"
    r"|MLP_(TASK_ID|ROLE|WORKER|IFNAME|HOST|PRIMARY_HOST)|AIHC_JOB_NAME$|CLUSTER_SPEC$"
    r"|AIP_MODEL_DIR$|CLOUD_ML_JOB_ID$|DET_(TASK_ID|ALLOCATION_ID|SLOT_IDS|CHIEF_IP|AGENT_ID)$"
    r"|NODE_LIST$|INDEX$|GPU_NUM|DLROVER_MASTER_ADDR$|NODE_NUM$|NNODES$|RAY_(ADDRESS|JOB_ID)$"
    r"|MV2_COMM_|MPI_(HOST|LOCALRANKID|LOCALNRANKS)$|GROUP_|ROLE_|HOSTNAME$|POD_NAME$"
    r"|KUBERNETES_(CONTAINER_RESOURCE_GPU|SERVICE_HOST)$|SWIFT_CONFIG_FILE$|ACCELERATE_USE_)"
)
#: Free texts of the user: hyperparameters and arguments, where keys may hide.
_FREE = re.compile(r"(PAI_HPS|PAI_USER_ARGS|PAI_INPUTS_PARAMETERS|SM_TRAINING_ENV)")
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|ACCESS_?KEY|API_?KEY|PRIVATE|SIGNATURE|AUTH|_PSK$"
)
_REQUIRE = re.compile(r"^(CUDA_VERSION|NV_CUDA_|NVIDIA_REQUIRE_)")
MASKED = "(masked)"
LOADERS = (("/lib64/ld-linux-x86-64.so.2", "x86_64"), ("/lib/ld-linux-aarch64.so.1", "aarch64"))


def environment(env: Mapping[str, str], source: str) -> s.Fact[Mapping[str, str]]:
    """The variables that rules read; values of secrets are masked, others are not kept at all.

    URLs (PIP_CONSTRAINT) lose what opens them.
    """
    return s.known(kept(env), source)


def kept(env: Mapping[str, str]) -> Dict[str, str]:
    """Those of `env` that may be in a report, secrets masked."""
    found: Dict[str, str] = {}
    for name in sorted(env):
        if _KEPT.match(name):
            text = env[name].encode("utf-8", "replace").decode()
            if "://" in text:
                text = without_credentials(text)
            found[name] = MASKED if _SECRET.search(name) or _FREE.match(name) else text
    return found


def is_secret(name: str) -> bool:
    """Whether a variable of that name may hold a secret."""
    return bool(_SECRET.search(name.upper()))


def image_variables(env: Mapping[str, str], source: str) -> s.Image:
    """What the image says of itself in variables: CUDA_VERSION, NV_CUDA_*, NVIDIA_REQUIRE_*."""
    kept = {name: env[name] for name in sorted(env) if _REQUIRE.match(name)}
    require = env.get("NVIDIA_REQUIRE_CUDA")
    return s.Image(
        env=s.known(kept, source),
        require_cuda=s.known(require, source) if require else s.absent(source),
    )


def shell(root: Root) -> s.Fact[bool]:
    """Whether there is a /bin/sh, which most platforms start a job's command with."""
    return s.known(root.exists("/bin/sh"), "/bin/sh")


def read(root: Root, env: Mapping[str, str]) -> s.System:
    """Name, architecture, libc, kernel, and whether this is WSL2 or a container."""
    kernel = s.known(os.uname().release, "uname") if root.live else s.UNKNOWN
    return s.System(
        name=_name(root),
        arch=_arch(root),
        glibc=_glibc(root),
        kernel=kernel,
        wsl=s.known("microsoft" in (kernel.value or "").lower(), "uname")
        if kernel.known
        else s.UNKNOWN,
        container=_container(root, env),
    )


def _name(root: Root) -> s.Fact[str]:
    found = root.first_text(("/etc/os-release", "/usr/lib/os-release"))
    if not found:
        return s.absent("/etc/os-release")
    path, text = found
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return s.known(value.strip().strip("\"'"), path)
    return s.absent(path)


def _arch(root: Root) -> s.Fact[str]:
    if root.live:
        return s.known(os.uname().machine, "uname")
    for path, arch in LOADERS:
        if root.exists(path):
            return s.known(arch, path)
    return s.unknown("no known dynamic loader in this root")


def _glibc(root: Root) -> s.Fact[str]:
    if not root.live:
        return s.UNKNOWN
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return s.absent("confstr")
    return s.known(version, "confstr") if name == "glibc" else s.absent("confstr")


def _container(root: Root, env: Mapping[str, str]) -> s.Fact[bool]:
    """Docker and podman leave a file, Kubernetes a variable, systemd-nspawn and LXC `container`."""
    if not root.live:
        return s.known(True, "a directory stands for an image")
    for path in ("/.dockerenv", "/run/.containerenv"):
        if root.exists(path):
            return s.known(True, path)
    for name in ("KUBERNETES_SERVICE_HOST", "container"):
        if env.get(name):
            return s.known(True, "environment variable " + name)
    found = root.first_text(("/proc/1/cgroup",))
    if found and re.search(r"docker|kubepods|containerd|libpod|lxc", found[1]):
        return s.known(True, found[0])
    return s.known(False, "/.dockerenv, /run/.containerenv, /proc/1/cgroup")
