"""How conda writes which package is meant: MatchSpec, file names, channels. Not how it compares.

Oracle: `conda.models.match_spec.MatchSpec`, whose grammar this follows.
"""

from __future__ import annotations

import posixpath
import re
from typing import Dict, NamedTuple, Optional, Tuple

from .model import BadLock, without_credentials

#: More is no spec and no address of a package.
LENGTH = 2000
_EXTENSIONS = (".conda", ".tar.bz2")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]\s*$")
_IN_BRACKETS = re.compile(r"\s*([a-zA-Z0-9_-]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^,'\"]*)\s*(?:,|$)")
_NAME = re.compile(r"[^ =<>!~\[\]()|,;]+")
_VERSION_BUILD = re.compile(r"(.*[^ =!|,<>~])[ =]+([^-=,|<>~ ]+)")
_OPERATORS = re.compile(r"[=<>!~|,*^$()]")


class Spec(NamedTuple):
    """A package as conda is asked for it; what is not said is empty."""

    name: str
    version: str = ""  # with its operators: "=1.8", "==1.8", ">=1,<2"
    build: str = ""
    channel: str = ""
    subdir: str = ""
    url: str = ""
    hash: str = ""  # "sha256:…"


class Archive(NamedTuple):
    """What a package's URL says."""

    name: str
    version: str
    build: str
    channel: str
    subdir: str
    file: str


def parse(text: str, line: int) -> Spec:
    """A MatchSpec. Raises BadLock."""
    whole = text.strip()
    if len(whole) > LENGTH:
        raise BadLock(line, f"{_short(whole)} is longer than any package is written")
    text = re.split(r"\s+#|^#| if ", whole)[0].strip()
    if text.endswith(_EXTENSIONS) or "://" in text.split("::")[0] and is_archive(text):
        return _of_url(text, line)
    text, within = _brackets(text, whole, line)
    channel, _, text = text.rpartition("::")
    channel = channel.rstrip(":")  # of "channel:namespace:name" as of "channel::name"
    text = text.rpartition(":")[2].strip()
    found = _NAME.match(text)
    if not found:
        raise BadLock(line, f"{_short(whole)} names no package")
    name, rest = found.group(), text[found.end() :]
    if rest and rest[0] not in " =<>!~":
        raise BadLock(line, f"{_short(whole)} is no package that conda can be asked for")
    version, build = version_and_build(rest)
    channel, subdir = _channel(within.get("channel", channel))
    if "version" in within:
        version = _spelled(within["version"], "")
    _usable(version, whole, line)
    digests = (f"{kind}:{within[kind].lower()}" for kind in ("sha256", "md5") if kind in within)
    return Spec(
        name.lower(),
        version,
        within.get("build", build),
        channel,
        within.get("subdir", subdir),
        without_secrets(within.get("url", "")),
        next(digests, ""),
    )


def version_and_build(text: str) -> Tuple[str, str]:
    """(version with its operator, build) of what follows a name: "=1.2=py_0", ">=1,<2", "1 b_0".

    A version without an operator, or with a build, is exact: "==1.2", as conda takes it.
    """
    text = re.sub(r"\s*([,|<>!~])\s*", r"\1", text[:LENGTH].strip())
    text = re.sub(r"(^|[,|=<>!~])(=+)\s+", r"\1\2", text)
    split = _VERSION_BUILD.fullmatch(text)
    version, build = split.groups() if split else (text, "")
    return _spelled(version.replace(" ", ""), build), "" if build == "*" else build


def _spelled(version: str, build: str) -> str:
    version = version.replace(" ", "")
    if version in ("", "*", "=*", "==*"):
        return ""
    if not _OPERATORS.search(version):
        return "==" + version
    if version.startswith("==") and "*" in version and not build:
        return version[2:]
    plain = version[1:]
    if re.fullmatch(r"=[^=<>!~|,*()]*[^=<>!~|,*().]\*", version):
        return version[:-1] + ".*"
    if build and version[0] == "=" and not _OPERATORS.search(plain):
        return "==" + plain
    return version


