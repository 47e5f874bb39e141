"""Which Python the job would use and what is installed in it, read from files alone.

The interpreter is never run: its `sys.path` is rebuilt the way its own start-up code and
`site.py` build it. What only running could tell (`import` lines of .pth files,
sitecustomize) is left out.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import fields
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from ..roots import Root
from ..snapshot import Fact, Observation, PythonEnv, absent, known, merge, unknown

#: What a container runtime gives a process when the image sets no PATH.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Headers, shebangs and metadata are looked for in this many bytes at most.
HEAD = 64 << 10
#: More entries than this on one sys.path, or .pth files in one directory, are not followed.
PATH_ENTRIES = 1000
#: Searches upward stop after this many directories.
LEVELS = 64
#: At most this many shadowed or doubly installed packages are told.
SHADOWED = 50


class Place(NamedTuple):
    """A root with the environment and working directory that names are looked up with."""

    root: Root
    env: Mapping[str, str]
    cwd: str

    def absolute(self, path: str) -> str:
        """`path` made absolute from the working directory, as `os.path.abspath` would."""
        return posixpath.normpath(posixpath.join(self.cwd, path)).replace("//", "/", 1)


def place(root: Root, env: Mapping[str, str]) -> Place:
    """`root` seen with `env`; the working directory is ours when live, else PWD, else /."""
    cwd = env.get("PWD", "/")
    if root.live:
        try:
            cwd = os.getcwd()
        except OSError:
            pass
    return Place(root, env, cwd if cwd.startswith("/") else "/")


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


# -- the interpreter ----------------------------------------------------------------------

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
    lines = _head(at.root, path, 4096).split("\n")
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


def _head(root: Root, path: str, size: int = HEAD) -> str:
    """The beginning of a file as text, "" when it cannot be read."""
    try:
        return root.head(path, size).decode("utf-8", "replace")
    except OSError:
        return ""


# -- pyenv --------------------------------------------------------------------------------


def _behind_shim(at: Place, path: str) -> str:
    """`path`; for a pyenv shim the program it would start, "" where it passes on to PATH."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) != "shims":
        return path
    text = _head(at.root, path, 4096)
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
        chosen = _words(_head(at.root, _pyenv_file(at, pyenv), 4096))
    names = [name for name in chosen if name and ".." not in name.split("/")]
    return names[: names.index("system")] if "system" in names else names


def _pyenv_file(at: Place, pyenv: str) -> str:
    for start in (at.env.get("PYENV_DIR", ""), at.cwd):
        for folder in _upward(start):
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


def _upward(path: str) -> Iterator[str]:
    """`path` and the directories above it; nothing when it is not absolute."""
    for _ in range(min(path.count("/") + 1, LEVELS) if path.startswith("/") else 0):
        yield path
        path = posixpath.dirname(path)


# -- the environment ----------------------------------------------------------------------


class _Layout(NamedTuple):
    """How an interpreter is installed."""

    tag: str  # as in lib/python3.13t
    prefix: str
    base: str  # prefix of the interpreter that a venv was made from, else `prefix`; "" not found
    stdlib: str
    config: Mapping[str, str]  # of pyvenv.cfg, keys in small letters
    config_path: str
    site_text: str  # the base interpreter's site.py

    @property
    def venv(self) -> bool:
        return bool(self.config_path)

    @property
    def isolated(self) -> bool:
        wanted = self.config.get("include-system-site-packages", "true")
        return self.venv and wanted.lower() != "true"


class _NotKnown(Exception):
    """Why nothing can be said about the environment."""


def read_environment(root: Root, interpreter: str, env: Mapping[str, str]) -> PythonEnv:
    """What `interpreter` (a path as the root sees it) has installed, and its `sys.path`."""
    at = place(root, env)
    try:
        layout = _layout(at, interpreter)
    except _NotKnown as problem:
        reason = unknown(str(problem), interpreter)
        return PythonEnv(**{one.name: reason for one in fields(PythonEnv)})
    entries = _sys_path(at, layout)
    source = layout.config_path or layout.base
    return PythonEnv(
        version=_version(root, layout, interpreter),
        executable=known(interpreter, interpreter),
        prefix=known(layout.prefix, source),
        kind=_kind(root, layout),
        path=known(tuple(entries), source),
        packages=_packages(root, entries),
        packages_conda=_conda(root, layout.base if not layout.isolated else layout.prefix),
    )


