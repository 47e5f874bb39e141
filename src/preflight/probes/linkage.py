"""What importing the framework would load: read from the files.

The loader's work is played (:mod:`preflight.binary`), nothing is loaded or run: which file is
picked for every library and why, which symbols have no provider, and what the libraries
themselves say of their versions.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import snapshot as s
from ..binary import elf, symbols, torch_preload, versions
from ..binary.loader import NOT_FOUND, Object, Opened, Problem, Process
from ..roots import Root
from . import parts, requirements
from .compiled import extensions

#: The libraries that a report tells of, by the beginning of their names.
TOLD = (
    "libcud", "libcublas", "libcufft", "libcurand", "libcusolver", "libcusparse", "libnccl",
    "libnvJitLink", "libnvrtc", "libnvshmem", "libcufile", "libcupti", "libstdc++", "libc.so",
)  # fmt: skip
#: Whose library a symbol without a version is, by its beginning.
OWNERS = (
    ("nccl", "libnccl.so.2"), ("cudnn", "libcudnn"), ("cublas", "libcublas"),
    ("cusparse", "libcusparse"), ("nvJitLink", "libnvJitLink"), ("__nvJitLink", "libnvJitLink"),
    ("cufft", "libcufft"), ("cuda", "libcudart"), ("nvrtc", "libnvrtc"),
)  # fmt: skip
#: Which of cuDNN's libraries tell the version (9, 8), beside the one that does not.
CUDNN_PARTS = ("libcudnn_graph", "libcudnn_ops_infer")
#: What torch's wheel asks for of another wheel.
PIN = r"^Requires-Dist: *{}\d+ *\(?== *([\d.]+)"
#: What `import torch` imports where it is installed, and where it lies: numpy 2, numpy 1.
NUMPY, NUMPY_MODULE, NUMPY_FOLDERS = "numpy", "_multiarray_umath", ("_core", "core")
#: Names of torch's namespaces in mangled symbols.
TORCH_SYMBOL = re.compile(r"\d(?:c10|at|torch|caffe2)\B|N3c10|N2at|N5torch")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


class Look(NamedTuple):
    """The environment whose import is played."""

    root: Root
    env: Mapping[str, str]
    python: s.PythonEnv
    torch: s.Framework
    cwd: str


def read(
    root: Root, env: Mapping[str, str], python: s.PythonEnv, torch: s.Framework, cwd: str = "/"
) -> s.Snapshot:
    """Libraries, extensions, and torch with what its own files say.

    Unknown with the reason where the interpreter or torch cannot be read.
    """
    look = Look(root, env, python, torch, cwd)
    try:
        checker = symbols.Checker()
        process = Process(root, env, python.executable.get(""), cwd=cwd, check=checker.check)
        started = process.start()
        imported = not_started(started) or torch_preload.import_torch(
            process, torch.path.get(""), list(python.path.get(())), torch.cuda.value
        )
    except (OSError, elf.BadElf) as error:
        lost = s.unknown(f"the import cannot be played: {error}", python.executable.get(""))
        return s.Snapshot(libraries=lost, extensions=lost)
    seen = _Libraries(look, process, imported)
    found: List[_Found] = []
    optional: List[Problem] = []
    later: List[Problem] = []
    if not imported.error:
        try:
            found = _Extensions(look, process).read()
            optional = [one for each in found for one in each.problems]
            optional += _numpy(look, process)
            later = parts.lost(process)
        except (OSError, elf.BadElf) as error:  # what could not be looked at is not in order
            lost = s.unknown(f"what is loaded later cannot be looked at: {error}")
            return s.Snapshot(libraries=lost, extensions=lost)
    told = tuple(seen.told([*imported.problems, *later], optional))
    framework = _torch(look, seen, imported.error)
    if any(one.missing.value for one in told):
        framework = replace(framework, requires=_required(look))
    return s.Snapshot(
        libraries=s.known(told, "the loader's search, played"),
        extensions=s.known(tuple(one.extension for one in found), "compiled modules"),
        frameworks=s.known((framework,), "its libraries"),
    )


def not_started(started: Opened) -> Optional[torch_preload.Imported]:
    """The import that there is none of, where the interpreter itself cannot be started."""
    stopping = started.stopping
    if not stopping:
        return None
    error = f"{started.name} does not start: {stopping[0]}"
    return torch_preload.Imported((started,), error, stopping, started.objects)


def _required(look: Look) -> s.Fact[Mapping[str, str]]:
    """The wheels that torch's metadata asks for: read only to say what to install."""
    site = posixpath.dirname(look.torch.path.get(""))
    release = look.torch.version.get("").partition("+")[0]
    return requirements.read(look.root, site, "torch", release)


