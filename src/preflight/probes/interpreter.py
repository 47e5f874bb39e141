"""Which Python the job would use: from its command, PATH, an active environment, pyenv.

Nothing is run: scripts and shims are followed by reading them.
"""

from __future__ import annotations

import posixpath
import re
from typing import Iterator, List, Mapping, Sequence, Tuple

from ..roots import Root
from ..snapshot import Fact, absent, known
from .place import Place, head, place, upward

#: What a container runtime gives a process when the image sets no PATH.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: More entries than this on one sys.path, or .pth files in one directory, are not followed.
PATH_ENTRIES = 1000


_PYTHON = re.compile(r"(platform-)?python(\d(\.\d+)?t?)?$")


def find_interpreter(
    root: Root, env: Mapping[str, str], given: str = "", command: Sequence[str] = ()
) -> Fact[str]:
    """The interpreter that the job would use, as the root sees it; absent with what was searched.

    `given` (a file, a name on PATH, or the prefix of a venv or conda environment) decides
    alone. Else what `command` starts, else `python` and `python3` on PATH, else the active
    virtual or conda environment.
    """
    at = place(root, env)
    if given:
        path = _in_prefix(at, at.absolute(given)) or which(at, given)
        return known(path, "given: " + given) if path else absent("given: " + given)
    path, source = _of_command(at, list(command), 0)
    if path:
        return known(path, source)
    for name in ("python", "python3"):
        path = which(at, name)
        if path:
            return known(path, f"{name} on PATH")
    return _of_active(at)


def _of_active(at: Place) -> Fact[str]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = at.env.get(variable, "")
        path = _in_prefix(at, at.absolute(prefix)) if prefix else ""
        if path:
            return known(path, "environment variable " + variable)
    searched = at.env.get("PATH", DEFAULT_PATH)
    return absent(f"python, python3 on PATH ({searched}); VIRTUAL_ENV; CONDA_PREFIX")


def _in_prefix(at: Place, prefix: str) -> str:
    for name in ("python", "python3"):
        path = posixpath.join(prefix, "bin", name)
        if _runs(at.root, path):
            return path
    return ""


def _of_command(at: Place, command: List[str], depth: int) -> Tuple[str, str]:
    """(interpreter, evidence) of a command that is a Python or a Python script, else ("", "")."""
    if not command or depth > 4:
        return "", ""
    if posixpath.basename(command[0]) == "env":
        at, command = _after_env(at, command[1:])
        return _of_command(at, command, depth + 1)
    path = which(at, command[0])
    if path and _PYTHON.match(posixpath.basename(path)):
        return path, "command: " + command[0]
    interpreter = _of_script(at, path, depth) if path else ""
    return interpreter, "#! of " + path if interpreter else ""


def _after_env(at: Place, words: List[str]) -> Tuple[Place, List[str]]:
    """What `env` would run with these arguments, and where it would look that up."""
    env = dict(at.env)
    while words:
        word, words = words[0], words[1:]
        if word in ("-i", "-", "--ignore-environment"):
            env.clear()
        elif word in ("-u", "--unset"):
            env.pop(words[0] if words else "", None)
            words = words[1:]
        elif word == "-S":
            words = " ".join(words[:1]).split() + words[1:]
        elif "=" in word and not word.startswith("-"):
            name, _, value = word.partition("=")
            env[name] = value
        elif not word.startswith("-"):
            return at._replace(env=env), [word] + words
    return at, []


def _of_script(at: Place, path: str, depth: int) -> str:
    lines = head(at.root, path, 4096).split("\n")
    if not lines[0].startswith("#!"):
        return ""
    words = lines[0][2:].split()
    if words and posixpath.basename(words[0]) in ("sh", "bash", "dash"):
        words = _of_trampoline(path, lines)
    if words and posixpath.basename(words[0]) != "env":
        words = words[:1]
    return _of_command(at, words, depth + 1)[0]


def _of_trampoline(path: str, lines: List[str]) -> List[str]:
    """Installers write `'''exec' /a/python "$0" "$@"` where a path is too long for #!."""
    found = re.match(r"'''exec' (.+) \"\$0\" \"\$@\"", lines[1] if len(lines) > 1 else "")
    if not found:
        return []
    program = found.group(1)
    if "$" in program:
        return [posixpath.join(posixpath.dirname(path), posixpath.basename(program).strip("'\""))]
    return [program.strip("'\"")]


# -- pyenv --------------------------------------------------------------------------------


def _behind_shim(at: Place, path: str) -> str:
    """`path`; for a pyenv shim the program it would start, "" where it passes on to PATH."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) != "shims":
        return path
    text = head(at.root, path, 4096)
    if not text.startswith("#!") or "pyenv" not in text or "exec" not in text:
        return path
    stated = re.search(r'PYENV_ROOT="([^"$]+)"', text)
    pyenv = stated.group(1) if stated else posixpath.dirname(folder)
    for version in _pyenv_versions(at, pyenv):
        program = posixpath.join(_pyenv_prefix(at.root, pyenv, version), "bin", name)
        if _runs(at.root, program):
            return program
    return ""


def _pyenv_versions(at: Place, pyenv: str) -> List[str]:
    """The versions chosen, most wanted first; "system" among them stands for PATH."""
    chosen = at.env.get("PYENV_VERSION", "").split(":")
    if not any(chosen):
        chosen = _words(head(at.root, _pyenv_file(at, pyenv), 4096))
    names = [name for name in chosen if name and ".." not in name.split("/")]
    return names[: names.index("system")] if "system" in names else names


def _pyenv_file(at: Place, pyenv: str) -> str:
    for start in (at.env.get("PYENV_DIR", ""), at.cwd):
        for folder in upward(start):
            path = posixpath.join(folder, ".python-version")
            if at.root.is_file(path):
                return path
    return posixpath.join(pyenv, "version")


def _words(text: str) -> List[str]:
    first = [line.split()[0] for line in text.split("\n") if line.strip()]
    return [word for word in first if not word.startswith("#")]


def _pyenv_prefix(root: Root, pyenv: str, version: str) -> str:
    """The directory of a version, or of the newest one that a shortened `version` stands for."""
    versions = posixpath.join(pyenv, "versions")
    bare = version[len("python-") :] if version.startswith("python-") else version
    for name in (version, bare):
        if root.is_dir(posixpath.join(versions, name)):
            return posixpath.join(versions, name)
    alike = [name for name in root.names(versions) if re.match(re.escape(bare) + r"\.\d+$", name)]
    alike.sort(key=lambda name: int(name.rpartition(".")[2]))
    return posixpath.join(versions, alike[-1] if alike else bare)


# -- PATH --------------------------------------------------------------------------------


def which(at: Place, name: str) -> str:
    """The file that running `name` starts, a pyenv shim followed; "" when there is none."""
    for path in _candidates(at, name):
        target = _behind_shim(at, path)
        if target:
            return target
    return ""


def _candidates(at: Place, name: str) -> Iterator[str]:
    if not name:
        return
    folders = [""] if "/" in name else at.env.get("PATH", DEFAULT_PATH).split(":")[:PATH_ENTRIES]
    for folder in folders:
        path = at.absolute(posixpath.join(folder, name))
        if _runs(at.root, path):
            yield path


def _runs(root: Root, path: str) -> bool:
    """Whether `path` is a regular file with an execute bit."""
    try:
        mode = root.stat(path).st_mode
    except OSError:
        return False
    return mode & 0o170000 == 0o100000 and bool(mode & 0o111)
