"""pylock.toml, held against `packaging.pylock` (26.4 and later)."""

from typing import Any, Dict, List

import pytest

from preflight.lockfiles import applying
from tests.lockfiles.locks import read, text

try:
    import tomllib as toml
except ImportError:
    import tomli as toml

# Before 26.4 it leaves %2B in the names of files as it is, and refuses them.
pytest.importorskip("packaging", minversion="26.4")
packaging_pylock = pytest.importorskip("packaging.pylock")

LOCKS = ("pylock/pylock.toml", "pylock/pylock.cu128.toml", "pip/pylock.toml")


def oracle(given: str) -> Any:
    return packaging_pylock.Pylock.from_dict(toml.loads(given))


def environment(python: str, arch: str) -> Dict[str, str]:
    return applying.Target(python, arch).markers()


def tags(python: str, arch: str) -> List[Any]:
    from packaging.tags import compatible_tags, cpython_tags

    version = tuple(map(int, python.split(".")[:2]))
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(39, 4, -1)]
    platforms += [f"manylinux{year}_{arch}" for year in ("2014", "2010", "1")]
    platforms += [f"linux_{arch}"]
    return [*cpython_tags(version, platforms=platforms), *compatible_tags(version, None, platforms)]


@pytest.mark.parametrize("name", LOCKS)
def test_packaging_reads_the_same(name: str) -> None:
    theirs, ours = oracle(text(name)), read(name)
    assert ours.python == str(theirs.requires_python or "")
    assert len(ours.entries) == len(theirs.packages)
    for one, other in zip(ours.entries, theirs.packages):
        assert one.name == other.name
        assert one.spec == (f"=={other.version}" if other.version else "")
        assert bool(one.marker) == bool(other.marker)
        assert one.index_url == (other.index or "")
        files = [*([other.sdist] if other.sdist else []), *(other.wheels or ())]
        assert [file.size for file in one.files] == [file.size or 0 for file in files]
        assert [file.url for file in one.files] == [file.url for file in files]
        assert [file.hash for file in one.files] == [
            "sha256:" + file.hashes["sha256"] for file in files
        ]
        assert [file.name for file in one.files] == [file.filename for file in files]


@pytest.mark.parametrize("python", ["3.10.4", "3.11.7", "3.13.0"])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", LOCKS)
def test_packaging_takes_the_same_entries(name: str, arch: str, python: str) -> None:
    given = oracle(text(name))
    lock = applying.record(read(name), name, applying.Target(python, arch))
    ours = {(one.name, one.spec) for one in lock.entries.get(()) if not one.applies}
    theirs = set()
    for package in given.packages:
        marker = package.marker
        asked = {**environment(python, arch), "extras": set(), "dependency_groups": set()}
        if marker is None or marker.evaluate(asked, context="lock_file"):
            theirs.add((package.name, f"=={package.version}" if package.version else ""))
    assert ours == theirs


def test_packaging_selects_the_same_files() -> None:
    name = "pip/pylock.toml"
    given = oracle(text(name))
    chosen = {
        package.name: artefact.filename
        for package, artefact in given.select(
            environment=environment("3.11.7", "x86_64"), tags=tags("3.11.7", "x86_64")
        )
    }
    lock = applying.record(read(name), name, applying.Target("3.11.7"))
    ours = {one.name for one in lock.entries.get(()) if not one.applies}
    assert set(chosen) == ours


EXTRAS = """lock-version = "1.0"
created-by = "me"
extras = ["gpu", "cpu"]
dependency-groups = ["dev", "docs"]
default-groups = ["docs"]
[[packages]]
name = "torch"
version = "2.9.0+cu128"
marker = "'gpu' in extras"
wheels = [{ name = "torch-2.9.0+cu128-cp311-cp311-linux_x86_64.whl", url = "https://e/x", hashes = { sha256 = "aa" } }]
[[packages]]
name = "torch"
version = "2.9.0+cpu"
marker = "'cpu' in extras and 'gpu' not in extras"
sdist = { name = "torch-2.9.0+cpu.tar.gz", path = "./torch-2.9.0+cpu.tar.gz", hashes = { sha512 = "bb" } }
[[packages]]
name = "pytest"
version = "9"
marker = "'dev' in dependency_groups"
archive = { url = "https://e/pytest-9.zip", hashes = { sha256 = "cc" } }
[[packages]]
name = "sphinx"
version = "8"
marker = "'docs' in dependency_groups or 'dev' in dependency_groups"
vcs = { type = "git", url = "https://u:p@e/sphinx", commit-id = "abc", subdirectory = "x" }
[[packages]]
name = "job"
directory = { path = ".", editable = true }
"""  # noqa: E501


def test_groups_and_extras_of_a_lock_are_told() -> None:
    from preflight.lockfiles import pylock

    parsed = pylock.parse(EXTRAS)
    assert len(oracle(EXTRAS).packages) == len(parsed.entries)
    assert parsed.switches == ("extra:gpu", "extra:cpu", "dev", "docs")
    lock = applying.record(parsed, "pylock.toml", applying.Target("3.11.7"))
    found = {one.name + one.spec: (one.applies, one.group) for one in lock.entries.get(())}
    assert found == {
        "torch==2.9.0+cu128": ("only with extra:gpu", "extra:gpu"),
        "torch==2.9.0+cpu": ("only with extra:cpu", "extra:cpu"),
        "pytest==9": ("only with dev", "dev"),
        "sphinx==8": ("", ""),
        "job": ("", ""),
    }
    urls = [one.url for one in parsed.entries]
    assert urls == [
        "",
        "",
        "https://e/pytest-9.zip",
        "git+https://e/sphinx@abc#subdirectory=x",
        ".",
    ]
    assert parsed.entries[1].files[0].hash == "sha512:bb"
    assert parsed.entries[2].files[0].name == "pytest-9.zip"
