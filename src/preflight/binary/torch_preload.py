"""What `import torch` loads, in its order: torch's own preloading, then torch._C.

`torch/__init__.py` opens libtorch_global_deps.so with RTLD_GLOBAL and, depending on the release and
on what that did, copies of nvidia/*/lib/* from sys.path, before torch._C brings in the rest. Which
libraries, in which order and on which conditions is read from the installed file (as a syntax tree,
nothing is executed):

- up to 1.12 only libtorch_global_deps.so;
- from 1.13, when that fails for a CUDA library: a list of libraries, then once more;
- from 2.6, when it worked: nvJitLink, nvrtc or (2.14) the whole list, if libcudart is mapped.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..roots import Root
from .loader import Object, Opened, Problem, Process

GLOBAL_DEPS = "lib/libtorch_global_deps.so"
_DEPS, _PRELOAD, _PRELOAD_ONE = "_load_global_deps", "_preload_cuda_deps", "_preload_cuda_lib"
_PATHS = "_get_cuda_dep_paths"
#: torch/__init__.py has some 130 kB.
SOURCE_LIMIT = 4 << 20


class Preload(NamedTuple):
    """A library to open from the first directory of sys.path that has it."""

    folder: str
    pattern: str
    required: bool = True
    #: Only in torch built for this CUDA major or a later one.
    since_cuda: int = 0


class Plan(NamedTuple):
    """What `_load_global_deps` does."""

    #: Whether there is such a function at all (torch 1.5 and later).
    global_deps: bool
    #: Opened when libtorch_global_deps.so cannot be, for one of the libraries in `for_errors`.
    on_failure: Tuple[Preload, ...] = ()
    for_errors: Tuple[str, ...] = ()
    #: Opened after it, when a mapped file's path contains `if_mapped` and CUDA is in `if_cuda`.
    on_success: Tuple[Preload, ...] = ()
    if_mapped: Tuple[str, ...] = ()
    if_cuda: Optional[Tuple[str, ...]] = None
    #: 1.13: all libraries from the same directory, or none.
    together: bool = False
    #: Where a directory of sys.path may have them, besides nvidia/FOLDER/lib.
    in_cuda_folder: bool = False
    in_plain_folder: bool = False


class Imported(NamedTuple):
    """How `import torch` goes: each dlopen in turn, and what ends it (empty: it works)."""

    opened: Tuple[Opened, ...]
    error: str
    problems: Tuple[Problem, ...]
    objects: Tuple[Object, ...]


def import_torch(
    process: Process, package: str, path: Sequence[str], cuda: Optional[str]
) -> Imported:
    """Play `import torch` in a started process.

    `package` is the directory of torch, `path` sys.path, `cuda` torch.version.cuda. The process
    keeps what was loaded.
    """
    return _Import(process, package, path, cuda).run()


class _Failed(Exception):
    """An import that ends; the text is the exception's."""


