"""Which entries a lock brings on one Python and machine, held against what the tools say.

Oracles, recorded in the samples: `uv export` and `poetry export`, with the groups and extras
that the file's name has. Where uv is on PATH (or `PREFLIGHT_UV` names it), it is asked again.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import List, Set, Tuple

import pytest

from preflight.lockfiles import applying, requirements
from preflight.lockfiles.applying import Target, holds
from preflight.lockfiles.model import Entry, Need, Parsed
from tests.lockfiles.locks import HERE, read, wanted

TARGETS = [
    (python, arch)
    for python in ("3.10.4", "3.11.7", "3.12.1", "3.13.0")
    for arch in ("x86_64", "aarch64")
]
UV = [
    (folder, str(one.name)[: -len(".txt")].replace("=", ":"))
    for folder in ("uv", "workspace")
    for one in sorted((HERE / folder / "exports").glob("*.txt"))
]


def exported(given: str, python: str, arch: str) -> Set[str]:
    """What a requirements file brings, by name and version (of a direct reference: its name)."""
    found = set()
    for one in requirements.parse(given).entries:
        if holds(one.marker, Target(python, arch)) is not False if one.marker else True:
            name = one.name or one.url.rpartition("/")[2]
            found.add(name if one.url else name + one.spec)
    return found


def brought(folder: str, python: str, arch: str, switches: List[str]) -> Set[str]:
    parsed = read(f"{folder}/uv.lock")
    direct = {one.name for one in parsed.entries if one.url}
    found = wanted(parsed, python, arch, *switches)
    return {name if name in direct else name + spec for name, spec in found}


@pytest.mark.parametrize("python, arch", TARGETS)
@pytest.mark.parametrize("folder, asked", UV)
def test_it_is_what_uv_exports(folder: str, asked: str, python: str, arch: str) -> None:
    file = HERE / folder / "exports" / (asked.replace(":", "=") + ".txt")
    theirs = exported(file.read_text("utf-8"), python, arch)
    ours = brought(folder, python, arch, [] if asked == "none" else asked.split(","))
    # The project's own members are no entries of the snapshot.
    assert ours == theirs - {"member"}


def test_uv_exports_what_was_recorded() -> None:
    uv = os.environ.get("PREFLIGHT_UV") or shutil.which("uv")
    if not uv:
        pytest.skip("uv is not here (PATH, PREFLIGHT_UV): only what it said before is compared")
    for folder, asked in UV:
        options = [] if asked == "none" else asked.split(",")
        words = [
            word
            for one in options
            for word in (("--extra", one[6:]) if ":" in one else ("--group", one))
        ]
        command = [uv, "export", "-q", "--frozen", "--offline", "--no-hashes", "--no-annotate",
                   "--no-header", "--no-emit-project", "--no-default-groups"]  # fmt: skip
        done = subprocess.run(
            [*command, *words], cwd=str(HERE / folder), stdout=subprocess.PIPE, check=True
        )
        file = HERE / folder / "exports" / (asked.replace(":", "=") + ".txt")
        assert done.stdout.decode() == file.read_text("utf-8")


POETRY = [
    ("poetry", "main", ()),
    ("poetry", "all", ("extra:tracking", "dev")),
    ("poetry-2.0", "main", ()),
    ("poetry-2.0", "tracking", ("extra:tracking",)),
    ("poetry-1.1", "main", ()),
    ("poetry-1.1", "tracking", ("extra:tracking",)),
    ("poetry-1.1", "dev", ("dev",)),
]
#: Of the group dev: lock-version 2.0 does not say so of its entries.
UNTOLD = {"exceptiongroup", "iniconfig", "pluggy", "pytest"}


@pytest.mark.parametrize("python, arch", [("3.8.1", "x86_64"), *TARGETS[:4]])
@pytest.mark.parametrize("folder, file, switches", POETRY)
def test_it_is_what_poetry_exports(
    folder: str, file: str, switches: Tuple[str, ...], python: str, arch: str
) -> None:
    given = (HERE / folder / f"export.{file}.txt").read_text("utf-8")
    if python == "3.8.1" and folder == "poetry":
        pytest.skip("poetry's own file is for Python 3.10 and later")
    theirs = exported(given, python, arch)
    parsed = read(f"{folder}/poetry.lock")
    ours = {name + spec for name, spec in wanted(parsed, python, arch, *switches)}
    assert theirs - ours == set()
    more = {one.split("==")[0] for one in ours - theirs}
    assert more <= (UNTOLD if parsed.groupless else set())


def test_where_groups_are_not_told_each_entry_says_so() -> None:
    lock = applying.record(read("poetry-2.0/poetry.lock"), "poetry.lock", Target("3.11.7"))
    assert {one.group for one in lock.entries.get(()) if not one.applies} == {"?"}


def test_an_entry_tells_with_which_extra_or_group_it_comes() -> None:
    lock = applying.record(read("uv/uv.lock"), "uv.lock", Target("3.11.7"))
    found = {(one.name, one.spec): (one.applies, one.group) for one in lock.entries.get(())}
    assert found["torch", "==2.9.0+cpu"] == ("only with extra:cpu", "extra:cpu")
    assert found["torch", "==2.9.0+cu128"] == ("only with extra:cu128", "extra:cu128")
    assert found["pytest", "==9.2.0"] == ("only with dev", "dev")
    assert found["transformers", "==5.24.0"] == ("", "")
    assert found["pywin32", "==312"][0] == "nothing that is wanted here needs it"


# -- markers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marker, extras, groups, expected",
    [
        ("extra == 'cpu'", (), (), False),
        ("extra == 'cpu'", ("cpu",), (), True),
        ("extra != 'cpu' and extra != 'gpu'", ("gpu", "x"), (), False),
        ("extra != 'cpu' and extra == 'gpu'", ("gpu", "x"), (), True),
        ("'CPU_x' == extra", ("cpu-x",), (), True),
        ("'dev' in dependency_groups", (), ("dev",), True),
        ("'dev' in dependency_groups", ("dev",), (), False),
        ("'gpu' in extras and sys_platform == 'linux'", ("gpu",), (), True),
        ("'gpu' not in extras", ("gpu",), (), False),
        ("python_version < '3.11' or 'gpu' in extras", (), (), False),
        ("no marker", (), (), None),
        ("extra ==", (), (), None),
        ("sys_platform === 'linux'", (), (), None),
    ],
)
def test_a_marker_asks_all_extras_and_groups_at_once(
    marker: str, extras: Tuple[str, ...], groups: Tuple[str, ...], expected: object
) -> None:
    assert holds(marker, Target("3.11.7"), extras, groups) is expected


@pytest.mark.parametrize(
    "marker, expected",
    [
        ("python_version < '3.11'", None),
        ("python_version >= '3.0'", True),
        ("python_version < '3.11' and sys_platform == 'win32'", False),
        ("python_version < '3.11' or sys_platform == 'linux'", True),
    ],
)
def test_of_no_known_python_what_holds_for_all_is_known(marker: str, expected: object) -> None:
    assert holds(marker, Target("")) is expected


# -- graphs -------------------------------------------------------------------------------------


def graph(*entries: Entry) -> Parsed:
    return Parsed("uv", entries=entries, graph=True, switches=("extra:x", "dev"))


def test_a_ring_is_followed_once() -> None:
    root = Entry("job", root=True, needs=(Need("a"),))
    a = Entry("a", "==1", needs=(Need("b"),))
    b = Entry("b", "==1", needs=(Need("a"), Need("b")))
    assert wanted(graph(root, a, b, Entry("c", "==1")), "3.11.7", "") == {
        ("a", "==1"),
        ("b", "==1"),
    }


def test_a_need_names_which_of_several_it_means() -> None:
    root = Entry(
        "job", root=True, needs=(Need("torch", version="2+cpu", source="u/cpu", extra="x"),)
    )
    entries = (
        Entry("torch", "==2", index_url="pypi"),
        Entry("torch", "==2+cpu", index_url="u/cpu"),
        Entry("torch", "==2+cpu", index_url="u/other"),
    )
    lock = applying.record(graph(root, *entries), "x", Target("3.11.7"))
    assert [one.group for one in lock.entries.get(())] == ["", "extra:x", ""]


def test_a_member_of_a_workspace_that_nothing_needs_brings_nothing() -> None:
    root = Entry("job", root=True, needs=(Need("a"),))
    member = Entry("tool", root=True, optional=True, needs=(Need("b"),))
    entries = (root, member, Entry("a", "==1"), Entry("b", "==1"))
    assert wanted(graph(*entries), "3.11.7", "") == {("a", "==1")}
    assert wanted(graph(member, *entries[2:]), "3.11.7", "") == {("b", "==1")}


def test_an_extra_of_a_member_decides_a_conflict() -> None:
    root = Entry("job", root=True, needs=(Need("tool", extras=("gpu",)), Need("tool")))
    member = Entry(
        "tool",
        root=True,
        optional=True,
        needs=(Need("a", marker="extra == 'extra-4-tool-gpu'"), Need("b", extra="gpu")),
    )
    parsed = graph(root, member, Entry("a", "==1"), Entry("b", "==1"))
    assert wanted(parsed, "3.11.7", "") == {("a", "==1"), ("b", "==1")}


def test_the_samples_of_the_tools_are_where_they_should_be() -> None:
    assert len(UV) == 8 and Path(HERE, "uv", "pyproject.toml").is_file()
