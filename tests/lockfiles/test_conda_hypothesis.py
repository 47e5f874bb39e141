"""Whatever the bytes: an answer or BadLock that names a line, and never long."""

import string
import time
from typing import List, Tuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from preflight import lockfiles
from preflight.lockfiles import conda_spec, conda_versions
from preflight.lockfiles.applying import Target, record
from preflight.lockfiles.model import BadLock
from tests.lockfiles.reading import SAMPLES

NAMES = ("environment.yml", "conda-lock.yml", "pixi.lock", "explicit.txt", "list.yaml")
QUICK = settings(
    max_examples=150, deadline=2000, suppress_health_check=list(HealthCheck), derandomize=True
)
ORIGINALS = [
    ("environment.yml" if "environment" in one.name else
     "pixi.lock" if "pixi" in one.name else one.name, one.read_bytes())
    for one in sorted(SAMPLES.iterdir()) if one.suffix in (".yml", ".lock", ".txt")
    and one.name.startswith(("environment", "pixi", "conda-l", "explicit"))
]  # fmt: skip
PIECES = st.sampled_from(
    ["dependencies:", "version: 1", "version: 7", "package:", "packages:", "environments:",
     "metadata:", "- ", "  ", "\n", "\n  ", ": ", "pip:", "- pip:", "name: a", "url: x", "conda:",
     "pypi:", "kind:", "&a ", "*a", "<<: ", "[", "]", "{", "}", "!!str ", "|\n", "'", '"', "#",
     "numpy=1=0", "-r x", "@EXPLICIT\n", "https://e.org/linux-64/a-1-0.conda", "\t", "---\n",
     "default:", "linux-64:", "hash:", "null", "~", "? ", "%YAML 1.1\n", "manager: conda"]
)  # fmt: skip


def attempt(name: str, data: bytes) -> None:
    """Reads a file, and judges what was read."""
    try:
        parsed = lockfiles.read(f"/job/{name}", data)
    except BadLock as error:
        assert error.reason and 0 <= error.line <= data.count(b"\n") + data.count(b"\r") + 2
        return
    last = data.count(b"\n") + data.count(b"\r") + 1
    assert all(0 < one.line <= last for one in parsed.entries)
    record(parsed, name, Target("3.11.7"))


@QUICK
@given(st.sampled_from(NAMES), st.binary(max_size=300))
@example("environment.yml", b"\xff\xfea")
@example("environment.yml", b"dependencies: [\xc3]")
def test_any_bytes(name: str, data: bytes) -> None:
    attempt(name, data)


@QUICK
@given(st.sampled_from(NAMES), st.lists(PIECES, max_size=25))
def test_any_pieces_of_the_formats(name: str, pieces: List[str]) -> None:
    attempt(name, "".join(pieces).encode())


@QUICK
@given(st.sampled_from(ORIGINALS), st.data())
def test_a_sample_with_something_else_in_it(
    original: Tuple[str, bytes], data: st.DataObject
) -> None:
    name, text = original
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 60))
    put = data.draw(st.one_of(st.binary(max_size=8), PIECES.map(str.encode)))
    attempt(name, text[:at] + put + text[at + gone :])


SLOW = [
    ("a.yml", "version: 7\nplatforms:" + "\n " * 5000 + "x"),
    ("a.yml", "metadata:" + "\n " * 30_000 + "x"),
    ("list.txt", "@EXPLICIT\n" + "\n" * 300_000),
    ("explicit.txt", "@EXPLICIT\n" + "a-" * 300_000 + ".conda"),
    ("environment.yml", "dependencies: [" * 5000),
    *(("environment.yml", f"dependencies: ['a{one}']") for one in (
        " " * 300_000 + "x", "=" * 300_000, "[" * 300_000, " 1," * 100_000, " if a" * 100_000)),
    ("environment.yml", "dependencies: [pip: ['a" + " " * 300_000 + "x']]"),
    ("pixi.lock", "version: 6\nenvironments: {default: {packages: {linux-64: [pypi: x]}}}\n"
                  "packages: [{pypi: x, name: x, requires_dist: ['a" + " " * 300_000 + ")x']}]"),
]  # fmt: skip


def test_nothing_that_goes_on_and_on_takes_long() -> None:
    for name, text in SLOW:
        start = time.process_time()
        attempt(name, text.encode())
        assert time.process_time() - start < 2, (name, text[:40])


LETTERS = string.ascii_lowercase + string.digits + ".*=<>!~|,()[]:_-+ '\"#^$"
WRITTEN = st.text(alphabet=LETTERS, max_size=40)


@QUICK
@given(WRITTEN)
def test_any_spec_is_read_or_refused_and_can_be_judged(text: str) -> None:
    try:
        spec = conda_spec.parse(text, 1)
    except BadLock:
        return
    assert spec.name
    assert conda_versions.satisfies("1.2.3", "py_0", spec.version, spec.build) in (True, False)


VERSION = st.lists(
    st.sampled_from(["0", "1", "10", ".", ".", "_", "a", "rc", "dev", "post", "+", "1!", "-"]),
    min_size=1,
    max_size=8,
).map("".join)


@QUICK
@given(VERSION, VERSION, VERSION)
def test_versions_have_an_order(first: str, second: str, third: str) -> None:
    compared = conda_versions.order(first, second)
    back = conda_versions.order(second, first)
    if compared is None or back is None:
        return
    assert compared == -back
    assert conda_versions.order(first, first) == 0
    after = conda_versions.order(second, third)
    if after is not None and compared <= 0 and after <= 0:
        assert (conda_versions.order(first, third) or 0) <= 0
    for operator, holds in (("==", compared == 0), ("<", compared < 0), (">=", compared >= 0)):
        assert conda_versions.satisfies(first, "", operator + second) == holds
