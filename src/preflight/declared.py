"""The paths that a policy declares, and what each is asked for: `[data]` and `[output]`.

Read from the policy, looked at by a probe: the words between the two.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple, Union

#: Kinds of data; those of :mod:`preflight.datafiles`, which is not imported with every policy.
AUTO, ANY = "auto", "any"
KINDS = (AUTO, ANY, "webdataset", "tar", "tfrecord", "parquet", "jsonl", "zip", "image",
         "safetensors", "npy")  # fmt: skip
DATA, OUTPUT, CHECKPOINT = "data", "output", "checkpoint"
#: More tables than this are a mistake: each path is looked at by a process of its own.
PATHS = 32
#: A file is opened and read for each.
SAMPLE = 256
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
          "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]i?|)b?\Z", re.I)
_RATE = re.compile(r"\s*/\s*s\Z", re.I)


class BadDeclaration(ValueError):
    """A table that cannot be used: the message names the key and what is wrong there."""


class Declared(NamedTuple):
    """A path, and what is asked of what lies there; 0 and empty: nothing."""

    role: str
    path: str
    place: str  # of the policy: "data[0]"
    kind: str = AUTO
    files_min: int = 0
    files_max: int = 0
    bytes_min: int = 0
    bytes_max: int = 0
    throughput_min: int = 0  # bytes a second
    sample: int = 8
    recursive: bool = True
    glob: str = ""
    may_be_empty: bool = False
    free: int = 0
    inodes: int = 0
    create: bool = False


def read(document: Mapping[str, Any]) -> Tuple[Declared, ...]:
    """The declared paths of a policy; raises :class:`BadDeclaration`."""
    found: List[Declared] = []
    for role in (DATA, OUTPUT):
        rows = document.get(role, [])
        several = isinstance(rows, list)
        for number, row in enumerate(rows if several else [rows]):
            place = f"{role}[{number}]" if several else role
            found += _tables(role, row, place)
    if len(found) > PATHS:
        raise BadDeclaration(f"{found[PATHS].place}: more than {PATHS} paths")
    return tuple(found)


def _tables(role: str, row: Any, place: str) -> List[Declared]:
    if not isinstance(row, dict):
        raise BadDeclaration(f"{place}: expected a table, as [{role}] or [[{role}]]")
    known = _DATA_KEYS if role == DATA else _OUTPUT_KEYS
    values: Dict[str, Any] = {}
    for key, value in row.items():
        if key not in known:
            raise BadDeclaration(f"{place}.{key}: unknown key (known: {', '.join(sorted(known))})")
        try:
            values[key.replace("-", "_")] = known[key](value)
        except ValueError as error:
            raise BadDeclaration(f"{place}.{key}: {error}") from None
    if "path" not in values and "checkpoint" not in values or role == DATA and "path" not in values:
        raise BadDeclaration(f"{place}: needs a path")
    return _data(values, place) if role == DATA else _output(values, place)


def _data(values: Dict[str, Any], place: str) -> List[Declared]:
    for what in ("files", "bytes"):
        least, most = values.get(what + "_min", 0), values.get(what + "_max")
        if most is not None and most < max(least, 1):
            raise BadDeclaration(f"{place}.{what}-max: is below {what}-min, or 0")
    if set(values["path"]) & set("*?"):
        raise BadDeclaration(
            f"{place}.path: a pattern goes into glob, beside the directory in path"
        )
    empty = values.get("files_min") == 0
    return [Declared(role=DATA, place=place, may_be_empty=empty, **values)]


def _output(values: Dict[str, Any], place: str) -> List[Declared]:
    checkpoint = values.pop("checkpoint", "")
    found = [Declared(role=OUTPUT, place=place, **values)] if "path" in values else []
    if checkpoint:
        found.append(Declared(CHECKPOINT, checkpoint, f"{place}.checkpoint", create=True))
    return found


# -- values ---------------------------------------------------------------------------------


def _path(value: Any) -> str:
    text = _text(value)
    if not text or "\0" in text or len(text) > 4096:
        raise ValueError("is no path")
    if re.search(r"\$(?!\{[A-Za-z_][A-Za-z0-9_]*\})", text):
        raise ValueError("a variable is written ${NAME}")
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a string")
    return value


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise ValueError(f"{value!r} is none of {', '.join(KINDS)}")
    return str(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError("expected a whole number, 0 or more")
    return int(value)


def _size(value: Union[int, str]) -> int:
    if not isinstance(value, str):
        return _count(value)
    found = _SIZE.match(value.strip())
    if not found:
        raise ValueError(f'{value!r} is no size (as in "500GB", "1.5TiB" or a number of bytes)')
    return int(float(found.group(1)) * _UNITS[found.group(2).lower()])


def _rate(value: Union[int, str]) -> int:
    if not isinstance(value, str):
        return _count(value)
    bare = _RATE.sub("", value.strip())
    if bare == value.strip() or not _SIZE.match(bare):
        raise ValueError(f'{value!r} is no rate (as in "200MB/s")')
    return _size(bare)


def _sample(value: Any) -> int:
    if _count(value) > SAMPLE:
        raise ValueError(f"more than {SAMPLE} files")
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


_Readers = Dict[str, Callable[[Any], Any]]
_DATA_KEYS: _Readers = {
    "path": _path, "kind": _kind, "files-min": _count, "files-max": _count, "bytes-min": _size,
    "bytes-max": _size, "throughput-min": _rate, "sample": _sample, "recursive": _flag,
    "glob": _text,
}  # fmt: skip
_OUTPUT_KEYS: _Readers = {
    "path": _path, "free": _size, "inodes": _count, "checkpoint": _path, "create": _flag,
}  # fmt: skip
