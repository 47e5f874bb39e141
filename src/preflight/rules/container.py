"""Rules about what the container was given."""

from __future__ import annotations

from typing import Iterator

from ..matrix import Matrix
from ..snapshot import Snapshot
from . import common
from .rdma import memlock_too_low, rdma_device_missing
from .registry import Finding, NotApplicable, Outcome, Passed, Undecided, evidence

__all__ = ["gpu_not_requested", "memlock_too_low", "rdma_device_missing", "uvm_device_missing"]


def gpu_not_requested(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The container was started without GPUs though the host has them.

    The host's kernel module (/proc/driver/nvidia/version) and its PCI bus show through into
    every container; device nodes and libcuda come only with a container that asked for GPUs.
    When the first are there and the second are not, the GPUs were not asked for. It applies in
    containers, when something here needs a GPU and nothing hides them on purpose.

    Fix: docker run --gpus all (or the nvidia runtime with NVIDIA_VISIBLE_DEVICES=all), or ask
    the scheduler for nvidia.com/gpu.
    """
    wanted, hidden = common.gpu_wanted(s, m), common.gpu_hidden(s)
    if not wanted or hidden:
        yield NotApplicable(hidden or "nothing here needs a GPU")
    elif s.os.container.value is not True:
        yield NotApplicable("not in a container")
    elif s.driver.device_nodes.value != () or s.driver.libcuda.value != "missing":
        if s.driver.device_nodes.known or s.driver.libcuda.known:
            yield Passed("the container was given the driver's files")
        else:
            yield Undecided(("driver.device_nodes",), "whether the container was given GPUs")
    elif s.driver.version.known or s.host.pci_gpus.get(()):
        yield Finding(
            summary=f"this container was started without GPUs, and {wanted}",
            observed="the host has NVIDIA GPUs; no /dev/nvidia* and no libcuda.so.1 in here",
            needed="a container started with GPUs",
            why="The container runtime adds devices and driver libraries only when asked.",
            fix=(
                "docker run --gpus all …",
                "Kubernetes: resources.limits: nvidia.com/gpu: 1 (PAI DLC: a GPU instance type)",
            ),
            evidence=evidence(
                s, "driver.version", "host.pci_gpus", "driver.device_nodes", "driver.libcuda",
                "env.NVIDIA_VISIBLE_DEVICES",
            ),
        )  # fmt: skip
    else:
        yield NotApplicable("the host shows no NVIDIA GPU")


def uvm_device_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """/dev/nvidia-uvm is not there.

    CUDA needs the unified-memory device beside /dev/nvidiactl and /dev/nvidiaN. On a host libcuda
    creates it when first used; in a container it must have been given. WSL2 has /dev/dxg instead.

    Fix: on the node `nvidia-modprobe -u -c=0` (or nvidia-persistenced), then start the container
    again.
    """
    uvm, hidden = s.driver.uvm_device, common.gpu_hidden(s)
    if hidden:
        yield NotApplicable(hidden)
    elif s.os.wsl.value:
        yield NotApplicable("WSL2 has no /dev/nvidia-uvm")
    elif {"/dev/dxg", "/dev/nvhost-gpu"} & set(s.driver.device_nodes.get(())):
        yield NotApplicable("WSL2 and Jetson have no /dev/nvidia-uvm")
    elif uvm.value is True:
        yield Passed("/dev/nvidia-uvm is there")
    elif uvm.unknown:
        yield Undecided(("driver.uvm_device",), "whether /dev/nvidia-uvm is there")
    elif s.os.container.value is False:
        yield NotApplicable("not in a container: the driver creates it when first used")
    elif s.driver.device_nodes.value == ():
        yield NotApplicable("no NVIDIA device at all is here: another rule speaks")
    else:
        yield Finding(
            summary="/dev/nvidia-uvm is missing in this container",
            observed="other NVIDIA devices are here, /dev/nvidia-uvm is not",
            needed="/dev/nvidia-uvm",
            why="libcuda cannot map memory without it: cuInit fails (error 999 or 3).",
            fix=(
                "on the node: sudo nvidia-modprobe -u -c=0, then start the container again",
                "docker without the NVIDIA runtime: add --device /dev/nvidia-uvm",
            ),
            evidence=evidence(s, "driver.uvm_device", "driver.device_nodes"),
        )
