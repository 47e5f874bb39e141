"""The CUDA toolkit in the image, which is not the CUDA of any framework."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Any, Iterator, List, Mapping, Tuple

from ..roots import Root
from ..snapshot import Fact, Observation, Toolkit, absent, known, merge, unknown
from .interpreter import which
from .place import Place, place

HEADER_LIMIT = 64 << 10
JSON_LIMIT = 256 << 10

#: Variables by which NVIDIA's images say what they were built with. They can be stale.
_IMAGE_VARIABLES = ("CUDA_VERSION", "NV_CUDA_LIB_VERSION", "NV_CUDA_CUDART_VERSION")


def read_toolkit(root: Root, env: Mapping[str, str]) -> Toolkit:
    """Home, version and compiler of the toolkit that building an extension would take.

    Looked for, as torch's own extension builder does, in CUDA_HOME, CUDA_PATH, around the nvcc
    on PATH and in /usr/local/cuda; then in the conda environment. Other toolkits found on the
    way, and what the image's variables say, are in `differs`.
    """
    at = place(root, env)
    homes = list(_homes(at))
    if not homes:
        nowhere: Fact[str] = absent(", ".join(name for name, _ in _looked(at)))
        return Toolkit(version=_with_variables(nowhere, env), home=nowhere, nvcc=nowhere)
    home, source = homes[0]
    version = _with_variables(_versions(root, [folder for folder, _ in homes]), env)
    return Toolkit(version=version, home=known(home, source), nvcc=_nvcc(at, home))


def _versions(root: Root, homes: List[str]) -> Fact[str]:
    """The version of the first home, or where that tells none, of one with the same compiler.

    Other toolkits' versions are in `differs`.
    """
    version = _version(root, homes[0])
    for other in homes[1:]:
        second = _version(root, other)
        if version.known and not _agree(version, second):
            version = merge(version, second)
        elif not version.known and _compiler(root, other) == _compiler(root, homes[0]):
            version = second
    return version


def _compiler(root: Root, home: str) -> str:
    return _resolved(root, posixpath.join(home, "bin", "nvcc"))


def _looked(at: Place) -> List[Tuple[str, str]]:
    """(what it is called, directory or "") of every place where a toolkit may be."""
    variables = ("CUDA_HOME", "CUDA_PATH")
    places = [(f"environment variable {one}", at.env.get(one, "")) for one in variables]
    nvcc = which(at, "nvcc")
    places.append(("nvcc on PATH", _above(nvcc)))
    places.append(("nvcc on PATH, resolved", _above(_resolved(at.root, nvcc)) if nvcc else ""))
    places.append(("/usr/local/cuda", "/usr/local/cuda"))
    places.append(("environment variable CONDA_PREFIX", at.env.get("CONDA_PREFIX", "")))
    return [(name, at.absolute(folder) if folder else "") for name, folder in places]


def _above(program: str) -> str:
    """The prefix of a program in PREFIX/bin, "" when it lies elsewhere."""
    folder = posixpath.dirname(program)
    return posixpath.dirname(folder) if posixpath.basename(folder) == "bin" else ""


def _resolved(root: Root, path: str) -> str:
    try:
        return root.resolve(path)
    except OSError:
        return path


def _homes(at: Place) -> Iterator[Tuple[str, str]]:
    """(directory, evidence) of each toolkit there is, the one that counts first."""
    seen = set()
    for source, folder in _looked(at):
        real = _resolved(at.root, folder)
        if folder and real not in seen and _is_home(at.root, folder, source):
            seen.add(real)
            yield folder, source


def _is_home(root: Root, folder: str, source: str) -> bool:
    signs = ("version.json", "version.txt", "bin/nvcc", "include/cuda.h")
    if any(root.is_file(posixpath.join(folder, sign)) for sign in signs):
        return True
    return "CONDA" not in source and bool(_cudart(root, folder))


def _version(root: Root, home: str) -> Fact[str]:
    """The toolkit's version by the first file under `home` that tells it."""
    for read in (_of_json, _of_text, _of_header, _of_library):
        version, path = read(root, home)
        if version:
            return known(version, path)
    return unknown("no file tells the version", home)


def _of_json(root: Root, home: str) -> Tuple[str, str]:
    import json

    path = posixpath.join(home, "version.json")
    try:
        document: Any = json.loads(root.text(path, JSON_LIMIT))
    except (OSError, ValueError, RecursionError):
        return "", path
    cuda = document.get("cuda") if isinstance(document, dict) else None
    version = cuda.get("version") if isinstance(cuda, dict) else None
    if isinstance(version, str) and re.match(r"\d+\.\d[\w.]{0,40}$", version):
        return version, path
    return "", path


def _of_text(root: Root, home: str) -> Tuple[str, str]:
    path = posixpath.join(home, "version.txt")
    found = re.search(r"CUDA Version (\d+\.\d[\d.]{0,40})", _head(root, path))
    return (found.group(1) if found else ""), path


def _of_header(root: Root, home: str) -> Tuple[str, str]:
    folders = [posixpath.join(home, "include")]
    targets = posixpath.join(home, "targets")
    folders += [posixpath.join(targets, one, "include") for one in root.names(targets)[:8]]
    for folder in folders:
        for name, macro in (("cuda.h", "CUDA_VERSION"), ("cuda_runtime_api.h", "CUDART_VERSION")):
            path = posixpath.join(folder, name)
            found = re.search(rf"#define[ \t]+{macro}[ \t]+(\d{{4,6}})\b", _head(root, path))
            if found:
                code = int(found.group(1))
                return f"{code // 1000}.{code % 1000 // 10}", path
    return "", home


def _of_library(root: Root, home: str) -> Tuple[str, str]:
    """By the file name of the run-time library, all that is left in run-time images."""
    path = _cudart(root, home)
    return posixpath.basename(path)[len("libcudart.so.") :], path


def _cudart(root: Root, home: str) -> str:
    for folder in ("lib64", "lib"):
        for name in root.names(posixpath.join(home, folder)):
            if re.match(r"libcudart\.so\.\d+\.\d+\.\d+$", name):
                return posixpath.join(home, folder, name)
    return ""


def _head(root: Root, path: str) -> str:
    try:
        return root.head(path, HEADER_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _nvcc(at: Place, home: str) -> Fact[str]:
    """The compiler of `home`, else the one on PATH; a second, different one in `differs`."""
    own = posixpath.join(home, "bin", "nvcc")
    found: Fact[str] = known(own, own) if at.root.is_file(own) else absent(own + ", PATH")
    other = which(at, "nvcc")
    if other and _resolved(at.root, other) != _compiler(at.root, home):
        found = merge(found, known(other, "PATH"))
    return found


def _with_variables(version: Fact[str], env: Mapping[str, str]) -> Fact[str]:
    """`version`, with the image's variables in `differs` where they say another X.Y."""
    others = []
    for name in _IMAGE_VARIABLES:
        stated = re.match(r"\d+\.\d[\d.]*", env.get(name, ""))
        if stated and _minor(stated.group()) != _minor(version.get("")):
            others.append(Observation(stated.group(), "environment variable " + name))
    return replace(version, differs=version.differs + tuple(others))


def _agree(first: Fact[str], second: Fact[str]) -> bool:
    return _minor(first.get("")) == _minor(second.get(""))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