class _Import:
    def __init__(
        self, process: Process, package: str, path: Sequence[str], cuda: Optional[str]
    ) -> None:
        self.process = process
        self.root = process.root
        self.package = package.rstrip("/")
        self.path = path
        self.cuda = cuda
        self.plan = read_plan(self.root, self.package)
        self.opened: List[Opened] = []

    def run(self) -> Imported:
        error = ""
        try:
            everywhere = bool(self.process.env.get("TORCH_USE_RTLD_GLOBAL"))
            if self.plan.global_deps and not everywhere:
                self._global_deps()
            self._extension(everywhere)
        except _Failed as failure:
            error = str(failure)
        problems = tuple(self.opened[-1].problems) if error and self.opened else ()
        return Imported(tuple(self.opened), error, problems, tuple(self.process.objects))

    def _global_deps(self) -> None:
        deps = f"{self.package}/{GLOBAL_DEPS}"
        first = self._open(deps, everywhere=True)
        if first.error:
            if not any(stem in first.error for stem in self.plan.for_errors):
                raise _Failed("OSError: " + first.error)
            self._preload(self.plan.on_failure)
            second = self._open(deps, everywhere=True)
            if second.error:
                raise _Failed("OSError: " + second.error)
        elif self._wants_more():
            try:
                self._preload(self.plan.on_success)
            except _Failed:
                pass  # torch catches every exception there

    def _wants_more(self) -> bool:
        if self.plan.if_cuda is not None and self.cuda not in self.plan.if_cuda:
            return False
        mapped = "\n".join(self.process.files.real(one.path) for one in self.process.objects)
        return all(one in mapped for one in self.plan.if_mapped)

    def _preload(self, libraries: Sequence[Preload]) -> None:
        major = int(self.cuda.split(".")[0]) if self.cuda and self.cuda[0].isdigit() else 0
        for one, path in self._places([one for one in libraries if one.since_cuda <= major]):
            if not path:
                if one.required:
                    raise _Failed(f"ValueError: {one.pattern} not found in the system path")
                continue
            opened = self._open(path)
            if opened.error:
                raise _Failed("OSError: " + opened.error)

    def _places(self, libraries: Sequence[Preload]) -> Iterator[Tuple[Preload, str]]:
        if self.plan.together:
            found: List[str] = []
            for entry in self.path:
                found = [f"{entry}/nvidia/{one.folder}/lib/{one.pattern}" for one in libraries]
                if all(self.root.exists(path) for path in found):
                    break
            yield from zip(libraries, found)
            return
        for one in libraries:
            yield one, next(filter(None, (self._in_entry(entry, one) for entry in self.path)), "")

    def _in_entry(self, entry: str, one: Preload) -> str:
        folders = [f"{entry}/nvidia/{one.folder}/lib"]
        if self.plan.in_cuda_folder and self.cuda:
            folders.append(f"{entry}/nvidia/cu{self.cuda.split('.')[0]}/lib")
        if self.plan.in_plain_folder:
            folders.append(f"{entry}/{one.folder}/lib")
        for folder in folders:
            for name in self._names(folder):
                if fnmatch.fnmatchcase(name, one.pattern):
                    return f"{folder}/{name}"
        return ""

    def _names(self, folder: str) -> List[str]:
        """Names in the order of the directory, as glob.glob gives them."""
        try:
            return os.listdir(self.root.on_host(folder))
        except OSError:
            return []

    def _extension(self, everywhere: bool) -> None:
        path = extension(self.root, self.package, "_C")
        if not path:
            raise _Failed("ModuleNotFoundError: No module named 'torch._C'")
        opened = self._open(path, everywhere)
        if opened.error:
            raise _Failed("ImportError: " + opened.error)

    def _open(self, path: str, everywhere: bool = False) -> Opened:
        opened = self.process.open(path, everywhere=everywhere)
        self.opened.append(opened)
        return opened


def extension(root: Root, package: str, name: str, tag: str = "") -> str:
    """The path of an extension module; empty when there is none.

    `tag` ("cpython-311") is the interpreter's; without one, any is taken.
    """
    names = [one for one in root.names(package) if one.startswith(name + ".")]
    for pattern in (f"{name}.{tag or 'cpython-'}*.so", f"{name}.abi3.so", f"{name}.so"):
        for one in names:
            if fnmatch.fnmatchcase(one, pattern):
                return f"{package}/{one}"
    return ""


def cuda_version(root: Root, package: str) -> Optional[str]:
    """`cuda` in torch/version.py; None for a build without CUDA."""
    try:
        text = root.text(package + "/version.py")
    except OSError:
        return None
    found = re.search(r"""^cuda\b[^=\n]*=\s*['"]([\d.]+)['"]""", text, re.MULTILINE)
    return found.group(1) if found else None


def read_plan(root: Root, package: str) -> Plan:
    """The plan in torch/__init__.py; that of an old torch where it cannot be understood."""
    try:
        text = root.text(package + "/__init__.py", SOURCE_LIMIT)
    except OSError:
        return Plan(root.exists(f"{package}/{GLOBAL_DEPS}"))
    return plan(text)


def plan(text: str) -> Plan:
    """The plan in the text of a torch/__init__.py."""
    functions = {name: _function(text, name) for name in (_DEPS, _PRELOAD, _PRELOAD_ONE, _PATHS)}
    deps = functions[_DEPS]
    if deps is None:
        return Plan(False)
    attempt = next((one for one in ast.walk(deps) if _opens_in_try(one)), None)
    made = Plan(True)
    paths = functions[_PATHS]
    if paths is not None:
        folders = {one.value for one in ast.walk(paths) if isinstance(one, ast.Constant)}
        made = made._replace(in_plain_folder=True, in_cuda_folder="cu" in folders)
    if not isinstance(attempt, ast.Try):
        return made
    return _after(_before(made, attempt, functions), attempt, functions)


def _function(text: str, name: str) -> Optional[ast.FunctionDef]:
    """One top-level function, parsed without the rest of the file."""
    found = re.search(rf"^def {name}\(.*?(?=^(?![)\s#])|\Z)", text, re.MULTILINE | re.DOTALL)
    try:
        body = ast.parse(found.group(0)).body if found else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if body and isinstance(body[0], ast.FunctionDef) else None


def _opens_in_try(node: ast.AST) -> bool:
    return isinstance(node, ast.Try) and any(
        _called(one) == "CDLL" for each in node.body for one in ast.walk(each)
    )


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


