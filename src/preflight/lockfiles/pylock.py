"""pylock.toml (PEP 751), of uv, pip, pdm and others. Oracle: `packaging.pylock`."""

from __future__ import annotations

from . import lean, shapes
from .model import Entry, Need, Parsed, without_credentials
from .shapes import Table


def parse(text: str) -> Parsed:
    """The entries of a pylock.toml. Raises BadLock naming the line."""
    document = lean.load(text)
    top = shapes.top(document)
    shapes.known_version(top.text("lock-version"), r"1\.\d+", "lock-version", "1.x", 1)
    entries = tuple(map(_entry, shapes.packages(document, "packages")))
    return Parsed(
        "pylock",
        entries=entries,
        indexes=shapes.as_options(one.index_url for one in entries),
        platforms=top.texts("environments"),
        python=top.text("requires-python"),
        switches=(
            *(f"extra:{one}" for one in top.texts("extras")),
            *top.texts("dependency-groups"),
        ),
        defaults=top.texts("default-groups"),
    )


def _entry(package: Table) -> Entry:
    version = package.text("version")
    files = package.artefacts("archive") + package.artefacts("sdist") + package.artefacts("wheels")
    return Entry(
        package.name(),
        f"=={version}" if version else "",
        package.line,
        marker=package.text("marker"),
        url=_direct(package),
        index_url=without_credentials(package.text("index")),
        files=files,
        python=package.text("requires-python"),
        needs=tuple(map(_need, package.tables("dependencies"))),
    )


def _direct(package: Table) -> str:
    """Where an entry lies that comes from no index, as pip would be told."""
    vcs, directory = package.table("vcs"), package.table("directory")
    if vcs.values:
        place = without_credentials(vcs.text("url") or vcs.text("path"))
        commit = vcs.text("commit-id") or vcs.text("requested-revision")
        return _within(f"{vcs.needed('type')}+{place}@{commit}", vcs)
    if directory.values:
        return _within(directory.needed("path"), directory)
    archive = package.artefacts("archive")
    return archive[0].url if archive else ""


def _within(place: str, table: Table) -> str:
    below = table.text("subdirectory")
    return f"{place}#subdirectory={below}" if below else place


def _need(table: Table) -> Need:
    return Need(
        table.name(),
        marker=table.text("marker"),
        version=table.text("version"),
        source=without_credentials(table.text("index")),
    )
