"""Damaged, hostile and huge lock files: read, or refused with a line, and nothing else."""

import json
import time
from typing import Any, Iterator, List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight import lockfiles
from preflight.lockfiles import applying, lean
from preflight.lockfiles.model import BadLock
from tests.lockfiles.locks import FORMATS, module, refused, text

QUICK = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
PYLOCK = """lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.10"
environments = ["sys_platform == 'linux'"]
extras = ["gpu"]
dependency-groups = ["dev"]
default-groups = ["dev"]

[[packages]]
name = "torch"
version = "2.9.0+cu128"
marker = "sys_platform == 'linux' and 'gpu' in extras"
index = "https://download.pytorch.org/whl/cu128"
dependencies = [{ name = "numpy" }]
sdist = { url = "https://e.org/torch-2.9.0.tar.gz", upload-time = 2025-10-15T15:46:12Z, size = 7, hashes = { sha256 = "aa" } }
wheels = [
    { url = "https://e.org/torch-2.9.0%2Bcu128-cp311-cp311-linux_x86_64.whl", upload-time = 2025-10-15T15:46:12Z, size = 8, hashes = { sha256 = "bb" } },
    { url = "https://e.org/torch-2.9.0%2Bcu128-cp312-cp312-linux_x86_64.whl", hashes = { sha256 = "cc" } },
]

[[packages]]
name = "tool"
vcs = { type = "git", url = "https://e.org/tool", commit-id = "abc" }
"""  # noqa: E501
UV = """version = 1
revision = 3
requires-python = ">=3.10"
resolution-markers = [
    "sys_platform == 'linux'",
    "sys_platform != 'linux'",
]
conflicts = [[
    { package = "job", extra = "cpu" },
    { package = "job", group = "gpu" },
]]

[manifest]
members = ["job"]

[[package]]
name = "job"
version = "0.1"
source = { editable = "." }
dependencies = [
    { name = "torch", version = "2.9.0", source = { registry = "https://mirrors.example.org/pypi/simple" }, marker = "extra == 'extra-3-job-cpu'" },
    { name = "tool", extra = ["x"] },
]

[package.optional-dependencies]
cpu = [
    { name = "torch" },
]

[package.dev-dependencies]
gpu = [{ name = "torch" }]

[[package]]
name = "torch"
version = "2.9.0"
source = { registry = "https://mirrors.example.org/pypi/simple" }
sdist = { url = "https://e.org/torch-2.9.0.tar.gz", hash = "sha256:aa", size = 10, upload-time = "2026-11-10T18:17:11Z" }
wheels = [
    { url = "https://e.org/torch-2.9.0-cp311-cp311-linux_x86_64.whl", hash = "sha256:bb", size = 11 },
]

[[package]]
name = "tool"
version = "1"
source = { git = "https://e.org/tool?rev=v1#abc" }
"""  # noqa: E501
POETRY = """[[package]]
name = "torch"
version = "2.9.0+cu128"
description = "x"
optional = true
python-versions = ">=3.8"
groups = ["main", "dev"]
markers = {main = "extra == 'gpu'", dev = "python_version < '3.12'"}
files = [
    {file = "torch-2.9.0+cu128-cp311-cp311-linux_x86_64.whl", hash = "sha256:aa"},
    {file = "torch-2.9.0.tar.gz", hash = "sha256:bb"}
]

[package.dependencies]
numpy = {version = "^1.2", optional = true, markers = "sys_platform == 'linux'", extras = ["x"]}
sympy = [{version = "~1", python = ">=3.8"}, "*"]

[package.extras]
opt = ["numpy (>=1)"]

[package.source]
type = "git"
url = "https://e.org/x"
resolved_reference = "abc"

[extras]
gpu = ["torch"]

[metadata]
lock-version = "2.1"
python-versions = "^3.8"
"""
OLD = POETRY.replace('"2.1"', '"1.1"').replace('groups = ["main", "dev"]', 'category = "dev"')
PDM = """[metadata]
groups = ["default", "dev"]
strategy = ["inherit_metadata"]
lock_version = "4.5.0"

[[metadata.targets]]
requires_python = ">=3.10"
platform = "manylinux_2_40_x86_64"

[[package]]
name = "torch"
version = "2.9.0"
requires_python = ">=3.10"
groups = ["dev"]
extras = ["opt"]
marker = "python_version < '3.12'"
dependencies = [
    "numpy>=1.2; sys_platform == 'linux'",
    "sympy[x]",
]
files = [
    {file = "torch-2.9.0-cp311-cp311-linux_x86_64.whl", hash = "sha256:aa"},
    {url = "https://e.org/torch-2.9.0.tar.gz", hash = "sha256:bb"},
]

[[package]]
name = "tool"
version = "1"
git = "https://e.org/tool"
revision = "abc"
"""
PIPFILE = json.dumps(
    {
        "_meta": {
            "pipfile-spec": 6,
            "requires": {"python_version": "3.11"},
            "sources": [{"name": "pypi", "url": "https://u:p@mirrors.example.org/pypi/simple"}],
        },
        "default": {
            "torch": {
                "hashes": ["sha256:aa"],
                "index": "pypi",
                "markers": "python_version >= '3.10'",
                "sys_platform": "== 'linux'",
                "extras": ["x"],
                "version": "==2.9.0",
            },
            "tool": {"git": "https://e.org/tool", "ref": "abc", "editable": True},
        },
        "develop": {"pytest": {"version": "*"}},
    },
    indent=4,
)
SMALL = {"pylock": PYLOCK, "uv": UV, "poetry": POETRY, "pdm": PDM, "pipfile": PIPFILE}
EACH = [*SMALL.items(), ("poetry", OLD)]
NAMES = [*SMALL, "poetry-1.1"]


