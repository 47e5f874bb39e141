"""YAML as plain nodes that know their line. Nothing is constructed, so nothing can be run.

Read from PyYAML's events rather than with its composer: nesting, the number of values and what
aliases multiply are bounded while reading, and a key that stands twice is told.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .model import BadLock, NeedsLibrary, line_of

#: Deeper than any lock file nests.
DEPTH = 64
#: More values than this in one file, aliases counted as often as they stand, are refused.
VALUES = 500_000

_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufeff"
)
_NULLS = ("", "~", "null", "Null", "NULL")
_PLAIN_TAGS = re.compile(r"tag:yaml\.org,2002:(str|int|float|bool|null|seq|map|timestamp)|!")


class Scalar(NamedTuple):
    """A value as it is written, whatever its type would be."""

    line: int
    text: str
    null: bool = False
    block: bool = False  # written below a | or >


class Sequence(NamedTuple):
    """A list."""

    line: int
    items: List[Any]  # of Node


class Mapping(NamedTuple):
    """A mapping: its values, and the scalars that are its keys."""

    line: int
    values: Dict[str, Any]  # of Node
    keys: Dict[str, Scalar]


Node = Union[Scalar, Sequence, Mapping]


def load(text: str) -> Node:
    """The one document of a YAML text; an empty text is a null.

    Raises BadLock with the line and the reason, NeedsLibrary without PyYAML.
    """
    try:
        import yaml
    except ImportError:
        raise NeedsLibrary("PyYAML", "yaml") from None
    kind = getattr(yaml, "CSafeLoader", None)
    try:
        if kind is None:
            return _Builder(_escaped(text)).document(yaml, yaml.SafeLoader)
        return _Builder(text).document(yaml, kind)
    except yaml.reader.ReaderError as error:
        bad = _UNPRINTABLE.search(text)
        line = line_of(text, bad.start()) if bad else 0
        raise BadLock(line, f"holds a character that no text has: {error.character!r}") from None
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None
    except (ValueError, OverflowError) as error:
        # An escape beyond Unicode, or a lone surrogate.
        if isinstance(error, BadLock):
            raise
        raise BadLock(0, f"is no YAML: {error}") from None


def _escaped(text: str) -> str:
    """The text, where no escape in it stands for half a character, which libyaml refuses too."""
    half = re.search(r"\\(?:u|U0000)[dD][89a-fA-F]", text)
    if half:
        raise BadLock(line_of(text, half.start()), "is no YAML: an escape that is no character")
    return text


def _not_yaml(error: Any) -> BadLock:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or "cannot be read"
    return BadLock(mark.line + 1 if mark else 0, f"is no YAML: {problem}")


class _Builder:
    """Nodes from events, with a stack of its own: nesting costs no recursion."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values = 0
        self.anchors: Dict[str, Tuple[Optional[Node], int]] = {}  # with how many values it is

    def document(self, yaml: Any, kind: Any) -> Node:
        loader = kind(self.text)
        try:
            found = self._document(yaml, loader)
        finally:
            loader.dispose()
        return found

    def _document(self, yaml: Any, loader: Any) -> Node:
        ends = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
        found: Optional[Node] = None
        # Of each open collection: its node, its anchor, the values before it, the key in hand.
        stack: List[_Open] = []
        get = loader.get_event
        while True:
            event = get()
            kind = type(event)
            node: Node
            if kind is yaml.ScalarEvent:
                node = self._scalar(event)
            elif kind in (yaml.SequenceStartEvent, yaml.MappingStartEvent):
                self._open(event, kind is yaml.MappingStartEvent, stack)
                continue
            elif kind in ends:
                node = self._closed(stack.pop())
            elif kind is yaml.AliasEvent:
                node = self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                if found is not None:
                    raise BadLock(event.start_mark.line + 1, "is a second document in one file")
                continue
            elif kind is yaml.StreamEndEvent:
                return Scalar(1, "", True) if found is None else found
            else:
                continue
            if stack:
                _put(stack[-1], node)
            else:
                found = node

    def _count(self, line: int, more: int) -> None:
        self.values += more
        if self.values > VALUES:
            raise BadLock(line, f"has more than {VALUES} values")

    def _scalar(self, event: Any) -> Scalar:
        line = event.start_mark.line + 1
        self._count(line, 1)
        if event.tag:
            _tagged(event.tag, line)
        null = not event.style and event.value in _NULLS
        found = Scalar(line, event.value, null, event.style in ("|", ">"))
        if event.anchor is not None:
            self.anchors[event.anchor] = (found, 1)
        return found

    def _open(self, event: Any, mapping: bool, stack: List[_Open]) -> None:
        line = event.start_mark.line + 1
        self._count(line, 1)
        if len(stack) >= DEPTH:
            raise BadLock(line, "nested too deeply")
        if event.tag:
            _tagged(event.tag, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = (None, 0)
        node = Mapping(line, {}, {}) if mapping else Sequence(line, [])
        stack.append(_Open(node, event.anchor, self.values))

    def _closed(self, done: _Open) -> Node:
        if isinstance(done.node, Mapping):
            _merge(done.node)
        if done.anchor is not None:
            self.anchors[done.anchor] = (done.node, self.values - done.before + 1)
        return done.node

    def _alias(self, event: Any) -> Node:
        line = event.start_mark.line + 1
        if event.anchor not in self.anchors:
            raise BadLock(line, f"*{event.anchor} stands for nothing")
        node, size = self.anchors[event.anchor]
        if node is None:
            raise BadLock(line, f"*{event.anchor} holds itself")
        self._count(line, size)
        return node


class _Open:
    """A collection whose end has not come yet."""

    __slots__ = ("node", "anchor", "before", "key")

    def __init__(self, node: Union[Sequence, Mapping], anchor: Optional[str], before: int) -> None:
        self.node = node
        self.anchor = anchor
        self.before = before
        self.key: Optional[Scalar] = None


def _put(parent: _Open, node: Node) -> None:
    into = parent.node
    if isinstance(into, Sequence):
        into.items.append(node)
        return
    key = parent.key
    if key is None:
        if not isinstance(node, Scalar):
            raise BadLock(node.line, "a key must be a plain text")
        if node.text in into.keys:
            first = into.keys[node.text].line
            raise BadLock(node.line, f"{node.text!r} stands twice in one mapping (line {first})")
        into.keys[node.text] = parent.key = node
        return
    into.values[key.text] = node
    parent.key = None


def _tagged(tag: str, line: int) -> None:
    if not _PLAIN_TAGS.fullmatch(tag):
        raise BadLock(line, f"has the tag {tag!r}, which no lock file has")


def _merge(into: Mapping) -> None:
    """What `<<: *other` takes in, where the mapping has no such key of its own."""
    given = into.values.pop("<<", None)
    if given is None:
        return
    line = into.keys.pop("<<").line
    for one in given.items if isinstance(given, Sequence) else [given]:
        if not isinstance(one, Mapping):
            raise BadLock(line, "<< takes mappings only")
        for key, value in one.values.items():
            if key not in into.values:
                into.values[key], into.keys[key] = value, one.keys[key]


# -- what a format expects ----------------------------------------------------------------------


def mapping(node: Optional[Node], what: str) -> Mapping:
    """The node as a mapping; a null is an empty one. Raises BadLock."""
    if isinstance(node, Mapping):
        return node
    if node is None or isinstance(node, Scalar) and node.null:
        return Mapping(node.line if node else 0, {}, {})
    raise BadLock(node.line, f"{what} must be a mapping")


def items(node: Optional[Node], what: str) -> List[Any]:
    """The nodes of a list; a null is an empty one. Raises BadLock."""
    if isinstance(node, Sequence):
        return node.items
    if node is None or isinstance(node, Scalar) and node.null:
        return []
    raise BadLock(node.line, f"{what} must be a list")


def text(node: Optional[Node], what: str) -> str:
    """The text of a scalar; empty where there is none or a null. Raises BadLock."""
    if isinstance(node, Scalar):
        return "" if node.null else node.text
    if node is None:
        return ""
    raise BadLock(node.line, f"{what} must be a text")


def texts(node: Optional[Node], what: str) -> Iterator[Tuple[str, int]]:
    """(text, line) of each scalar in a list. Raises BadLock."""
    for one in items(node, what):
        yield text(one, what), one.line


def needed(of: Mapping, key: str, what: str) -> str:
    """The text of a key that must be there. Raises BadLock."""
    found = text(of.values.get(key), f"{what}'s {key!r}")
    if not found:
        raise BadLock(of.line, f"{what} has no {key!r}")
    return found


def number(node: Optional[Node], what: str) -> int:
    """A whole number, 0 where there is none. Raises BadLock."""
    found = text(node, what)
    if not found:
        return 0
    if not re.fullmatch(r"[0-9]{1,18}", found):
        raise BadLock(node.line if node else 0, f"{what} must be a number, not {found[:40]!r}")
    return int(found)
