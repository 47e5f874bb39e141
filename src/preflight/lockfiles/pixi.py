"""pixi.lock, versions 4 to 7, as rattler_lock writes and reads it.

Up to 5 a record has `kind`, `name`, `version`, `url`; from 6 on `conda:` or `pypi:` says where it
lies, and what the file name says is not repeated. Version 7 names platforms at the top, and
packages built from source `name[hash] @ path`. Oracle: `rattler.LockFile`.
"""

from __future__ import annotations

import posixpath
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import conda_spec
from .conda_lock import hashes, of_conda
from .model import Artefact, BadLock, Entry, Need, NoLock, Parsed, normalize, without_credentials
from .yaml_nodes import Mapping, items, load, mapping, needed, number, text, texts

VERSIONS = (4, 5, 6, 7)
#: The environment that pixi installs where none is named.
DEFAULT = "default"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ARCHIVE = re.compile(r"\.(whl|zip|tar(\.\w+)?|tgz)$")
_EXTRA = re.compile(r"\bextra\s*==\s*['\"]([^'\"]+)['\"]")

Key = Tuple[str, str]  # ("conda" or "pypi", where it lies)


class _Use(NamedTuple):
    """That an environment has a package on a platform."""

    environment: str
    platform: str
    extras: Tuple[str, ...]
    name: str  # where several packages lie in one place
    line: int


def parse(text_: str) -> Parsed:
    """The entries of a pixi.lock, one for each platform of a package. Raises BadLock."""
    top = load(text_)
    if not isinstance(top, Mapping) or "version" not in top.values:
        raise NoLock(top.line, "no pixi.lock: it has no 'version'")
    version = number(top.values["version"], "'version'")
    if version not in VERSIONS:
        span = f"{VERSIONS[0]} to {VERSIONS[-1]}"
        raise BadLock(
            top.keys["version"].line, f"pixi.lock of version {version}: {span} can be read"
        )
    if "environments" not in top.values:
        raise BadLock(top.line, "has no 'environments'")
    environments = mapping(top.values["environments"], "'environments'")
    subdirs = _subdirs(top)
    uses = _uses(environments, subdirs)
    records = items(top.values.get("packages"), "'packages'")
    entries = list(_entries([mapping(one, "a package") for one in records], uses))
    platforms = {one.platform: None for found in uses.values() for one in found}
    return Parsed(
        "pixi",
        entries=tuple(entries),
        indexes=tuple(dict.fromkeys(_indexes(environments))),
        platforms=tuple(dict.fromkeys([*subdirs.values(), *platforms])),
    )


def _subdirs(top: Mapping) -> Dict[str, str]:
    """{name of a platform: what conda calls it}, as version 7 lists them at the top."""
    found = {}
    for one in items(top.values.get("platforms"), "'platforms'"):
        platform = mapping(one, "a platform")
        name = needed(platform, "name", "a platform")
        found[name] = text(platform.values.get("subdir"), "'subdir'") or name
    return found


def _uses(environments: Mapping, subdirs: Dict[str, str]) -> Dict[Key, List[_Use]]:
    """Who has each package, in the order of the file."""
    found: Dict[Key, List[_Use]] = {}
    for name, node in environments.values.items():
        environment = mapping(node, f"the environment {name!r}")
        packages = mapping(environment.values.get("packages"), f"the packages of {name!r}")
        for platform, listed in packages.values.items():
            for one in items(listed, f"the packages for {platform}"):
                where, use = _use(mapping(one, "a package"), name, subdirs.get(platform, platform))
                found.setdefault(where, []).append(use)
    return found


def _use(one: Mapping, environment: str, platform: str) -> Tuple[Key, _Use]:
    extras = tuple(sorted(each for each, _line in texts(one.values.get("extras"), "'extras'")))
    name = text(one.values.get("name"), "'name'")
    return _where(one), _Use(environment, platform, extras, name, one.line)


def _where(record: Mapping) -> Key:
    """Where a package lies, by which environments name it."""
    get = record.values.get
    for kind in ("conda", "pypi", "conda_source"):
        if kind in record.values:
            return kind, needed(record, kind, "a package")
    kind = text(get("kind"), "'kind'")
    if kind in ("conda", "pypi"):
        where = text(get("url"), "'url'") or text(get("path"), "'path'")
        if where:
            return kind, where
        raise BadLock(record.line, "a package has neither 'url' nor 'path'")
    raise BadLock(record.line, "a package is neither of conda nor of pypi")


def _entries(records: List[Mapping], uses: Dict[Key, List[_Use]]) -> Iterator[Entry]:
    """Each record as often as there are platforms that have it. Raises BadLock."""
    missing = set(uses)
    for record in records:
        where = _where(record)
        missing.discard(where)
        entry = _of_pypi(record, where[1]) if where[0] == "pypi" else _of_conda(record, *where)
        for use in _by_platform(uses.get(where, []), entry.name):
            groups = () if DEFAULT in use.environment else tuple(use.environment)
            extras = entry.extras or use.extras
            yield entry._replace(platform=use.platform, groups=groups, extras=extras)
    if missing:
        first = min((uses[one][0].line, one[1]) for one in missing)
        raise BadLock(first[0], f"{first[1][:80]!r} has no record below 'packages'")


class _Wanted(NamedTuple):
    platform: str
    environment: Tuple[str, ...]
    extras: Tuple[str, ...]


