"""How NCCL and Gloo read a list of interfaces, and what it comes to on the interfaces here.

NCCL (src/misc/utils.cc, src/os/linux.cc): "^" at the very beginning excludes, then "=" compares
whole names instead of beginnings; what is between commas is taken as it stands, blanks and quotes
too; what follows a colon is a port. Of the interfaces that run and have an address the matching
ones are taken in the kernel's order, those with an IPv4 address first; the bootstrap uses the
first. A list of one character or none counts as not set, and then NCCL takes those beginning with
"ib", else all but docker*, lo* and virbr*, else docker*, else lo*, else virbr*. Before 2.28 an
interface needs not run, and virbr* is like any other. (tests/real/test_interfaces.py asks real
libraries.)

Gloo: whole names between commas, as they stand.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from ..snapshot import Interface

#: NCCL reads at most so many interfaces from a list.
LIMIT = 16
#: What NCCL tries where nothing is set, each until one is found; and before 2.28.
AUTOMATIC = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
AUTOMATIC_BEFORE = ("ib", "^docker,lo", "docker", "lo")
_QUOTES = "\"'`“”‘’"


class List_(NamedTuple):
    """A list as NCCL reads it."""

    exclude: bool
    exact: bool
    items: Tuple[Tuple[str, int], ...]  # (name, port), port -1 for any

    def matches(self, name: str, port: int = -1) -> bool:
        """Whether an interface, or a port of an HCA, is in the selection."""
        hit = not self.items or any(
            (name == item if self.exact else name.startswith(item))
            and (port == -1 or wanted in (-1, port))
            for item, wanted in self.items
        )
        return hit != self.exclude


def parse(text: str) -> List_:
    """What NCCL makes of the text of a list."""
    exclude = text.startswith("^")
    text = text[1:] if exclude else text
    exact = text.startswith("=")
    text = text[1:] if exact else text
    items = []
    for part in text.split(","):
        name, colon, port = part.partition(":")
        if name:
            number = re.match(r"\s*[+-]?\d+", port) if colon else None
            items.append((name, int(number.group()) if number else 0 if colon else -1))
    return List_(exclude, exact, tuple(items[:LIMIT]))


def is_set(text: Optional[str]) -> bool:
    """Whether NCCL, and torch for Gloo, take the variable for set at all."""
    return text is not None and len(text) > 1


class Ways(NamedTuple):
    """How interfaces are chosen: only of a family (AF_INET, AF_INET6; empty: any); by an NCCL
    before 2.28."""

    family: str = ""
    before: bool = False


ANY = Ways()


def usable(row: Interface, ways: Ways = ANY) -> bool:
    """Whether an interface can be used: it runs, and has an address of that family."""
    return row.state == "running" and bool(addresses(row, ways.family))


def addresses(row: Interface, family: str = "") -> List[str]:
    """Its addresses of a family but IPv6's loopback."""
    found = [one for one in row.addresses.split() if not one.startswith("::1/")]
    if family not in ("AF_INET", "AF_INET6"):
        return found
    return [one for one in found if (":" in one) == (family == "AF_INET6")]


def ordered(rows: Sequence[Interface], ways: Ways = ANY) -> List[Interface]:
    """The interfaces that NCCL considers, in the order in which it finds them."""
    there = [
        row
        for row in rows
        if (ways.before or row.state == "running") and addresses(row, ways.family)
    ]
    fours = [row for row in there if any(":" not in one for one in addresses(row, ways.family))]
    return fours + [row for row in there if row not in fours]


def chosen(text: str, rows: Sequence[Interface], ways: Ways = ANY) -> List[Interface]:
    """Those that a list selects, in the order in which NCCL takes them."""
    wanted = parse(text)
    return [row for row in ordered(rows, ways) if wanted.matches(row.name)]


def automatic(rows: Sequence[Interface], ways: Ways = ANY) -> List[Interface]:
    """Those that NCCL takes where nothing is set."""
    tries = AUTOMATIC_BEFORE if ways.before else AUTOMATIC
    return next(filter(None, (chosen(one, rows, ways) for one in tries)), [])


def gloo(text: str) -> List[str]:
    """The names that torch asks Gloo for."""
    return text.split(",")


# -- what is written otherwise than it is read -------------------------------------------------


def mistakes(text: str, of_gloo: bool = False) -> List[str]:
    """What in a list is not read as it was meant, in words; empty where all is well."""
    found = []
    if re.search(r"\s", text):
        found.append("blanks are part of a name")
    if any(one in text for one in _QUOTES):
        found.append("quotes are part of a name")
    if re.search(r"[*?\[\]]", text):
        found.append("there are no wildcards" + ("" if of_gloo else ": a name is a beginning"))
    if ";" in text or "|" in text:
        found.append("names are separated by commas")
    if "!" in text:
        found.append("'!' excludes nothing" + ("" if of_gloo else ": '^' does, at the beginning"))
    rest = text if of_gloo else re.sub(r"^\^?=?", "", text)
    if "^" in rest:
        found.append(
            "Gloo knows no '^'" if of_gloo
            else "'^' stands once, at the beginning, and is for the whole list"
        )  # fmt: skip
    if "=" in rest:
        found.append(
            "Gloo knows no '='" if of_gloo
            else "'=' stands once, at the beginning, and is for the whole list"
        )  # fmt: skip
    return found


def meant(text: str, of_gloo: bool = False) -> str:
    """The list as it was probably meant."""
    bare = "".join(one for one in text if one not in _QUOTES)
    excludes = bare.lstrip()[:1] in ("^", "!") or "^" in bare
    exact = bool(re.match(r"\s*[\^!]?\s*=", bare)) or "=" in bare
    names = [re.sub(r"[*?].*$|[\^=!\[\]]", "", one) for one in re.split(r"[,;|\s]+", bare)]
    listed = ",".join(filter(None, names))
    return listed if of_gloo else ("^" if excludes else "") + ("=" if exact else "") + listed