def _usable(version: str, whole: str, line: int) -> None:
    """Refuses an operator without a version, as conda does."""
    if re.search(r"[=<>!~](?:[,|)]|$)|^[,|]|[,|]$|[,|][,|]", version):
        raise BadLock(line, f"{_short(whole)} has an operator without a version")


def _brackets(text: str, whole: str, line: int) -> Tuple[str, Dict[str, str]]:
    """(what stands before, the keys and values) of `name[version='>=1',build=py_0]`."""
    found = _BRACKETS.search(text)
    if not found:
        return text, {}
    inner, at, keys = found.group(1), 0, {}
    while at < len(inner):
        one = _IN_BRACKETS.match(inner, at)
        if not one or one.end() == at:
            raise BadLock(line, f"{_short(whole)}: what is in brackets cannot be read")
        keys[one.group(1)] = one.group(2).strip("\"' ")
        at = one.end()
    return text[: found.start()].strip(), keys


def _channel(written: str) -> Tuple[str, str]:
    """(channel, platform) of "conda-forge/linux-64" or "conda-forge"."""
    channel = without_secrets(written.rstrip("/"))
    head, _, last = channel.rpartition("/")
    return (head, last) if head and is_subdir(last) else (channel, "")


def _of_url(text: str, line: int) -> Spec:
    place, digest = split_hash(text, line)
    archive = of_url(place)
    if not archive:
        raise BadLock(line, f"{_short(text)} is no package of conda: name-version-build.conda")
    return Spec(
        archive.name,
        "==" + archive.version,
        archive.build,
        archive.channel,
        archive.subdir,
        without_secrets(place),
        digest,
    )


def is_archive(url: str) -> bool:
    """Whether a URL names a package of conda, with a hash behind it or not."""
    return url.partition("#")[0].endswith(_EXTENSIONS)


def is_subdir(text: str) -> bool:
    """Whether this is what conda calls a platform: "linux-64", "noarch"."""
    return re.fullmatch(r"noarch|[a-z]+-[a-z0-9_]+", text) is not None and text.split("-")[0] in (
        "noarch", "linux", "osx", "win", "freebsd", "zos", "emscripten", "wasi",
    )  # fmt: skip


def split_hash(text: str, line: int) -> Tuple[str, str]:
    """(URL, "md5:…" or "sha256:…") of `URL#HASH`, `URL#sha256:HASH`. Raises BadLock."""
    if len(text) > LENGTH:
        raise BadLock(line, f"{_short(text)} is longer than any address")
    place, mark, digest = text.partition("#")
    if not mark:
        return place, ""
    kind, colon, digits = digest.rpartition(":")
    size = {32: "md5", 64: "sha256"}.get(len(digits), "")
    if not re.fullmatch(r"[0-9a-fA-F]+", digits) or not size or kind not in ("", size):
        raise BadLock(line, f"#{digest[:80]} is no md5 (32 digits) and no sha256 (64 digits)")
    return place, f"{size}:{digits.lower()}"


def of_url(url: str) -> Optional[Archive]:
    """What the address of a package says; None where it is no conda package."""
    from urllib.parse import unquote

    place = url[:LENGTH].partition("#")[0].partition("?")[0].replace("\\", "/")
    folder, file = posixpath.split(place)
    file = unquote(file)
    stem = next((file[: -len(end)] for end in _EXTENSIONS if file.endswith(end)), "")
    parts = stem.rsplit("-", 2)
    if len(parts) != 3 or not all(parts):
        return None
    channel, _, subdir = folder.rpartition("/")
    if not is_subdir(subdir):
        channel, subdir = folder, ""
    return Archive(parts[0].lower(), parts[1], parts[2], without_secrets(channel), subdir, file)


def without_secrets(url: str) -> str:
    """A URL without user, password and the token that a private channel has in its path."""
    return re.sub(r"(^|/)t/[^/]+/(?=[^/])", r"\1", without_credentials(url)) if url else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
