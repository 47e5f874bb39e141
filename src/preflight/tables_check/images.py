"""What the tables of images, errors and requirements say of each other."""

from __future__ import annotations

from typing import Any, Iterator, List, Set, Tuple

from .book import Book, Problem, numbers


def ngc(book: Book) -> Iterator[Problem]:
    """A month's driver is at or above its toolkit's floor (or a note says why not)."""
    for place in book.rows("ngc"):
        row = place.row
        toolkit = book.toolkits.get(row["cuda"])
        if toolkit is None:
            continue  # said already
        if not row.get("cuda_release", row["cuda"] + ".").startswith(row["cuda"] + "."):
            yield Problem(place, f"cuda_release {row['cuda_release']!r} is not of {row['cuda']}")
        driver = numbers(row.get("driver", toolkit.row["minimum"]))
        if driver < numbers(toolkit.row["minimum"]) and "note" not in row:
            yield Problem(place, f"driver {row['driver']!r} is older than {row['cuda']} asks for")
        if "driver" in row and driver[0] != toolkit.row["branch"]:
            yield Problem(place, f"driver {row['driver']!r} is not of R{toolkit.row['branch']}")
        texts = [*row.get("bases", []), *row.get("says", []), *map(str, row.get("excluded", []))]
        for text in texts:
            if not text.split(".")[0].isdigit() or int(text.split(".")[0]) not in book.branches:
                yield Problem(place, f"{text!r} is of no branch of drivers.toml")
        if row["min_capability"] not in book.by_capability:
            yield Problem(place, f"min_capability {row['min_capability']!r} is of no architecture")
        elif numbers(row["min_capability"]) < numbers(toolkit.row["min_capability"]):
            yield Problem(place, f"min_capability {row['min_capability']!r} is below its toolkit's")


def ngc_images(book: Book) -> Iterator[Problem]:
    """Images and what is in them are of months that are there."""
    months = {p.row["release"] for p in book.rows("ngc")}
    seen: Set[Tuple[str, str]] = set()
    for place in book.rows("ngc_image"):
        row = place.row
        if not all("{release}" in tag for tag in row["tags"]):
            yield Problem(place, "a tag without {release}")
        for name in sorted(set(row["releases"]) - months):
            yield Problem(place, f"releases {name!r} is no [[ngc]]")
        seen |= {(row["product"], name) for name in row["releases"]}
    for place in book.rows("ngc_framework"):
        if (place.row["product"], place.row["release"]) not in seen:
            yield Problem(place, "no [[ngc_image]] is of this product and month")
    if book.whole:
        for place in book.rows("ngc"):
            if ("pytorch", place.row["release"]) not in seen:
                yield Problem(place, "no [[ngc_image]] of pytorch is of this month")


def errors(book: Book) -> Iterator[Problem]:
    """Names, codes (of a domain) and messages each stand for one row."""
    seen: Set[Tuple[str, Any]] = set()
    for place in book.rows("error"):
        row = place.row
        codes, names = row.get("codes", []), row.get("names", [])
        if not codes and not row.get("messages"):
            yield Problem(place, "neither codes nor messages")
        if len(codes) not in {0, 1, len(names)}:
            yield Problem(place, "as many codes as names, or one")
        keys: List[Tuple[str, Any]] = [("name", one) for one in names]
        keys += [("code of " + row["domain"], one) for one in codes if names]
        keys += [("message", one) for one in row.get("messages", [])]
        for key in keys:
            if key in seen:
                yield Problem(place, f"{key[0]} {key[1]!r} is of another row too")
            seen.add(key)


def requirements(book: Book) -> Iterator[Problem]:
    """An image's requirement is of its CUDA, and lets through older branches only."""
    known = {p.row["brands"] for p in book.rows("brands")}
    for place in book.rows("requirement"):
        row = place.row
        for name in row["releases"]:
            if name != row["cuda"] and not name.startswith(row["cuda"] + "."):
                yield Problem(place, f"releases {name!r} is not of CUDA {row['cuda']}")
        if ("branches" in row) != ("brands" in row):
            yield Problem(place, "branches and brands go together")
        if "brands" in row and row["brands"] not in known:
            yield Problem(place, f"brands {row['brands']!r} is no [[brands]]")
        for branch in [*row.get("tesla", []), *row.get("branches", [])]:
            found = book.branches.get(branch)
            if found is None:
                yield Problem(place, f"{branch} is no branch of drivers.toml")
            elif numbers(found.row["cuda"]) > numbers(row["cuda"]):
                yield Problem(place, f"R{branch} is newer than CUDA {row['cuda']}")


CHECKS = (ngc, ngc_images, errors, requirements)
