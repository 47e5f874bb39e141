"""A stack nobody has installed, as a snapshot: `preflight what-if`.

The short form of a described environment: every fact is assumed, and the same rules judge it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, List, Sequence

from . import assume, builds
from . import snapshot as s
from .matrix import Matrix

ARCHITECTURES = ("x86_64", "aarch64")


class BadStack(ValueError):
    """A stack that says nothing usable: the message names what is wrong."""


def stack(
    matrix: Matrix,
    *,
    driver: str = "",
    gpus: Sequence[str] = (),
    torch: str = "",
    cuda: str = "",
    compat: str = "",
    arch: str = "x86_64",
) -> s.Snapshot:
    """The snapshot of a stack: `torch` as "2.6.0" or "2.6.0+cu124", or any framework of `cuda`.

    Raises BadStack or assume.BadAssumption.
    """
    if arch not in ARCHITECTURES:
        raise BadStack(f"--arch {arch}: none of {', '.join(ARCHITECTURES)}")
    given: List[str] = [f"gpu={one}" for one in gpus]
    given += [f"driver={driver}"] if driver else []
    given += [f"compat={compat}"] if compat else []
    snapshot = s.Snapshot(os=s.System(arch=_assumed(arch, "arch")))
    snapshot = assume.apply(snapshot, given, matrix)
    if torch and cuda:
        raise BadStack("--torch and --cuda: a torch build has its CUDA; say one of them")
    framework = _torch(matrix, torch, arch) if torch else _any(cuda) if cuda else None
    if framework is None:
        raise BadStack("what-if: say --torch RELEASE[+cuNNN] or --cuda VERSION")
    return replace(snapshot, frameworks=_assumed((framework,), "framework"))


#: A version of torch as people write it: of wheels, with or without the local part.
_TORCH = re.compile(
    r"(?:torch==|v)?((\d+\.\d+)(\.\d+(?:(?:a|b|rc|\.dev|\.post)\d+)?)?(\+\w[\w.]*)?)$"
)


def _release(text: str) -> str:
    """ "2.6.0+cu124" of "torch==2.6.0+cu124", "v2.6.0+cu124" or "2.6+CU124"; raises BadStack."""
    found = _TORCH.match(text.strip().lower())
    if not found:
        raise BadStack(f"--torch {text}: no torch version (as in 2.6.0 or 2.6.0+cu124)")
    version, minor, patch, local = found.groups("")
    return version if patch else f"{minor}.0{local}"


def _torch(matrix: Matrix, text: str, arch: str) -> s.Framework:
    return builds.torch(matrix, _release(text), arch, "assumed: torch", assumed=True)


def _any(cuda: str) -> s.Framework:
    if assume.cuda_version(cuda) is None:
        raise BadStack(f"--cuda {cuda}: no CUDA version (as in 12.4)")
    return s.Framework(name=_assumed("framework", "cuda"), cuda=_assumed(cuda, "cuda"))


def _assumed(value: Any, fact: str) -> s.Fact[Any]:
    return s.known(value, f"assumed: {fact}", assumed=True)