# -- libraries ------------------------------------------------------------------------------


class _Libraries:
    def __init__(self, look: Look, process: Process, imported: torch_preload.Imported) -> None:
        self.look = look
        self.process = process
        links = [link for one in imported.opened for link in one.links]
        self.refused = {link.path: link.rule for link in links if link.problem and link.path}
        # What a failed dlopen had found is gone from the process, and says why it failed.
        failed = imported.opened[-1].objects if imported.error and imported.opened else ()
        objects = [*process.objects, *(one for one in failed if one not in process.objects)]
        self.objects = [one for one in objects if not one.is_executable]

    def told(self, problems: Sequence[Problem], optional: Sequence[Problem]) -> Iterator[s.Library]:
        """The CUDA, C and C++ libraries, each as it is found; and what stops the import.

        `optional`: what stops a module of another package, which may never be imported.
        """
        needs = [self._need(one, True) for one in problems]
        needs += [self._need(one, False) for one in optional]
        needs = _together(needs)
        for one in self.objects:
            name = _base(one)
            if name.startswith(TOLD) and not any(n.name.value == name for n in needs):
                yield self._library(one, name)
        yield from needs

    def _library(self, one: Object, name: str) -> s.Library:
        shipped = self._shipped(one, name)
        return s.Library(
            name=s.known(name, one.path),
            path=s.known(self.process.files.real(one.path), one.path),
            version=self.version(one),
            found_by=s.known(one.rule, "ld.so(8)"),
            needed_by=self._asked_by(one, name),
            needed_version=shipped,
        )

    def _asked_by(self, one: Object, name: str) -> s.Fact[str]:
        """What needs it: of a preloaded one, the first that asks for its name."""
        by = one.asked_by
        if one.rule == "ld-preload":
            asking = (each.path for each in self.objects if name in each.linkage.needed)
            by = next(asking, "")
        return s.known(by.rpartition("/")[2], by) if by else s.UNKNOWN

    def version(self, one: Object) -> s.Fact[str]:
        """What the file says of its version, else its name."""
        said = self._said(one.path)
        if said.known:
            return said
        named = _VERSION.search(self.process.files.real(one.path))
        return s.known(named.group(1), one.path) if named else s.UNKNOWN

    def _said(self, path: str) -> s.Fact[str]:
        """The version that a file tells.

        cuDNN's libcudnn.so.9 only passes calls on, to the parts that lie beside it.
        """
        folder, _, name = path.rpartition("/")
        stem, _, rest = name.partition(".so.")
        parts = CUDNN_PARTS if stem == "libcudnn" else ()
        for place in (path, *(f"{folder}/{part}.so.{rest.partition('.')[0]}" for part in parts)):
            try:
                found = versions.read(self.look.root.on_host(place))
            except (OSError, elf.BadElf):
                continue
            if found:
                return s.known(found[0].version, f"{place} ({found[0].source})")
        return s.UNKNOWN

    def _shipped(self, one: Object, name: str) -> s.Fact[str]:
        """The version of the framework's own copy, where another one is loaded in its place."""
        if name.startswith("libcudnn.so"):
            pinned = self._pinned("nvidia-cudnn-cu")
            if pinned.known:  # torch compares at run time, whichever copy it is
                return pinned
        if one.rule in ("rpath", "path", "runpath") or not name.startswith(TOLD):
            return s.UNKNOWN
        if self.look.torch.build.get("pip") != "pip":
            return s.UNKNOWN  # other builds use the system's; a stray wheel is no need of theirs
        for place in self._own(name):
            if self.process.files.real(place) == self.process.files.real(one.path):
                return s.UNKNOWN
            said = self._said(place)
            if said.known:
                return said
        return self._pinned("nvidia-nccl-cu") if name.startswith("libnccl.so") else s.UNKNOWN

    def _pinned(self, package: str) -> s.Fact[str]:
        """The version of a wheel that torch's own metadata asks for."""
        site = posixpath.dirname(self.look.torch.path.get(""))
        if self.look.torch.build.get("pip") != "pip":
            return s.UNKNOWN
        release = self.look.torch.version.get("").partition("+")[0]
        for name in self.look.root.names(site):
            if re.match(rf"torch-{re.escape(release)}(\+[\w.]+)?\.dist-info$", name):
                place = f"{site}/{name}/METADATA"
                text = self.look.root.first_text((place,))
                found = re.search(PIN.format(package), text[1] if text else "", re.MULTILINE)
                return s.known(found.group(1), place) if found else s.UNKNOWN
        return s.UNKNOWN

    def _own(self, name: str) -> Iterator[str]:
        """Where a wheel would have put the library: torch/lib and nvidia/*/lib."""
        root = self.look.root
        yield from _files(root, posixpath.join(self.look.torch.path.get(""), "lib"), name)
        for entry in self.look.python.path.get(()):
            nvidia = posixpath.join(entry, "nvidia")
            for folder in root.names(nvidia):
                yield from _files(root, f"{nvidia}/{folder}/lib", name)

    def _need(self, problem: Problem, required: bool) -> s.Library:
        """A problem of the loader's as the library that is missing or lacks something."""
        words = str(problem)
        by = s.known(problem.needed_by.rpartition("/")[2], words)
        needed = s.known(required, words)
        if problem.kind == "library" and problem.text != NOT_FOUND and "/" in problem.path:
            return self._damaged(problem, needed)
        if problem.kind == "library":
            return s.Library(
                name=s.known(problem.name, words),
                missing=s.known(True, words),
                needed_by=by,
                required=needed,
            )
        name = self._lacking(problem)
        there = next((one for one in self.objects if _base(one).startswith(name)), None)
        library = self._library(there, _base(there)) if there else s.Library(
            name=s.known(name, words)
        )  # fmt: skip
        kind, _, number = problem.name.rpartition("_")
        if problem.kind == "version" and kind in ("GLIBC", "GLIBCXX"):
            need = s.known(number, words)
            return replace(library, needed_version=need, needed_by=by, required=needed)
        lacks: s.Fact[Tuple[str, ...]] = s.known((problem.name,), words)
        return replace(library, missing_symbols=lacks, needed_by=by, required=needed)

    def _damaged(self, problem: Problem, required: s.Fact[bool]) -> s.Library:
        """A file that is found, and refused by the loader."""
        words = str(problem)
        by = problem.needed_by.rpartition("/")[2]
        rule = self.refused.get(problem.path, "")
        return s.Library(
            name=s.known(problem.name.rpartition("/")[2], words),
            path=s.known(self.process.files.real(problem.path), words),
            found_by=s.known(rule, "ld.so(8)") if rule else s.UNKNOWN,
            needed_by=s.known(by or "import torch", words),
            missing=s.known(True, words),
            damaged=s.known(problem.text, words),
            required=required,
        )

    def _lacking(self, problem: Problem) -> str:
        """The library that should have a symbol or version: by its version, else by its name."""
        if problem.owner:
            return problem.owner
        if problem.kind == "version":
            return problem.path.rpartition("/")[2]
        for beginning, library in OWNERS:
            if problem.name.startswith(beginning):
                return library
        return problem.path.rpartition("/")[2]


