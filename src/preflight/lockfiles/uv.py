"""uv.lock, version 1. Oracle: `uv export`."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from . import lean, shapes
from .model import BadLock, Entry, Need, Parsed, normalize, without_credentials
from .shapes import Table


def parse(text: str) -> Parsed:
    """The entries of a uv.lock. Raises BadLock naming the line."""
    document = lean.load(text)
    top = shapes.top(document)
    version = top.value("version", None)
    shapes.known_version("" if version is None else str(version), "1", "version", "version 1")
    manifest = top.table("manifest")
    members = [normalize(one) for one in manifest.texts("members")]
    entries = [_entry(one, members) for one in shapes.packages(document, "package")]
    entries.extend(_script(manifest))
    return Parsed(
        "uv",
        entries=tuple(entries),
        indexes=shapes.as_options(one.index_url for one in entries if not one.root),
        platforms=top.texts("supported-markers"),
        python=top.text("requires-python"),
        graph=True,
        switches=_switches(entries),
        exclusive=tuple(_exclusive(top)),
    )


def _entry(package: Table, members: Sequence[str]) -> Entry:
    name, version = package.name(), package.text("version")
    source = package.table("source")
    own = source.text("virtual") == "." or source.text("editable") == "."
    root = name in members if members else own
    index_url, url = _place(source)
    return Entry(
        name,
        f"=={version}" if version else "",
        package.line,
        marker=" or ".join(f"({one})" for one in package.texts("resolution-markers")),
        url=url,
        index_url=index_url,
        files=package.artefacts("sdist") + package.artefacts("wheels"),
        root=root,
        # A member of the workspace is not what is installed, unless the project needs it.
        optional=root and not own,
        needs=tuple(_needs(package)),
    )


def _place(source: Table) -> Tuple[str, str]:
    """(index, direct reference as pip would be told) of where a package comes from."""
    if source.text("registry"):
        return without_credentials(source.text("registry")), ""
    if source.text("git"):
        return "", _git(without_credentials(source.text("git")))
    for kind in ("url", "path", "directory", "editable", "virtual"):
        if source.text(kind):
            below = source.text("subdirectory")
            place = without_credentials(source.text(kind))
            return "", f"{place}#subdirectory={below}" if below else place
    return "", ""


def _git(place: str) -> str:
    """ "https://host/it?rev=v1#commit" as pip has it: "git+https://host/it@commit"."""
    place, _, commit = place.partition("#")
    place, _, asked = place.partition("?")
    given = dict(one.partition("=")[::2] for one in asked.split("&"))
    commit = commit or given.get("rev") or given.get("tag") or given.get("branch") or ""
    below = given.get("subdirectory", "")
    return f"git+{place}@{commit}" + (f"#subdirectory={below}" if below else "")


def _needs(package: Table) -> Iterator[Need]:
    for one in package.tables("dependencies"):
        yield _need(one)
    for extra, one in package.each("optional-dependencies"):
        yield _need(one)._replace(extra=normalize(extra))
    for group in ("dev-dependencies", "dependency-groups"):
        for name, one in package.each(group):
            yield _need(one)._replace(group=normalize(name))


def _need(table: Table) -> Need:
    if len(table.values) == 1:  # nearly all are
        return Need(table.name())
    index_url, url = _place(table.table("source"))
    extras = table.texts("extra") or table.texts("extras")
    return Need(
        table.name(),
        table.text("specifier"),
        table.text("marker"),
        tuple(map(normalize, extras)),
        version=table.text("version"),
        source=index_url or url,
    )


def _script(manifest: Table) -> Iterator[Entry]:
    """What a script asks for, or a workspace that is no project: its lock has no own entry."""
    needs: List[Need] = [_need(one) for one in manifest.tables("requirements")]
    for name, one in manifest.each("dependency-groups"):
        needs.append(_need(one)._replace(group=normalize(name)))
    if needs:
        yield Entry("", root=True, needs=tuple(needs))


def _switches(entries: Sequence[Entry]) -> Tuple[str, ...]:
    """What may be asked for of the project: its extras, its groups."""
    found: Dict[str, None] = {}
    roots = [one for one in entries if one.root]
    for one in [one for one in roots if not one.optional] or roots:
        for need in one.needs:
            if need.extra or need.group:
                found[need.group or f"extra:{need.extra}"] = None
    return tuple(found)


def _exclusive(top: Table) -> Iterator[Tuple[str, ...]]:
    for these in top.array("conflicts"):
        if not isinstance(these, list):
            raise BadLock(0, "conflicts: arrays of tables are expected")
        sides = [Table(one, 0, "conflicts") for one in these]
        yield tuple(
            normalize(one.text("group")) or f"extra:{normalize(one.text('extra'))}" for one in sides
        )
