"""The samples, read as they would be found."""

from pathlib import Path
from typing import Dict

from preflight import lockfiles
from preflight.lockfiles.model import BadLock, Entry, Parsed

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> Parsed:
    """One of the samples, read as it would be found."""
    return lockfiles.read(f"/job/{name}", (SAMPLES / name).read_bytes())


def read(text: str, name: str = "environment.yml") -> Parsed:
    """What a text says under a name."""
    return lockfiles.read(f"/job/{name}", text.encode())


def by_name(parsed: Parsed) -> Dict[str, Entry]:
    """The entries by their names."""
    return {one.name: one for one in parsed.entries}


def written(name: str, line: int) -> str:
    """A line of a sample."""
    return (SAMPLES / name).read_text("utf-8").splitlines()[line - 1]


def cut_off(name: str) -> None:
    """Reads a sample that ends at each of its bytes (of a long one, at 700 of them).

    Anything but an answer or BadLock fails.
    """
    data = (SAMPLES / name).read_bytes()
    path = "/job/" + ("pixi.lock" if name.startswith("pixi") else name)
    for size in range(0, len(data), max(1, len(data) // 700)):
        try:
            lockfiles.read(path, data[:size])
        except BadLock as error:
            assert error.reason
