"""conda's lists of exact packages: `@EXPLICIT` with URLs, and `conda list --export`.

conda-lock writes what pip is to install into such a list as comments (`# pip name @ url`), and
installs it from there.
"""

from __future__ import annotations

import re
from typing import List, Tuple

from . import conda_spec, requirements
from .conda_environment import entry, exported
from .model import Artefact, BadLock, Entry, Parsed

_PLATFORM = re.compile(r"#\s*platform:\s*(\S+)\s*$")


def parse(text: str) -> Parsed:
    """The entries of an explicit or exported list. Raises BadLock."""
    explicit = re.search(r"^[ \t]*@EXPLICIT[ \t]*$", text, re.M) is not None
    entries: List[Entry] = []
    platform = ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line == "@EXPLICIT":
            continue
        said = _PLATFORM.match(line)
        if said:
            platform = said.group(1)
        elif line.startswith("# pip "):
            entries.append(_pip(line[len("# pip ") :], number))
        elif not line.startswith("#"):
            entries.append(_explicit(line, number) if explicit else entry(line, number))
    return Parsed(
        "conda-explicit" if explicit else "conda-list",
        entries=tuple(entries) if explicit else exported(entries),
        platforms=(platform,) if platform else _platforms(entries),
    )


def _explicit(line: str, number: int) -> Entry:
    place, digest = conda_spec.split_hash(line, number)
    archive = conda_spec.of_url(place)
    if not archive:
        raise BadLock(number, f"{line[:80]!r} is no package of conda: name-version-build.conda")
    url = conda_spec.without_secrets(place)
    return Entry(
        archive.name,
        "==" + archive.version,
        number,
        manager="conda",
        url=url,
        index_url=archive.channel,
        files=(Artefact(archive.file, digest, url),),
        build=archive.build,
        platform="" if archive.subdir == "noarch" else archive.subdir,
    )


def _pip(line: str, number: int) -> Entry:
    try:
        found = requirements.parse(line).entries
    except BadLock as error:
        raise BadLock(number, error.reason) from None
    if len(found) != 1:
        raise BadLock(number, f"# pip {line[:80]} is no package")
    return found[0]._replace(line=number)


def _platforms(entries: List[Entry]) -> Tuple[str, ...]:
    """The one platform that the packages are for, where the list does not say it."""
    return tuple(sorted({one.platform for one in entries if one.platform}))
