"""What the rules about linkage ask of the libraries in a snapshot."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

from ..matrix import numbers
from ..snapshot import Library, Snapshot

#: How a library is found that the user's environment put in front (ld.so(8)).
BY_ENVIRONMENT = ("ld-library-path", "ld-preload")


class Linked(NamedTuple):
    """A library with its place in the snapshot and the texts that rules print."""

    place: str
    library: Library
    name: str
    label: str

    @property
    def outdated(self) -> bool:
        """Whether it is older than what needs it asks for."""
        return self.compared and older(
            self.library.version.get(""), self.library.needed_version.get("")
        )

    @property
    def compared(self) -> bool:
        """Whether both its version and the one that is needed are known."""
        have, need = self.library.version.value, self.library.needed_version.value
        return bool(numbers(have or "") and numbers(plain(need or "")))

    @property
    def from_environment(self) -> bool:
        """Whether LD_LIBRARY_PATH or LD_PRELOAD put it where it is found."""
        return self.library.found_by.value in BY_ENVIRONMENT

    def places(self, *names: str) -> Tuple[str, ...]:
        """The places of some of its facts."""
        return tuple(f"{self.place}.{one}" for one in names)

    @property
    def proof(self) -> Tuple[str, ...]:
        """The places of what a finding about it rests on."""
        return self.places(
            "name", "path", "version", "found_by", "needed_version", "needed_by", "missing",
            "damaged", "missing_symbols",
        )  # fmt: skip


def plain(version: str) -> str:
    """The number of a needed version: "GLIBC_2.34" gives "2.34"."""
    return version.rpartition("_")[2]


def older(have: str, need: str) -> bool:
    """Whether `have` is certainly older than `need`: "9" stands for any 9.x, "x" for anything."""
    mine, wanted = numbers(have), numbers(plain(need))
    return bool(mine) and mine < wanted[: len(mine)]


def libraries(s: Snapshot, *beginnings: str) -> Iterator[Linked]:
    """The libraries whose names begin with one of `beginnings` (all, when none is given)."""
    for number, one in enumerate(s.libraries.get(())):
        name = one.name.value or ""
        if name and (not beginnings or name.startswith(beginnings)):
            version = one.version.value
            label = f"{name} {version}" if version else name
            yield Linked(f"libraries[{number}]", one, name, label)


def first(s: Snapshot, *beginnings: str) -> Optional[Linked]:
    """The first such library that is there."""
    return next((one for one in libraries(s, *beginnings) if not one.library.missing.value), None)


def served(s: Snapshot) -> bool:
    """Whether torch's import was followed to its end: what is loaded has every symbol needed."""
    return any(
        one.name.value == "torch" and one.import_problem.absent for one in s.frameworks.get(())
    )


def asked_by(one: Linked) -> str:
    """ "libtorch_cuda.so", or "what is loaded" when nobody said who needs it."""
    return one.library.needed_by.get("what is loaded")


def where(one: Linked) -> str:
    """Where it lies and what led there, in words."""
    words = {
        "ld-library-path": "LD_LIBRARY_PATH",
        "ld-preload": "LD_PRELOAD",
        "ld-cache": "ld.so.cache",
        "default": "the default directories",
        "rpath": "RPATH",
        "runpath": "RUNPATH",
    }
    by = words.get(one.library.found_by.get(""), one.library.found_by.get(""))
    path = one.library.path.value or one.name
    return f"{path} (by {by})" if by else path