def _kind(root: Root, layout: _Layout) -> Fact[str]:
    if layout.venv:
        return known("venv", layout.config_path)
    conda = posixpath.join(layout.prefix, "conda-meta")
    return known("conda", conda) if root.is_dir(conda) else known("system", layout.prefix)


def _layout(at: Place, interpreter: str) -> _Layout:
    root = at.root
    if not interpreter:
        raise _NotKnown("no interpreter")
    try:
        binary = root.resolve(interpreter)
    except OSError as error:
        raise _NotKnown(f"{interpreter}: {error.strerror}") from None
    if not root.is_file(binary) or _head(root, binary, 2) == "#!":
        raise _NotKnown(f"{interpreter} is no Python interpreter (a wrapper is not followed)")
    config_path, config = _venv_config(root, interpreter)
    home = config.get("home") or posixpath.dirname(binary)
    tag, base, stdlib = _landmark(at, home, binary, config)
    prefix = posixpath.dirname(posixpath.dirname(interpreter)) if config_path else base
    site = _head(root, posixpath.join(stdlib, "site.py")) if stdlib else ""
    layout = _Layout(tag, prefix, base, stdlib, config, config_path, site)
    return layout if config_path else _old_virtualenv(at, layout)


def _venv_config(root: Root, interpreter: str) -> Tuple[str, Dict[str, str]]:
    """(path, settings) of the pyvenv.cfg that makes `interpreter`, links kept, a venv's."""
    folder = posixpath.dirname(interpreter)
    for where in (folder, posixpath.dirname(folder)):
        path = posixpath.join(where, "pyvenv.cfg")
        if root.is_file(path):
            return path, _settings(_head(root, path))
    return "", {}