def outcome(format_: str, given_: str, taken: bool = True) -> Any:
    """What is read and what of it applies; or the line and reason."""
    load = lean.load
    if not taken:
        lean.load = lambda text: load(text, lean=False)  # type: ignore[misc]
    try:
        parsed = module(format_).parse(given_)
        return parsed, applying.record(parsed, "x", applying.Target("3.11.7"))
    except BadLock as error:
        assert error.reason and 0 <= error.line <= given_.count("\n") + 1
        return error.line, error.reason
    finally:
        lean.load = load


@pytest.mark.parametrize("format_, small", EACH, ids=NAMES)
def test_the_small_ones_are_read(format_: str, small: str) -> None:
    parsed, lock = outcome(format_, small)
    assert parsed.entries and lock.entries.known


@pytest.mark.parametrize("format_, small", EACH, ids=NAMES)
def test_cut_off_anywhere_it_is_read_or_refused(format_: str, small: str) -> None:
    for end in range(len(small)):
        outcome(format_, small[:end])


@pytest.mark.parametrize("format_", FORMATS)
def test_cut_off_within_a_string_it_names_the_line(format_: str) -> None:
    small = SMALL[format_]
    end = small.index("torch") + 2
    error = refused(format_, small[:end])
    assert error.line == small[:end].count("\n") + 1


# -- wrong types --------------------------------------------------------------------------------

ODD = ("text", "", 7, -1, 1.5, True, [], {}, ["text"], [["x"]], [{}], [{"name": "x"}], {"a": "b"})


