"""What is installed, honestly: from where, in which build, whole, and with what it requires.

All of it by reading what installers leave behind; nothing of the environment is run.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .. import snapshot as s
from ..lockfiles.model import without_credentials
from ..roots import Root
from . import record, requires
from .distributions import Distribution, distributions, normalize
from .place import head

#: A direct_url.json, a version.py: these are some hundred bytes.
SMALL = 64 << 10
#: More origins than this, and longer texts in one, are not kept.
ORIGINS, TEXT_LIMIT = 2000, 2000
#: Packages whose build is in the local part of their version, and the module that states it where
#: an index wants metadata without one.
MODULES: Tuple[Tuple[str, str], ...] = (
    ("torch", "torch"),
    ("torchvision", "torchvision"),
    ("torchaudio", "torchaudio"),
    ("torchtext", "torchtext"),
    ("torchao", "torchao"),
    ("torchcodec", "torchcodec"),
    ("triton", "triton"),
    ("pytorch-triton", "triton"),
    ("jaxlib", "jaxlib"),
    ("xformers", "xformers"),
    ("flash-attn", "flash_attn"),
    ("vllm", "vllm"),
    ("bitsandbytes", "bitsandbytes"),
    ("deepspeed", "deepspeed"),
    ("mmcv", "mmcv"),
    ("detectron2", "detectron2"),
)
_VERSION_FILES = ("version.py", "_version.py")
#: The value of __version__ where it is a plain text, also in `__version__ = version = "…"`.
_STATED = re.compile(
    r"^(?:__version__|version)[ \t]*(?::[^=\n]*)?=[ \t]*(?:\w+[ \t]*=[ \t]*)*"
    r"(?:\"([^\"\n]*)\"|'([^'\n]*)')",
    re.M,
)
_LOCAL = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


def read(
    root: Root,
    python: s.PythonEnv,
    arch: str,
    thorough: bool = False,
    progress: Optional[record.Progress] = None,
) -> s.PythonEnv:
    """The facts `origins`, `locals`, `unmet` and `altered` of an environment, and no others.

    `arch` as `uname -m`; `thorough`: every installed file is hashed, which reads all of them,
    and `progress` is told of it.
    """
    path = python.path.get(())
    if not python.path.known:
        return _lost(s.unknown(python.path.unknown or "no sys.path is known", python.path.source))
    try:
        dists = first_of_each(root, path)
    except OSError as error:
        where = str(error.filename or "")
        return _lost(s.unknown(f"cannot be listed: {error.strerror}", where))
    source = ":".join(path)
    rows = tuple(requires.unmet(root, dists, python.version.get(""), arch))
    return s.PythonEnv(
        origins=s.known(tuple(origins(root, dists, path)), source),
        locals=s.known(dict(local_versions(root, dists)), source),
        unmet=s.known(rows, source),
        altered=s.known(tuple(record.altered(root, dists, thorough, progress)), source),
    )


def _lost(why: s.Fact[Any]) -> s.PythonEnv:
    return s.PythonEnv(origins=why, locals=why, unmet=why, altered=why)


def first_of_each(root: Root, path: Sequence[str]) -> Dict[str, Distribution]:
    """{normalized name: the distribution that Python finds}. Raises OSError as listing does."""
    found: Dict[str, Distribution] = {}
    for one in distributions(root, path):
        found.setdefault(normalize(one.name), one)
    return found


# -- the build, where the metadata has lost it ------------------------------------------------


def local_versions(root: Root, dists: Mapping[str, Distribution]) -> Iterator[Tuple[str, str]]:
    """(name, "cu130"): the local part that a package's own version file adds to its metadata."""
    for name, module in MODULES:
        dist = dists.get(name)
        if dist is None or "+" in dist.version:
            continue
        folder = posixpath.join(posixpath.dirname(dist.where), module)
        for file in _VERSION_FILES:
            public, _, local = _stated(root, posixpath.join(folder, file)).partition("+")
            if public:
                if public == dist.version and _LOCAL.fullmatch(local):
                    yield name, local
                break


