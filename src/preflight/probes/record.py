"""Installed files against what their installer recorded of them (RECORD, of the wheel format).

By default only the compiled libraries of the packages that decide whether a job runs, by
existence and size; thoroughly, every file of every distribution, by its hash.

What RECORD says is not trusted: a path that is absolute or climbs out of the place that the
distribution was installed to is not looked at.
"""

from __future__ import annotations

import errno
import posixpath
import re
import stat
import struct
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import snapshot as s
from ..roots import Root
from .distributions import Distribution

#: Packages whose libraries are looked at by default, besides those that a prefix names: what
#: frameworks and their compiled extensions are called (compat/extensions.toml, see the tests).
MATTER = {
    "apex", "bitsandbytes", "causal-conv1d", "cupy", "deepspeed", "detectron2", "flash-attn",
    "flash-attn-3", "flashinfer-python", "grouped-gemm", "jax", "jaxlib", "mamba-ssm", "mmcv",
    "mmcv-full", "paddlepaddle", "paddlepaddle-gpu", "pyg-lib", "pytorch3d", "sgl-kernel",
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorrt", "tf-nightly", "torch",
    "torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv", "torchao",
    "torchaudio", "torchdata", "torchtext", "torchvision", "triton", "pytorch-triton",
    "transformer-engine", "vllm", "xformers",
}  # fmt: skip
PREFIXES = ("nvidia-", "jax-cuda", "jax-rocm", "transformer-engine-", "cupy-cuda", "tensorrt-cu")
#: Installers whose packages are changed after RECORD was written (prefixes and search paths
#: replaced, modules stripped): it says nothing about what is there.
REWRITERS = {"conda", "debian", "rpm", "apk", "nix", "guix", "pkgsrc", "portage"}

#: A RECORD larger than this is not read (the largest public ones have some MB), and of one no
#: more lines than these are looked at (torch has some fifteen thousand).
RECORD_LIMIT, LINES = 32 << 20, 200_000
#: More altered files than these, of one package and of all, are counted and not named.
NAMED, ROWS = 20, 300
CHUNK = 1 << 20
#: Files hashed at once; reading and hashing leave the interpreter to others.
THREADS = 4
BATCH_FILES, BATCH_BYTES = 256, 8 << 20

