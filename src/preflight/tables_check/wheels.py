"""What the tables of framework wheels, their pins, companions and extensions say of each other."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, Mapping, Optional, Set, Tuple

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from .book import Book, Place, Problem, numbers, pinned, plain, target
from .spelling import COMPANIONS, normal


def builds(book: Book) -> Iterator[Problem]:
    """A wheel's variant names its CUDA, its code is what that toolkit makes, one is default."""
    seen: Dict[Tuple[str, str], Place] = {}
    for place in book.rows("build"):
        row = place.row
        for text in row.get("default", []):
            key = (text, row["platform"])
            if text not in row["versions"]:
                yield Problem(place, f"default {text!r} is not among its versions")
            if key in seen:
                yield Problem(place, f"{text} has another default, {seen[key].row['variant']}")
            seen[key] = place
        yield from _variant(place)
        if "cuda" in row and row["cuda"] in book.toolkits:
            yield from _code(place, book.toolkits[row["cuda"]].row, "build")


def _variant(place: Place) -> Iterator[Problem]:
    row = place.row
    variant, cuda = row["variant"], row.get("cuda")
    if re.fullmatch(r"cu\d+", variant) and variant != f"cu{(cuda or '').replace('.', '')}":
        yield Problem(place, f"variant {variant!r} is not of CUDA {cuda or '(none)'}")
    if cuda and "sm" not in row:
        yield Problem(place, "a build with CUDA has no 'sm'")
    extra = {"sm", "sm_unsure", "ptx", "ptx_unsure"} & set(row)
    if extra and not cuda:
        yield Problem(place, f"{min(extra)} in a build without CUDA")


def _code(place: Place, toolkit: Mapping[str, Any], what: str) -> Iterator[Problem]:
    """Machine code and PTX of a wheel are targets of its toolkit."""
    able = {target(one) for one in toolkit["targets"]}
    for column in ("sm", "sm_unsure", "ptx", "ptx_unsure"):
        values = [numbers(text) for text in place.row.get(column, [])]
        if values != sorted(values):
            yield Problem(place, f"{column} do not ascend")
        for value in values:
            if value not in able:
                text = f"{column} '{value[0]}.{value[1]}' is no target of CUDA {toolkit['cuda']}"
                yield Problem(place, text)
    for sure in ("sm", "ptx"):
        both = set(place.row.get(sure, [])) & set(place.row.get(sure + "_unsure", []))
        if both:
            yield Problem(place, f"{sure}_unsure {min(both)!r} is in {sure} as well")
    alone = set(place.row.get("ptx", [])) - set(place.row.get("sm", []))
    if alone and what != "build":
        yield Problem(place, f"ptx {min(alone)!r} is not in sm")


def details(book: Book) -> Iterator[Problem]:
    """A detail is of a build with CUDA."""
    for place in book.rows("detail"):
        row = place.row
        if ("cudnn" in row) != ("cudnn_linkage" in row):
            yield Problem(place, "cudnn and cudnn_linkage go together")
        for text in row["versions"]:
            for platform in row["platforms"]:
                build = book.builds.get((text, platform, row["variant"]))
                if build is None or "cuda" not in build.row:
                    yield Problem(place, f"no [[build]] with CUDA is {text} for {platform}")


def installs(book: Book) -> Iterator[Problem]:
    """Every release has one way to ask for a variant."""
    for text in sorted(book.releases if book.whole else (), key=Version):
        rows = [p for p in book.rows("install") if text in p.row["versions"]]
        if not [p for p in rows if "variants" not in p.row]:
            first = next(p for (one, _, _), p in book.builds.items() if one == text)
            yield Problem(first, f"no [[install]] without variants says how to ask for {text}")


# -- pins -----------------------------------------------------------------------------------


def pins(book: Book) -> Iterator[Problem]:
    """Pins are of the default wheel of a release, and of its CUDA; details agree with them."""
    for place in book.rows("pins"):
        for text in place.row["versions"]:
            for platform in place.row["platforms"]:
                if (text, platform) not in book.defaults:
                    yield Problem(place, f"torch.toml has no default of {text} for {platform}")
            if "x86_64" in place.row["platforms"] and "pins" in place.row:
                yield from _pins_of(book, place, text)


