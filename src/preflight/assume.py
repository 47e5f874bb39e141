"""Facts given by hand, for builds and notebooks that cannot have them; always shown as assumed.

``driver=535.104.05``, ``gpu=NVIDIA A100-SXM4-80GB`` (also ``8 x A100``, ``sm_80``, ``8.0`` or
``none``; several by repeating), ``cuda=12.2`` (of the libcuda), ``compat=13.0`` (a compat libcuda
in use), ``platform=pai-dlc``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import snapshot as s

if TYPE_CHECKING:
    from .matrix import Matrix

VARIABLE = "PREFLIGHT_ASSUME_"
_COUNTED = re.compile(r"^(\d{1,3})\s*[x*×]\s*(.+)$")
_CAPABILITY = re.compile(r"^(?:sm_?)?(\d{1,2})\.?(\d)$")


class BadAssumption(ValueError):
    """An assumption that says nothing usable: the message names it."""


def from_environment(env: Mapping[str, str]) -> List[str]:
    """The assumptions in PREFLIGHT_ASSUME_* variables, as ``fact=value``."""
    found = []
    for name in sorted(env):
        if name.startswith(VARIABLE) and env[name].strip():
            fact = name[len(VARIABLE) :].lower()
            values = env[name].split(",") if fact == "gpu" else [env[name]]
            found += [f"{fact}={value.strip()}" for value in values]
    return found


def apply(snapshot: s.Snapshot, given: Sequence[str], matrix: Matrix) -> s.Snapshot:
    """The snapshot with the assumptions in place of what was seen; raises BadAssumption."""
    values: Dict[str, List[str]] = {}
    for text in given:
        fact, equals, value = text.partition("=")
        fact = fact.strip().lower()
        if not equals or not value.strip() or fact not in _APPLY:
            known = ", ".join(_APPLY)
            raise BadAssumption(f"{text!r} is no assumption: FACT=VALUE with FACT of {known}")
        values.setdefault(fact, []).append(value.strip())
    for fact in [one for one in _APPLY if one in values]:  # the order given does not matter
        many = values[fact]
        if fact != "gpu" and len(many) > 1:
            raise BadAssumption(f"{fact} is assumed twice: {many[0]!r} and {many[-1]!r}")
        snapshot = _APPLY[fact](snapshot, many, matrix)
    return snapshot


def _assumed(value: Any, fact: str, text: str) -> s.Fact[Any]:
    return s.known(value, f"assumed: {fact}={text}", assumed=True)


def _driver(snapshot: s.Snapshot, many: List[str], matrix: Matrix) -> s.Snapshot:
    text = many[0]
    if not re.match(r"^\d{3,4}(\.\d+){0,2}$", text):
        raise BadAssumption(f"driver={text}: no driver version (as in 535.104.05)")
    kind = snapshot.driver.libcuda
    keep = kind.value in ("compat", "stub")
    driver = replace(
        snapshot.driver,
        version=_assumed(text, "driver", text),
        visible=_assumed(True, "driver", text),
        libcuda=kind if keep else _assumed("host", "driver", text),
        cuda=snapshot.driver.cuda if keep else s.UNKNOWN,
        library_version=snapshot.driver.library_version if keep else s.UNKNOWN,
        nvml=s.UNKNOWN,
        uvm_device=s.UNKNOWN,
        device_nodes=s.UNKNOWN,
    )
    return replace(snapshot, driver=driver)


def cuda_version(text: str) -> Optional[str]:
    """`text` when it is a CUDA version (as in 12.2), else None."""
    return text if re.match(r"^\d{1,2}\.\d{1,2}$", text) else None


def _cuda(snapshot: s.Snapshot, many: List[str], _matrix: Matrix) -> s.Snapshot:
    if cuda_version(many[0]) is None:
        raise BadAssumption(f"cuda={many[0]}: no CUDA version (as in 12.2)")
    cuda: s.Fact[str] = s.known(many[0], f"assumed: cuda={many[0]}", assumed=True)
    visible: s.Fact[bool] = s.known(True, cuda.source, assumed=True)
    return replace(snapshot, driver=replace(snapshot.driver, cuda=cuda, visible=visible))


def _compat(snapshot: s.Snapshot, many: List[str], _matrix: Matrix) -> s.Snapshot:
    if cuda_version(many[0]) is None:
        raise BadAssumption(f"compat={many[0]}: no CUDA version (as in 13.0)")
    source = f"assumed: compat={many[0]}"
    one = s.Compat(
        cuda=s.known(many[0], source, assumed=True), resolved=s.known(True, source, assumed=True)
    )
    driver = replace(
        snapshot.driver, libcuda=s.known("compat", source, assumed=True), cuda=one.cuda,
        library_version=s.UNKNOWN,
    )  # fmt: skip
    return replace(snapshot, driver=driver, compats=s.known((one,), source, assumed=True))


def _platform(snapshot: s.Snapshot, many: List[str], _matrix: Matrix) -> s.Snapshot:
    platform = s.known(many[0], f"assumed: platform={many[0]}", assumed=True)
    return replace(snapshot, job=replace(snapshot.job, platform=platform))


def _gpus(snapshot: s.Snapshot, many: List[str], matrix: Matrix) -> s.Snapshot:
    source = "assumed: gpu=" + ", ".join(many)
    found: Tuple[s.Gpu, ...] = ()
    if [one.lower() for one in many] != ["none"]:
        found = tuple(_gpu(one, source, matrix) for one in many)
    return replace(snapshot, gpus=s.known(found, source, assumed=True))


def _gpu(text: str, source: str, matrix: Matrix) -> s.Gpu:
    counted = _COUNTED.match(text)
    count, name = (int(counted.group(1)), counted.group(2)) if counted else (1, text)
    if count < 1:
        raise BadAssumption(f"gpu={text}: no GPU at all is gpu=none")
    number = s.known(count, source, assumed=True)
    capability = _CAPABILITY.match(name.lower())
    if capability:
        value = f"{capability.group(1)}.{capability.group(2)}"
        if matrix.architecture(value) is None and not matrix.newer_than_any_gpu(value):
            raise BadAssumption(f"gpu={text}: no GPU has compute capability {value}")
        return s.Gpu(count=number, compute_capability=s.known(value, source, assumed=True))
    row = matrix.find_gpu(name)
    if row is None:
        raise BadAssumption(
            f"gpu={text}: no such GPU in the matrix; give its full name or its compute "
            "capability (gpu=8.0)"
        )
    return s.Gpu(
        name=s.known(str(row["name"]), source, assumed=True),
        count=number,
        compute_capability=s.known(str(row["capability"]), source, assumed=True),
    )


_APPLY: Dict[str, Callable[[s.Snapshot, List[str], Matrix], s.Snapshot]] = {
    "driver": _driver,
    "cuda": _cuda,
    "compat": _compat,
    "gpu": _gpus,
    "platform": _platform,
}
