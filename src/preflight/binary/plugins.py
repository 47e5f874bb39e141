"""What TensorFlow and JAX load: by their import, and later when they look for GPUs.

Neither links CUDA: both open its libraries by name once they look for a GPU, from one of their own
files (whose RPATH or RUNPATH counts), and take the CPU where one is missing.

- TensorFlow: `_pywrap_tensorflow_internal` brings its two large libraries in, which open libcudart;
  the rest (tsl, dlopen_checker.cc) is opened from libtensorflow_framework.so.2.
- JAX: jaxlib knows no CUDA; the plugin's `initialize` opens the files of NVIDIA's wheels that it
  lists (read from its source as a syntax tree, nothing is executed), then asks each for its
  version by name, then is opened itself.
"""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..roots import Root
from . import elf
from .loader import Check, Object, Opened, Problem, Process
from .torch_preload import SOURCE_LIMIT, extension

#: Opened by TensorFlow for a GPU, in its order, by the CUDA major it was built with. Of CUDA 11
#: from 11.1 on; libcudnn besides.
OF_TENSORFLOW = {
    "11": ("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10",
           "libcusolver.so.11", "libcusparse.so.11"),
    "12": ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
           "libcusolver.so.11", "libcusparse.so.12"),
}  # fmt: skip
TENSORFLOW_MODULES = (
    "python/platform/_pywrap_cpu_feature_guard.so",
    "python/_pywrap_tensorflow_internal.so",
)
LARGE = ("libtensorflow_", "lib_pywrap_tensorflow")
#: There: TensorFlow's modules are opened with RTLD_GLOBAL.
GLOBAL_FLAGS = "python/pywrap_dlopen_global_flags.py"
#: jaxlib's own module: since 0.6 and before.
JAX_MODULES = ("_jax", "xla_extension")
#: Those of a plugin that `import jax` looks for; the first of them opens libcudart.
JAX_PLUGIN_MODULES = (
    "_versions", "_solver", "_hybrid", "_sparse", "_prng", "_linalg", "_rnn", "_triton",
)  # fmt: skip
#: What a plugin does not do without: it asks each for its version, or computes with it.
JAX_NEEDS = ("cudart", "cudnn", "cufft", "cupti", "cublas", "cusparse", "cusolver", "nccl")


class Played(NamedTuple):
    """How an import goes: each dlopen in turn, what ends it (empty: it works), what stays.

    `later` is what is opened for a GPU; `lost` why that does not work, whose error nobody sees.
    """

    opened: Tuple[Opened, ...]
    error: str
    problems: Tuple[Problem, ...]
    later: Tuple[Opened, ...] = ()
    lost: Tuple[Problem, ...] = ()


def tensorflow(process: Process, package: str, cuda: str, cudnn: str) -> Played:
    """`import tensorflow` in a started process, and its look for GPUs.

    `package` is its directory; `cuda` and `cudnn` what it was built with, empty in a CPU build.
    """
    everywhere = process.root.exists(f"{package}/{GLOBAL_FLAGS}")
    opened: List[Opened] = []
    for path in (f"{package}/{one}" for one in TENSORFLOW_MODULES):
        if process.root.is_file(path):
            opened.append(process.open(path, everywhere=everywhere and "internal" in path))
            if opened[-1].problems:
                return _failed(opened)
    names = _of_tensorflow(cuda, cudnn)
    caller = _called(process, "libtensorflow_framework.so")
    later = [process.open(name, caller) for name in names] if caller else []
    return Played(tuple(opened), "", (), tuple(later), _lost(later))


def _of_tensorflow(cuda: str, cudnn: str) -> Sequence[str]:
    major = cuda.partition(".")[0]
    if cuda.startswith("11.0") or major not in OF_TENSORFLOW:
        return ()
    front = cudnn.partition(".")[0]
    return (*OF_TENSORFLOW[major], *([f"libcudnn.so.{front}"] if front.isdigit() else []))


def jax(process: Process, jaxlib: str, path: Sequence[str], major: str) -> Played:
    """`import jax` in a started process, and its look for GPUs.

    `jaxlib` is that package's directory, `path` sys.path, `major` the plugin's CUDA ("12"), empty
    where there is none.
    """
    root = process.root
    opened: List[Opened] = []
    core = next(filter(None, (extension(root, jaxlib, one) for one in JAX_MODULES)), "")
    if core:
        opened.append(process.open(core))
        if opened[-1].problems:
            return _failed(opened)
    modules = _package(root, path, f"jax_cuda{major}_plugin") if major else ""
    plugin = _package(root, path, f"jax_plugins/xla_cuda{major}") if major else ""
    preloads = [one for one in _preloads(root, plugin) if _of_major(one, major)] if plugin else []
    caller = None
    for name in JAX_PLUGIN_MODULES if modules else ():
        file = f"{modules}/{name}.so"
        if root.is_file(file):
            opened.append(process.open(file))
            caller = caller or opened[-1].object
    later = [process.open(one.soname, caller) for one in preloads
             if caller and _stem(one) == "cudart"]  # fmt: skip
    later += _initialized(process, path, preloads, caller, plugin, modules)
    needed = [one for one in later if _is_needed(one)]
    return Played(tuple(opened), "", (), tuple(later), _lost(needed))


