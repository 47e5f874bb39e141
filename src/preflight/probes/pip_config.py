"""What pip is told outside of lock files: indexes and constraints, by variables and pip.conf.

Read as pip does: site, user and environment files, then the variables (pip's documentation,
"Configuration"; uv has variables of its own).
"""

from __future__ import annotations

import configparser
import posixpath
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

from ..lockfiles.model import without_credentials
from ..roots import Root
from .place import head

#: Options that name an index, by the variables that set them.
INDEXES = {
    "PIP_INDEX_URL": "--index-url", "PIP_EXTRA_INDEX_URL": "--extra-index-url",
    "PIP_FIND_LINKS": "--find-links", "UV_INDEX_URL": "--index-url",
    "UV_DEFAULT_INDEX": "--index-url", "UV_EXTRA_INDEX_URL": "--extra-index-url",
    "UV_INDEX": "--extra-index-url", "UV_FIND_LINKS": "--find-links",
    "UV_TORCH_BACKEND": "--torch-backend",
}  # fmt: skip
CONSTRAINTS = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
#: A configuration file is small; more of it than this is not read.
LIMIT = 1 << 20


class Told(NamedTuple):
    """Indexes as options of pip's, and paths of constraints, each with who says so."""

    indexes: Tuple[str, ...]
    constraints: Tuple[str, ...]


def read(root: Root, env: Mapping[str, str], prefix: str = "") -> Told:
    """What pip and uv would be told in this environment; `prefix`: of the job's virtual one."""
    indexes: List[str] = []
    constraints: List[str] = []
    for path in _files(env, prefix):
        for key, value in _options(head(root, path, LIMIT)).items():
            if key in ("index-url", "extra-index-url", "find-links"):
                indexes += [f"--{key} {without_credentials(one)}" for one in value.split()]
            elif key == "constraint":
                constraints += value.split()
    for name, option in INDEXES.items():
        indexes += [f"{option} {without_credentials(one)}" for one in env.get(name, "").split()]
    for name in CONSTRAINTS:
        constraints += env.get(name, "").split()
    return Told(tuple(dict.fromkeys(indexes)), tuple(dict.fromkeys(constraints)))


def _files(env: Mapping[str, str], prefix: str) -> Iterator[str]:
    own = env.get("PIP_CONFIG_FILE", "")
    if own == "/dev/null":
        return
    home = env.get("HOME", "/root")
    yield from ("/etc/xdg/pip/pip.conf", "/etc/pip.conf")
    yield posixpath.join(home, ".pip/pip.conf")
    yield posixpath.join(
        env.get("XDG_CONFIG_HOME") or posixpath.join(home, ".config"), "pip/pip.conf"
    )
    if prefix:
        yield posixpath.join(prefix, "pip.conf")
    if own:
        yield own


def _options(text: str) -> Dict[str, str]:
    """The options of [global] and [install] of a pip.conf; none where it cannot be read."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    found: Dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return found
