"""conda-lock.yml, version 1. Oracle: conda_lock's own models and writer (`lockfile/v1`)."""

from __future__ import annotations

import re
from typing import Iterator, Optional, Tuple

from . import conda_spec
from .model import (
    Artefact,
    BadLock,
    Entry,
    Need,
    NoLock,
    Parsed,
    normalize,
    other_version,
    without_credentials,
)
from .yaml_nodes import Mapping, Node, items, load, mapping, needed, text, texts

#: The category that is always installed; another one only when asked for.
_MAIN = "main"
_DIGITS = (("sha256", 64), ("md5", 32))


def parse(text_: str) -> Parsed:
    """The entries of a conda-lock.yml. Raises BadLock."""
    top = load(text_)
    if not isinstance(top, Mapping) or not {"package", "metadata"} & set(top.values):
        raise NoLock(top.line, "no conda-lock file: it has neither 'package' nor 'metadata'")
    version = text(top.values.get("version"), "'version'")
    if version != "1":
        said = f"version {version[:20]}" if version else "no version"
        why = f"conda-lock file of {said}: 1 can be read"
        raise other_version(_line(top, "version"), why, version, 1)
    if "package" not in top.values:
        raise BadLock(top.line, "has no 'package'")
    metadata = mapping(top.values.get("metadata"), "'metadata'")
    packages = items(top.values["package"], "'package'")
    return Parsed(
        "conda-lock",
        entries=tuple(_entry(mapping(one, "a package")) for one in packages),
        indexes=tuple(_channels(metadata)),
        platforms=tuple(one for one, _line in texts(metadata.values.get("platforms"), "platforms")),
    )


def _line(of: Mapping, key: str) -> int:
    return of.keys[key].line if key in of.keys else of.line


def _entry(package: Mapping) -> Entry:
    get = package.values.get
    name = needed(package, "name", "a package")
    version = needed(package, "version", name)
    manager = needed(package, "manager", name)
    if manager not in ("conda", "pip"):
        raise BadLock(_line(package, "manager"), f"{name}: {manager[:40]!r} is no manager")
    url = needed(package, "url", name)
    category = text(get("category"), "'category'") or _MAIN
    digests = hashes(mapping(get("hash"), f"the hash of {name}"))
    needs = mapping(get("dependencies"), f"the dependencies of {name}")
    entry = Entry(
        name,
        "==" + version,
        package.line,
        groups=() if category == _MAIN else (category,),
        hashes=digests[1:],
        platform=needed(package, "platform", name),
        optional=text(get("optional"), "'optional'").lower() == "true",
    )
    if manager == "pip":
        return _of_pip(entry, url, digests, needs, get("source"))
    return of_conda(entry, url, digests)._replace(
        build=text(get("build"), "'build'") or _build(url),
        needs=tuple(Need(key, text(node, key)) for key, node in needs.values.items()),
    )


def of_conda(entry: Entry, url: str, digests: Tuple[str, ...], channel: str = "") -> Entry:
    """The entry of a conda package that lies at `url`."""
    archive = conda_spec.of_url(url)
    url = conda_spec.without_secrets(url)
    file = archive.file if archive else url.rpartition("/")[2]
    return entry._replace(
        name=entry.name.lower(),
        manager="conda",
        url=url,
        index_url=channel or (archive.channel if archive else ""),
        files=(Artefact(file, digests[0] if digests else "", url),),
    )


def _build(url: str) -> str:
    archive = conda_spec.of_url(url)
    return archive.build if archive else ""


def _of_pip(
    entry: Entry, url: str, digests: Tuple[str, ...], needs: Mapping, source: Optional[Node]
) -> Entry:
    from urllib.parse import unquote

    given = mapping(source, "'source'")
    place, _, _fragment = without_credentials(url).partition("#")
    file = unquote(place.partition("?")[0].rstrip("/").rpartition("/")[2])
    direct = text(given.values.get("url"), "the source's url")
    return entry._replace(
        name=normalize(entry.name),
        url=without_credentials(direct) if direct else place if _repository(place) else "",
        files=(Artefact(file, digests[0] if digests else "", place),),
        needs=tuple(_need(key, text(node, key)) for key, node in needs.values.items()),
    )


def _repository(url: str) -> bool:
    return re.match(r"(git|hg|svn|bzr)\+", url) is not None


def _need(name: str, spec: str) -> Need:
    return Need(normalize(name), "" if spec == "*" else spec.replace(" ", ""))


def hashes(of: Mapping) -> Tuple[str, ...]:
    """("sha256:…", "md5:…") of what a record states, the best first. Raises BadLock."""
    found = []
    for kind, size in _DIGITS:
        digits = text(of.values.get(kind), kind)
        if digits and not re.fullmatch(rf"[0-9a-fA-F]{{{size}}}", digits):
            raise BadLock(of.values[kind].line, f"{digits[:80]!r} is no {kind} ({size} digits)")
        if digits:
            found.append(f"{kind}:{digits.lower()}")
    return tuple(found)


def _channels(metadata: Mapping) -> Iterator[str]:
    for one in items(metadata.values.get("channels"), "'channels'"):
        url = (
            needed(one, "url", "a channel") if isinstance(one, Mapping) else text(one, "a channel")
        )
        yield "--channel " + conda_spec.without_secrets(url)