def _by_platform(uses: List[_Use], name: str) -> Iterator[_Wanted]:
    found: Dict[str, List[_Use]] = {}
    for one in uses:
        if not one.name or one.name.lower() == name:
            found.setdefault(one.platform, []).append(one)
    for platform, those in found.items():
        names = tuple(dict.fromkeys(one.environment for one in those))
        extras = tuple(sorted({extra for one in those for extra in one.extras}))
        yield _Wanted(platform, names, extras)


# -- records ----------------------------------------------------------------------------------


def _of_conda(record: Mapping, kind: str, where: str) -> Entry:
    get = record.values.get
    source, _, place = where.rpartition(" @ ") if kind == "conda_source" else ("", "", where)
    place = place.strip()
    archive = conda_spec.of_url(place)
    name = text(get("name"), "'name'") or (archive.name if archive else source.partition("[")[0])
    name = name.strip()
    if not name:
        raise BadLock(record.line, f"{where[:80]!r} has no 'name'")
    version = text(get("version"), "'version'") or (archive.version if archive else "")
    entry = Entry(
        name.lower(),
        "==" + version if version else "",
        record.line,
        build=text(get("build"), "'build'") or (archive.build if archive else ""),
        needs=(*_conda_needs(record, "depends", False), *_conda_needs(record, "constrains", True)),
    )
    digests = hashes(record)
    channel = conda_spec.without_secrets(text(get("channel"), "'channel'").rstrip("/"))
    if archive:
        found = of_conda(entry, place, digests, channel)
        size = number(get("size"), "'size'")
        return found._replace(files=(found.files[0]._replace(size=size),), hashes=digests[1:])
    place = conda_spec.without_secrets(place)
    return entry._replace(manager="conda", url=place, hashes=digests)


def _conda_needs(record: Mapping, key: str, bound: bool) -> Iterator[Need]:
    for one, line in texts(record.values.get(key), key):
        name, _, rest = one.strip().partition(" ")
        if not name:
            raise BadLock(line, f"{key} has an empty line")
        found = re.fullmatch(r"([^=<>!~\[]+)(.*)", name)
        if not found:
            raise BadLock(line, f"{one[:80]!r} names no package")
        spec = f"{found.group(2)} {rest}".strip()
        yield Need(found.group(1).rpartition("::")[2].lower(), spec, bound=bound)


def _of_pypi(record: Mapping, where: str) -> Entry:
    from urllib.parse import unquote

    get = record.values.get
    version = text(get("version"), "'version'")
    direct = where[len("direct+") :] if where.startswith("direct+") else where
    place = without_credentials(direct)
    file = unquote(posixpath.basename(place.partition("#")[0].partition("?")[0]))
    given = direct != where or not re.match(r"https?://", place)
    if "://" not in place and not _ARCHIVE.search(file):
        version = file = ""  # of a directory: what it says when it is installed
    index = without_credentials(text(get("index"), "'index'"))
    digests = hashes(record)
    python = text(get("requires_python"), "'requires_python'")
    return Entry(
        normalize(needed(record, "name", "a package")),
        "==" + version if version else "",
        record.line,
        url=place if given else "",
        index_url=index,
        files=(Artefact(file, digests[0] if digests else "", place),)
        if _ARCHIVE.search(file)
        else (),
        hashes=digests[1:],
        python=python,
        needs=tuple(_requirements(record)),
    )


def _requirements(record: Mapping) -> Iterator[Need]:
    for one, line in texts(record.values.get("requires_dist"), "requires_dist"):
        need = _requirement(one)
        if need is None:
            raise BadLock(line, f"{one[:80]!r} is no requirement")
        yield need


def _requirement(written: str) -> Optional[Need]:
    """A requirement of PEP 508, taken apart and not judged; None for what is none."""
    found = _NAME.match(written.strip())
    if not found:
        return None
    rest, extras, url = written.strip()[found.end() :].strip(), "", ""
    if rest.startswith("["):
        extras, closed, rest = rest[1:].partition("]")
        if not closed:
            return None
        rest = rest.strip()
    spec, _, marker = rest.partition(" ;" if rest.startswith("@") else ";")
    if spec.startswith("@"):
        spec, url = "", spec[1:].strip()
    spec = spec.strip().strip("()").replace(" ", "")
    if spec and not re.fullmatch(r"[<>=!~][\w.,*+!<>=~-]*", spec):
        return None
    only = _EXTRA.search(marker)
    return Need(
        normalize(found.group()),
        spec,
        marker.strip(),
        tuple(sorted(each.strip() for each in extras.split(",") if each.strip())),
        only.group(1) if only else "",
        source=without_credentials(url),
    )


def _indexes(environments: Mapping) -> Iterator[str]:
    """Channels and indexes of all environments."""
    for node in environments.values.values():
        get = mapping(node, "an environment").values.get
        for one in items(get("channels"), "'channels'"):
            url = text(one.values.get("url") if isinstance(one, Mapping) else one, "a channel")
            yield "--channel " + conda_spec.without_secrets(url)
        for place, (url, _line) in enumerate(texts(get("indexes"), "'indexes'")):
            option = "--extra-index-url" if place else "--index-url"
            yield f"{option} {without_credentials(url)}"
        for one in items(get("find-links"), "'find-links'"):
            link = mapping(one, "a link")
            for each in link.values.values():
                yield "--find-links " + without_credentials(text(each, "a link"))