def _stated(root: Root, path: str) -> str:
    found = _STATED.search(head(root, path, SMALL))
    text = (found.group(1) or found.group(2) or "") if found else ""
    return text if len(text) <= 200 else ""


# -- where from -------------------------------------------------------------------------------


def origins(
    root: Root, dists: Mapping[str, Distribution], path: Sequence[str]
) -> Iterator[s.Origin]:
    """Each distribution that comes from no index, by direct_url.json, links and INSTALLER."""
    linked = dict(_linked(root, path))
    count = 0
    for name, dist in dists.items():
        row = _origin(root, name, dist, linked)
        if row is not None and count < ORIGINS:
            count += 1
            yield row


def _origin(
    root: Root, name: str, dist: Distribution, linked: Mapping[str, str]
) -> Optional[s.Origin]:
    by = record.installer(root, dist) if dist.where.endswith(".dist-info") else ""
    direct = _direct_url(root, dist)
    if direct:
        url, hashed, commit, editable = direct
        editable = editable or ("yes" if name in linked else "")
        return s.Origin(name, dist.version, url, hashed, commit, editable, by)
    if name in linked:
        url = _file_url(linked[name]) if linked[name] else ""
        return s.Origin(name, dist.version, url, editable="yes", installer=by)
    if by in record.REWRITERS:
        return s.Origin(name, dist.version, installer=by)
    return None


def _file_url(folder: str) -> str:
    from urllib.parse import quote

    return "file://" + quote(folder)


def _direct_url(root: Root, dist: Distribution) -> Optional[Tuple[str, str, str, str]]:
    """(url, hash, commit, editable) of a direct_url.json; None where there is none to be read."""
    if not dist.where.endswith(".dist-info"):
        return None
    path = posixpath.join(dist.where, "direct_url.json")
    try:
        document = json.loads(root.text(path, SMALL))
    except (OSError, ValueError, RecursionError):
        return None
    url = _text(document, "url")
    if not url:
        return None
    vcs, folder = _inner(document, "vcs_info"), _inner(document, "dir_info")
    if vcs is not None:
        kind = _text(vcs, "vcs")
        url = f"{kind}+{url}" if kind and not url.startswith(kind + "+") else url
    below = _text(document, "subdirectory")
    url = without_credentials(url) + (f"#subdirectory={below}" if below else "")
    editable = folder is not None and folder.get("editable") is True
    commit = _text(vcs, "commit_id")
    return url, _archive_hash(_inner(document, "archive_info")), commit, "yes" if editable else ""


def _archive_hash(archive: Optional[Mapping[str, Any]]) -> str:
    """ "sha256:…" of the archive: `hashes` of newer installers, else `hash`."""
    hashes = _inner(archive, "hashes") or {}
    old, _, digest = _text(archive, "hash").partition("=")
    found = {**({old: digest} if digest else {}), **hashes}
    for name in ("sha256", "sha512", "sha384"):
        value = found.get(name)
        if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64,128}", value):
            return f"{name}:{value.lower()}"
    return ""


def _inner(document: Any, name: str) -> Optional[Mapping[str, Any]]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else None


def _text(document: Any, name: str) -> str:
    found = document.get(name) if isinstance(document, dict) else None
    fits = isinstance(found, str) and len(found) <= TEXT_LIMIT and found.isprintable()
    return str(found) if fits else ""


def _linked(root: Root, path: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """(name, source directory) of what `setup.py develop` and editable wheels linked in."""
    for entry in path:
        links: List[str] = [one for one in root.names(entry) if _is_link(one)]
        for file in links:
            text = head(root, posixpath.join(entry, file), 4096)
            folder = text.strip().split("\n")[0].strip()
            name = file[: -len(".egg-link")]
            if file.startswith("__editable__."):
                name = file[len("__editable__.") : -len(".pth")].rpartition("-")[0]
            good = folder.startswith("/") and folder.isprintable()
            yield normalize(name), folder if good else ""  # a finder says where, in Python


def _is_link(name: str) -> bool:
    return name.endswith(".egg-link") or (
        name.startswith("__editable__.") and name.endswith(".pth")
    )