def places(value: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """The way to each value within a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from places(one, (*path, number))


def replaced(value: Any, path: Tuple[Any, ...], new: Any) -> Any:
    """A document with another value in one place."""
    if not path:
        return new
    if isinstance(value, dict):
        return {k: replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [replaced(v, path[1:], new) if n == path[0] else v for n, v in enumerate(value)]


def written(document: Any) -> str:
    """A document as TOML, each table in one line."""

    def value(one: Any) -> str:
        if isinstance(one, dict):
            pairs = (f"{json.dumps(k)} = {value(v)}" for k, v in one.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(one, list):
            return "[" + ", ".join(map(value, one)) + "]"
        if isinstance(one, (bool, str)):
            return json.dumps(one, ensure_ascii=False)
        return str(one) if isinstance(one, (int, float)) else one.isoformat()

    return "".join(f"{json.dumps(key)} = {value(one)}\n" for key, one in document.items())


def document(format_: str, small: str) -> Any:
    return json.loads(small) if format_ == "pipfile" else lean.load(small, lean=False).tables


@pytest.mark.parametrize("format_, small", EACH, ids=NAMES)
def test_any_other_type_in_any_place_is_read_or_refused(format_: str, small: str) -> None:
    whole = document(format_, small)
    write = json.dumps if format_ == "pipfile" else written
    assert isinstance(outcome(format_, write(whole))[0], tuple)
    for path in places(whole):
        for odd in ODD:
            outcome(format_, write(replaced(whole, path, odd)))


def test_a_wrong_type_is_told_with_its_place_and_line() -> None:
    given_ = UV.replace('name = "tool"\nversion = "1"', 'name = "tool"\nversion = 1')
    error = refused("uv", given_)
    header = given_[: given_.rindex("[[package]]")].count("\n") + 1
    assert (error.line, error.reason) == (
        header,
        "package.version is a number, a string is expected",
    )
    error = refused("poetry", POETRY.replace('"*"]', "7]"))
    assert error.reason == "package.dependencies.sympy is a number, a constraint is expected"
    error = refused("pipfile", PIPFILE.replace('"==2.9.0"', "[]"))
    assert error.reason == "torch.version is an array, a string is expected"
    assert PIPFILE.split("\n")[error.line - 1].strip() == '"torch": {'


@pytest.mark.parametrize(
    "format_, given_, reason",
    [
        ("uv", "version = 2\n", "version '2': only version 1 can be read here"),
        ("uv", "", "no version: only version 1 can be read here"),
        ("pylock", 'lock-version = "2.0"\n', "lock-version '2.0': only 1.x can be read here"),
        (
            "poetry",
            '[metadata]\nlock-version = "3.0"\n',
            "lock-version '3.0': only 1.x and 2.x can be read here",
        ),
        ("pdm", '[metadata]\nlock_version = "5"\n', "lock_version '5': only 4.x can be read here"),
        (
            "pipfile",
            '{"_meta": {"pipfile-spec": 7}}',
            "pipfile-spec '7': only pipfile-spec 6 can be read here",
        ),
    ],
)
def test_an_unknown_version_of_a_format_is_refused(format_: str, given_: str, reason: str) -> None:
    assert refused(format_, given_).reason == reason


# -- damage -------------------------------------------------------------------------------------

SAMPLES = (
    ("uv", text("workspace/uv.lock")),
    ("uv", text("script/job.py.lock")),
    ("poetry", text("poetry-1.1/poetry.lock")[:6000]),
    ("pdm", text("pdm-targets/pdm.lock")[:4000]),
    ("pylock", text("pylock/pylock.cu128.toml")[:6000]),
    ("pipfile", text("pipenv/Pipfile.lock")[:3000]),
    *EACH,
)
PIECES = (
    "\0", '"', "'''", '"""', "[", "]", "{", "}", "\n", "\\", "#", ",", "=", ".", "\u0130", " ", "é",
    "name = 1\n", "[[package]]\n", "[package]\n", "taken.0.0", "wheels = [\n", "\r", "\ufeff",
    '    { url = "x", hash = "y" },\n', "]\n", "1e999", "\x7f",
)  # fmt: skip


@st.composite
def damaged(draw: Any) -> Tuple[str, str]:
    """A sample with some pieces cut, moved, doubled or put in."""
    format_, given_ = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(given_)))
        end = min(len(given_), start + draw(st.integers(0, 200)))
        piece = draw(st.sampled_from((*PIECES, given_[start:end], given_[start:end] * 2)))
        end = draw(st.sampled_from((start, end)))
        given_ = given_[:start] + piece + given_[end:]
    return format_, given_


@QUICK
@given(damaged())
def test_damaged_samples_are_read_or_refused_and_alike_with_and_without_taking(
    case: Tuple[str, str],
) -> None:
    format_, given_ = case
    assert outcome(format_, given_) == outcome(format_, given_, taken=False)


@QUICK
@given(st.sampled_from(SAMPLES), st.data())
def test_lines_in_another_order_are_read_alike_with_and_without_taking(
    case: Tuple[str, str], data: Any
) -> None:
    format_, given_ = case
    rows: List[str] = given_.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(rows)))
        some = rows[start : start + data.draw(st.integers(1, 5))]
        at = data.draw(st.integers(0, len(rows)))
        rows[at:at] = some
    given_ = "\n".join(rows)
    assert outcome(format_, given_) == outcome(format_, given_, taken=False)


VALUES = st.recursive(
    st.one_of(
        st.text(max_size=8),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.datetimes(),
        st.sampled_from(("torch", "==1", "sys_platform == 'linux'", "extra == 'x'", "2.1", ">=3")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(QUICK, max_examples=30)
@given(st.sampled_from(EACH), st.data())
def test_random_documents_of_the_right_shape_are_read_or_refused(
    case: Tuple[str, str], data: Any
) -> None:
    format_, small = case
    whole = document(format_, small)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(whole))))
        whole = replaced(whole, path, data.draw(VALUES))
    outcome(format_, json.dumps(whole, default=str) if format_ == "pipfile" else written(whole))


