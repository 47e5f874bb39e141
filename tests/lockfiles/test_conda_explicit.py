"""Lists of exact packages: @EXPLICIT with URLs, and what `conda list --export` writes."""

import pytest

from preflight import lockfiles
from preflight.lockfiles.model import BadLock
from tests.lockfiles.reading import by_name, cut_off, sample


def test_the_url_says_name_version_build_and_channel() -> None:
    parsed = sample("explicit-linux-64.txt")
    assert (parsed.format, parsed.role, parsed.platforms) == (
        "conda-explicit",
        "lock",
        ("linux-64",),
    )
    torch = by_name(parsed)["pytorch"]
    assert (torch.spec, torch.build) == ("==2.5.1", "cuda126_py311h5a6b4a7_306")
    assert torch.index_url == "https://conda.example.org/private"
    assert torch.files[0].name == "pytorch-2.5.1-cuda126_py311h5a6b4a7_306.conda"
    assert torch.files[0].hash == "md5:0f0e0d0c0b0a09080706050403020100"
    assert (torch.platform, torch.line) == ("linux-64", 7)
    assert by_name(parsed)["tzdata"].platform == ""
    assert by_name(parsed)["cudnn"].files[0].hash.startswith("sha256:b0d9c8c2")
    assert by_name(parsed)["own"].spec == "==1!2.0"


def test_credentials_are_left_out() -> None:
    assert "secret" not in str(sample("explicit-linux-64.txt"))
    assert "tk-0123" not in str(sample("explicit-linux-64.txt"))


def test_what_conda_lock_leaves_to_pip_is_read_too() -> None:
    flash = by_name(sample("explicit-linux-64.txt"))["flash-attn"]
    assert flash.manager == "" and flash.url.startswith("https://example.org/flash_attn")
    assert flash.hashes[0].startswith("sha256:3f0e") and flash.line == 10


def test_an_exported_list_knows_what_pip_installed() -> None:
    parsed = sample("conda-list-export.txt")
    assert (parsed.format, parsed.platforms) == ("conda-list", ("linux-64",))
    found = by_name(parsed)
    assert found["pytorch"].build == "py3.11_cuda12.4_cudnn9.1.0_0"
    flash = found["flash-attn"]
    assert (flash.spec, flash.manager, flash.build) == ("==2.7.0.post2", "", "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("numpy=1.26.4", "line 2: 'numpy=1.26.4' is no package of conda"),
        ("https://e.org/linux-64/a-1.conda", "line 2: .* is no package of conda"),
        ("https://e.org/linux-64/a-1-0.conda#123", "line 2: #123 is no md5"),
        ("https://e.org/linux-64/a-1-0.conda#sha256:" + "0" * 32, "line 2: #sha256:0+ is no md5"),
        ("# pip ???", "line 2: '\\?\\?\\?' is no requirement"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(BadLock, match=f"^{reason}"):
        lockfiles.read("explicit.txt", f"@EXPLICIT\n{line}\n".encode())


@pytest.mark.parametrize("name", ["explicit-linux-64.txt", "conda-list-export.txt"])
def test_a_file_cut_off_anywhere_is_read_or_refused(name: str) -> None:
    cut_off(name)
