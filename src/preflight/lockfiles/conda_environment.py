"""conda's environment.yml: by hand, of `conda env export`, with builds and without, with pip.

Oracle: `conda.env.env.from_yaml`, MatchSpec. micromamba's `sel(linux):` and what conda-lock
reads from such a file (`platforms:`) are taken too.
"""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Tuple

from . import conda_spec, requirements
from .model import LOCK, REQUIREMENTS, Artefact, BadLock, Entry, Include, NoLock, Parsed, normalize
from .yaml_nodes import Mapping, Node, Scalar, items, load, text, texts

#: Files that have a `dependencies` list of mappings with these keys: Helm's, Ansible's, dbt's.
_OTHERS = {"repository", "role", "src", "package", "git"}
#: micromamba's selectors, as a platform that the job may or may not be on.
_SELECTED = {"linux": "", "unix": "", "osx": "osx-64", "win": "win-64"}


class _Pip(NamedTuple):
    entries: List[Entry]
    includes: List[Include]
    indexes: List[str]


def parse(text_: str) -> Parsed:
    """The entries of an environment.yml. Raises BadLock; NoLock where it is another file."""
    top = load(text_)
    if not isinstance(top, Mapping):
        raise NoLock(top.line, "no conda environment: it is no mapping")
    if "dependencies" not in top.values:
        raise NoLock(top.line, "no conda environment: it has no 'dependencies'")
    wanted = _dependencies(top.values["dependencies"])
    pip = _Pip([], [], [])
    entries: List[Entry] = []
    for one in wanted:
        if isinstance(one, Mapping):
            entries += _section(one, pip)
        else:
            entries.append(entry(text(one, "a dependency"), one.line))
    return Parsed(
        "conda-environment",
        role=_role(entries, "prefix" in top.values),
        entries=tuple(entries + pip.entries),
        includes=tuple(pip.includes),
        indexes=(*_channels(top), *pip.indexes),
        platforms=tuple(one for one, _line in texts(top.values.get("platforms"), "'platforms'")),
    )


def _dependencies(node: Node) -> List[Node]:
    """The list of what is wanted. Raises NoLock where it is the one of another kind of file."""
    if isinstance(node, Mapping) or isinstance(node, Scalar) and not node.null:
        raise NoLock(node.line, "no conda environment: its 'dependencies' are no list")
    found: List[Node] = items(node, "'dependencies'")
    for one in found:
        if isinstance(one, Mapping) and _OTHERS & set(one.values):
            raise NoLock(one.line, "no conda environment: its 'dependencies' are mappings")
    return found


def _section(section: Mapping, pip: _Pip) -> Iterator[Entry]:
    """A mapping among the dependencies: what pip is to install, or what one platform gets."""
    for key, node in section.values.items():
        selector = re.fullmatch(r"sel\((\w+)\)", key)
        if key == "pip":
            for one in items(node, "the list below 'pip'"):
                _take(one, pip)
        elif selector and selector.group(1) in _SELECTED:
            found = entry(text(node, key), node.line)
            yield found._replace(platform=_SELECTED[selector.group(1)] or found.platform)
        else:
            raise BadLock(section.keys[key].line, f"{key[:40]!r} is no installer that conda knows")


def _take(node: Node, pip: _Pip) -> None:
    """A line for pip, read as that of a requirements file, at its own place in this one."""
    line = text(node, "what pip is to install")
    before = node.line - 1 + (isinstance(node, Scalar) and node.block)
    try:
        read = requirements.parse(line)
    except BadLock as error:
        raise BadLock(error.line + before, error.reason) from None
    pip.entries.extend(one._replace(line=one.line + before) for one in read.entries)
    pip.includes.extend(one._replace(line=one.line + before) for one in read.includes)
    pip.indexes.extend(read.indexes)


def entry(written: str, line: int) -> Entry:
    """The entry of a MatchSpec. Raises BadLock."""
    spec = conda_spec.parse(written, line)
    file = spec.url.rpartition("/")[2]
    return Entry(
        spec.name,
        spec.version,
        line,
        manager="conda",
        url=spec.url,
        index_url=spec.channel,
        files=(Artefact(file, spec.hash, spec.url),) if file else (),
        hashes=(spec.hash,) if spec.hash and not file else (),
        build=spec.build,
        platform="" if spec.subdir == "noarch" else spec.subdir,
    )


def _channels(top: Mapping) -> Iterator[str]:
    for one, _line in texts(top.values.get("channels"), "'channels'"):
        yield "--channel " + conda_spec.without_secrets(one)


def _role(entries: List[Entry], exported: bool) -> str:
    """A tool resolved it where every entry has a build, or a version below conda's prefix."""
    if not entries:
        return REQUIREMENTS
    exact = [re.fullmatch(r"==?[^=<>!~|,*]+", one.spec) is not None for one in entries]
    whole = all(exact) and (exported or all(one.build for one in entries))
    return LOCK if whole else REQUIREMENTS


def exported(entries: List[Entry]) -> Tuple[Entry, ...]:
    """Entries of `conda list --export`: what pip installed has the build pypi_0 there."""
    return tuple(
        one._replace(manager="", build="", name=normalize(one.name))
        if one.build == "pypi_0"
        else one
        for one in entries
    )