@QUICK
@given(st.binary(max_size=300), st.sampled_from(("uv.lock", "Pipfile.lock", "pylock.toml")))
def test_random_bytes_are_refused_or_read(data: bytes, name: str) -> None:
    try:
        lockfiles.read(name, data)
    except BadLock as error:
        assert error.reason


# -- size ---------------------------------------------------------------------------------------

N = 4000
HUGE = {
    "one name": "version = 1\n" + N * '[[package]]\nname = "a"\ndependencies = [{ name = "a" }]\n',
    "one name with extras": "version = 1\n"
    + "".join(
        f'[[package]]\nname = "a"\nversion = "{n}"\ndependencies = [{{ name = "a", extra = ["x{n}"]'
        f', version = "{n - 1}" }}]\n[package.optional-dependencies]\nx{n} = [{{ name = "a" }}]\n'
        for n in range(N // 4)
    ),
    "many extras": 'version = 1\n[[package]]\nname = "a"\nsource = { virtual = "." }\n'
    "[package.optional-dependencies]\n"
    + "".join(f'x{n} = [{{ name = "a", extra = ["x{n - 1}"] }}]\n' for n in range(N)),
    "many lines of one array": "version = 1\nwheels = [\n" + N * 4 * '    { url = "x" },\n',
    "many open arrays": "version = 1\n" + N * "wheels = [\n",
    "deep": "version = 1\na = " + 100000 * "[",
    "deep tables": "version = 1\na = " + 100000 * "{a=",
    "a long key": "version = 1\n" + 100000 * "a." + "a = 1",
    "a long quoted key": "version = 1\n[" + 50000 * '"a b".' + "a]",
    "a long number": "version = " + 100000 * "1",
    "a long name": 'version = 1\n[[package]]\nname = "' + 100000 * "a-" + '"\n',
    "underscores": "version = 1\n" + "# taken" + 100000 * "_" + "\n",
    "spaces": "version = 1\n" + 300000 * " " + "x",
    "quotes": "version = 1\nx = [" + 60000 * '"a",' + "\n",
    "names that are nowhere": "version = 1\npackage = [" + N * '{ "name" = "\\u0061" },' + "]\n",
}


@pytest.mark.parametrize("what", HUGE)
def test_no_shape_takes_long(what: str) -> None:
    before = time.process_time()
    outcome("uv", HUGE[what])
    assert time.process_time() - before < 4


def test_deep_and_long_json_is_refused() -> None:
    assert refused("pipfile", 100000 * "[").reason == "nested too deeply"
    assert refused("pipfile", 100000 * '{"a":').reason == "nested too deeply"
    assert "twice" in refused("pipfile", '{"a": 1,\n"a": 2}').reason
    assert refused("pipfile", '{"a": 1,\n"a": 2}').line == 2
    assert "surrogates" in refused("pipfile", '{"a": "\\ud800"}').reason
    outcome("pipfile", '{"_meta": {"pipfile-spec": 6}, "default": {' + ",".join(
        f'"a{n}": {{"version": "=={n}"}}' for n in range(N)) + "}}")  # fmt: skip


@pytest.mark.parametrize("format_", FORMATS)
def test_a_zero_byte_and_a_bad_byte_name_their_line(format_: str) -> None:
    name = {"pipfile": "Pipfile.lock", "pylock": "pylock.toml"}.get(format_, f"{format_}.lock")
    good = SMALL[format_].encode()
    for bad in (b"\0", b"\xff"):
        at = good.index(b"torch")
        with pytest.raises(BadLock) as error:
            lockfiles.read(name, good[:at] + bad + good[at:])
        assert error.value.line == good[:at].count(b"\n") + 1
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xef\xbb\xbf", "utf-8")):
        read = lockfiles.read(name, mark + SMALL[format_].encode(encoding))
        assert read == module(format_).parse(SMALL[format_])
    assert lockfiles.read(name, good.replace(b"\n", b"\r\n")).entries


def test_more_than_the_limit_is_refused_unread() -> None:
    with pytest.raises(BadLock, match="larger than 32 MiB"):
        lockfiles.read("uv.lock", b" " * (lockfiles.LIMIT + 1))
