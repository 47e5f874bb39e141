"""conda-lock.yml: the sample is of conda-lock's own writer; what it says is read whole."""

import pytest

from preflight import lockfiles
from preflight.lockfiles import applying
from preflight.lockfiles.model import BadLock, NoLock
from tests.lockfiles.reading import SAMPLES, by_name, cut_off, read, sample, written


def test_every_package_of_every_platform_is_read() -> None:
    parsed = sample("conda-lock.yml")
    assert (parsed.format, parsed.role) == ("conda-lock", "lock")
    assert parsed.platforms == ("linux-64", "linux-aarch64", "osx-arm64")
    assert len(parsed.entries) == 41
    assert {one.platform for one in parsed.entries} == set(parsed.platforms)
    for one in parsed.entries:
        assert written("conda-lock.yml", one.line) == f"- name: {one.name}"


def test_the_build_says_which_cuda_each_platform_gets() -> None:
    torch = [one for one in sample("conda-lock.yml").entries if one.name == "pytorch"]
    assert {one.platform: (one.spec, one.build) for one in torch} == {
        "linux-64": ("==2.5.1", "cuda126_py311_0"),
        "linux-aarch64": ("==2.5.1", "cpu_generic_py311_0"),
        "osx-arm64": ("==2.5.1", "cpu_generic_py311_1"),
    }
    one = torch[0]
    assert one.url == (
        "https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.5.1-cuda126_py311_0.conda"
    )
    assert one.index_url == "https://conda.anaconda.org/conda-forge"
    assert one.files[0].hash.startswith("sha256:") and one.hashes[0].startswith("md5:")
    assert ("__cuda", "") in [(need.name, need.spec) for need in one.needs]


def test_what_is_only_for_developers_has_its_group() -> None:
    entries = sample("conda-lock.yml").entries
    groups = {(one.name, one.groups) for one in entries if one.groups}
    assert groups == {("pytest", ("dev",)), ("iniconfig", ("dev",)), ("iniconfig", ("docs",))}


def test_packages_of_pip_are_pips() -> None:
    found = by_name(sample("conda-lock.yml"))["transformers"]
    assert (found.manager, found.spec, found.url) == ("", "==4.46.3", "")
    assert found.files[0].name == "transformers-4.46.3-py3-none-any.whl"
    assert [(one.name, one.spec) for one in found.needs] == [
        ("numpy", ">=1.17"),
        ("safetensors", ">=0.4.1"),
    ]


def test_channels_lose_their_secrets() -> None:
    assert sample("conda-lock.yml").indexes == (
        "--channel conda-forge",
        "--channel https://conda.example.org/private",
    )


def test_only_this_platforms_packages_are_for_this_job() -> None:
    lock = applying.record(sample("conda-lock.yml"), "conda-lock.yml", applying.Target("3.11.9"))
    here = [one for one in lock.entries.get(()) if not one.applies]
    assert len(here) == 12
    assert {one.build for one in here if one.name == "pytorch"} == {"cuda126_py311_0"}
    assert lock.conflicts.value == ()


def test_a_package_that_another_one_does_not_take_is_a_conflict() -> None:
    text = (SAMPLES / "conda-lock.yml").read_text("utf-8")
    text = text.replace("python_abi: 3.11.* *_cp311", "python_abi: 3.11.* *_cp312", 1)
    lock = applying.record(read(text, "conda-lock.yml"), "conda-lock.yml", applying.Target("3.11"))
    (only,) = lock.conflicts.get(())
    assert (only.owner, only.needs) == ("numpy 1.26.4", "python_abi 3.11.* *_cp312")
    assert only.found == "3.11 5_cp311"


MINIMAL = """version: 1
metadata: {platforms: [linux-64]}
package:
- name: a
  version: '1.0'
  manager: conda
  platform: linux-64
  url: https://e.org/c/linux-64/a-1.0-0.conda
"""


def test_the_least_that_a_package_says_is_enough() -> None:
    one = read(MINIMAL, "conda-lock.yml").entries[0]
    assert (one.spec, one.build, one.line, one.index_url) == ("==1.0", "0", 4, "https://e.org/c")
    one = read(MINIMAL + "  source: {type: url, url: 'https://e.org/a.whl'}\n", "x.conda-lock.yaml")
    assert one.entries[0].url.endswith("a-1.0-0.conda")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("version: 1\n", "version: 2\n", "line 1: conda-lock file of version 2: 1 can be read"),
        ("version: 1\n", "", "line 1: conda-lock file of no version"),
        ("manager: conda", "manager: npm", "line 6: a: 'npm' is no manager"),
        ("  version: '1.0'\n", "", "line 4: a has no 'version'"),
        ("- name: a", "- name: [a]", "line 4: a package's 'name' must be a text"),
        ("package:", "package: 3\nx:", "line 3: 'package' must be a list"),
        ("package:", "packages:", "line 1: has no 'package'"),
        ("  url", "  hash: {md5: zz}\n  url", "line 8: 'zz' is no md5"),
        ("  url", "  name: b\n  url", "line 8: 'name' stands twice in one mapping"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(old: str, new: str, reason: str) -> None:
    with pytest.raises(BadLock, match=f"^{reason}"):
        read(MINIMAL.replace(old, new, 1), "conda-lock.yml")


def test_another_file_of_that_name_is_no_lock() -> None:
    with pytest.raises(NoLock):
        read("on: push\n", "conda-lock.yml")
    assert lockfiles.format_of("ci/lock.yml", MINIMAL.replace("{p", "\n  content_hash: {}\n  #"))


def test_a_file_cut_off_anywhere_is_read_or_refused() -> None:
    cut_off("conda-lock.yml")
