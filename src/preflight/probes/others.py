"""What TensorFlow and JAX would load, and the GPU code inside them: read from the files.

As :mod:`preflight.probes.linkage` does for torch; nothing is loaded or run.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import snapshot as s
from ..binary import elf, plugins, symbols, versions
from ..binary.loader import NOT_FOUND, Object, Problem, Process
from ..roots import Root
from . import parts
from .kernels import code_of
from .linkage import TOLD, not_started

#: Those whose import is played here.
NAMES = ("tensorflow", "jax")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


class Look(NamedTuple):
    """The environment: the frameworks, and whether the one that is played is the only one."""

    root: Root
    env: Mapping[str, str]
    python: s.PythonEnv
    frameworks: Tuple[s.Framework, ...]
    cwd: str = "/"

    @property
    def path(self) -> List[str]:
        """sys.path."""
        return list(self.python.path.get(()))

    @property
    def alone(self) -> bool:
        """Whether one framework is here: the job's, then, beyond doubt."""
        return len(self.frameworks) == 1


def read(look: Look, before: s.Snapshot) -> s.Snapshot:
    """`before`, which tells of torch, with what the other frameworks here load.

    Unknown with the reason where one of them cannot be played.
    """
    for one in played(look.frameworks):
        if not before.libraries.known and before.libraries.looked:
            return before
        before = _together(before, _read(look, one))
    return before


def kernels(look: Look) -> Iterator[s.Code]:
    """The GPU code of the other frameworks. Beside another one none of it is a job's main part."""
    for one in played(look.frameworks):
        name = one.name.get("")
        for path in _with_code(look, one):
            code = code_of(look.root, path, name, main=look.alone)
            if code:
                yield code


def played(frameworks: Sequence[s.Framework]) -> List[s.Framework]:
    """Those that are played here."""
    return [one for one in frameworks if one.name.value in NAMES and one.path.known]


def _with_code(look: Look, one: s.Framework) -> Iterator[str]:
    """TensorFlow's large libraries; a plugin's, which does for JAX what they do for it."""
    if one.name.value == "tensorflow":
        folders, beginning = [one.path.get("")], "libtensorflow_"
    else:
        folders, beginning = (
            [f"{entry}/jax_plugins/xla_cuda{_major(look)}" for entry in look.path],
            "",
        )
    for folder in folders:
        for name in look.root.names(folder):
            if name.startswith(beginning) and ".so" in name:
                yield f"{folder}/{name}"


def _major(look: Look) -> str:
    """The CUDA major of JAX's plugin; empty without one. Of several the newest is tried first."""
    names = (name for entry in look.path for name in look.root.names(entry + "/jax_plugins"))
    found = sorted(name[len("xla_cuda") :] for name in names if re.match(r"xla_cuda\d+$", name))
    return found[-1] if found else ""


# -- what is loaded -----------------------------------------------------------------------------


def _read(look: Look, one: s.Framework) -> s.Snapshot:
    name = one.name.get("")
    try:
        check = plugins.frugal(symbols.Checker().check)
        process = Process(
            look.root, look.env, look.python.executable.get(""), cwd=look.cwd, check=check
        )
        dead = not_started(process.start())
        done = (
            plugins.Played(dead.opened, dead.error, dead.problems)
            if dead
            else _PLAYS[name](look, one, process)
        )
        told = tuple(_libraries(look, name, process, done))
    except (OSError, elf.BadElf) as error:
        return s.Snapshot(libraries=s.unknown(f"the import of {name} cannot be played: {error}"))
    source = f"{one.path.value}, played"
    problem: s.Fact[str] = s.known(done.error, source) if done.error else s.absent(source)
    return s.Snapshot(
        libraries=s.known(told, "the loader's search, played"),
        frameworks=s.known((s.Framework(name=one.name, import_problem=problem),), source),
    )


def _tensorflow(look: Look, one: s.Framework, process: Process) -> plugins.Played:
    return plugins.tensorflow(process, one.path.get(""), one.cuda.get(""), one.cudnn.get(""))


def _jax(look: Look, one: s.Framework, process: Process) -> plugins.Played:
    places = (f"{entry}/jaxlib" for entry in look.path if look.root.is_dir(f"{entry}/jaxlib"))
    return plugins.jax(process, next(places, ""), look.path, _major(look))


