"""Is a data file whole? Each kind is looked at where a truncation shows: ends, headers, lengths.

Own small readers: they decode nothing, so what they read costs little and cannot act.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Mapping, Tuple

from ..declared import ANY, AUTO
from . import archives, columns, images, lines
from .reading import Damaged as Damaged
from .reading import Reader as Reader

EMPTY = "is empty (0 bytes)"
#: Of these a file of no records is one of 0 bytes, and readers go on with the next.
MAY_BE_EMPTY = ("tfrecord", "jsonl")

Check = Callable[[Reader], str]

#: Of each kind: its check, and how its files are called.
_KINDS: Dict[str, Tuple[Check, str]] = {
    "tar": (archives.tar, r"\.(tar|tgz|tar\.gz)"),
    "tfrecord": (lines.tfrecord, r"[._-]tfrecords?(\.gz)?(-\d+-of-\d+)?(\.gz)?"),
    "parquet": (columns.parquet, r"\.(parquet|parq|pq)"),
    "jsonl": (lines.jsonl, r"\.(jsonl|ndjson|jsonlines)(\.gz)?"),
    "zip": (archives.zip_file, r"\.(zip|npz|whl)"),
    "image": (images.image, r"\.(png|jpe?g|webp|gif)"),
    "safetensors": (columns.safetensors, r"\.safetensors"),
    "npy": (columns.npy, r"\.npy"),
    "gzip": (archives.gzip_end, r"\.gz"),
}
_ALIASES = {"webdataset": "tar"}
CHECKED: Tuple[str, ...] = (AUTO, ANY, *_ALIASES, *(one for one in _KINDS if one != "gzip"))
_NAMES: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(rf".*({names})\Z", re.I | re.S) for kind, (_check, names) in _KINDS.items()
}
#: How files begin that say in their name nothing of what they are.
_BEGINNINGS: Tuple[Tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "zip"),  # torch.save writes one
    (0, b"PAR1", "parquet"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"\x89PNG\r\n\x1a\n", "image"),
    (0, b"\xff\xd8\xff", "image"),
    (257, b"ustar", "tar"),
)


def kind_of(name: str, asked: str = AUTO) -> str:
    """The kind that a file is looked at as, by its name and what a policy says; empty: none."""
    asked = _ALIASES.get(asked, asked)
    if asked == ANY:
        return ""
    if asked != AUTO:
        return asked
    return next((kind for kind, names in _NAMES.items() if names.match(name)), "")


def named_as(name: str, asked: str) -> bool:
    """Whether a file is called as those of the kind that a policy asks for."""
    names = _NAMES.get(_ALIASES.get(asked, asked))
    return names is None or bool(names.match(name))


def begins_as(reader: Reader) -> str:
    """The kind that a file is by its first bytes; empty: none of those that are known."""
    head = reader.at(0, 512)
    found = next((k for at, word, k in _BEGINNINGS if head[at : at + len(word)] == word), "")
    return found or ("tfrecord" if lines.begins(head) else "")


def check(reader: Reader, kind: str) -> str:
    """Look whether a file is whole; returns what was looked at, in a word or two.

    Raises :class:`Damaged` with what is wrong, OSError when it cannot be read.
    """
    if reader.size == 0:
        raise Damaged(EMPTY, mild=kind in MAY_BE_EMPTY)
    return _KINDS[_ALIASES.get(kind, kind)][0](reader)
