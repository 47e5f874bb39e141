"""`preflight link`: what would be loaded, by which rule, what is missing, and the GPU code inside.

An `ldd` that explains, and runs nothing: the loader's work is played over the files.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .binary import elf, fatbin, symbols, torch_preload, versions
from .binary.loader import Object, Opened, Problem, Process
from .binary.machine import INTERPRETERS
from .probes.compiled import is_module, modules_of
from .probes.frameworks import read_frameworks
from .probes.interpreter import find_interpreter
from .probes.place import Place, place
from .probes.python_env import read_environment
from .roots import Root

SCHEMA = "preflight.link/1"
#: Programs that tell what machine an image is for.
TELLING = ("/bin/sh", "/usr/bin/env", *INTERPRETERS.values())
STATIC = "statically linked, nothing to load"


class NothingToLink(ValueError):
    """Nothing to start from: the message says what was looked for."""


class Node(NamedTuple):
    """One library: its file, who asked first, which rule found it, what it says of itself."""

    name: str
    path: str
    real: str
    asked_by: str
    rule: str
    version: str
    targets: Tuple[str, ...]
    shadows: Tuple[str, ...] = ()  # other copies that the loader would have come to later


class Tree(NamedTuple):
    """What would be loaded from one start, in load order, and what stops it.

    `alone` is what stops a file that others load and nobody imports, which may well work there.
    """

    title: str
    nodes: Tuple[Node, ...]
    problems: Tuple[str, ...]
    ignored: Tuple[str, ...]
    alone: Tuple[str, ...] = ()
    note: str = ""  # what is said in place of "every library is found"


def trees(root: Root, env: Mapping[str, str], python: str, what: str) -> List[Tree]:
    """The trees of a file, a module's compiled parts, or (`what` empty) of `import torch`.

    Raises NothingToLink, OSError and BadElf.
    """
    at = place(root, env)
    if what.startswith(("/", ".")) or "/" in what:
        path = at.absolute(what)
        with elf.ElfFile(root.on_host(path)) as file:
            interpreter, machine = file.interpreter, file.machine
            program = interpreter is not None or _is_program(file)
            static = program and interpreter is None and not file.needed
        if program:
            problem = _not_started(root, at, machine, interpreter)
            if problem or static:
                problems = (f"{path}: {problem}",) if problem else ()
                return [Tree(path, (), problems, (), note=STATIC if static else "")]
            process = _process(root, env, path, at.cwd)
            started = process.start()
            return [_tree(path, process, [started], started.problems)]
        process = _started(root, env, python, at.cwd)
        opened = process.open(path)
        return [_tree(path, process, [opened], opened.problems)]
    try:
        process = _started(root, env, python, at.cwd)
    except NothingToLink as error:
        raise NothingToLink(f"{error}{_meant(at, what)}") from None
    found = find_interpreter(root, env, python)
    environment = read_environment(root, found.get(""), env)
    torch = next(
        (f for f in read_frameworks(root, environment, env, "") if f.name.value == "torch"), None
    )
    if not what or what == "torch":
        if torch is None:
            raise NothingToLink(f"no torch in {found.value}")
        done = torch_preload.import_torch(
            process, torch.path.get(""), list(environment.path.get(())), torch.cuda.value
        )
        title = f"import torch ({torch.path.value}, {torch.version.value})"
        return [_tree(title, process, done.opened, done.problems)]
    if torch is not None:
        torch_preload.import_torch(
            process, torch.path.get(""), list(environment.path.get(())), torch.cuda.value
        )
    files = list(modules_of(root, environment, what))
    if not files:
        raise NothingToLink(f"no compiled module of {what!r} in {found.value}{_meant(at, what)}")
    made = []
    for path in files:
        own = process.fork()
        before = len(own.objects)
        opened = own.open(path)
        tree = _tree(path, own, [opened], opened.problems, before)
        if opened.problems and not is_module(root, path):
            tree = tree._replace(problems=(), alone=tree.problems)
        made.append(tree)
    return made


def _meant(at: Place, what: str) -> str:
    """A file of that name in the working directory is not looked at, unless named by a path."""
    return f"; did you mean ./{what}?" if what and at.root.is_file(at.absolute(what)) else ""


def _is_program(file: elf.ElfFile) -> bool:
    """Whether a file that names no program interpreter is started by itself: a static program."""
    return file.kind == elf.EXECUTABLE or bool(file.flags_1 & elf.PIE)


def _not_started(root: Root, at: Place, machine: str, interpreter: Optional[str]) -> str:
    """Why the kernel does not start a program; empty where it does."""
    own = _machine(root)
    if own and machine != own:
        return f"a program for {machine}, this machine is {own}"
    if interpreter is not None and not root.exists(at.absolute(interpreter)):
        return f"its program interpreter {interpreter} does not exist: No such file or directory"
    return ""


def _machine(root: Root) -> str:
    """The machine that programs of the root are for; empty where it is not known."""
    if root.live:
        return os.uname().machine
    for path in TELLING:
        try:
            with elf.ElfFile(root.on_host(path)) as file:
                return file.machine
        except (OSError, elf.BadElf):
            continue
    return ""


def _process(root: Root, env: Mapping[str, str], program: str, cwd: str) -> Process:
    return Process(root, env, program, cwd=cwd, check=symbols.Checker().check)


def _started(root: Root, env: Mapping[str, str], python: str, cwd: str) -> Process:
    """A process of the job's interpreter, in which libraries are opened."""
    found = find_interpreter(root, env, python)
    if not found.known:
        raise NothingToLink(f"no Python to load it in: {found.unknown or found.source}")
    process = _process(root, env, found.get(""), cwd)
    process.start()
    return process


