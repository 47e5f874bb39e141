"""What the tables of drivers, toolkits, GPUs and compat packages say of each other."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, Set

from .. import tables_schema as schema
from .book import Book, Numbers, Place, Problem, listed, numbers, target

#: From this CUDA major on all minors have one floor.
FIRST_MINOR_COMPATIBLE = 11
#: MIG begins with this capability.
FIRST_WITH_MIG = (8, 0)


def cudas(book: Book) -> Iterator[Problem]:
    """Every CUDA named anywhere has a toolkit; what a branch reports may, with a note, not."""
    oldest = min(map(numbers, book.toolkits), default=(0, 0))
    for place in book.every():
        if place.kind == "jax_era":  # requirements
            continue
        for column in ("cuda", "first_cuda", "last_cuda", "min_cuda"):
            for value in listed(place.row.get(column, [])):
                early = place.kind == "architecture" and numbers(value) < oldest
                noted = place.kind == "branch" and "note" in place.row
                if value not in book.toolkits and not early and not noted:
                    yield Problem(place, f"{column} {value!r} is no CUDA of toolkits.toml")


def branches(book: Book) -> Iterator[Problem]:
    """A newer branch never reports an older CUDA; architectures are those of the table."""
    highest: Numbers = ()
    for branch in sorted(book.branches):
        place = book.branches[branch]
        row = place.row
        if numbers(row["cuda"]) < highest:
            yield Problem(place, f"cuda {row['cuda']!r} is lower than that of an older branch")
        highest = max(highest, numbers(row["cuda"]))
        if "first" in row and numbers(row["first"])[0] != branch:
            yield Problem(place, f"first {row['first']!r} is of another branch")
        for name in [row["oldest"], row["newest"], *row.get("drops", [])]:
            if name not in book.architectures:
                yield Problem(place, f"{name!r} is no architecture of architectures.toml")


def lifetimes(book: Book) -> Iterator[Problem]:
    """The branch after an architecture's last one drops it; oldest and newest follow."""
    ordered = sorted(book.branches)
    dropped: Dict[str, int] = {}
    for branch in ordered:
        for name in book.branches[branch].row.get("drops", []):
            if name in dropped:
                yield Problem(book.branches[branch], f"drops {name} again, after R{dropped[name]}")
            dropped[name] = branch
    discrete = [p for p in book.rows("architecture") if not p.row.get("jetson")]
    for place in discrete:
        yield from _end(place, ordered, dropped)
    for branch in ordered:
        row = book.branches[branch].row
        alive = [
            p.row["name"]
            for p in sorted(discrete, key=lambda one: numbers(one.row["capabilities"][0]))
            if p.row.get("first_branch", 0) <= branch <= p.row.get("last_branch", branch)
        ]
        if alive and row["oldest"] != alive[0]:
            text = f"oldest {row['oldest']!r}: by architectures.toml it is {alive[0]}"
            yield Problem(book.branches[branch], text)
        if row["newest"] in book.architectures and row["newest"] not in alive:
            text = f"newest {row['newest']!r} is not alive by architectures.toml"
            yield Problem(book.branches[branch], text)


def _end(place: Place, ordered: List[int], dropped: Mapping[str, int]) -> Iterator[Problem]:
    name, last = place.row["name"], place.row.get("last_branch")
    if last is None:
        if name in dropped:
            yield Problem(place, f"R{dropped[name]} drops it, and it has no last_branch")
    elif last not in ordered:
        yield Problem(place, f"last_branch {last} is no branch of drivers.toml")
    else:
        after = ordered[ordered.index(last) + 1 :][:1]
        if dropped.get(name) != (after[0] if after else None):
            where = f"R{after[0]}" if after else "a branch"
            yield Problem(place, f"last_branch {last}, but {where} does not drop it")


def toolkits(book: Book) -> Iterator[Problem]:
    """A toolkit's driver, its branch's CUDA, its floor and its targets go together."""
    ptx: Numbers = ()
    for cuda in sorted(book.toolkits, key=numbers):
        place = book.toolkits[cuda]
        row = place.row
        if numbers(row["ptx"]) < ptx:
            yield Problem(place, f"ptx {row['ptx']!r} is lower than that of an older toolkit")
        ptx = max(ptx, numbers(row["ptx"]))
        yield from _driver_of_toolkit(book, place)
        made = [target(one) for one in row["targets"]]
        if made != sorted(made):
            yield Problem(place, "targets do not ascend")
        for column, edge in (("min_capability", min(made)), ("max_capability", max(made))):
            if numbers(row[column]) != edge:
                text = f"{column} {row[column]!r} is not that of its targets"
                yield Problem(place, text)
        yield from _floor(book, place)


