"""`preflight lock --write`: an honest lock of an environment, as a requirements file.

What `pip freeze` leaves out: the index that a +cuNNN build comes from, the build that metadata
lost, what made the file. What cannot be installed again is there as a comment, with the reason.
"""

from __future__ import annotations

import posixpath
import re
from hashlib import sha256
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple
from urllib.parse import quote, unquote

from . import snapshot as s
from .lockfiles.model import without_credentials
from .matrix import Matrix
from .probes.installed import first_of_each
from .probes.place import head, upward
from .probes.record import installer
from .probes.requires import asked_for
from .roots import Root

#: What an installer brings for itself, which is in a lock only where something requires it.
TOOLS = ("pip", "setuptools", "wheel", "distribute", "uv")
#: Installers of an operating system: pip neither has nor may replace what they install.
SYSTEM = {"debian", "rpm", "apk", "portage", "pkgsrc"}
WHEELS = "https://download.pytorch.org/whl/"
JAX = "https://storage.googleapis.com/jax-releases/jax_cuda_releases.html"
PYG = "https://data.pyg.org/whl/torch-{}+{}.html"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VARIANT = re.compile(r"cu\d{2,3}|cpu|xpu|rocm\d+(?:\.\d+)*")
#: Companions of torch, from whose index they come in the same build.
_TORCHES = ("torch", "torchvision", "torchaudio", "torchtext", "torchao", "torchcodec", "xformers")


class NothingToLock(ValueError):
    """The environment is not known: the message says why."""


class _Entry(NamedTuple):
    """A package: what the file has for it, or (`reason`) why that is a comment only."""

    name: str
    version: str  # with the local part, where that is known
    text: str
    reason: str = ""
    note: str = ""
    option: str = ""  # what pip must be told besides


def lines(root: Root, python: s.PythonEnv, arch: str, table: Matrix, date: str = "") -> str:
    """The text of the lock of an environment, its facts `origins` and `locals` among them.

    `arch` as `uname -m`, `date` as it is to stand in the header. Raises NothingToLock.
    """
    if not python.packages.known:
        raise NothingToLock(python.packages.unknown or "no packages are known")
    if not python.origins.known:  # what came from a URL would be written as if from an index
        why = python.origins.unknown or "not looked at"
        raise NothingToLock(f"where the packages come from is not known: {why}")
    entries = list(_entries(root, python, arch or "x86_64", table))
    options = sorted({one.option for one in entries if one.option})
    parts = [_header(python, arch, entries, date), options]
    parts.append([_line(one) for one in entries if not one.reason])
    parts.append(_left_out(entries))
    parts.append(_conda_only(python))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def fingerprint(packages: Iterable[Tuple[str, str]]) -> str:
    """ "sha256:…" over the sorted lines "name==version" of (name, version) pairs."""
    text = "".join(f"{line}\n" for line in sorted(f"{name}=={one}" for name, one in packages))
    return "sha256:" + sha256(text.encode("utf-8", "replace")).hexdigest()


def _header(python: s.PythonEnv, arch: str, entries: List[_Entry], date: str) -> List[str]:
    mark = fingerprint((one.name, one.version) for one in entries)
    return [
        "# Made by preflight lock --write" + (f" on {_plain(date)}" if date else ""),
        f"# Python {_plain(python.version.get('unknown'))}, linux {_plain(arch or 'unknown')}",
        f"# Packages: {len(entries)}, fingerprint {mark}",
    ]


def _line(entry: _Entry) -> str:
    return entry.text + (f"  # {entry.note}" if entry.note else "")


def _left_out(entries: List[_Entry]) -> List[str]:
    found = [f"# {_plain(one.text)}: {one.reason}" for one in entries if one.reason]
    return ["# Installed, and not to be had elsewhere by this file:", *found] if found else []