def _tree(
    title: str,
    process: Process,
    opened: Sequence[Opened],
    problems: Sequence[Problem],
    before: int = 0,
) -> Tree:
    """`opened` tells what a failing dlopen had mapped, which does not stay in the process."""
    objects = {one.path: one for one in process.objects[before:]}
    for failed in opened:
        if failed.problems:
            objects.update((one.path, one) for one in failed.objects if one.path not in objects)
    return Tree(
        title,
        tuple(_node(process, one) for one in objects.values()),
        tuple(str(one) for one in problems),
        tuple(f"{one.name}: {one.problem}" for one in process.ignored),
    )


def _node(process: Process, one: Object) -> Node:
    targets: Tuple[str, ...] = ()
    version = ""
    try:
        kernels = fatbin.read(one.file.host_path)
        targets = tuple(sorted({*kernels.code, *kernels.ptx}, key=_order))
        found = versions.read(one.file.host_path)
        version = found[0].version if found else ""
    except (OSError, elf.BadElf):
        pass
    return Node(
        one.path.rpartition("/")[2], one.path, process.files.real(one.path),
        one.asked_by, one.rule, version, targets, _shadows(process, one),
    )  # fmt: skip


def _order(target: str) -> Tuple[bool, List[int], str]:
    """Machine code before PTX, older architectures first."""
    return target.startswith("compute"), [int(one) for one in re.findall(r"\d+", target)], target


def _shadows(process: Process, one: Object) -> Tuple[str, ...]:
    own = process.files.real(one.path)
    name = one.linkage.soname if "/" in one.name and one.linkage.soname else one.name
    others = (process.files.real(hit.path) for hit in process.candidates(name, one.loader))
    return tuple(dict.fromkeys(other for other in others if other != own))


def as_json(made: List[Tree]) -> Dict[str, Any]:
    """The trees as a JSON document."""
    return {
        "schema": SCHEMA,
        "trees": [
            {
                "title": one.title,
                "libraries": [
                    {**node._asdict(), "targets": list(node.targets), "shadows": list(node.shadows)}
                    for node in one.nodes
                ],
                "problems": list(one.problems),
                "ignored": list(one.ignored),
                "alone": list(one.alone),
                "note": one.note,
            }
            for one in made
        ],
    }


def as_text(made: List[Tree]) -> str:
    """The trees as text: who asked for what, found by which rule."""
    lines: List[str] = []
    for one in made:
        lines += [one.title, *_branches(one), ""]
        lines += [f"  would fail: {text}" for text in one.problems]
        lines += [f"  would not load on its own: {text}" for text in one.alone]
        lines += [f"  LD_PRELOAD ignored: {text}" for text in one.ignored]
        if not one.problems and not one.alone:
            lines.append(
                "  " + (one.note or "every library is found and every symbol has a provider")
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _branches(tree: Tree) -> Iterator[str]:
    children: Dict[str, List[Node]] = {}
    paths = {node.path for node in tree.nodes}
    for node in tree.nodes:
        children.setdefault(node.asked_by if node.asked_by in paths else "", []).append(node)
    seen = set()
    todo = [(node, 1) for node in reversed(children.get("", []))]
    while todo:
        node, depth = todo.pop()
        if node.path in seen:
            continue
        seen.add(node.path)
        head = "  " * depth + node.name
        facts = [node.rule, node.real, node.version, " ".join(node.targets)]
        yield f"{head:<44} " + "  ".join(filter(None, facts))
        for other in node.shadows:
            yield f"{'':<44} in front of {other}"
        todo += [(one, depth + 1) for one in reversed(children.get(node.path, []))]