def _driver_of_toolkit(book: Book, place: Place) -> Iterator[Problem]:
    row = place.row
    driver, minimum = row.get("driver"), numbers(row["minimum"])
    if driver and minimum > numbers(driver):
        yield Problem(place, f"minimum {row['minimum']!r} is newer than its driver {driver!r}")
    if driver and numbers(driver)[0] != row["branch"]:
        yield Problem(place, f"driver {driver!r} is not of branch {row['branch']}")
    if not driver and minimum[0] > row["branch"]:
        yield Problem(place, f"minimum {row['minimum']!r} is newer than branch {row['branch']}")
    branch = book.branches.get(row["branch"])
    if branch is None:
        yield Problem(place, f"branch {row['branch']} is no branch of drivers.toml")
    elif branch.row["cuda"] != row["cuda"]:
        yield Problem(place, f"branch {row['branch']} reports CUDA {branch.row['cuda']}")


def _floor(book: Book, place: Place) -> Iterator[Problem]:
    """From CUDA 11 on the minors of a major have one floor; that of .0 may be lower."""
    major, minor = numbers(place.row["cuda"])
    first = book.toolkits.get(f"{major}.1")
    if major < FIRST_MINOR_COMPATIBLE or first is None:
        return
    floor, own = numbers(first.row["minimum"]), numbers(place.row["minimum"])
    if own > floor or (minor and own != floor):
        text = f"minimum {place.row['minimum']!r}: the other {major}.x have "
        yield Problem(place, text + repr(first.row["minimum"]))


def releases(book: Book) -> Iterator[Problem]:
    """A release belongs to a toolkit: its driver, its runtime, one GA each."""
    first: Dict[str, Place] = {}
    for place in book.rows("release"):
        row = place.row
        cuda = ".".join(row["version"].split(".")[:2])
        toolkit = book.toolkits.get(cuda)
        if toolkit is None:
            yield Problem(place, f"CUDA {cuda} is no toolkit of toolkits.toml")
            continue
        if not row.get("cudart", cuda + ".").startswith(cuda + "."):
            yield Problem(place, f"cudart {row['cudart']!r} is not of CUDA {cuda}")
        for column in ("driver", "compat_driver"):
            other = column in row and numbers(row[column])[0] != toolkit.row["branch"]
            if other and row["label"] != "Developer preview":
                text = f"{column} {row[column]!r} is not of branch {toolkit.row['branch']}"
                yield Problem(place, text)
        if row["label"] == "GA":
            if cuda in first:
                yield Problem(place, f"CUDA {cuda} has another GA")
            first[cuda] = place
            if row.get("driver") != toolkit.row.get("driver"):
                yield Problem(place, f"driver is not that of the toolkit {cuda}")
    for cuda in sorted(set(book.toolkits) - set(first) if book.whole else (), key=numbers):
        yield Problem(book.toolkits[cuda], "no [[release]] with label GA")


def architectures(book: Book) -> Iterator[Problem]:
    """An architecture's CUDAs are those with targets for it; its compat library ends with it."""
    oldest, newest = min(map(numbers, book.toolkits)), max(map(numbers, book.toolkits))
    seen: Set[str] = set()
    for place in book.rows("architecture"):
        row = place.row
        for one in sorted(seen & set(row["capabilities"])):
            yield Problem(place, f"capability {one!r} is of another architecture too")
        seen |= set(row["capabilities"])
        able = _toolkits_for(book, row["capabilities"])
        first, last = numbers(row["first_cuda"]), row.get("last_cuda")
        if first >= oldest and (not able or min(able) != first):
            yield Problem(place, f"first_cuda {row['first_cuda']!r} is not the first with a target")
        if last is None and (not able or max(able) != newest):
            yield Problem(place, "no last_cuda, and the newest toolkit has no target for it")
        if last and max(able, default=numbers(last)) != numbers(last):
            yield Problem(place, f"last_cuda {last!r} is not the last with a target")
        yield from _compat_end(book, place)


def _toolkits_for(book: Book, capabilities: List[str]) -> List[Numbers]:
    own = {numbers(one) for one in capabilities}
    return [
        numbers(cuda)
        for cuda, p in book.toolkits.items()
        if own & {target(one) for one in p.row["targets"]}
    ]


