"""A framework build that nobody has installed, as the tables know it."""

from __future__ import annotations

from typing import Any, Optional

from . import snapshot as s
from .matrix import Matrix, Row, cuda_of_tag, numbers


def torch(matrix: Matrix, spec: str, arch: str, source: str, assumed: bool = False) -> s.Framework:
    """The public torch build of "2.6.0" (the default index's) or "2.6.0+cu124" on a platform.

    What the tables do not say is unknown with the reason. `source`: who names it.
    """
    release, _, local = spec.partition("+")
    row = matrix.torch_build(release, local, arch) if local else matrix.default_torch(release, arch)
    version = spec if local or row is None else f"{release}+{row['variant']}"
    beyond: s.Fact[Any] = s.unknown(f"torch {spec} is not in the matrix")
    tag = cuda_of_tag(local)
    cuda = s.known(tag, source, assumed) if tag else beyond
    if local.startswith("rocm"):
        cuda = s.absent(source)
    elif row is not None:
        cuda = s.known(row["cuda"], source, assumed) if "cuda" in row else s.absent(source)
    rocm = local[len("rocm") :] if local.startswith("rocm") else ""
    return s.Framework(
        name=s.known("torch", source, assumed),
        version=s.known(version, source, assumed),
        cuda=cuda,
        hip=s.known(rocm, source, assumed) if rocm else s.UNKNOWN,
        # It was looked for, in the tables: where they are not sure, the verdict is not.
        arch_list=beyond if row is None else s.unknown(f"the tables are not sure of torch {spec}"),
        build=s.known("pip", source, assumed),
    )


def tensorflow(matrix: Matrix, package: str, version: str, source: str) -> Optional[s.Framework]:
    """The public TensorFlow build of a package and version; None where no table has it."""
    row = matrix.tensorflow(package, version)
    if row is None:
        return None
    return _framework("tensorflow", version, row, source)


def jax_plugin(matrix: Matrix, package: str, version: str, source: str) -> Optional[s.Framework]:
    """JAX as a plugin's wheel (jax-cuda12-plugin) makes it; None where no table has it."""
    row = matrix.jax(package, version)
    return None if row is None or "cuda" not in row else _framework("jax", version, row, source)


def _framework(name: str, version: str, row: Row, source: str) -> s.Framework:
    targets = [f"sm_{one.replace('.', '')}" for one in row.get("sm", [])]
    targets += [f"compute_{one.replace('.', '')}" for one in row.get("ptx", [])]
    beyond: s.Fact[Any] = s.unknown(f"the code inside {name} {version} is in no table")
    return s.Framework(
        name=s.known(name, source),
        version=s.known(version, source),
        cuda=s.known(row["cuda"], source) if "cuda" in row else s.absent(source),
        arch_list=s.known(tuple(targets), source) if targets else beyond,
        build=s.known("pip", source),
    )


def serves_python(row: Row, python: str) -> bool:
    """Whether a build has wheels for a Python ("3.11.7"); true where that is not known."""
    have = numbers(python)[:2]
    if not have or not row.get("pythons"):
        return True
    for part in str(row["pythons"]).split(","):  # "3.10-3.14,3.13t"
        if part.endswith("t"):
            continue
        bounds = [numbers(one) for one in part.split("-")]
        if bounds[0] and bounds[0] <= have <= bounds[-1]:
            return True
    return False