def _pins_of(book: Book, place: Place, text: str) -> Iterator[Problem]:
    variant = book.defaults.get((text, "x86_64"), "")
    build = book.builds.get((text, "x86_64", variant))
    if build is None:
        return
    found = pinned(place.row["pins"])
    for name in found:
        suffix = re.search(r"-cu(\d+)$", name)
        if suffix and not variant.startswith("cu" + suffix.group(1)):
            yield Problem(place, f"{name}, but the default of {text} is {variant}")
    cuda = build.row.get("cuda", "")
    for name in ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "cuda-toolkit"):
        if name in found and not found[name].startswith(cuda + "."):
            yield Problem(place, f"{name} {found[name]}, but the default of {text} has CUDA {cuda}")
    for detail in book.rows("detail"):
        other = detail.row.get("origin") == "download.pytorch.org"
        if text in detail.row["versions"] and detail.row["variant"] == variant and not other:
            yield from _detail_of(place, detail, plain(found), text)


def _detail_of(
    place: Place, detail: Place, found: Mapping[str, str], text: str
) -> Iterator[Problem]:
    row = detail.row
    for name, column in (("nvidia-cudnn", "cudnn"), ("nvidia-nccl", "nccl")):
        if name in found and column in row and found[name] != row[column]:
            said = f"{name} {found[name]}, but [[detail]] of {text} has {column} {row[column]}"
            yield Problem(place, said)
    for name, column, value in (
        ("nvidia-nccl", "nccl_linkage", "dynamic"), ("cuda-toolkit", "libs", "metapackage"),
    ):  # fmt: skip
        if (name in found) != (row[column] == value):
            there = "a pin of" if name in found else "no pin of"
            yield Problem(place, f"{there} {name}, but [[detail]] of {text} has {column} "
                          f"{row[column]!r}")  # fmt: skip


def metapackages(book: Book) -> Iterator[Problem]:
    """A metapackage that torch asks for is there once, with exactly the extras asked for."""
    rows = book.rows("metapackage")
    asked: Dict[int, Set[str]] = {}
    for place in book.rows("pins"):
        for one in map(Requirement, place.row.get("pins", [])):
            fits = [n for n, p in enumerate(rows) if p.row["name"] == one.name
                    and one.specifier.contains(p.row["version"])]  # fmt: skip
            if one.extras and len(fits) != 1:
                yield Problem(place, f"{one.name}{one.specifier}: {len(fits)} such [[metapackage]]")
            elif one.extras:
                asked.setdefault(fits[0], set()).update(one.extras)
    for number, place in enumerate(rows):
        given = set(re.findall(r'extra == "(.*?)"', " ".join(place.row["requires"])))
        if given != asked.get(number, set()):
            yield Problem(place, "its extras are not those that [[pins]] ask for")


# -- companions -----------------------------------------------------------------------------


def companions(book: Book) -> Iterator[Problem]:
    """A companion row is of a release, with the triton of its pins; what two share is loose."""
    loose = {(p.row["package"], text): p for p in book.rows("loose") for text in p.row["versions"]}
    owners: Dict[Tuple[str, str], str] = {}
    for place in book.rows("companion"):
        row = place.row
        torch = row["torch"]
        if torch not in book.releases:
            yield Problem(place, f"torch.toml has no build of {torch}")
        if row.get("built") not in (None, book.defaults.get((torch, "x86_64"))):
            yield Problem(place, f"built {row['built']!r} is not the default of {torch}")
        triton = _triton(book, torch)
        if triton != {row[one] for one in ("triton",) if one in row}:
            yield Problem(place, f"triton: [[pins]] of {torch} say {', '.join(triton) or 'none'}")
        for key in ((package, text) for package in COMPANIONS for text in row.get(package, [])):
            other = loose.get(key)
            if owners.setdefault(key, torch) != torch and other is None:
                text = f"{key[0]} {key[1]} is of {owners[key]} too, and not [[loose]]"
                yield Problem(place, text)
            elif other and not SpecifierSet(other.row.get("torch", "")).contains(torch):
                yield Problem(other, f"torch {other.row['torch']!r} leaves out {torch}, to which "
                              "[[companion]] counts it")  # fmt: skip
    if book.whole:
        rows = {p.row["torch"] for p in book.rows("companion")}
        for text in sorted(book.releases - rows, key=Version):
            first = next(p for (one, _, _), p in book.builds.items() if one == text)
            yield Problem(first, f"companions.toml has no row for {text}")


def _triton(book: Book, torch: str) -> Set[str]:
    return {
        str(one.specifier)
        for place in book.rows("pins")
        if torch in place.row["versions"]
        for one in map(Requirement, place.row.get("pins", []))
        if one.name == "triton"
    }


# -- the other frameworks -------------------------------------------------------------------