_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")
_SITE = re.compile(r"(.*)/lib(?:32|64)?/python[\d.]+t?/(?:site|dist)-packages$")
_HASHES = {"sha256": 32, "sha384": 48, "sha512": 64}
#: Written or rewritten by whoever installs, after the wheel was made.
_INSTALLERS = ("RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

#: Told of progress: bytes done, bytes in all.
Progress = Callable[[int, int], None]


class _Claim(NamedTuple):
    """What one distribution recorded of a file."""

    owner: str
    label: str  # with the version
    file: str  # as recorded
    hash: str  # "sha256=…", empty when none is given that is worth anything
    size: int  # -1: not said


class _Job(NamedTuple):
    """A file whose content is to be hashed, and by which algorithms."""

    path: str
    size: int
    claims: Sequence[_Claim]


_Bad = Tuple[str, str, str]  # package, file, problem
_Digests = Tuple[Dict[str, str], str]  # {"sha256": "sha256=…"}, what is wrong


def altered(
    root: Root,
    dists: Mapping[str, Distribution],
    thorough: bool = False,
    progress: Optional[Progress] = None,
) -> List[s.Altered]:
    """The files of the distributions ({normalized name: the one}) that are not as recorded."""
    claims: Dict[str, List[_Claim]] = {}
    bad: List[_Bad] = []
    for name, dist in dists.items():
        if (thorough or matters(name)) and not _rewritten(root, dist):
            for path, claim in _claims(root, name, dist, thorough, bad):
                claims.setdefault(path, []).append(claim)
    jobs: List[_Job] = []
    for path, of_path in claims.items():
        problem, size = _by_size(root, path, of_path)
        if problem:
            bad.append(problem)
        elif thorough and size >= 0:
            jobs.append(_Job(path, size, of_path))
        elif _differ(of_path):
            bad.append(_shared(of_path, [one for one in of_path if one.size in (-1, size)]))
    if thorough:
        bad += _by_hash(root, jobs, progress)
    return _rows(bad)


def matters(name: str) -> bool:
    """Whether the libraries of a package (normalized) decide if a GPU job runs."""
    return name in MATTER or name.startswith(PREFIXES)


def _rewritten(root: Root, dist: Distribution) -> bool:
    return installer(root, dist) in REWRITERS


def installer(root: Root, dist: Distribution) -> str:
    """Who installed it, by INSTALLER: pip, uv, conda, …; empty when that is not said."""
    try:
        words = root.head(posixpath.join(dist.where, "INSTALLER"), 200).decode("utf-8", "replace")
    except OSError:
        return ""
    return next(iter(words.lower().split()), "")


# -- what is recorded -------------------------------------------------------------------------


def _claims(
    root: Root, name: str, dist: Distribution, thorough: bool, bad: List[_Bad]
) -> Iterator[Tuple[str, _Claim]]:
    """(path, what is recorded of it) for the files to look at; none without a RECORD."""
    if not dist.where.endswith(".dist-info"):
        return
    try:
        data = root.read(posixpath.join(dist.where, "RECORD"), RECORD_LIMIT)
    except OSError as error:
        if error.errno == errno.EFBIG:
            bad.append((name, "RECORD", f"is {error.strerror}, and not read"))
        return
    site = posixpath.dirname(dist.where)
    label = f"{dist.name} {dist.version}"
    rows = records(data) if thorough else _libraries(data)
    for number, (file, hashed, size) in enumerate(rows):
        if number >= LINES:
            bad.append((name, "RECORD", f"has more than {LINES} lines: the rest is not looked at"))
            return
        path = _inside(site, file)
        if path and not (thorough and _unsteady(file)):
            yield path, _Claim(name, label, file, hashed, size)


def records(data: bytes) -> Iterator[Tuple[str, str, int]]:
    """(path, "sha256=…", size) of each line of a RECORD that is one; hash and size may be unsaid.

    A hash that is weak or has not the form of one is left out.
    """
    text = data.decode("utf-8", "replace")
    if '"' in text:
        rows: Iterator[List[str]] = _quoted(text)
    else:
        rows = (line.rstrip("\r").split(",") for line in text.split("\n"))
    for row in rows:
        if len(row) == 3 and row[0]:
            yield row[0], _hash(row[1]), int(row[2]) if re.fullmatch(r"\d{1,18}", row[2]) else -1


def _quoted(text: str) -> Iterator[List[str]]:
    import csv

    reader = csv.reader(line + "\n" for line in text.split("\n"))
    while True:
        try:
            yield next(reader)
        except csv.Error:
            continue  # this line is none
        except StopIteration:
            return


def _libraries(data: bytes) -> Iterator[Tuple[str, str, int]]:
    """The same for the lines of shared libraries, without reading the thousands of others."""
    at = data.find(b".so")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        for row in records(data[start:end]):
            if _LIBRARY.search(row[0]):
                yield row
        at = data.find(b".so", end)


def _hash(text: str) -> str:
    """ "sha256=…" without padding; empty for another algorithm, or another length."""
    name, _, value = text.partition("=")
    value = value.rstrip("=")
    size = _HASHES.get(name.lower(), 0)
    good = size and re.fullmatch(r"[\w-]+", value, re.A) and len(value) == (size * 8 + 5) // 6
    return f"{name.lower()}={value}" if good else ""


def _inside(site: str, file: str) -> str:
    """The path of a recorded file; empty where it is not below what was installed to.

    That is the prefix of a site directory (scripts are ../../../bin/NAME there), else the
    directory itself: with `pip install --target` what climbs out of it was moved anyway.
    """
    if "\0" in file or file.startswith("/"):
        return ""
    prefix = _SITE.match(site)
    path = posixpath.normpath(posixpath.join(site, file))
    below = prefix.group(1) if prefix else site
    return path if path.startswith(below.rstrip("/") + "/") else ""


def _unsteady(file: str) -> bool:
    """Files that are rightly not as recorded."""
    folder, _, name = file.rpartition("/")
    return name.endswith(".pyc") or (name in _INSTALLERS and folder.endswith(".dist-info"))


# -- what is there ----------------------------------------------------------------------------


def _by_size(root: Root, path: str, claims: Sequence[_Claim]) -> Tuple[Optional[_Bad], int]:
    """(what is wrong, the size); -1 where the file could not be looked at, or need not be."""
    if not any(one.hash or one.size >= 0 for one in claims):
        return None, -1
    first = claims[0]
    owners = _and(claims) if len(claims) > 1 else ""
    try:
        info = root.stat(path)
    except OSError as error:
        if error.errno in _GONE:
            whose = f" ({owners} have it)" if owners else ""
            return (first.owner, first.file, "is missing" + whose), -1
        return None, -1  # ours, not the file's: may not be looked at
    if not stat.S_ISREG(info.st_mode):
        return (first.owner, first.file, "is no regular file"), -1
    fits = [one for one in claims if one.size in (-1, info.st_size)]
    if fits:
        return None, info.st_size
    if _differ(claims):
        return _shared(claims, []), -1
    problem = f"has {info.st_size} bytes, recorded are {first.size}"
    if _LIBRARY.search(path) and _whole(root, path, info.st_size):
        problem += ", and is whole: stripped, patched or another build"
    return (first.owner, first.file, problem), -1


def _whole(root: Root, path: str, size: int) -> bool:
    """Whether an ELF file of 64 bits has all that its headers name, which end it: it was not cut.

    What strips and patches libraries leaves such a file, and a torn download or a full disk not.
    """
    try:
        data = root.head(path, 64)
    except OSError:
        return False
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return False
    segments, sections = struct.unpack_from("<QQ", data, 32)
    of_segment, segment_count, of_section, section_count = struct.unpack_from("<4H", data, 54)
    ends = (segments + of_segment * segment_count, sections + of_section * section_count)
    return bool(sections) and max(ends) <= size


def _differ(claims: Sequence[_Claim]) -> bool:
    """Whether several distributions recorded one file, and not the same content."""
    if len(claims) < 2:
        return False
    sizes = {one.size for one in claims if one.size >= 0}
    return len(sizes) > 1 or len({one.hash for one in claims if one.hash}) > 1


def _shared(claims: Sequence[_Claim], fits: Sequence[_Claim]) -> _Bad:
    """One file of several owners, told once, as the first's who recorded another content."""
    loser = next((one for one in claims if one not in fits), claims[0])
    if not fits:
        whose = "and is as neither recorded it"
    elif len(fits) == len(claims):
        whose = "whose is there was not looked at"
    else:
        whose = "the one there is that of " + fits[0].label
    return loser.owner, loser.file, f"belongs to {_and(claims)}, with other content; {whose}"


def _and(claims: Sequence[_Claim]) -> str:
    return " and ".join(dict.fromkeys(one.label for one in claims))


# -- by hash ----------------------------------------------------------------------------------


def _by_hash(root: Root, jobs: Sequence[_Job], progress: Optional[Progress]) -> Iterator[_Bad]:
    hashing = [one for one in jobs if any(claim.hash for claim in one.claims)]
    counter = _Counter(sum(one.size for one in hashing), progress)

    def digest(job: _Job) -> _Digests:
        return _digests(root, job, counter)

    for job, (found, problem) in _each(hashing, digest):
        claims = [one for one in job.claims if one.hash]
        fits = [one for one in claims if found.get(one.hash.partition("=")[0]) == one.hash]
        if problem:
            yield claims[0].owner, claims[0].file, problem
        elif not found or len(fits) == len(claims):
            continue
        elif _differ(job.claims):
            yield _shared(claims, fits)
        else:
            name = claims[0].hash.partition("=")[0]
            yield claims[0].owner, claims[0].file, f"has another {name}"


class _Counter:
    """Adds up what the threads have done."""

    def __init__(self, total: int, progress: Optional[Progress]) -> None:
        import threading

        self._lock = threading.Lock()
        self._done, self._total, self._progress = 0, total, progress

    def add(self, count: int) -> None:
        """Count bytes as done, and tell."""
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(min(self._done, self._total), self._total)


def _each(
    jobs: Sequence[_Job], call: Callable[[_Job], _Digests]
) -> Iterator[Tuple[_Job, _Digests]]:
    """Each job with its answer, in order. Threads take many small files at a time, or one large."""
    from concurrent.futures import ThreadPoolExecutor

    def several(batch: Sequence[_Job]) -> List[_Digests]:
        return [call(one) for one in batch]

    with ThreadPoolExecutor(THREADS) as pool:
        batches = list(_batches(jobs))
        for batch, answers in zip(batches, pool.map(several, batches)):
            yield from zip(batch, answers)


def _batches(jobs: Sequence[_Job]) -> Iterator[List[_Job]]:
    batch: List[_Job] = []
    size = 0
    for one in jobs:
        batch.append(one)
        size += one.size
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _digests(root: Root, job: _Job, counter: _Counter) -> _Digests:
    """({"sha256": "sha256=…"}, what is wrong); nothing where the file may not be read."""
    import hashlib
    from base64 import urlsafe_b64encode

    names = {one.hash.partition("=")[0] for one in job.claims if one.hash}
    hashes = {name: hashlib.new(name) for name in names}
    try:
        for chunk in root.chunks(job.path, CHUNK):
            for one in hashes.values():
                one.update(chunk)
            counter.add(len(chunk))
    except OSError as error:
        gone = error.errno in (*_GONE, errno.EIO)
        return {}, f"cannot be read: {error.strerror}" if gone else ""
    digests = {name: urlsafe_b64encode(one.digest()) for name, one in hashes.items()}
    return {name: f"{name}={one.decode().rstrip('=')}" for name, one in digests.items()}, ""


# -- rows -------------------------------------------------------------------------------------


def _rows(bad: Sequence[_Bad]) -> List[s.Altered]:
    """The rows; of a package with many, the first ones, and one without a file that counts."""
    by_package: Dict[str, List[_Bad]] = {}
    for one in bad:
        by_package.setdefault(one[0], []).append(one)
    rows: List[s.Altered] = []
    for package, ones in by_package.items():
        rows += [s.Altered(*one) for one in ones[:NAMED]]
        more = len(ones) - NAMED
        if more > 0:
            rows.append(s.Altered(package, "", f"{more} more files are not as recorded"))
    if len(rows) > ROWS:
        rest = {one.package for one in rows[ROWS:]}
        rows = rows[:ROWS] + [s.Altered("", "", f"so are files of {len(rest)} more packages")]
    return rows