def _conda_only(python: s.PythonEnv) -> List[str]:
    """What conda installed and pip does not see, which this file cannot install."""
    seen = python.packages.get({})
    builds = python.builds_conda.get({})
    found = [
        f"# {name}={version}" + (f"={builds[name]}" if name in builds else "")
        for name, version in sorted(python.packages_conda.get({}).items())
        if name not in seen
    ]
    title = "# Installed by conda alone (`conda list --explicit` locks these):"
    return [title, *map(_plain, found)] if found else []


# -- entries ----------------------------------------------------------------------------------


def _entries(root: Root, python: s.PythonEnv, arch: str, table: Matrix) -> Iterator[_Entry]:
    origins = {one.package: one for one in python.origins.get(())}
    builds = _Builds(python, arch, table)
    asked, system = _around(root, python, arch)
    for name, version in sorted(python.packages.get({}).items()):
        if name in TOOLS and name not in asked:
            continue
        origin = origins.get(name)
        if origin is not None and (origin.url or origin.editable):
            yield _direct(root, name, version, origin)
        elif name in system or (origin is not None and origin.installer in SYSTEM):
            text = f"{name}=={version}"
            yield _Entry(name, version, text, "a package of the operating system")
        else:
            by_conda = origin is not None and origin.installer == "conda"
            yield builds.entry(name, version, "by conda, here as pip has it" if by_conda else "")


def _around(root: Root, python: s.PythonEnv, arch: str) -> Tuple[Set[str], Set[str]]:
    """(names that something requires, names that lie where only an operating system installs)."""
    try:
        dists = first_of_each(root, python.path.get(()))
    except OSError:
        return set(), set()
    of_system = re.compile(r"/usr/lib/python3(?:\.\d+)?/(?:dist|site)-packages/")
    there = {name: one for name, one in dists.items() if of_system.match(one.where)}
    system = {name for name, one in there.items() if installer(root, one) in ("", *SYSTEM)}
    return asked_for(root, dists, python.version.get(""), arch), system


class _Builds:
    """Which build of a package is there, and where it is to be had."""

    def __init__(self, python: s.PythonEnv, arch: str, table: Matrix) -> None:
        self.table = table
        self.arch = arch
        self.locals = python.locals.get({})
        self.torch, _, given = python.packages.get({}).get("torch", "").partition("+")
        self.variant = given or self.locals.get("torch", "")

    def entry(self, name: str, version: str, note: str) -> _Entry:
        """The entry of a package from an index, its local part made good where it matters."""
        public, _, local = version.partition("+")
        lost = self.locals.get(name, "")
        if not local and lost and self._matters(name, lost):
            local, version = lost, f"{version}+{lost}"
            note = note or f"+{lost} by its own version file, not by its metadata"
        text = f"{name}=={version}"
        if not _NAME.fullmatch(name) or not _is_version(version):
            return _Entry(name, version, text, "pip takes no such name or version")
        option = self._option(name, public, local) if local else ""
        if local and not option:
            reason = "a version with a local part is on no public index: its own build, or image"
            return _Entry(name, version, text, reason)
        return _Entry(name, version, text, note=note, option=option)

    def _matters(self, name: str, local: str) -> bool:
        """Whether a plain pin would install another build than the one that is there."""
        if name not in _TORCHES or not _VARIANT.fullmatch(local):
            return False
        default = self.table.default_torch(self.torch, self.arch)
        return default is not None and default["variant"] != local

    def _option(self, name: str, public: str, local: str) -> str:
        """The line of options for a build with a local part; empty where nobody offers it."""
        if _VARIANT.fullmatch(local):
            release = public if name == "torch" else self.torch
            told = self.table.torch_options(release, local) if release else ""
            told = told or f"--extra-index-url {WHEELS}{local}"
            return told.replace("--index-url", "--extra-index-url").replace("-f ", "--find-links ")
        if name == "jaxlib" and re.fullmatch(r"cuda\d+(\.cudnn\d+)?", local):
            return f"--find-links {JAX}"
        pyg = re.fullmatch(r"pt(\d)(\d+)(cu\d+|cpu)", local)
        if pyg:
            return "--find-links " + PYG.format(f"{pyg.group(1)}.{pyg.group(2)}.0", pyg.group(3))
        return ""


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)  # takes spaces around it, which a line of the file must not hold
    except InvalidVersion:
        return False
    return not re.search(r"\s", text)


