"""pixi.lock: the samples are rattler's own writing, or were read by it and said the same."""

import pytest

from preflight import lockfiles
from preflight.lockfiles import applying
from preflight.lockfiles.model import BadLock, Entry, NoLock, Parsed
from tests.lockfiles.reading import SAMPLES, by_name, cut_off, read


def sample(version: int) -> Parsed:
    """The sample of one version of the format."""
    return lockfiles.read("/job/pixi.lock", (SAMPLES / f"pixi-v{version}.lock").read_bytes())


def one_of(parsed: Parsed, name: str, platform: str = "linux-64") -> Entry:
    """The first entry of a name for a platform."""
    return next(e for e in parsed.entries if (e.name, e.platform) == (name, platform))


def test_each_environment_and_platform_has_its_packages() -> None:
    parsed = sample(7)
    assert parsed.platforms == ("linux-64", "linux-aarch64", "osx-arm64")
    torch = [one for one in parsed.entries if one.name == "pytorch"]
    assert {(one.platform, one.build, one.groups) for one in torch} == {
        ("linux-64", "cpu_generic_py311_0", ("cpu",)),
        ("linux-aarch64", "cpu_generic_py311_0", ("cpu",)),
        ("linux-64", "cuda126_py311h5a6b4a7_306", ()),
    }
    assert {one.groups for one in parsed.entries if one.name == "pytest"} == {("test",)}
    assert len(parsed.entries) == 24


def test_a_conda_record_has_hashes_needs_and_bounds() -> None:
    torch = next(one for one in sample(7).entries if one.build.startswith("cuda126"))
    assert torch.files[0].hash.startswith("sha256:") and torch.hashes[0].startswith("md5:")
    assert torch.files[0].size > 0
    needs = [(one.name, one.spec, one.bound) for one in torch.needs]
    assert ("cudnn", ">=9.1.1.17,<10.0a0", False) in needs
    assert ("pytorch-gpu", "2.5.1", True) in needs
    assert torch.index_url == "https://conda.anaconda.org/conda-forge"


def test_what_the_file_name_says_is_not_repeated_since_version_6() -> None:
    python = one_of(sample(6), "python")
    assert (python.spec, python.build) == ("==3.11.9", "hb806964_0_cpython")
    own = one_of(sample(6), "own")
    assert own.index_url == "https://conda.example.org/private" and own.groups == ("lint",)
    assert one_of(sample(6), "tzdata", "osx-arm64").groups == ()
    assert "secret" not in str(sample(6)) and "tk-0123" not in str(sample(6))


def test_a_wheel_has_its_local_version_python_and_requirements() -> None:
    parsed = sample(6)
    torch = one_of(parsed, "torch")
    assert (torch.manager, torch.spec, torch.python) == ("", "==2.5.1+cu124", ">=3.8.0")
    assert torch.files[0].name == "torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl"
    nccl = next(one for one in torch.needs if one.name == "nvidia-nccl-cu12")
    assert nccl.spec == "==2.21.5" and nccl.marker.startswith("platform_machine")
    assert next(one for one in torch.needs if one.name == "opt-einsum").extra == "opt-einsum"
    assert one_of(parsed, "requests").extras == ("socks",)
    assert one_of(parsed, "apex").url.startswith("git+https://github.com/NVIDIA/apex@")
    assert "--extra-index-url https://download.pytorch.org/whl/cu124" in parsed.indexes


def test_a_directory_pins_nothing() -> None:
    train = one_of(sample(6), "train")
    assert (train.spec, train.url, train.hashes, train.files) == ("", "./", (), ())


@pytest.mark.parametrize("version", [4, 5])
def test_older_records_say_everything_themselves(version: int) -> None:
    found = by_name(sample(version))
    assert (found["python"].spec, found["python"].build) == ("==3.12.0", "hab00c5b_0_cpython")
    assert found["requests"].url == "./links/requests-2.31.0-py3-none-any.whl"
    assert {one.name: one.spec for one in found["requests"].needs} == {
        "charset-normalizer": "<4,>=2",
        "idna": "<4,>=2.5",
        "pysocks": "!=1.5.7,>=1.5.6",
    }
    assert (found["idna"].url != "") == (version == 4)


def test_only_the_default_environment_of_this_platform_is_for_the_job() -> None:
    lock = applying.record(sample(7), "pixi.lock", applying.Target("3.11.9"))
    here = [one for one in lock.entries.get(()) if not one.applies]
    assert {one.build for one in here if one.name == "pytorch"} == {"cuda126_py311h5a6b4a7_306"}
    assert all(one.platform == "linux-64" for one in here)
    assert lock.conflicts.value == ()


MINIMAL = """version: 7
platforms:
- name: mine
  subdir: linux-64
environments:
  default:
    channels: []
    packages:
      mine:
      - conda: https://e.org/c/noarch/a-1.0-0.conda
      - conda_source: "b[abcd1234] @ ./b"
packages:
- conda: https://e.org/c/noarch/a-1.0-0.conda
- conda_source: "b[abcd1234] @ ./b"
  depends: [a >=1]
"""


def test_a_platform_may_have_a_name_of_its_own_and_packages_a_source() -> None:
    first, second = read(MINIMAL, "pixi.lock").entries
    assert (first.platform, first.spec, first.build) == ("linux-64", "==1.0", "0")
    assert (second.name, second.spec, second.url) == ("b", "", "./b")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("version: 7", "version: 8", "line 1: pixi.lock of version 8: 4 to 7 can be read"),
        ("version: 7", "version: 3", "line 1: pixi.lock of version 3"),
        ("version: 7", "version: x", "line 1: 'version' must be a number"),
        ("environments:", "environment:", "line 1: has no 'environments'"),
        ("- conda: https://e.org/c/noarch/a-1.0-0.conda\n-", "-", "line 10: .* has no record"),
        ("- conda: https://e.org/c/noarch/a-1.0-0.conda\n-", "- x: 1\n-", "line 13: a package is"),
        ("depends: [a >=1]", "depends: [a, '=1']", "line 15: '=1' names no package"),
        ("depends: [a >=1]", "md5: 0x", "line 15: '0x' is no md5"),
        ("      mine:\n", "      mine: 3\n      x:\n", "line 9: the packages for mine must be"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(old: str, new: str, reason: str) -> None:
    with pytest.raises(BadLock, match=f"^{reason}"):
        read(MINIMAL.replace(old, new, 1), "pixi.lock")


def test_another_file_of_that_name_is_no_lock() -> None:
    with pytest.raises(NoLock):
        read("[a, b]\n", "pixi.lock")


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_a_file_cut_off_anywhere_is_read_or_refused(version: int) -> None:
    cut_off(f"pixi-v{version}.lock")
