"""The Python environment behind an interpreter, read from files alone.

The interpreter is never run: its `sys.path` is rebuilt the way its own start-up code and
`site.py` build it. What only running could tell (`import` lines of .pth files,
sitecustomize) is left out.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import fields
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from ..roots import Root
from ..snapshot import Fact, PythonEnv, absent, known, merge, unknown
from .conda_meta import installed
from .distributions import packages
from .place import Place, head, home_directory, place, upward

#: More entries than this on one sys.path, or .pth files in one directory, are not followed.
PATH_ENTRIES = 1000


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
    conda = installed(root, layout.base if not layout.isolated else layout.prefix)
    return PythonEnv(
        version=_version(root, layout, interpreter),
        executable=known(interpreter, interpreter),
        prefix=known(layout.prefix, source),
        kind=_kind(root, layout),
        path=known(tuple(entries), source),
        packages=packages(root, entries),
        packages_conda=conda.versions,
        builds_conda=conda.builds,
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
    if not root.is_file(binary) or head(root, binary, 2) == "#!":
        raise _NotKnown(f"{interpreter} is no Python interpreter (a wrapper is not followed)")
    config_path, config = _venv_config(root, interpreter)
    home = config.get("home") or posixpath.dirname(binary)
    tag, base, stdlib = _landmark(at, home, binary, config)
    prefix = posixpath.dirname(posixpath.dirname(interpreter)) if config_path else base
    site = head(root, posixpath.join(stdlib, "site.py")) if stdlib else ""
    layout = _Layout(tag, prefix, base, stdlib, config, config_path, site)
    return layout if config_path else _old_virtualenv(at, layout)


def _venv_config(root: Root, interpreter: str) -> Tuple[str, Dict[str, str]]:
    """(path, settings) of the pyvenv.cfg that makes `interpreter`, links kept, a venv's."""
    folder = posixpath.dirname(interpreter)
    for where in (folder, posixpath.dirname(folder)):
        path = posixpath.join(where, "pyvenv.cfg")
        if root.is_file(path):
            return path, _settings(head(root, path))
    return "", {}


def _settings(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _old_virtualenv(at: Place, layout: _Layout) -> _Layout:
    """virtualenv before 20 has no pyvenv.cfg, and says in its own stdlib whose child it is."""
    mark = posixpath.join(layout.stdlib, "orig-prefix.txt")
    base = head(at.root, mark, 4096).strip()
    if not base.startswith("/"):
        return layout
    alone = at.root.exists(posixpath.join(layout.stdlib, "no-global-site-packages.txt"))
    config = {"include-system-site-packages": "false" if alone else "true"}
    stdlib = posixpath.join(base, "lib", "python" + layout.tag)
    site = head(at.root, posixpath.join(stdlib, "site.py"))
    return layout._replace(
        base=base, stdlib=stdlib, config=config, config_path=mark, site_text=site
    )


def _landmark(at: Place, home: str, binary: str, config: Mapping[str, str]) -> Tuple[str, str, str]:
    """(X.Y, prefix, standard library) of the interpreter, searched as it searches itself."""
    tag = _tag_of(binary, config)
    starts = [at.env["PYTHONHOME"].split(":")[0]] if at.env.get("PYTHONHOME") else []
    for start in starts + [home, posixpath.dirname(binary)]:
        for prefix in upward(start):
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
    found = re.search(r'#define\s+PY_VERSION\s+"([\w.]+)', head(root, path))
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
            text = head(self.at.root, posixpath.join(folder, name), 1 << 20)
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