def _settings(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _old_virtualenv(at: Place, layout: _Layout) -> _Layout:
    """virtualenv before 20 has no pyvenv.cfg, and says in its own stdlib whose child it is."""
    mark = posixpath.join(layout.stdlib, "orig-prefix.txt")
    base = _head(at.root, mark, 4096).strip()
    if not base.startswith("/"):
        return layout
    alone = at.root.exists(posixpath.join(layout.stdlib, "no-global-site-packages.txt"))
    config = {"include-system-site-packages": "false" if alone else "true"}
    stdlib = posixpath.join(base, "lib", "python" + layout.tag)
    site = _head(at.root, posixpath.join(stdlib, "site.py"))
    return layout._replace(
        base=base, stdlib=stdlib, config=config, config_path=mark, site_text=site
    )


def _landmark(at: Place, home: str, binary: str, config: Mapping[str, str]) -> Tuple[str, str, str]:
    """(X.Y, prefix, standard library) of the interpreter, searched as it searches itself."""
    tag = _tag_of(binary, config)
    starts = [at.env["PYTHONHOME"].split(":")[0]] if at.env.get("PYTHONHOME") else []
    for start in starts + [home, posixpath.dirname(binary)]:
        for prefix in _upward(start):
            found = _stdlib_in(at.root, prefix, tag)
            if found:
                return posixpath.basename(found)[len("python") :], prefix, found
    if tag and config:
        return tag, "", ""
    wanted = f"lib/python{tag or 'X.Y'}/os.py"
    raise _NotKnown(f"no {wanted} at or above {posixpath.dirname(binary)}")


def _tag_of(binary: str, config: Mapping[str, str]) -> str:
    """X.Y from the binary's name, else from pyvenv.cfg, else "" ."""
    named = re.search(r"python(\d\.\d+t?)$", posixpath.basename(binary))
    if named:
        return named.group(1)
    stated = config.get("version_info") or config.get("version") or ""
    return ".".join(stated.split(".")[:2]) if re.match(r"\d\.\d+", stated) else ""


def _stdlib_in(root: Root, prefix: str, tag: str) -> str:
    """The standard library below `prefix`; without a tag only where there is exactly one."""
    for folder in ("lib", "lib64"):
        lib = posixpath.join(prefix, folder)
        names = ["python" + tag] if tag else root.names(lib)
        found = [name for name in names if _has_os(root, posixpath.join(lib, name))]
        if len(found) == 1:
            return posixpath.join(lib, found[0])
    return ""


def _has_os(root: Root, stdlib: str) -> bool:
    name = posixpath.basename(stdlib)
    if not re.match(r"python\d\.\d+t?$", name):
        return False
    return any(root.is_file(posixpath.join(stdlib, one)) for one in ("os.py", "os.pyc"))


def _version(root: Root, layout: _Layout, interpreter: str) -> Fact[str]:
    """X.Y.Z where a file says it, else X.Y; other files that say otherwise in `differs`."""
    found = merge(_version_conda(root, layout), _version_header(root, layout))
    stated = layout.config.get("version_info") or layout.config.get("version") or ""
    exact = re.match(r"\d+\.\d+\.\d+", stated)
    if exact:
        found = merge(found, known(exact.group(), layout.config_path))
    if found.known and _minor(found.get("")) != _minor(layout.tag):
        tagged = known(_minor(layout.tag), layout.stdlib or interpreter)
        found = merge(tagged, found)
    return found if found.known else known(_minor(layout.tag), layout.stdlib or interpreter)


def _minor(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found.group() if found else ""


def _version_conda(root: Root, layout: _Layout) -> Fact[str]:
    folder = posixpath.join(layout.base, "conda-meta")
    for name in root.names(folder) if layout.base else []:
        parts = name.rsplit("-", 2)
        if parts[0] == "python" and len(parts) == 3:
            return known(parts[1], posixpath.join(folder, name))
    return absent(folder)


def _version_header(root: Root, layout: _Layout) -> Fact[str]:
    path = posixpath.join(layout.base, "include", "python" + layout.tag, "patchlevel.h")
    if not layout.base:
        return absent(layout.config_path)
    found = re.search(r'#define\s+PY_VERSION\s+"([\w.]+)', _head(root, path))
    return known(found.group(1), path) if found else absent(path)


# -- sys.path -----------------------------------------------------------------------------


class _SysPath:
    """sys.path as it grows: directories that exist, each once, the standard library left out."""

    def __init__(self, at: Place, stdlib: str) -> None:
        self.at = at
        self.entries: List[str] = []
        self._seen = {stdlib, posixpath.join(stdlib, "lib-dynload")}

    def add(self, path: str) -> None:
        path = self.at.absolute(path)
        if path in self._seen or len(self.entries) >= PATH_ENTRIES:
            return
        if self.at.root.is_dir(path):
            self._seen.add(path)
            self.entries.append(path)

    def add_site(self, folder: str) -> None:
        """Add a site directory, then the directories that its .pth files name."""
        if not self.at.root.is_dir(folder):
            return
        self.add(folder)
        files = [name for name in self.at.root.names(folder) if name.endswith(".pth")]
        for name in files[:PATH_ENTRIES]:
            text = _head(self.at.root, posixpath.join(folder, name), 1 << 20)
            for line in _path_lines(text):
                self.add(posixpath.join(folder, line))


def _path_lines(text: str) -> Iterator[str]:
    lines = (line for line in text.split("\n")[: 10 * PATH_ENTRIES] if line.strip())
    return (line.rstrip() for line in lines if not line.startswith(("#", "import ", "import\t")))


def _sys_path(at: Place, layout: _Layout) -> List[str]:
    path = _SysPath(at, layout.stdlib)
    given = at.env.get("PYTHONPATH", "")
    for entry in given.split(":")[:PATH_ENTRIES] if given else []:
        path.add(entry)
    if layout.venv:
        _add_sites(path, layout, [layout.prefix])
    user = _user_site(at, layout)
    if user:
        path.add_site(user)
    if layout.base and not layout.isolated:
        _add_sites(path, layout, _prefixes(layout))
    return path.entries


def _add_sites(path: _SysPath, layout: _Layout, prefixes: Iterable[str]) -> None:
    for prefix in prefixes:
        for folder in _site_folders(layout):
            path.add_site(posixpath.join(prefix, folder))


def _prefixes(layout: _Layout) -> List[str]:
    """Where site.py looks; Fedora, RHEL and Alibaba Cloud Linux put /usr/local first."""
    if layout.base == "/usr" and "RPM_BUILD_ROOT" in layout.site_text:
        return ["/usr/local", "/usr"]
    return [layout.base]


def _site_folders(layout: _Layout) -> List[str]:
    """Site directories below a prefix; a Debian interpreter has others than the rest."""
    python = "python" + layout.tag
    lib = posixpath.basename(posixpath.dirname(layout.stdlib)) or "lib"
    site = [f"{one}/{python}/site-packages" for one in dict.fromkeys((lib, "lib"))]
    if "dist-packages" not in layout.site_text:
        return site
    debian = [f"local/lib/{python}/dist-packages", f"lib/{python}/dist-packages"]
    if not layout.tag.startswith("2."):
        debian.insert(1, "lib/python3/dist-packages")
    return (site if layout.venv else []) + debian


def _user_site(at: Place, layout: _Layout) -> str:
    if at.env.get("PYTHONNOUSERSITE") or layout.isolated:
        return ""
    base = at.env.get("PYTHONUSERBASE") or posixpath.join(home_directory(at), ".local")
    return at.absolute(posixpath.join(base, "lib", "python" + layout.tag, "site-packages"))


def home_directory(at: Place) -> str:
    """HOME, else what the root's /etc/passwd says of our user (of uid 0 in an image)."""
    if "HOME" in at.env:
        return at.env["HOME"]
    uid = str(os.getuid()) if at.root.live else "0"
    for line in _head(at.root, "/etc/passwd").split("\n"):
        columns = line.split(":")
        if len(columns) == 7 and columns[2] == uid:
            return columns[5]
    return "/root" if uid == "0" else "/"


# -- what is installed --------------------------------------------------------------------


class Distribution(NamedTuple):
    """An installed package: its name as written, its version, its metadata (dir or file)."""

    name: str
    version: str
    where: str


def normalize(name: str) -> str:
    """A package name in the one spelling of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(root: Root, path: Iterable[str]) -> List[Distribution]:
    """Every installed distribution on `path`, in its order: the first of a name is the one.

    Raises OSError where a directory cannot be listed.
    """
    found: List[Distribution] = []
    for entry in path:
        if entry.endswith(".egg"):
            found += _described(root, posixpath.join(entry, "EGG-INFO"), entry)
        for name in root.listing(entry):
            if name.endswith((".dist-info", ".egg-info")):
                where = posixpath.join(entry, name)
                found += _described(root, where, where)
    return found


_PLAIN_VERSION = re.compile(r"\d[0-9A-Za-z.!+]*$")


def _described(root: Root, where: str, titled: str) -> List[Distribution]:
    """The distribution whose metadata lies at `where`; none for a leftover without metadata."""
    file = "METADATA" if where.endswith(".dist-info") else "PKG-INFO"
    text = posixpath.join(where, file)
    if not root.exists(text):
        if where.endswith(".dist-info") or not root.is_file(where):
            return []
        text = where
    title = posixpath.splitext(posixpath.basename(titled))[0]
    name, _, version = title.partition("-")
    version = re.sub(r"-py\d.*$", "", version)
    if name.startswith("~"):
        return []  # what a broken-off uninstall left
    if _PLAIN_VERSION.match(version):
        return [Distribution(name, version, where)]
    return _from_metadata(root, text, where)


def _from_metadata(root: Root, text: str, where: str) -> List[Distribution]:
    fields_read = _head(root, text).split("\n\n")[0].replace("\r", "")
    name = re.search(r"^Name:[ \t]*(\S+)", fields_read, re.M)
    version = re.search(r"^Version:[ \t]*(\S+)", fields_read, re.M)
    if not name or not version:
        return []
    return [Distribution(name.group(1), version.group(1), where)]


def _packages(root: Root, path: Sequence[str]) -> Fact[Mapping[str, str]]:
    """{name: version}; in `differs` each other version of a name, with where it lies."""
    try:
        everything = distributions(root, path)
    except OSError as error:
        return unknown(f"cannot be listed: {error.strerror}", str(error.filename or ""))
    first: Dict[str, str] = {}
    others: List[Observation[Mapping[str, str]]] = []
    for one in everything:
        name = normalize(one.name)
        if first.setdefault(name, one.version) != one.version and len(others) < SHADOWED:
            others.append(Observation({name: one.version}, one.where))
    return Fact(first, ":".join(path), differs=tuple(others))


def _conda(root: Root, prefix: str) -> Fact[Mapping[str, str]]:
    """{name: version} of the conda packages of `prefix`; absent where conda has none."""
    folder = posixpath.join(prefix, "conda-meta")
    if not prefix or not root.is_dir(folder):
        return absent(folder)
    try:
        names = root.listing(folder)
    except OSError as error:
        return unknown(f"cannot be listed: {error.strerror}", folder)
    parts = [name[: -len(".json")].rsplit("-", 2) for name in names if name.endswith(".json")]
    return known({one[0]: one[1] for one in parts if len(one) == 3}, folder)
