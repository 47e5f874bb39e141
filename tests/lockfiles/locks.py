"""The samples of lock files, and short words for what is read from them."""

from pathlib import Path
from typing import List, Set, Tuple

from preflight import lockfiles
from preflight.lockfiles import applying
from preflight.lockfiles.model import BadLock, Entry, Parsed

HERE = Path(__file__).resolve().parent / "samples"
#: Every sample of a format in TOML or JSON, made by the tool itself: names of files, bytes cut
#: down to a few wheels for each package, indexes named as they are for everybody.
SAMPLES = (
    "uv/uv.lock",
    "workspace/uv.lock",
    "script/job.py.lock",
    "pylock/pylock.toml",
    "pylock/pylock.cu128.toml",
    "pip/pylock.toml",
    "poetry/poetry.lock",
    "poetry-2.0/poetry.lock",
    "poetry-1.1/poetry.lock",
    "pdm/pdm.lock",
    "pdm-graph/pdm.lock",
    "pdm-targets/pdm.lock",
    "pipenv/Pipfile.lock",
)
FORMATS = ("pylock", "uv", "poetry", "pdm", "pipfile")


def text(name: str) -> str:
    """A sample as it is."""
    return (HERE / name).read_text("utf-8")


def read(name: str) -> Parsed:
    """A sample as it is read."""
    return lockfiles.read(name, (HERE / name).read_bytes())


def entry(parsed: Parsed, name: str, version: str = "") -> Entry:
    """The one entry of a name, or of a name and version."""
    found = [
        one
        for one in parsed.entries
        if one.name == name and (not version or one.spec == f"=={version}")
    ]
    assert len(found) == 1, found
    return found[0]


def wanted(parsed: Parsed, python: str, arch: str, *switches: str) -> Set[Tuple[str, str]]:
    """(name, spec) of what is for one Python and machine, with some groups and extras."""
    asked = parsed._replace(defaults=(*parsed.defaults, *switches))
    lock = applying.record(asked, "x", applying.Target(python, arch))
    return {(one.name, one.spec) for one in lock.entries.get(()) if not one.applies}


def refused(format_: str, given: str) -> BadLock:
    """Why a text is refused."""
    try:
        module(format_).parse(given)
    except BadLock as error:
        return error
    raise AssertionError("it was read")


def module(format_: str):  # type: ignore[no-untyped-def]
    """The module of a format."""
    from importlib import import_module

    return import_module(f"preflight.lockfiles.{format_}")


def lines(given: str, *starts: str) -> List[int]:
    """The numbers of the lines that begin so."""
    return [n for n, one in enumerate(given.split("\n"), 1) if one.startswith(starts)]
