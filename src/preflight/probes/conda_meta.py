"""What conda has installed in an environment: its records in conda-meta.

Name, version and build stand in the name of a record. What else it states (hashes, where it
came from) is read only for the packages asked for: a record holds the list of all files of its
package too, and has megabytes where those are many.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import Dict, Iterable, Mapping, NamedTuple, Tuple

from ..roots import Root
from ..snapshot import Fact, absent, known, unknown

#: A record larger than this is not read (those of the largest packages have some MB).
RECORD_LIMIT = 48 << 20
#: One that is not laid out in lines is read whole by a parser, which takes more memory.
COMPACT_LIMIT = 16 << 20
#: What is taken from a record.
KEYS = ("build", "channel", "md5", "name", "sha256", "subdir", "url", "version")

_FIRST = re.compile(rb'\s*\{(?:\r?\n)([ \t]+)"')
_END = re.compile(rb"\n\}\s*\Z")


class Installed(NamedTuple):
    """{name: version} and {name: build} of the packages of an environment."""

    versions: Fact[Mapping[str, str]]
    builds: Fact[Mapping[str, str]]


class Record(NamedTuple):
    """What a record states; empty: it does not."""

    name: str = ""
    version: str = ""
    build: str = ""
    subdir: str = ""
    channel: str = ""
    url: str = ""
    md5: str = ""
    sha256: str = ""


def installed(root: Root, prefix: str) -> Installed:
    """The conda packages of `prefix`, by the names of their records; absent where it has none."""
    folder = posixpath.join(prefix, "conda-meta")
    if not prefix or not root.is_dir(folder):
        return Installed(absent(folder), absent(folder))
    try:
        found = _by_name(root, folder)
    except OSError as error:
        reason = unknown(f"cannot be listed: {error.strerror}", folder)
        return Installed(reason, reason)
    return Installed(
        known({name: version for name, (version, _build) in found.items()}, folder),
        known({name: build for name, (_version, build) in found.items()}, folder),
    )


def _by_name(root: Root, folder: str) -> Dict[str, Tuple[str, str]]:
    names = root.listing(folder)
    parts = [name[: -len(".json")].rsplit("-", 2) for name in names if name.endswith(".json")]
    return {one[0]: (one[1], one[2]) for one in parts if len(one) == 3}


def stated(root: Root, prefix: str, names: Iterable[str]) -> Dict[str, Fact[Record]]:
    """What the records of the packages `names` state; absent: conda has no such package here."""
    folder = posixpath.join(prefix, "conda-meta")
    try:
        there = _by_name(root, folder) if prefix and root.is_dir(folder) else {}
    except OSError as error:
        reason: Fact[Record] = unknown(f"cannot be listed: {error.strerror}", folder)
        return dict.fromkeys(names, reason)
    found: Dict[str, Fact[Record]] = {}
    for name in names:
        if name in there:
            path = posixpath.join(folder, "-".join([name, *there[name]]) + ".json")
            found[name] = _record(root, path)
        else:
            found[name] = absent(folder)
    return found


def _record(root: Root, path: str) -> Fact[Record]:
    try:
        data = root.read(path, RECORD_LIMIT)
    except OSError as error:
        return unknown(f"cannot be read: {error.strerror or error}", path)
    try:
        values = top_level(data)
    except ValueError as error:
        return unknown(str(error), path)
    from ..lockfiles.conda_spec import without_secrets

    taken = {key: values[key] for key in KEYS if isinstance(values.get(key), str)}
    for key in ("channel", "url"):
        if key in taken:
            taken[key] = without_secrets(taken[key])
    return known(Record(**taken), path)


def top_level(data: bytes) -> Dict[str, str]:
    """The texts of the keys of KEYS at the top of a record. Raises ValueError.

    conda, mamba and pixi write a record one key to a line, and what is within a value is
    indented further; a text cannot hold a line break. So a line that begins with the indent of
    the first key and a quote is a key of the top, and the rest need not be parsed.
    """
    first = _FIRST.match(data)
    if not first:
        return _parsed(data)
    if not _END.search(data[-64:]):
        raise ValueError("is cut off")
    indent = re.escape(first.group(1))
    keys = "|".join(KEYS).encode()
    line = rb'\n%s"(%s)"[ \t]*:[ \t]*("(?:[^"\\\n]|\\.)*")[ \t]*(?=[,\r\n])' % (indent, keys)
    found: Dict[str, str] = {}
    for one in re.finditer(line, data):
        key = one.group(1).decode()
        if key in found:
            return _parsed(data)  # not laid out as by conda
        found[key] = _text(one.group(2))
    return found if "name" in found else _parsed(data)


def _text(quoted: bytes) -> str:
    try:
        return str(json.loads(quoted.decode("utf-8", "replace")))
    except ValueError:
        raise ValueError("is no JSON") from None


def _parsed(data: bytes) -> Dict[str, str]:
    if len(data) > COMPACT_LIMIT:
        raise ValueError(f"has more than {COMPACT_LIMIT >> 20} MiB without lines")
    try:
        values = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(values, dict):
        raise ValueError("is no record")
    return {key: values[key] for key in KEYS if isinstance(values.get(key), str)}