def _together(needs: Sequence[s.Library]) -> List[s.Library]:
    """All that one library lacks for another in one record."""
    found: Dict[Tuple[object, ...], s.Library] = {}
    for one in needs:
        key = (one.name.value, one.needed_by.value, one.required.value, one.missing_symbols.known,
               one.missing.value, one.needed_version.value)  # fmt: skip
        if key in found and one.missing_symbols.known:
            lacks = found[key].missing_symbols
            every = dict.fromkeys((*lacks.get(()), *one.missing_symbols.get(())))
            one = replace(found[key], missing_symbols=replace(lacks, value=tuple(every)))
        found[key] = one
    return list(found.values())


def _files(root: Root, folder: str, name: str) -> Iterator[str]:
    path = f"{folder}/{name}"
    if root.is_file(path):
        yield path


def _base(one: Object) -> str:
    return one.linkage.soname or one.path.rpartition("/")[2]


# -- torch ----------------------------------------------------------------------------------


def _torch(look: Look, seen: _Libraries, error: str) -> s.Framework:
    """What torch's own libraries say of it."""
    path = look.torch.path.get("")
    abi: s.Fact[bool] = s.UNKNOWN
    try:
        with elf.ElfFile(look.root.on_host(f"{path}/lib/libc10.so")) as file:
            value = versions.cxx11_abi(file)
            abi = s.known(value, f"{path}/lib/libc10.so") if value is not None else s.UNKNOWN
    except (OSError, elf.BadElf):
        pass
    source = f"{path}/__init__.py, played"
    return s.Framework(
        name=look.torch.name,
        cxx11_abi=abi,
        nccl=_static_nccl(look, seen),
        import_problem=s.known(error, source) if error else s.absent(source),
    )