def frugal(exact: Check) -> Check:
    """A check that looks at the versions alone where TensorFlow's own modules are opened.

    They hold a million names, and come from one wheel. All that is opened after them is checked
    exactly, and finds nothing it needs in them.
    """

    def check(
        process: Process, new: Sequence[Object], scopes: Sequence[Sequence[Object]]
    ) -> List[Problem]:
        if any(
            _is_large(one) or any(n.startswith(LARGE) for n in one.linkage.needed) for one in new
        ):
            return [problem for one in new for problem in _versions(process, one)]
        return exact(process, new, [[o for o in one if not _is_large(o)] for one in scopes])

    return check


def _is_of_tensorflow(one: Object) -> bool:
    return _is_large(one) or any(name.startswith(LARGE) for name in one.linkage.needed)


def _is_large(one: Object) -> bool:
    return (one.linkage.soname or "").startswith(LARGE)


def _versions(process: Process, one: Object) -> Iterator[Problem]:
    """The versions that an object needs and that what is loaded does not define."""
    with elf.ElfFile(one.file.host_path) as file:
        needs = file.version_needs()
    for need in needs:
        provider = next((each for each in process.objects if each.called(need.file)), None)
        if provider is None or need.weak:
            continue
        with elf.ElfFile(provider.file.host_path) as file:
            defined = {row.version for row in file.version_definitions()}
        if defined and need.version not in defined:
            version = need.version.decode("utf-8", "replace")
            text = f"version `{version}' not found (required by {one.path})"
            yield Problem("version", provider.path, text, version, one.path)


class _Preload(NamedTuple):
    """A library in nvidia/FOLDER/lib."""

    folder: str
    soname: str


def _initialized(
    process: Process, path: Sequence[str], preloads: Sequence[_Preload], caller: Optional[Object],
    plugin: str, modules: str,
) -> List[Opened]:  # fmt: skip
    """The plugin's `initialize`: what is not in the wheels is not yet missing."""
    later: List[Opened] = []
    for one in preloads:
        folders = _namespace(process.root, path, f"nvidia/{one.folder}")
        if folders and process.root.is_file(f"{folders[0]}/lib/{one.soname}"):
            process.open(f"{folders[0]}/lib/{one.soname}")
    for file in (f"{modules}/cuda_plugin_extension.so", f"{plugin}/xla_cuda_plugin.so"):
        if (modules if "extension" in file else plugin) and process.root.is_file(file):
            later.append(process.open(file))
            caller = caller or later[-1].object
    if caller:
        later += [process.open(one.soname, caller) for one in preloads]
    return later


def _is_needed(one: Opened) -> bool:
    stem = re.match(r"lib(\w+)\.so", one.name)  # the plugin's own files are named by their path
    return stem is None or stem.group(1) in JAX_NEEDS


def _stem(one: _Preload) -> str:
    return one.soname[len("lib") :].partition(".")[0]


def _of_major(one: _Preload, major: str) -> bool:
    """Of CUDA 12 and 13 both are listed; the folders of CUDA 13's toolkit are one."""
    if one.folder in ("nccl", "nvshmem", "cudnn"):
        return True
    return (one.folder == "cu13") == (major == "13")


def _preloads(root: Root, plugin: str) -> Iterator[_Preload]:
    """The calls _load("FOLDER", ["SONAME", …]) in the plugin's source, in order."""
    try:
        text = root.text(plugin + "/__init__.py", SOURCE_LIMIT)
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "_load":
            continue
        try:
            folder, names = (ast.literal_eval(one) for one in node.args)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(folder, str) and isinstance(names, list):
            yield from (_Preload(folder, one) for one in names if isinstance(one, str))


def _package(root: Root, path: Sequence[str], name: str) -> str:
    """Where a package of that name lies; empty when nowhere."""
    found = (f"{entry}/{name}" for entry in path if root.is_dir(f"{entry}/{name}"))
    return next(found, "")


def _namespace(root: Root, path: Sequence[str], name: str) -> List[str]:
    """The directories of a package, as Python puts them together where none has __init__.py."""
    found = list(path)
    for part in name.split("/"):
        found = [f"{one}/{part}" for one in found if root.is_dir(f"{one}/{part}")]
        regular = next((one for one in found if root.is_file(one + "/__init__.py")), "")
        found = [regular] if regular else found
    return found


def _called(process: Process, beginning: str) -> Optional[Object]:
    found = (one for one in process.objects if (one.linkage.soname or "").startswith(beginning))
    return next(found, None)


def _failed(opened: Sequence[Opened]) -> Played:
    return Played(tuple(opened), "ImportError: " + opened[-1].error, opened[-1].problems)


def _lost(later: Sequence[Opened]) -> Tuple[Problem, ...]:
    """What is wrong with them, each once."""
    found: Dict[Tuple[str, str, str], Problem] = {}
    for one in later:
        for problem in one.problems:
            found.setdefault((problem.kind, problem.name, problem.path), problem)
    return tuple(found.values())
