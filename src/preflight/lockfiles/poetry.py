"""poetry.lock, lock-version 1.x and 2.x, as `poetry.packages.locker` reads it.

From 2.1 on each entry has its groups and its marker; before, what is wanted follows from what
needs it, and where nothing in the file does, the project asks for it, whose own markers are not
in the file. Oracle: `poetry export`.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Tuple

from . import asked, lean, shapes
from .model import Artefact, Entry, Need, Parsed, normalize, without_credentials
from .shapes import Table

MAIN = "main"


def parse(text: str) -> Parsed:
    """The entries of a poetry.lock. Raises BadLock naming the line."""
    document = lean.load(text)
    top = shapes.top(document)
    metadata = top.table("metadata")
    # Before poetry 1.0 the format had no version, but hashes of its own kind.
    version = metadata.text("lock-version", "1.0" if "hashes" in metadata.values else "")
    shapes.known_version(version, r"[12]\.\d+", "lock-version", "1.x and 2.x", 2)
    tables = shapes.packages(document, "package")
    extras = _extras(top)
    marked = not re.fullmatch(r"1\..*|2\.0", version)
    entries = [_entry(one, metadata) for one in tables]
    if marked:
        entries = [part for one, table in zip(entries, tables) for part in _parts(one, table)]
        groups = sorted({group for one in entries for group in one.groups})
    else:
        dev = [table.text("category") == "dev" for table in tables]
        groups = ["dev"] if any(dev) else []
        entries.append(asked.project(entries, ["dev" if one else "" for one in dev], extras))
    return Parsed(
        "poetry",
        entries=tuple(entries),
        indexes=shapes.as_options(one.index_url for one in entries),
        python=_pep440(metadata.text("python-versions")),
        graph=not marked,
        switches=(*(f"extra:{one}" for one in extras), *groups),
        groupless=version == "2.0",
    )


def _extras(top: Table) -> Dict[str, Tuple[str, ...]]:
    table = top.table("extras")
    return {normalize(one): tuple(map(normalize, table.texts(one))) for one in table.values}


def _entry(package: Table, metadata: Table) -> Entry:
    version = package.needed("version")
    index_url, url = _place(package.table("source"))
    files, hashes = _files(package, metadata)
    return Entry(
        package.name(),
        f"=={version}",
        package.line,
        marker=package.text("marker"),  # of lock-version 1.0
        url=url,
        index_url=index_url,
        files=files,
        hashes=hashes,
        python=_pep440(package.text("python-versions")),
        optional=package.flag("optional"),
        needs=tuple(_needs(package)),
    )


def _place(source: Table) -> Tuple[str, str]:
    """(index, direct reference as pip would be told) of where a package comes from."""
    kind, url = source.text("type"), without_credentials(source.text("url"))
    if kind in ("legacy", ""):
        return url, ""
    below = source.text("subdirectory")
    if kind in ("git", "hg"):
        commit = source.text("resolved_reference") or source.text("reference")
        url = f"{kind}+{url}@{commit}"
    return "", f"{url}#subdirectory={below}" if below else url


def _files(package: Table, metadata: Table) -> Tuple[Tuple[Artefact, ...], Tuple[str, ...]]:
    """(the files of an entry, hashes of none named), in the entry or at the end of the lock."""
    if "files" in package.values:
        return package.artefacts("files"), ()
    name = package.text("name")
    if "files" in metadata.values:
        return metadata.table("files").artefacts(name), ()
    digests = metadata.table("hashes").texts(name)
    return (), tuple(f"sha256:{one}" for one in digests)


# -- what an entry needs ------------------------------------------------------------------------


def _needs(package: Table) -> Iterator[Need]:
    table = package.table("dependencies")
    extras: Dict[str, List[str]] = {}
    given = package.table("extras")
    for extra in given.values:
        for one in given.texts(extra):
            name = re.split(r"[\s\[(;@<>=!~]", one.strip(), maxsplit=1)[0]
            extras.setdefault(normalize(name), []).append(normalize(extra))
    for name in table.values:
        for one in table.one_or_more(name):
            need, optional = _need(name, one, table)
            # An optional one that no extra brings is never wanted: of an extra without a name.
            for extra in extras.get(need.name, ["?"]) if optional else ("",):
                yield need._replace(extra=extra)


def _need(name: str, given: Any, within: Table) -> Tuple[Need, bool]:
    """(a dependency, whether it is optional) of its constraint, or of a table with that."""
    if isinstance(given, str):
        return Need(normalize(name), _pep440(given)), False
    if not isinstance(given, Table):
        raise within.wrong(name, given, "a constraint")
    markers = [given.text("markers"), _python(given.text("python"))]
    need = Need(
        normalize(name),
        _pep440(given.text("version")),
        " and ".join(f"({one})" if " or " in one else one for one in markers if one),
        tuple(sorted(map(normalize, given.texts("extras")))),
    )
    return need, given.flag("optional")


def _python(constraint: str) -> str:
    """A constraint on Python (">=3.6,<3.8") as a marker; empty where it is no such list."""
    found = []
    for one in _pep440(constraint).split(","):
        parts = re.fullmatch(r"(>=|<=|==|!=|<|>)(\d+(?:\.\d+)*)", one)
        if not parts:
            return ""
        name = "python_version" if parts.group(2).count(".") < 2 else "python_full_version"
        found.append(f'{name} {parts.group(1)} "{parts.group(2)}"')
    return " and ".join(found)


def _pep440(constraint: str) -> str:
    """Poetry's constraint as PEP 440 has it; one with `||` stays as it is, PEP 440 has none."""
    constraint = constraint.strip()
    if constraint in ("", "*"):
        return ""
    if "|" in constraint:
        return constraint
    parts = re.split(r"\s*,\s*|(?<=[\w*])\s+(?=[<>=!~^])", constraint)
    return ",".join(filter(None, map(_one_pep440, parts)))


def _one_pep440(part: str) -> str:
    found = re.fullmatch(r"(\^|~|)\s*v?(\d[\w.+!-]*(?:\.\*)?)", part)
    if not found:
        return re.sub(r"\s", "", part)
    operator, version = found.groups()
    if not operator:
        return f"=={version}"
    release = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    numbers = [int(one) for one in release.group().split(".")] if release else [0]
    at = min(len(numbers), 2) - 1
    if operator == "^":  # up to the first that is not 0
        at = next((i for i, one in enumerate(numbers) if one), len(numbers) - 1)
    above = ".".join(map(str, [*numbers[:at], numbers[at] + 1]))
    return f">={version},<{above}"


# -- which are wanted ---------------------------------------------------------------------------


def _parts(entry: Entry, package: Table) -> Iterator[Entry]:
    """An entry of 2.1 with its groups and marker: one each, where groups have other markers."""
    groups = [normalize(one) for one in package.texts("groups")] or [MAIN]
    if not isinstance(package.values.get("markers"), dict):
        always = MAIN in groups
        yield entry._replace(marker=package.text("markers"), groups=() if always else tuple(groups))
        return
    markers = package.table("markers")
    spelled = {normalize(one): markers.text(one) for one in markers.values}
    for marker in dict.fromkeys(spelled.get(group, "") for group in groups):
        those = tuple(group for group in groups if spelled.get(group, "") == marker)
        yield entry._replace(marker=marker, groups=() if MAIN in those else those)
