"""compat/pins.toml says what the published torch wheels require.

The other side is a copy of the wheels' metadata, read from the package index by
tools/torch_pins.py; `python tools/torch_pins.py --check` reads it again.
"""

import importlib.util
import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement

TOP = Path(__file__).resolve().parents[1]
STORED = TOP / "tests" / "data" / "torch_pins"
SIZE = 500_000


def tool():
    spec = importlib.util.spec_from_file_location(
        "torch_pins", str(TOP / "tools" / "torch_pins.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = tool()
COPIES = {path.stem: json.loads(path.read_text()) for path in sorted(STORED.glob("*.json"))}


@pytest.mark.parametrize("stem", sorted(COPIES))
def test_the_table_equals_the_published_metadata(stem):
    assert TOOL.differences(stem, COPIES[stem]) == []


def test_every_release_and_metapackage_has_a_stored_copy():
    pins = TOOL.table("pins")
    stems = {"torch-" + text for row in pins["pins"] for text in row["versions"]}
    stems |= {"{name}-{version}".format(**row) for row in pins["metapackage"]}
    assert set(COPIES) == stems


def test_every_default_wheel_was_read():
    found = {
        (stem, platform, TOOL.python_of(wheel))
        for stem, content in COPIES.items()
        if stem.startswith("torch-")
        for platform, groups in content.items()
        for group in groups
        for wheel in group["wheels"]
    }
    wanted = {
        ("torch-" + release, platform, python)
        for release, platform, pythons in TOOL.wanted([])
        for python in pythons
    }
    assert found == wanted


def test_the_copy_is_small_and_as_the_tool_writes_it():
    assert sum(path.stat().st_size for path in STORED.glob("*")) < SIZE
    for stem, content in COPIES.items():
        assert (STORED / (stem + ".json")).read_text() == TOOL.text(content)


def test_a_pin_that_differs_is_seen():
    content = json.loads(json.dumps(COPIES["torch-2.6.0"]))
    group = content["x86_64"][0]
    group["requires"] = [text.replace("3.2.0", "3.2.1") for text in group["requires"]]
    assert len(TOOL.differences("torch-2.6.0", content)) == len(group["wheels"])


def test_a_marker_that_differs_is_seen():
    content = json.loads(json.dumps(COPIES["torch-2.6.0"]))
    group = content["x86_64"][0]
    group["requires"] = [
        text.replace(' and platform_machine == "x86_64"', "") for text in group["requires"]
    ]
    assert TOOL.differences("torch-2.6.0", content)


def test_an_extra_of_the_metapackage_that_differs_is_seen():
    content = {
        "requires": [
            text.replace("13.1.1.3", "13.1.1.4")
            for text in COPIES["cuda-toolkit-13.0.3.0"]["requires"]
        ]
    }
    assert TOOL.differences("cuda-toolkit-13.0.3.0", content)


def test_shared_and_own_markers_are_joined():
    row = {
        "marker": 'platform_system == "Linux"',
        "pins": ["a==1", 'b==2; python_version < "3.13"'],
        "requires": ["c"],
    }
    assert TOOL.stated(row) == [
        str(Requirement('a==1; platform_system == "Linux"')),
        str(Requirement('b==2; platform_system == "Linux" and python_version < "3.13"')),
        "c",
    ]
    assert TOOL.stated({"pins": ["a==1"], "requires": []}) == ["a==1"]


def test_pythons_of_ranges_and_wheels():
    assert TOOL.pythons("3.9-3.11,3.13t") == ["3.9", "3.10", "3.11", "3.13t"]
    assert TOOL.pythons("3.12") == ["3.12"]
    assert TOOL.python_of("torch-1.13.0-cp37-cp37m-manylinux1_x86_64.whl") == "3.7"
    assert TOOL.python_of("torch-2.10.0-3-cp313-cp313t-manylinux_2_28_x86_64.whl") == "3.13t"
