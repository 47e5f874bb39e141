"""conda's records: names, versions and builds by file name; the rest only when asked for."""

import json
import time

import pytest

from preflight.probes.conda_meta import Record, installed, stated, top_level
from tests.probes.fake_root import Image

HASHES = {"md5": "0" * 32, "sha256": "1" * 64}


def record(files=3):
    """A record as conda writes it: sorted keys, with the hash of each file of the package."""
    paths = [
        {"_path": f"lib/{n}.so", "path_type": "hardlink", "sha256": f"{n:064x}", "size_in_bytes": n}
        for n in range(files)
    ]
    return {
        "build": "cuda126_py311_0",
        "build_number": 0,
        "channel": "https://user:secret@conda.example.org/t/tk-0123/private/linux-64",
        "depends": ["python >=3.11,<3.12.0a0"],
        "files": [one["_path"] for one in paths],
        "link": {"source": "/opt/conda/pkgs/a", "type": 1, "name": "no", "url": "no", "md5": "no"},
        "name": "pytorch",
        "paths_data": {"paths": paths, "paths_version": 1},
        "subdir": "linux-64",
        "url": "https://conda.example.org/t/tk-0123/private/linux-64/pytorch-2.5.1-cuda126.conda",
        "version": "2.5.1",
        **HASHES,
    }


LAYOUTS = {
    "conda": {"indent": 2, "sort_keys": True, "separators": (",", ": ")},
    "mamba": {"indent": 4},
    "tabs": {"indent": "\t"},
    "compact": {"separators": (",", ":")},
}
STATED = Record(
    "pytorch",
    "2.5.1",
    "cuda126_py311_0",
    "linux-64",
    "https://conda.example.org/private/linux-64",
    "https://conda.example.org/private/linux-64/pytorch-2.5.1-cuda126.conda",
    **HASHES,
)
META = "/opt/conda/conda-meta"


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


def write(image, text):
    image.write(f"{META}/pytorch-2.5.1-cuda126_py311_0.json", text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_states_hashes_and_where_it_came_from(image, layout):
    write(image, json.dumps(record(), **LAYOUTS[layout]))
    found = stated(image.root, "/opt/conda", ["pytorch", "numpy"])
    assert found["pytorch"].value == STATED
    assert found["numpy"].absent


def test_names_versions_and_builds_cost_no_reading(image):
    write(image, "not even JSON")
    found = installed(image.root, "/opt/conda")
    assert found.versions.value == {"pytorch": "2.5.1"}
    assert found.builds.value == {"pytorch": "cuda126_py311_0"}
    assert installed(image.root, "/usr").builds.absent and installed(image.root, "").builds.absent


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no JSON"),
        ("[]", "is no record"),
        ("[" * 100_000, "is no JSON"),
        (json.dumps(record(), indent=2)[:-2], "is cut off"),
        ('{\n  "name": "\\x"\n}', "is no JSON"),
    ],
)
def test_a_record_that_cannot_be_read_is_unknown(image, text, reason):
    write(image, text)
    assert stated(image.root, "/opt/conda", ["pytorch"])["pytorch"].unknown == reason


def test_a_record_that_is_a_folder_or_has_odd_values_is_unknown_or_says_less(image):
    image.folders(f"{META}/numpy-1.26.4-py_0.json")
    write(image, json.dumps({**record(), "md5": None, "url": ["x"]}))
    found = stated(image.root, "/opt/conda", ["pytorch", "numpy"])
    assert found["numpy"].unknown.startswith("cannot be read")
    assert found["pytorch"].value == STATED._replace(md5="", url="")


@pytest.mark.parametrize("indent", [0, 1, 2])
def test_what_is_within_a_value_is_never_taken_for_the_top(indent):
    odd = {"a": {"name": "in", "md5": "in"}, "b": ['\n  "md5": "in",'], "c": '\n "url": "in",\n'}
    text = json.dumps({**odd, "name": "x", "d": [{"sha256": "in"}]}, indent=indent)
    assert top_level(text.encode()) == {"name": "x"}


def test_a_record_of_many_files_is_read_quickly(image):
    text = json.dumps(record(30_000), indent=2, sort_keys=True)
    assert len(text) > 5_000_000
    start = time.perf_counter()
    assert top_level(text.encode())["sha256"] == HASHES["sha256"]
    assert time.perf_counter() - start < 1