_PLAYS: Dict[str, Callable[[Look, s.Framework, Process], plugins.Played]] = {
    "tensorflow": _tensorflow, "jax": _jax,
}  # fmt: skip


def _libraries(
    look: Look, name: str, process: Process, done: plugins.Played
) -> Iterator[s.Library]:
    """What stops the import, what is lost for a GPU, and the CUDA libraries that are there."""
    needs = [_need(look, process, one, f"import {name}", look.alone) for one in done.problems]
    later = [*done.lost, *(parts.lost(process) if not done.error else ())]
    needs += [_need(look, process, one, name, False) for one in later]
    yield from needs
    lacking = {one.name.value for one in needs}
    for one in process.objects:
        base = _base(one)
        if base.startswith(TOLD) and base not in lacking and not one.is_executable:
            yield s.Library(
                name=s.known(base, one.path),
                path=s.known(process.files.real(one.path), one.path),
                version=_version(look, process, one.path),
                found_by=s.known(one.rule, "ld.so(8)"),
                needed_by=s.known(name, one.asked_by or f"{name}, played"),
            )


def _need(look: Look, process: Process, problem: Problem, by: str, required: bool) -> s.Library:
    """A problem of the loader's as the library that is missing or lacks something."""
    words = str(problem)
    # Where another framework is here too, by its name: nobody knows whose job it is.
    asker = problem.needed_by.rpartition("/")[2] if required else ""
    told = s.Library(
        needed_by=s.known(asker or by, words), required=s.known(required, words)
    )  # fmt: skip
    if problem.kind == "library":
        there = problem.path if problem.text != NOT_FOUND and "/" in problem.path else ""
        base = problem.name.rpartition("/")[2]
        lies = there or next(_wheels(look, base), "")
        told = replace(told, name=s.known(base, words), missing=s.known(True, words))
        if lies:
            told = replace(told, path=s.known(lies, words))
        return replace(told, damaged=s.known(problem.text, words)) if there else told
    library = problem.owner or problem.path.rpartition("/")[2]
    told = replace(told, name=s.known(library, words))
    kind, _, number = problem.name.rpartition("_")
    if problem.kind == "version" and kind in ("GLIBC", "GLIBCXX"):
        return replace(
            told,
            needed_version=s.known(number, words),
            version=_version(look, process, problem.path),
        )
    return replace(told, missing_symbols=s.known((problem.name,), words))


def _wheels(look: Look, name: str) -> Iterator[str]:
    """Where an installed wheel of NVIDIA's has it."""
    for entry in look.path:
        for folder in look.root.names(posixpath.join(entry, "nvidia")):
            path = f"{entry}/nvidia/{folder}/lib/{name}"
            if look.root.is_file(path):
                yield path


def _version(look: Look, process: Process, path: str) -> s.Fact[str]:
    """What a file says of its version, else its name."""
    try:
        found = versions.read(look.root.on_host(process.files.absolute(path)))
    except (OSError, elf.BadElf):
        found = []
    if found:
        return s.known(found[0].version, f"{path} ({found[0].source})")
    named = _VERSION.search(process.files.real(path))
    return s.known(named.group(1), path) if named else s.UNKNOWN


def _base(one: Object) -> str:
    return one.linkage.soname or one.path.rpartition("/")[2]


def _together(before: s.Snapshot, more: s.Snapshot) -> s.Snapshot:
    """Both; a file that both load is told once."""
    if not more.libraries.known:
        return replace(before, libraries=more.libraries)
    seen = {_same(one) for one in before.libraries.get(())}
    new = tuple(one for one in more.libraries.get(()) if _same(one) not in seen)
    libraries = s.known(before.libraries.get(()) + new, more.libraries.source)
    frameworks = before.frameworks.get(()) + more.frameworks.get(())
    return replace(before, libraries=libraries,
                   frameworks=s.known(frameworks, "their libraries"))  # fmt: skip


def _same(one: s.Library) -> Optional[Tuple[object, ...]]:
    there = one.path.known and not one.missing.value and not one.missing_symbols.known
    return (one.name.value, one.path.value) if there else (id(one),)