def _static_nccl(look: Look, seen: _Libraries) -> s.Fact[str]:
    """The NCCL inside torch, where it is linked statically."""
    for one in seen.objects:
        if _base(one).startswith("libtorch_cuda"):
            try:
                found = versions.read(one.file.host_path)
            except (OSError, elf.BadElf):
                continue
            for each in found:
                if each.library == "nccl":
                    return s.known(each.version, f"{one.path} ({each.source})")
    return s.UNKNOWN


# -- numpy ----------------------------------------------------------------------------------


def _numpy(look: Look, process: Process) -> Sequence[Problem]:
    """What stops numpy's own compiled module, each told as a need of numpy's.

    Raises OSError and BadElf where it cannot be looked at.
    """
    path, problem = _numpy_module(look)
    problems: Sequence[Problem] = [problem] if problem else ()
    if path:
        problems = process.fork().open(path).problems
    return [one._replace(needed_by=NUMPY) for one in problems]


def _numpy_module(look: Look) -> Tuple[str, Optional[Problem]]:
    """The module that this interpreter would load; or that there are only those of others."""
    package = next(
        (f"{entry}/{NUMPY}" for entry in look.python.path.get(())
         if look.root.is_file(f"{entry}/{NUMPY}/__init__.py")), "",
    )  # fmt: skip
    number = re.match(r"(\d+)\.(\d+)", look.python.version.get(""))
    if not package or not number or "pypy" in look.python.executable.get(""):
        return "", None
    tag = "cpython-" + "".join(number.groups())
    for folder in (f"{package}/{one}" for one in NUMPY_FOLDERS):
        path = torch_preload.extension(look.root, folder, NUMPY_MODULE, tag)
        if path:
            return path, None
        other = torch_preload.extension(look.root, folder, NUMPY_MODULE)
        if other:
            name = re.sub(r"cpython-\w+", tag, other.rpartition("/")[2])
            return "", Problem("library", f"{folder}/{name}", NOT_FOUND, name)
    return "", None


# -- extensions -----------------------------------------------------------------------------


class _Found(NamedTuple):
    extension: s.Extension
    problems: Tuple[Problem, ...]


class _Extensions:
    """Compiled modules of other distributions that need torch or CUDA."""

    def __init__(self, look: Look, process: Process) -> None:
        self.look = look
        self.process = process

    def read(self) -> List[_Found]:
        """Each distribution with such modules once, all of its modules together."""
        found = extensions(self.look.root, self.look.python)
        return [self._extension(name, paths) for name, paths in found.items()]

    def _extension(self, name: str, paths: List[str]) -> _Found:
        problems: List[Problem] = []
        abi: s.Fact[bool] = s.UNKNOWN
        cuda: s.Fact[str] = s.UNKNOWN
        for path in paths:
            problems += self.process.fork().open(path).problems
            abi, cuda = self._built(path, abi, cuda)
        torches = tuple(dict.fromkeys(p.name for p in problems if _is_torch_symbol(p)))
        source = ", ".join(paths[:3])
        packages = self.look.python.packages.get({})
        return _Found(
            s.Extension(
                name=s.known(name, source),
                version=s.known(packages[name], "distributions") if name in packages else s.UNKNOWN,
                path=s.known(paths[0], source),
                built_for=s.known(s.BuiltFor(cxx11_abi=abi, cuda=cuda), source),
                missing_symbols=s.known(torches, source),
            ),
            tuple(one for one in problems if not _is_torch_symbol(one)),
        )

    def _built(
        self, path: str, abi: s.Fact[bool], cuda: s.Fact[str]
    ) -> Tuple[s.Fact[bool], s.Fact[str]]:
        try:
            with elf.ElfFile(self.look.root.on_host(path)) as file:
                wanted = versions.wanted_cxx11_abi(file)
                majors = [one for one in file.needed if one.startswith("libcudart.so.")]
        except (OSError, elf.BadElf):
            return abi, cuda
        if wanted is not None and not abi.known:
            abi = s.known(wanted, path)
        if majors and not cuda.known:
            cuda = s.known(majors[0][len("libcudart.so.") :], f"{path} needs {majors[0]}")
        return abi, cuda


def _is_torch_symbol(problem: Problem) -> bool:
    return problem.kind == "symbol" and bool(TORCH_SYMBOL.search(problem.name))