def tensorflow(book: Book) -> Iterator[Problem]:
    """A TensorFlow wheel's code and pins are of its CUDA and cuDNN."""
    for place in book.rows("tensorflow"):
        row = place.row
        if ("pins" in row) != (row["libs"] == "extra"):
            yield Problem(place, "pins and libs = 'extra' go together")
        if row["cuda"] in book.toolkits:
            yield from _code(place, book.toolkits[row["cuda"]].row, "tensorflow")
        found = plain(pinned(row.get("pins", [])))
        for name, column in (("nvidia-cuda-runtime", "cuda"), ("nvidia-cudnn", "cudnn")):
            if found and row[column] + "." not in found.get(name, ""):
                yield Problem(place, f"the pin of {name} is not of {column} {row[column]!r}")


def jax(book: Book) -> Iterator[Problem]:
    """A plugin's CUDA is of its major, its oldest branch that of the major's floor."""
    for place in book.rows("jax"):
        row = place.row
        major = row["cuda_major"]
        if row["package"] != f"jax-cuda{major}-plugin":
            yield Problem(place, f"package {row['package']!r} is not of CUDA {major}")
        first = book.toolkits.get(f"{major}.0")
        if first and row["min_branch"] != numbers(first.row["minimum"])[0]:
            yield Problem(place, f"min_branch {row['min_branch']}: CUDA {major} begins with "
                          f"{first.row['minimum']}")  # fmt: skip
        for column in ("cuda", "min_cuda"):
            if numbers(row.get(column, f"{major}.0"))[0] != major:
                yield Problem(place, f"{column} {row[column]!r} is not of CUDA {major}")
        if "cuda" in row and row["cuda"] in book.toolkits:
            yield from _code(place, book.toolkits[row["cuda"]].row, "jax")
        elif "sm" in row:
            yield Problem(place, "sm without cuda")
        for column in ("cudnn", "nccl"):
            yield from _specifier(place, column)


def _specifier(place: Place, column: str) -> Iterator[Problem]:
    try:
        SpecifierSet(place.row.get(column, ""))
    except InvalidSpecifier:
        yield Problem(place, f"{column} {place.row[column]!r} is no range of versions")


def jax_requires(book: Book) -> Iterator[Problem]:
    """What the extra brings is what the plugin needs."""
    plugins = [(p.row["package"], set(p.row["versions"]), p.row) for p in book.rows("jax")]
    for place in book.rows("jax_requires"):
        row = place.row
        wanted = {one.name: str(one.specifier) for one in map(Requirement, row["requires"])}
        rest = set(row["versions"])
        for package, versions, plugin in plugins:
            if package != row["package"] or not versions & set(row["versions"]):
                continue
            rest -= versions
            for column in ("cudnn", "nccl"):
                name = f"nvidia-{column}-cu{plugin['cuda_major']}"
                if _other_range(wanted.get(name), plugin.get(column)):
                    yield Problem(place, f"{name}{wanted[name]}, but [[jax]] has {plugin[column]}")
        for text in sorted(rest):
            yield Problem(place, f"{row['package']} {text} is no [[jax]]")


def _other_range(one: Optional[str], other: Optional[str]) -> bool:
    try:
        return bool(one and other) and SpecifierSet(one or "") != SpecifierSet(other or "")
    except InvalidSpecifier:
        return False  # said of the row itself


def extensions(book: Book) -> Iterator[Problem]:
    """An extension is a known package, built for torch releases and builds that exist."""
    named = {p.row["package"] for p in book.rows("extension_package")} - {"*"}
    used = {p.row["package"] for p in book.rows("extension")}
    for place in book.rows("extension"):
        row = place.row
        if row["package"] not in named:
            yield Problem(place, f"no [[extension_package]] is {row['package']!r}")
        for text in row.get("torch", []):
            # Development versions were built against too, and releases that came to nothing.
            if not normal(text) or (not Version(text).is_prerelease and text not in book.releases):
                yield Problem(place, f"torch {text!r} is no release of torch.toml")
        torch, plus, variant = row.get("built", "").partition("+")
        if plus and (torch, "x86_64", variant) not in book.builds:
            yield Problem(place, f"built {row['built']!r} is no build of torch.toml")
        wanted = [one for one in map(Requirement, row.get("requires", [])) if one.name == "torch"]
        if row.get("torch") and any(not w.specifier.contains(row["torch"][0]) for w in wanted):
            yield Problem(place, f"requires leaves out its own torch {row['torch'][0]}")
    for place in book.rows("extension_package") if book.whole else ():
        if place.row["package"] not in used | {"*"}:
            yield Problem(place, "no [[extension]] is of this package")


CHECKS = (
    builds, details, installs, pins, metapackages, companions, tensorflow, jax, jax_requires,
    extensions,
)  # fmt: skip
