"""TOML as lock files have it, read fast, and where each of its packages begins.

Nine tenths of a lock are lines of one form, one for each wheel, which a tool wrote. tomllib is
pure Python and takes a second for what a regular expression reads in some hundredths. So whole
arrays of such lines are taken out of the text before tomllib sees it; a short string that the
text has nowhere else stays in their place, and stands for them in what tomllib gives back. What
is not exactly of that form is left to tomllib: the result is the same with and without.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Match, NamedTuple, Tuple

from .model import BadLock, line_of

#: A key of more parts than this is no one's: tomllib before 3.14 takes quadratic time for it.
PARTS = 100

_TEXT = r'"[^"\\\x00-\x1f\x7f]*"'
_DATE = (
    r"[12]\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    r"|(?:0[13578]|1[02])-31)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z"
)
#: An artefact as pylock.toml, uv.lock, poetry.lock and pdm.lock spell it.
_ARTEFACT = (
    rf"\{{[ ]?(?:name = {_TEXT}, )?(?:url|file|path) = {_TEXT}(?:, hash = {_TEXT})?"
    rf"(?:, upload-time = {_DATE})?(?:, size = (?:0|[1-9]\d{{0,17}}))?"
    rf"(?:, upload-time = {_TEXT})?(?:, hashes = \{{ ?sha256 = {_TEXT} ?\}})?[ ]?\}}"
)
#: A dependency and a source as uv.lock spells them.
_REGISTRY = rf"\{{ registry = {_TEXT} \}}"
_NEED = (
    rf"\{{ name = {_TEXT}(?:, version = {_TEXT})?(?:, source = {_REGISTRY})?"
    rf"(?:, marker = {_TEXT})? \}}"
)
#: A comma; poetry before 2.0 left it out after the last.
_NEXT = r"(?:,\n|\n(?=\]))"
_BLOCK = re.compile(
    rf"^([\w-]+) = (\[\n(?:(?P<files>(?:[ ]*{_ARTEFACT}{_NEXT})+)"
    rf"|(?P<needs>(?:[ ]*{_NEED}{_NEXT})+)|(?P<texts>(?:[ ]*{_TEXT}{_NEXT})+))\]"
    rf"|(?P<file>\[{_ARTEFACT}\]|(?<=sdist = ){_ARTEFACT})"
    rf"|(?<=source = )(?P<registry>{_REGISTRY}))$",
    re.M | re.A,
)
KINDS = ("files", "file", "needs", "texts", "registry")
#: The same again, with what is in it.
_PARTS = re.compile(
    rf"\{{[ ]?(?:name = ({_TEXT}), )?(url|file|path) = ({_TEXT})(?:, hash = ({_TEXT}))?"
    rf"(?:, upload-time = {_DATE})?(?:, size = (\d+))?"
    rf"(?:, upload-time = {_TEXT})?(?:, hashes = \{{ ?sha256 = ({_TEXT}) ?\}})?[ ]?\}}",
    re.A,
)
_NEEDS = re.compile(
    rf"\{{ name = ({_TEXT})(?:, version = ({_TEXT}))?(?:, source = \{{ registry = ({_TEXT}) \}})?"
    rf"(?:, marker = ({_TEXT}))? \}}"
)
_ONE_PART = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*\.[ \t]*"
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_ONE_PART}){{{PARTS}}}", re.M)


class Taken(NamedTuple):
    """An array or a table that was taken out: of which form, and its text."""

    kind: str  # one of KINDS
    text: str


class Document(NamedTuple):
    """A TOML document, what was taken out of it, and its text."""

    tables: Dict[str, Any]
    taken: Dict[str, Taken]
    text: str


def load(text: str, lean: bool = True) -> Document:
    """The document in a text. Raises BadLock naming the line."""
    taken: Dict[str, Taken] = {}
    left = text
    # Within a string of several lines a line of that form may be no artefact.
    if lean and '"""' not in text and "'''" not in text:
        left = _take(text, taken)
    return Document(_read(left), taken, text)


