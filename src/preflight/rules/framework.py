"""Rules about framework builds."""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from ..matrix import Matrix
from ..snapshot import Framework, Snapshot
from . import common
from .abi import extension_abi_mismatch, numpy_abi_mismatch, python_abi_mismatch
from .companions import companion_mismatch, plugin_mismatch
from .cures import torch_that_runs
from .installers import (
    build_replaced,
    mixed_installers,
    toolkit_major_mismatch,
    user_site_shadows,
)
from .registry import FAIL, INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence


def cpu_only_build(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A CPU-only (or ROCm) framework build on a GPU job.

    Decided by the build's own record of its CUDA (torch/version.py, TensorFlow's build_info,
    JAX's plugins), not by its version number. It applies when GPUs are here or asked for, and
    nothing hides them on purpose. When another framework here is a CUDA build, the CPU build
    may be meant (data loading, logging): then torch is a warning, others are only mentioned.

    Fix: the CUDA build of the same release.
    """
    reason = _gpu_job(s)
    hidden = common.gpu_hidden(s)
    if not s.frameworks.get(()):
        yield common.no_builds(s, m)
        return
    if not reason or hidden:
        yield NotApplicable(hidden or "nothing says that this is a GPU job")
        return
    cuda_builds = common.builds(s, m)
    for number, one in enumerate(s.frameworks.get(())):
        label, cuda = common.framework_label(one), common.cuda_of(s, m, one)
        if cuda:
            yield Passed(f"{label} is a CUDA {cuda} build", label)
        elif one.cuda.absent or (one.version.value or "").endswith("+cpu"):
            beside = WARN if one.name.value == "torch" else INFO
            yield _cpu(s, m, one, number, reason, beside if cuda_builds else FAIL)
        else:
            place = f"frameworks[{number}].cuda"
            yield Undecided((place,), f"whether {label} is a CUDA build", label)


def _gpu_job(s: Snapshot) -> Optional[str]:
    if s.gpus.value:
        return "GPUs are here"
    if s.job.gpus_per_node.get(0) > 0:
        return f"the job asks for {s.job.gpus_per_node.value} GPU(s) per node"
    return None


def _cpu(
    s: Snapshot, m: Matrix, one: Framework, number: int, reason: str, severity: str
) -> Outcome:
    label = common.framework_label(one)
    kind = f"a ROCm {one.hip.value} build" if one.hip.known else "a CPU-only build"
    if not one.hip.known and "+rocm" in one.version.get(""):
        kind = "a ROCm build"
    place = f"frameworks[{number}]"
    return Finding(
        summary=f"{label} is {kind}, and {reason}",
        observed=f"{label}: {kind}",
        needed="a CUDA build",
        why="Without CUDA in the build, the GPUs are never used: torch.cuda.is_available() is "
        "False and the job runs on the CPU or stops.",
        fix=_cuda_build(s, m, one),
        evidence=evidence(s, place + ".version", place + ".cuda", place + ".hip", "gpus",
                          "job.gpus_per_node"),
        subject=label,
        severity=severity,
    )  # fmt: skip


def _cuda_build(s: Snapshot, m: Matrix, one: Framework) -> Tuple[str, ...]:
    if one.name.value == "torch":
        found = torch_that_runs(s, m, one)
        if found:
            return found
    return (f"install the CUDA build of {one.name.get('the framework')}",)


__all__ = [
    "build_replaced",
    "mixed_installers",
    "toolkit_major_mismatch",
    "user_site_shadows",
    "companion_mismatch",
    "cpu_only_build",
    "extension_abi_mismatch",
    "numpy_abi_mismatch",
    "plugin_mismatch",
    "python_abi_mismatch",
]
