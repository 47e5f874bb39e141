"""What a lock file says, whatever its format."""

from __future__ import annotations

import re
from typing import NamedTuple, Tuple

#: Who wrote it: a tool that resolved it, people, or people who only bound versions (pip -c).
LOCK, REQUIREMENTS, CONSTRAINTS = "lock", "requirements", "constraints"

#: What a marker of PEP 508 may ask of an environment.
VARIABLES = (
    "implementation_name", "implementation_version", "os_name", "platform_machine",
    "platform_python_implementation", "platform_release", "platform_system", "platform_version",
    "python_full_version", "python_version", "sys_platform",
)  # fmt: skip


class BadLock(ValueError):
    """A lock file that cannot be read: `line` (from 1; 0: of the whole) and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line = line
        self.reason = reason


class NoLock(BadLock):
    """A file of a name or kind that many things have, and that is no lock file at all."""


class NeedsLibrary(BadLock):
    """A lock file that may be well, and that only an extra of the distribution can read."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(0, f"needs {library} to be read: pip install 'pai-preflight[{extra}]'")
        self.library = library
        self.extra = extra


class NewerFormat(BadLock):
    """A lock file that may be well, of a format that was made after what is known here."""


def other_version(line: int, reason: str, given: str, newest: int) -> BadLock:
    """The error for a version of a format, of which `newest` is the newest that is known."""
    number = re.match(r"\d{1,9}", given)
    newer = number is not None and int(number.group()) > newest
    return NewerFormat(line, reason) if newer else BadLock(line, reason)


class Artefact(NamedTuple):
    """A file that an entry may be installed from."""

    name: str  # of the file
    hash: str = ""  # "sha256:…"
    url: str = ""
    size: int = 0


class Need(NamedTuple):
    """A dependency of an entry, as the lock has it."""

    name: str  # normalized
    spec: str = ""  # as in Entry.spec
    marker: str = ""
    extras: Tuple[str, ...] = ()
    extra: str = ""  # only with this extra of the one who needs it
    group: str = ""  # only with this dependency group
    version: str = ""  # which entry of that name, where the lock has several
    source: str = ""  # the same, by where it comes from
    bound: bool = False  # not wanted by this one, only held to `spec` where it is there (conda)


class Entry(NamedTuple):
    """One package of a lock file."""

    name: str  # normalized as PEP 503 does; of conda: as conda spells it
    spec: str = ""  # "==2.6.0+cu124"; of conda: "=2.5.1"
    line: int = 0
    manager: str = ""  # empty: pip; conda
    marker: str = ""
    extras: Tuple[str, ...] = ()
    groups: Tuple[str, ...] = ()  # only with one of these; empty: always
    url: str = ""  # of a direct reference: a file, an archive, a repository
    index_url: str = ""
    files: Tuple[Artefact, ...] = ()
    hashes: Tuple[str, ...] = ()  # where the format does not say of which file
    python: str = ""
    build: str = ""
    platform: str = ""
    root: bool = False  # the project itself
    optional: bool = False  # only as a dependency of what is wanted
    needs: Tuple[Need, ...] = ()


class Include(NamedTuple):
    """Another file that this one takes in (`-r`) or is bound by (`-c`)."""

    role: str
    path: str
    line: int


class Parsed(NamedTuple):
    """Everything in one file.

    `graph`: entries carry no markers of their own, they are wanted where another one that is
    wanted needs them (uv, poetry before 2.1).
    """

    format: str
    role: str = LOCK
    entries: Tuple[Entry, ...] = ()
    includes: Tuple[Include, ...] = ()
    indexes: Tuple[str, ...] = ()
    platforms: Tuple[str, ...] = ()  # conda's subdirs, or markers: it is for one of these
    python: str = ""
    graph: bool = False
    switches: Tuple[str, ...] = ()  # groups and extras that may be asked for: "dev", "extra:cpu"
    defaults: Tuple[str, ...] = ()  # those that are, where nothing is said
    groupless: bool = False  # it does not say which entries are of a group only
    exclusive: Tuple[Tuple[str, ...], ...] = ()  # those of which only one may be


def normalize(name: str) -> str:
    """A package name in the one spelling of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


#: Parameters that open what a URL names: signatures of object stores, tokens.
_SECRET = re.compile(
    r"(?<=[?&;])[\w.-]*(?:signature|token|secret|password|passwd|credential|api_?key|accesskey)"
    r"[\w.-]*=[^&;#\s]*&?|(?<=[?&;])(?:sig|key|auth)=[^&;#\s]*&?",
    re.I,
)


#: The default index and its public mirrors, by which a lock tells the default build of a package.
_DEFAULT_INDEX = re.compile(
    r"://(pypi\.org|pypi\.python\.org|files\.pythonhosted\.org|pypi\.tuna\.|pypi\.douban"
    r"|pypi\.mirrors\.|mirrors?\.[\w.-]+/(pypi|repository/pypi|web/simple))"
)


def of_default_index(url: str) -> bool:
    """Whether a URL is of the default index or a mirror of it: they have default builds only."""
    return _DEFAULT_INDEX.search(url) is not None


def without_credentials(url: str) -> str:
    """A URL whose user, password and secret parameters are left out; ${TOKEN} goes with them.

    A password may hold an @ that nobody encoded: what is before the last one is no host.
    """
    if "@" in url:
        url = re.sub(r"(?<=://)[^/?#\s]*@", "", url)
    if "?" in url:
        url, found = _SECRET.subn("", url)
        url = re.sub(r"[?&;]+(?=#|\s|$)", "", url) if found else url
    return url


def shown(text: str) -> str:
    """A text of a file, short and quoted, as it may stand in a message."""
    text = re.sub(r"(^|/)t/[^/\s]+/(?=[^/])", r"\1", without_credentials(text))
    return repr(text if len(text) <= 80 else text[:77] + "...")


def line_of(text: str, at: int) -> int:
    """The line, from 1, of a place in a text."""
    return text.count("\n", 0, at) + 1