def _take(text: str, taken: Dict[str, Taken]) -> str:
    marks = (f"taken.{number}." for number in range(9))
    mark = next((one for one in marks if one not in text), "")
    if not mark:
        return text

    def stand_in(found: Match[str]) -> str:
        key = f"{mark}{len(taken)}"
        kind = next(one for one in KINDS if found.group(one))
        taken[key] = Taken(kind, found.group(2))
        # What tomllib says of a value it says of the line where that ends: so does this one.
        below = found.group(2).count("\n")
        left = f'[{below * chr(10)}"{key}"]' if below else f'"{key}"'
        return f"{found.group(1)} = {left}"

    return _BLOCK.sub(stand_in, text)


def _read(text: str) -> Dict[str, Any]:
    long = _LONG_KEY.search(text)
    if long:
        raise BadLock(line_of(text, long.end()), f"a key of more than {PARTS} parts")
    try:
        import tomllib as toml
    except ImportError:
        import tomli as toml
    try:
        found: Dict[str, Any] = toml.loads(text)
        return found
    except RecursionError:
        raise BadLock(0, "nested too deeply") from None
    except (ValueError, OverflowError) as error:  # a date or a number that Python has not
        raise _bad(text, str(error)) from None


def _bad(text: str, message: str) -> BadLock:
    """tomllib's message, its line as the error's."""
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if not found:
        return BadLock(0, f"is no TOML: {message}")
    line = int(found.group(1)) if found.group(1) else text.rstrip("\n").count("\n") + 1
    return BadLock(line, f"is no TOML: {message[: found.start()]}")


def whole(taken: Taken) -> Any:
    """What tomllib would have read, of one array or table that was taken out."""
    if taken.kind == "registry":
        return {"registry": taken.text.split('"')[1]}
    if taken.kind == "needs":
        return [_row(*one) for one in _NEEDS.findall(taken.text)]
    if taken.kind == "texts":
        return taken.text.split('"')[1::2]
    return _read(f"taken = {taken.text}")["taken"]


def _row(name: str, version: str, registry: str, marker: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {"name": name[1:-1]}
    if version:
        found["version"] = version[1:-1]
    if registry:
        found["source"] = {"registry": registry[1:-1]}
    if marker:
        found["marker"] = marker[1:-1]
    return found


class Given(NamedTuple):
    """What a lock says of one artefact."""

    kind: str  # url, file or path
    place: str
    name: str
    hash: str
    size: int


def parts(taken: Taken) -> List[Given]:
    """The artefacts of one array that was taken out."""
    return [
        Given(kind, place[1:-1], name[1:-1], _hash(one, other), int(size or 0))
        for name, kind, place, one, size, other in _PARTS.findall(taken.text)
    ]


def _hash(one: str, sha256: str) -> str:
    return f"sha256:{sha256[1:-1]}" if sha256 else one[1:-1]


def headers(document: Document, key: str, names: List[str]) -> Tuple[int, ...]:
    """The line of each `[[key]]`; where they are written otherwise, of each name."""
    pattern = re.compile(rf"^[ \t]*\[\[[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*\]\]", re.M)
    lines = _lines(document.text, [one.start() for one in pattern.finditer(document.text)])
    return tuple(lines) if len(lines) == len(names) else _by_name(document.text, names)


def _lines(text: str, places: List[int]) -> List[int]:
    found, line, before = [], 1, 0
    for at in places:
        line += text.count("\n", before, at)
        before = at
        found.append(line)
    return found


def _by_name(text: str, names: List[str]) -> Tuple[int, ...]:
    """The line of each `name = "…"`, in their order; 0 where one is not found."""
    pattern = re.compile(r"\bname[\"']?[ \t]*=[ \t]*[\"']([^\"'\n]*)[\"']")
    seen = [(one.group(1), one.start()) for one in pattern.finditer(text)]
    lines: Dict[str, List[int]] = {}
    for (name, _at), line in zip(seen, _lines(text, [at for _name, at in seen])):
        lines.setdefault(name, []).append(line)
    left = {name: iter(each) for name, each in lines.items()}
    return tuple(next(left.get(name, iter(())), 0) for name in names)
