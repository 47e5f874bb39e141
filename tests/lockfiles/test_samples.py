"""Locks that the tools themselves wrote are read without loss."""

import json
import re
from collections import Counter
from typing import Any, List, Set

import pytest

from preflight import lockfiles
from preflight.lockfiles import applying
from preflight.lockfiles.model import normalize
from tests.lockfiles.locks import HERE, SAMPLES, entry, lines, read, text

try:
    import tomllib as toml
except ImportError:
    import tomli as toml

TOML = [one for one in SAMPLES if not one.startswith("pipenv")]


def document(name: str) -> Any:
    given = text(name)
    return json.loads(given) if name.startswith("pipenv") else toml.loads(given)


def packages(name: str) -> List[Any]:
    found = document(name)
    return found.get("package") or found.get("packages")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_known_by_its_name_or_its_content(name: str) -> None:
    expected = {"poetry-2.0": "poetry", "poetry-1.1": "poetry", "workspace": "uv", "script": "uv"}
    folder = name.split("/")[0]
    expected.update({"pipenv": "pipfile", "pip": "pylock"})
    found = expected.get(folder, folder.split("-")[0])
    assert read(name).format == found
    if not name.startswith("workspace"):
        assert lockfiles.format_of("some.file", text(name)) == found


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_names_no_machine(name: str) -> None:
    hosts = {"mirrors.example.org", "files.example.org", "download.pytorch.org", "github.com",
             "example.org"}  # fmt: skip
    assert set(re.findall(r"://([^/\"\s]+)", text(name))) <= hosts


@pytest.mark.parametrize("name", TOML)
def test_every_package_is_an_entry_with_the_line_of_its_header(name: str) -> None:
    at = lines(text(name), "[[package]]", "[[packages]]")
    parsed = read(name)
    given = {
        (normalize(one["name"]), one.get("version"), line) for one, line in zip(packages(name), at)
    }
    found = {(one.name, one.spec[2:] or None, one.line) for one in parsed.entries if one.name}
    assert found == given
    assert len(at) == len(packages(name))


@pytest.mark.parametrize("name", TOML)
def test_every_hash_and_file_of_the_text_is_in_an_entry(name: str) -> None:
    given = text(name)
    hashes = Counter(re.findall(r"(?<![\w-])hash = \"(sha256:\w+)\"", given))
    hashes.update("sha256:" + one for one in re.findall(r"sha256 = \"(\w+)\"", given))
    by_line = {one.line: one for one in read(name).entries}
    found = Counter(one.hash for each in by_line.values() for one in each.files)
    assert found == hashes
    sizes = re.findall(r"size = (\d+)", given)
    assert Counter(str(f.size) for e in by_line.values() for f in e.files if f.size) == Counter(
        sizes
    )


@pytest.mark.parametrize("name", TOML)
def test_every_wheel_has_its_name_without_percents(name: str) -> None:
    found = [one.name for each in read(name).entries for one in each.files]
    assert all(re.fullmatch(r"[\w.+!-]+\.(whl|tar\.gz|zip|tar\.bz2)", one) for one in found)


def test_every_entry_of_a_pipfile_has_its_line_and_hashes() -> None:
    given, parsed = text("pipenv/Pipfile.lock"), read("pipenv/Pipfile.lock")
    all_lines = given.split("\n")
    found = document("pipenv/Pipfile.lock")
    assert len(parsed.entries) == sum(len(v) for k, v in found.items() if k != "_meta")
    for one in parsed.entries:
        category = one.groups[0] if one.groups else "default"
        stated = found[category][one.name]
        assert all_lines[one.line - 1] == f'        "{one.name}": {{'
        assert list(one.hashes) == stated.get("hashes", [])
        assert one.spec == stated["version"].replace("*", "")
        assert one.marker == stated.get("markers", "")


def test_a_local_version_has_its_index() -> None:
    torch = entry(read("uv/uv.lock"), "torch", "2.9.0+cu128")
    assert torch.index_url == "https://download.pytorch.org/whl/cu128"
    assert torch.files[0].name.startswith("torch-2.9.0+cu128-cp311-")
    assert torch.files[0].url.startswith("https://download.pytorch.org/whl/cu128/torch-2.9.0%2B")
    for name in ("poetry/poetry.lock", "pipenv/Pipfile.lock", "pylock/pylock.cu128.toml"):
        assert entry(read(name), "torch", "2.9.0+cu128").index_url == torch.index_url


