"""Pipfile.lock of pipenv (JSON), pipfile-spec 6. Oracle: `pipenv requirements`."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterator, List, Set, Tuple

from . import shapes
from .model import VARIABLES, BadLock, Entry, Parsed, line_of, normalize, without_credentials
from .shapes import Table

DEFAULT = "default"
_OBJECT = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*\{')


def parse(text: str) -> Parsed:
    """The entries of a Pipfile.lock. Raises BadLock naming the line."""
    top = Table(_read(text), 1)
    meta = top.table("_meta")
    spec = str(meta.values.get("pipfile-spec", ""))
    shapes.known_version(spec, "6", "pipfile-spec", "pipfile-spec 6", 6)
    sources = {one.text("name"): one.text("url") for one in meta.tables("sources")}
    categories = [one for one in top.values if one != "_meta"]
    lines = _lines(text, top, categories)
    return Parsed(
        "pipfile",
        entries=tuple(
            _entry(Table(values, lines.get((category, name), 0), name), name, category, sources)
            for category in categories
            for name, values in top.table(category).values.items()
        ),
        indexes=_indexes(list(sources.values())),
        python=_python(meta.table("requires")),
        switches=tuple(one for one in categories if one != DEFAULT),
    )


def _read(text: str) -> Any:
    def once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: Set[str] = set()
            for name, _value in pairs:
                if name in seen:
                    raise _twice(text, name)
                seen.add(name)
        return found

    try:
        found = json.loads(text, object_pairs_hook=once)
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except BadLock:
        raise
    except RecursionError:
        raise BadLock(0, "nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadLock(error.lineno, f"is no JSON: {error.msg}") from None
    except ValueError as error:  # half of a surrogate pair, a number of 5000 digits
        raise BadLock(0, f"is no JSON that can be read here: {error}") from None


def _twice(text: str, key: str) -> BadLock:
    found = list(re.finditer(re.escape(json.dumps(key)) + r"\s*:", text))
    line = line_of(text, found[-1].start()) if found else 0
    return BadLock(line, f"{key[:80]!r} is there twice")


def _lines(text: str, top: Table, categories: List[str]) -> Dict[Tuple[str, str], int]:
    """The line of each entry: the keys of the text and of the document are in one order."""
    wanted = ((one, name) for one in categories for name in ("", *top.table(one).values))
    found: Dict[Tuple[str, str], int] = {}
    at = next(wanted, None)
    line, before = 1, 0
    for one in _OBJECT.finditer(text):
        line += text.count("\n", before, one.start())
        before = one.start()
        if at and one.group(1) == (at[1] or at[0]):
            found[at] = line
            at = next(wanted, None)
    return found


def _entry(package: Table, name: str, category: str, sources: Dict[str, str]) -> Entry:
    named = Table({"name": name}, package.line, name)
    version = package.text("version")
    return Entry(
        named.name(),
        "" if version == "*" else version,
        package.line,
        marker=_marker(package),
        extras=tuple(sorted(map(normalize, package.texts("extras")))),
        groups=() if category == DEFAULT else (category,),
        url=_place(package),
        index_url=without_credentials(sources.get(package.text("index"), "")),
        hashes=package.texts("hashes"),
    )


def _marker(package: Table) -> str:
    """`markers`, and what older locks have as a key for each variable."""
    found = [package.text("markers")]
    found.extend(f"{one} {package.text(one)}" for one in VARIABLES if package.text(one))
    given = [one for one in found if one]
    return " and ".join(f"({one})" for one in given) if len(given) > 1 else "".join(given)


def _place(package: Table) -> str:
    """Where an entry lies that comes from no index, as pip would be told."""
    below = package.text("subdirectory")
    for kind in ("git", "hg", "svn", "bzr", "file", "path"):
        place = without_credentials(package.text(kind))
        if place and kind in ("git", "hg", "svn", "bzr"):
            place = f"{kind}+{place}@{package.text('ref')}"
        if place:
            return f"{place}#subdirectory={below}" if below else place
    return ""


def _indexes(urls: List[str]) -> Tuple[str, ...]:
    """pipenv asks the first source, the others for what names them."""
    found: Iterator[str] = map(without_credentials, dict.fromkeys(filter(None, urls)))
    return tuple(f"--{'extra-' if n else ''}index-url {one}" for n, one in enumerate(found))


def _python(requires: Table) -> str:
    full, short = requires.text("python_full_version"), requires.text("python_version")
    return f"=={full}" if full else f"=={short}.*" if short else ""