_Functions = Mapping[str, Optional[ast.FunctionDef]]


def _before(made: Plan, attempt: ast.Try, functions: _Functions) -> Plan:
    """What the exception handler does."""
    if not attempt.handlers:
        return made
    handler = ast.Module(body=list(attempt.handlers[0].body), type_ignores=[])
    libraries = _listed(handler)
    preload = functions[_PRELOAD]
    together = False
    if not libraries and preload is not None:
        libraries = _listed(preload)
        if not libraries:
            libraries, together = _joined(preload), True
    stems = [one.pattern.split(".")[0] for one in libraries]
    if together:
        # 1.13 looks for one library's full name.
        stems = [one for one in _texts(handler) if ".so" in one]
    more = _calls(preload) if preload is not None and not together else []
    return made._replace(
        on_failure=tuple(libraries + more), for_errors=tuple(stems), together=together
    )


def _after(made: Plan, attempt: ast.Try, functions: _Functions) -> Plan:
    """What follows in the try block when the first library was opened."""
    body = ast.Module(body=list(attempt.body), type_ignores=[])
    mapped: List[str] = []
    versions: Optional[Tuple[str, ...]] = None
    for node in ast.walk(body):
        test = node.test if isinstance(node, ast.If) else None
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.NotIn):
            continue
        if isinstance(test.left, ast.Constant):
            mapped.append(str(test.left.value))
        elif isinstance(test.comparators[0], (ast.List, ast.Tuple, ast.Set)):
            versions = tuple(_texts(test.comparators[0]))
    libraries = _calls(body)
    preload = functions[_PRELOAD]
    if (
        not libraries
        and preload is not None
        and any(_called(n) == _PRELOAD for n in ast.walk(body))
    ):
        libraries = [one._replace(required=False) for one in _listed(preload)] + _calls(preload)
    return made._replace(on_success=tuple(libraries), if_mapped=tuple(mapped), if_cuda=versions)


def _listed(tree: ast.AST) -> List[Preload]:
    """The libraries of a dict {folder: pattern} or a list [(folder, pattern)], and additions."""
    found: List[Preload] = []
    since = _since_cuda(tree)
    for node in ast.walk(tree):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Dict):
            found += [Preload(*pair) for pair in _pairs(zip(value.keys, value.values))]
        elif isinstance(value, (ast.List, ast.Tuple)):
            rows = [one.elts for one in value.elts if isinstance(one, ast.Tuple)]
            found += [Preload(*pair) for pair in _pairs((r[0], r[1]) for r in rows if len(r) == 2)]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            keys = _texts(node.targets[0])
            if keys and isinstance(value, ast.Constant) and ".so" in str(value.value):
                found.append(Preload(keys[0], str(value.value), True, since.get(id(node), 0)))
    return found


def _since_cuda(tree: ast.AST) -> Dict[int, int]:
    """For each statement inside `if t_major >= N`: N."""
    found: Dict[int, int] = {}
    for node in ast.walk(tree):
        test = node.test if isinstance(node, ast.If) else None
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.GtE):
            continue
        limit = test.comparators[0]
        if isinstance(node, ast.If) and isinstance(limit, ast.Constant):
            major = limit.value if isinstance(limit.value, int) else 0
            found.update((id(one), major) for each in node.body for one in ast.walk(each))
    return found


def _pairs(rows: Iterable[Tuple[Optional[ast.expr], ast.expr]]) -> Iterator[Tuple[str, str]]:
    for key, value in rows:
        if (
            isinstance(key, ast.Constant)
            and isinstance(value, ast.Constant)
            and ".so" in str(value.value)
        ):
            yield str(key.value), str(value.value)


def _calls(tree: ast.AST) -> List[Preload]:
    """Calls that name a folder and a pattern."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called(node) not in (_PRELOAD, _PRELOAD_ONE):
            continue
        optional = any(
            one.arg == "required" and isinstance(one.value, ast.Constant) and not one.value.value
            for one in node.keywords
        )
        rows = [(node.args[0], node.args[1])] if len(node.args) == 2 else []
        found += [Preload(folder, pattern, not optional) for folder, pattern in _pairs(rows)]
    return found


def _joined(tree: ast.AST) -> List[Preload]:
    """os.path.join(nvidia_path, "cublas", "lib", "libcublas.so.11")."""
    rows = [_texts(node) for node in ast.walk(tree) if _called(node) == "join"]
    return [Preload(row[0], row[-1]) for row in rows if len(row) == 3 and ".so" in row[-1]]


def _texts(tree: ast.AST) -> List[str]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