def test_indexes_are_as_pip_would_be_told() -> None:
    assert read("uv/uv.lock").indexes == (
        "--index-url https://mirrors.example.org/pypi/simple",
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        "--extra-index-url https://download.pytorch.org/whl/cu128",
    )
    assert read("pipenv/Pipfile.lock").indexes == (
        "--index-url https://mirrors.example.org/pypi/simple",
        "--extra-index-url https://download.pytorch.org/whl/cu128",
    )


def test_the_whole_says_for_which_python_and_platforms() -> None:
    assert read("uv/uv.lock").python == ">=3.10"
    assert read("poetry/poetry.lock").python == ">=3.10,<3.14"
    assert read("pdm/pdm.lock").python == ">=3.10,<3.14"
    assert read("pipenv/Pipfile.lock").python == "==3.11.*"
    assert read("workspace/uv.lock").platforms == (
        "sys_platform == 'linux'",
        "sys_platform == 'darwin'",
    )
    assert read("pdm-targets/pdm.lock").platforms == (
        "sys_platform == 'linux' and platform_machine == 'x86_64'",
        "sys_platform == 'win32'",
    )


def test_what_may_be_asked_for_is_told() -> None:
    assert read("uv/uv.lock").switches == ("extra:cpu", "extra:cu128", "extra:tracking", "dev")
    assert read("uv/uv.lock").exclusive == (("extra:cpu", "extra:cu128"),)
    assert read("poetry/poetry.lock").switches == ("extra:tracking", "dev")
    assert read("pdm/pdm.lock").switches == ("dev", "tracking")
    assert read("pipenv/Pipfile.lock").switches == ("develop", "tracking")


def test_sources_of_a_workspace_are_as_pip_would_be_told() -> None:
    parsed = read("workspace/uv.lock")
    commit = "b7cc87b95313b63c5529313dc53520911ea55f4a"
    assert entry(parsed, "gitlib").url == f"git+https://github.com/example/gitlib@{commit}"
    assert entry(parsed, "dirlib").url == "dirlib"
    assert entry(parsed, "pathlib-x").url == "wheels/pathlib_x-1.0+cu128-py3-none-any.whl"
    url = "https://example.org/wheels/urllib_x-1.0%2Bcu128-py3-none-any.whl"
    assert entry(parsed, "urllib-x").url == url
    assert entry(parsed, "urllib-x").spec == "==1.0+cu128"
    assert [one.name for one in parsed.entries if one.root] == ["member", "train-ws"]


def test_what_needs_what_is_told() -> None:
    parsed = read("workspace/uv.lock")
    needs = {(need.name, need.extras, need.marker) for need in entry(parsed, "train-ws").needs}
    assert ("member", ("net",), "") in needs
    assert ("tomli", (), "python_full_version < '3.11'") in needs
    member = entry(parsed, "member").needs
    assert [(one.name, one.extra, one.group) for one in member] == [
        ("certifi", "", ""),
        ("idna", "net", ""),
        ("pathspec", "", "lint"),
    ]
    torch = entry(read("poetry/poetry.lock"), "torch", "2.9.0+cu128")
    nccl = next(one for one in torch.needs if one.name == "nvidia-nccl-cu12")
    assert nccl.spec == "==2.27.5" and "x86_64" in nccl.marker
    transformers = [one for one in read("pdm/pdm.lock").entries if one.name == "transformers"]
    assert [one.extras for one in transformers] == [(), ("sentencepiece",)]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("python", ["3.9.1", "3.11.7", ""])
def test_the_snapshot_of_a_sample_is_made(name: str, python: str) -> None:
    parsed = read(name)
    lock = applying.record(parsed, name, applying.Target(python))
    pins = lock.entries.get(())
    assert len(pins) == sum(not one.root for one in parsed.entries)
    assert lock.conflicts.get(()) == ()
    here: Set[str] = {one.name for one in pins if not one.applies}
    assert here or (name, python) == ("pdm-targets/pdm.lock", "3.9.1")
    # pipenv itself has lost the marker of this one.
    assert "pywin32" not in here or name.startswith("pipenv")


def test_samples_are_all_listed() -> None:
    there = {str(one.relative_to(HERE)) for one in HERE.rglob("*lock*") if one.is_file()}
    assert {one for one in there if "exports" not in one} >= set(SAMPLES)


def test_what_pdm_exports_is_a_requirements_file_and_no_pdm_lock():
    # The header of pdm 2.29, pdm/formats/requirements.py.
    text = "# This file is @generated by PDM.\n# Please do not edit it manually.\n\nidna==3.7\n"
    read = lockfiles.read("requirements.txt", text.encode())
    assert (read.format, read.role) == ("requirements", "lock")
    assert [(one.name, one.spec) for one in read.entries] == [("idna", "==3.7")]