def _compat_end(book: Book, place: Place) -> Iterator[Problem]:
    row = place.row
    last = book.branches.get(row.get("last_branch", 0))
    if ("compat_until" in row) != ("last_branch" in row):
        yield Problem(place, "compat_until and last_branch go together")
    elif last and row["compat_until"] != last.row["cuda"]:
        yield Problem(place, f"compat_until {row['compat_until']!r}: its last branch reports "
                      f"CUDA {last.row['cuda']}")  # fmt: skip


# -- GPUs and forward compatibility ---------------------------------------------------------


def gpus(book: Book) -> Iterator[Problem]:
    """A product has one name, one capability of a known architecture, and the traits of both."""
    owner: Dict[str, str] = {}
    ids: Dict[str, str] = {}
    classes = {p.row["class"]: p for p in book.rows("class")}
    for place in book.rows("gpu"):
        row = place.row
        for name in sorted({_squeezed(one) for one in [row["name"], *row.get("names", [])]}):
            if name in owner:
                yield Problem(place, f"a name of it is one of {owner[name]} too")
            owner[name] = row["name"]
        for one in row.get("pci", []):
            if ids.setdefault(one, row["capability"]) != row["capability"]:
                yield Problem(place, f"pci {one!r} is of a GPU of capability {ids[one]} too")
        named = classes.get(row["class"])
        if named is None:
            yield Problem(place, f"class {row['class']!r} is no [[class]] of forward.toml")
        elif row["forward"] != named.row["eligible"]:
            yield Problem(place, f"forward {row['forward']!r}: its class says "
                          f"{named.row['eligible']!r}")  # fmt: skip
        yield from _architecture_of(book, place)


def _squeezed(name: str) -> str:
    """As forgiving as a reader of names may be."""
    name = re.sub(r"[^a-z0-9]", "", name.lower())
    return name[6:] if name.startswith("nvidia") else name


def _architecture_of(book: Book, place: Place) -> Iterator[Problem]:
    row = place.row
    found = book.by_capability.get(row["capability"])
    if found is None:
        text = f"capability {row['capability']!r} is no capability of architectures.toml"
        yield Problem(place, text)
        return
    first, begins = row.get("first_branch"), found.row.get("first_branch")
    if row["class"] != "jetson" and (first is None) != (begins is None):
        yield Problem(place, f"first_branch: {found.row['name']} has {begins or 'none'}")
    if first is not None and first not in book.branches:
        yield Problem(place, f"first_branch {first} is no branch of drivers.toml")
    if first is not None and begins is not None and first < begins:
        yield Problem(place, f"first_branch {first} is older than {found.row['name']}, R{begins}")
    if "first_driver" in row and numbers(row["first_driver"])[0] < (first or 0):
        yield Problem(place, f"first_driver {row['first_driver']!r} is older than R{first}")
    if row.get("mig") and numbers(row["capability"]) < FIRST_WITH_MIG:
        yield Problem(place, "mig is true below compute capability 8.0")


def packages(book: Book) -> Iterator[Problem]:
    """A compat package sits on older branches; what is newer, or refused, is not also allowed."""
    reports = {branch: numbers(p.row["cuda"]) for branch, p in book.branches.items()}
    for place in book.rows("package"):
        row = place.row
        cuda = numbers(row["cuda"])
        lists = {one: set(row.get(one, [])) for one in schema.INTEGER_LISTS}
        for column in sorted(lists):
            for branch in sorted(lists[column] - set(reports)):
                yield Problem(place, f"{column}: {branch} is no branch of drivers.toml")
                lists[column].discard(branch)
        yes = lists["documented"] | lists["listed"] | lists["noted"]
        own = {branch for branch in reports if reports[branch] == cuda}
        wrong = {
            "allowed and excluded": lists["excluded"] & yes,
            "allowed and newer": lists["newer"] & (yes - own | lists["documented"]),
            "documented, and not older": {b for b in lists["documented"] if reports[b] >= cuda},
            "allowed, and newer than it": {b for b in yes if reports[b] > cuda},
            "newer, and older than it": {b for b in lists["newer"] if reports[b] < cuda},
        }  # fmt: skip
        for words, found in wrong.items():
            if found:
                yield Problem(place, f"{', '.join(f'R{b}' for b in sorted(found))}: {words}")
        if not yes:
            yield Problem(place, "no branch is allowed by any source")


def classes(book: Book) -> Iterator[Problem]:
    """A class that may not load a compat libcuda says with which error."""
    for place in book.rows("class"):
        if place.row["eligible"] == "no" and "error" not in place.row:
            yield Problem(place, "eligible is 'no' without an error")


CHECKS = (
    cudas, branches, lifetimes, toolkits, releases, architectures, gpus, packages, classes,
)  # fmt: skip