# -- what comes from no index -----------------------------------------------------------------


def _direct(root: Root, name: str, version: str, origin: s.Origin) -> _Entry:
    """`name @ URL`, or a source directory, as far as it can be had again."""
    url = re.sub(r"^(\w+\+ssh://)(?=[^@/]+/)", r"\1git@", origin.url)
    if not _NAME.fullmatch(name) or re.search(r"\s", url):
        return _Entry(name, version, f"{name} @ {url}", "pip takes no such name or URL")
    if origin.editable:
        return _editable(root, name, version, url)
    if url.startswith("file:") and not root.exists(_path(url)):
        return _Entry(name, version, f"{name} @ {url}", "it was installed from there, and is gone")
    address, _, fragment = url.partition("#")
    if origin.commit:
        address += f"@{origin.commit}"
    hashed = origin.hash.replace(":", "=", 1)
    fragment = "&".join(filter(None, (hashed, fragment)))
    return _Entry(name, version, f"{name} @ {address}" + (f"#{fragment}" if fragment else ""))


def _editable(root: Root, name: str, version: str, url: str) -> _Entry:
    folder = _path(url) if url.startswith("file:") else ""
    if not folder or not root.is_dir(folder):
        text = f"-e {url or name}"
        return _Entry(name, version, text, "an editable install whose source is not found")
    checkout = _checkout(root, folder)
    if checkout is None:
        # With the name, what is installed can be told from what is not in the lock.
        return _Entry(name, version, f"-e {url}#egg={name}", note="a directory of this machine")
    remote, commit, below = checkout
    inside = f"&subdirectory={quote(below)}" if below else ""
    text = f"-e git+{remote}@{commit}#egg={name}{inside}"
    return _Entry(name, version, text, note="what is not committed there is not in it")


def _path(url: str) -> str:
    return unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", url.partition("#")[0]))


def _checkout(root: Root, folder: str) -> Optional[Tuple[str, str, str]]:
    """(remote URL, commit, subdirectory) of the git checkout that a directory is in."""
    for top in upward(folder.rstrip("/")):
        git = posixpath.join(top, ".git")
        if not root.exists(git):
            continue
        remote = _remote(head(root, posixpath.join(git, "config")))
        commit = _commit(root, git)
        below = posixpath.relpath(folder, top)
        return (remote, commit, "" if below == "." else below) if remote and commit else None
    return None


def _commit(root: Root, git: str) -> str:
    """What HEAD is at, through one branch, loose or packed."""
    text = head(root, posixpath.join(git, "HEAD"), 1000).strip()
    branch = re.fullmatch(r"ref: (refs/[\w./+@-]+)", text)
    if branch and ".." not in branch.group(1):
        name = branch.group(1)
        text = head(root, posixpath.join(git, name), 200).strip()
        if not text:
            packed = head(root, posixpath.join(git, "packed-refs"), 4 << 20)
            found = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", packed, re.M)
            text = found.group(1) if found else ""
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else ""


def _remote(config: str) -> str:
    """The URL of the remote "origin" that pip can fetch from; empty where there is none."""
    sections: Dict[str, str] = {}
    for part in re.split(r"^[ \t]*(?=\[)", config, flags=re.M):
        title, _, body = part.partition("]")
        url = re.search(r"^[ \t]*url[ \t]*=[ \t]*(\S+)[ \t]*$", body, re.M)
        if url:
            sections.setdefault(title.strip(), url.group(1))
    url_text = _plain(sections.get('[remote "origin"', ""))
    short = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!/)([\w./~+-]+)", url_text)
    if short:
        return f"ssh://git@{short.group(1)}/{short.group(2)}"
    if re.match(r"(https?|git)://", url_text):
        return without_credentials(url_text)
    return url_text if re.match(r"ssh://", url_text) else ""


def _plain(text: str) -> str:
    """A text for a comment: one line, whatever a file name held."""
    return "".join(one if one.isprintable() else "?" for one in text)
