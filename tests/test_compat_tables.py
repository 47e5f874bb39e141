"""Our own tables under compat/: `preflight matrix check` is content; and what is ours alone.

What any directory of tables must keep to is in preflight.tables_schema and preflight.tables_check
and tested in test_tables_check.py; here are the rules and numbers that only our data has.
"""

import csv
import re
from pathlib import Path

import pytest
from packaging.version import Version

from preflight import tables, tables_check
from preflight.tables_schema import ROWS, SOURCES, TABLES

COMPAT = Path(__file__).resolve().parents[1] / "compat"
DATA = tables.whole_tables(tables.toml_files(str(COMPAT)))


def rows(table):
    stem = next(stem for stem, kinds in TABLES.items() if table in kinds)
    return DATA[stem][table]


def numbers(text):
    return tuple(int(part) for part in text.split("."))


def ascending(values):
    values = list(values)
    return all(a < b for a, b in zip(values, values[1:]))


BRANCHES = {row["branch"]: row for row in rows("branch")}
TOOLKITS = {row["cuda"]: row for row in rows("toolkit")}
BUILDS = {
    (text, row["platform"], row["variant"]): row
    for row in rows("build")
    for text in row["versions"]
}
DEFAULTS = {
    (text, row["platform"]): row["variant"]
    for row in rows("build")
    for text in row.get("default", [])
}


def test_they_are_well_formed_and_agree_with_each_other():
    assert tables_check.check(str(COMPAT)) == []


def test_files_are_the_known_ones_and_none_is_empty():
    assert set(DATA) == {*TABLES, SOURCES}
    for stem, kinds in TABLES.items():
        assert set(DATA[stem]) == set(kinds)
        assert all(rows(kind) for kind in kinds)


def test_every_key_that_a_row_may_have_is_used():
    """A key that no row has is a misspelling, or has lost its reason."""
    for table, words in ROWS.items():
        known = {word.rstrip("!") for word in words.split()}
        assert known == {key for row in rows(table) for key in row} - {"note", "trust", "source"}


def test_every_source_is_used():
    used = {key for table in ROWS for row in rows(table) for key in row["source"]}
    rules = COMPAT.parent / "src" / "preflight" / "rules"
    used |= set(re.findall(r'"([a-z0-9-]+)"', "".join(p.read_text() for p in rules.glob("*.py"))))
    assert set(DATA[SOURCES]["source"]) - used == set()


def test_rows_are_in_order():
    assert list(DATA[SOURCES]["source"]) == sorted(DATA[SOURCES]["source"])
    assert ascending(row["branch"] for row in rows("branch"))
    assert ascending(numbers(row["cuda"]) for row in rows("toolkit"))
    assert ascending(numbers(row["version"]) for row in rows("release"))
    assert ascending(numbers(c) for row in rows("architecture") for c in row["capabilities"])
    assert ascending(numbers(row["cuda"]) for row in rows("package"))
    assert ascending(Version(row["torch"]) for row in rows("companion"))
    assert ascending(Version(row["versions"][0]) for row in rows("tensorflow"))
    assert ascending(numbers(row["release"]) for row in rows("ngc"))


# ---- drivers, toolkits, forward compatibility


def test_branches_say_when_they_came_and_what_they_are():
    assert all({"released", "kind"} <= set(row) for row in rows("branch"))


def test_only_one_branch_reports_a_cuda_without_a_toolkit():
    reported = {row["cuda"]: row["branch"] for row in rows("branch")}
    assert {cuda: reported[cuda] for cuda in set(reported) - set(TOOLKITS)} == {"12.7": 565}


def test_toolkits_begin_with_9_0():
    assert rows("toolkit")[0]["cuda"] == "9.0"


def test_floors_of_minor_version_compatibility():
    floors = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
    for row in rows("toolkit"):
        major = numbers(row["cuda"])[0]
        if major in floors and row["cuda"] != "11.0":
            assert row["minimum"] == floors[major], row["cuda"]
    assert TOOLKITS["11.0"]["minimum"] == "450.36.06"


def test_packages_miss_no_toolkit():
    covered = {row["cuda"] for row in rows("package")}
    assert covered == {c for c in TOOLKITS if (10, 0) <= numbers(c) <= (13, 4)}


def test_the_guide_covers_packages_from_12_2_on():
    for row in rows("package"):
        covered = numbers(row["cuda"]) >= (12, 2)
        assert ("documented" in row) == ("newer" in row) == covered, row["cuda"]


def test_every_class_has_a_gpu():
    assert {row["class"] for row in rows("class")} == {row["class"] for row in rows("gpu")}
    assert {row.get("error", 804) for row in rows("class")} == {804}


# ---- torch


def test_public_wheels_are_of_final_releases():
    for text, platform, variant in BUILDS:
        assert len(numbers(text)) == 3, (text, platform, variant)
        known = variant == "cpu" or re.match(r"^(cu\d{2,3}|rocm\d+(\.\d+)+)$", variant)
        assert known, (text, platform, variant)


def test_one_default_for_each_version_and_platform():
    published = {(text, platform) for text, platform, _variant in BUILDS}
    # The LTS release was never on the package index.
    assert published - set(DEFAULTS) == {("1.8.2", "x86_64")}


def test_glibc_and_abi_follow_the_build_image():
    """From 2.7 on everything was built on a newer system, in 2.6.0 only cu126."""
    for (text, platform, variant), row in BUILDS.items():
        new = Version(text) >= Version("2.7") or (text, variant) == ("2.6.0", "cu126")
        if platform == "x86_64":
            assert row["cxx11_abi"] is new, (text, variant)
            assert row["min_glibc"] == ("2.28" if new else "2.17"), (text, variant)
        assert row["min_glibc"] in {"2.17", "2.28"}
        checked = variant != "cpu" and Version(text) >= Version("2.7")
        assert "cxx11_abi" in row or (platform == "aarch64" and not checked), (text, variant)


def test_aarch64_wheels_hold_no_more_than_those_for_x86_64_but_thor():
    for (text, platform, variant), row in BUILDS.items():
        twin = BUILDS.get((text, "x86_64", variant))
        if platform == "aarch64" and twin and "cuda" in row:
            assert set(row["sm"]) - {"11.0"} <= set(twin["sm"]), (text, variant)


def test_builds_with_cuda_have_details():
    detailed = {
        (text, platform, row["variant"])
        for row in rows("detail")
        for text in row["versions"]
        for platform in row["platforms"]
    }
    for key in {key for key, row in BUILDS.items() if "cuda" in row} - detailed:
        # Builds known from reports only, and those of aarch64 that nobody has opened.
        off_index = key[1] == "aarch64" and DEFAULTS[key[:2]] != key[2]
        assert off_index or BUILDS[key]["source"][0] == "torch-reports", key


@pytest.mark.parametrize("text", sorted({text for text, _, _ in BUILDS}))
def test_a_variant_of_a_release_is_asked_for_in_one_way(text):
    for variant in {one for release, _, one in BUILDS if release == text}:
        fits = [row for row in rows("install") if text in row["versions"]]
        assert len([row for row in fits if variant in row.get("variants", [])]) <= 1, variant
        assert len([row for row in fits if "variants" not in row]) == 1


def test_every_default_wheel_from_1_13_on_has_its_requirements_once():
    seen = {}
    for row in rows("pins"):
        for text in row["versions"]:
            for platform in row["platforms"]:
                seen.setdefault((text, platform), []).append(row.get("pythons"))
    assert set(seen) == {key for key in DEFAULTS if Version(key[0]) >= Version("1.13")}
    for key, pythons in seen.items():
        assert len(set(pythons)) == len(pythons), key
        assert len(pythons) == 1 or None not in pythons, key


# ---- the rest


def test_one_month_of_ngc_was_built_on_a_beta_driver():
    early = [
        row["release"]
        for row in rows("ngc")
        if numbers(row.get("driver", "999.9")) < numbers(TOOLKITS[row["cuda"]]["minimum"])
    ]
    assert early == ["19.11"]


def test_one_version_of_tensorflow_is_of_one_package():
    versions = [text for row in rows("tensorflow") for text in row["versions"]]
    assert len(set(versions)) == len(versions)


def test_every_known_floor_of_jax_is_a_branch():
    assert {(row["cuda_major"], row["min_branch"]) for row in rows("jax")} == {(12, 525), (13, 580)}
    assert {row["min_branch"] for row in rows("jax")} <= set(BRANCHES)


# -- libraries --------------------------------------------------------------------------------


def test_a_library_is_in_one_wheel_of_a_cuda_or_in_one_system_package():
    seen = [(name, row.get("cuda_major")) for row in rows("library") for name in row["names"]]
    assert len(set(seen)) == len(seen)
    for row in rows("library"):
        assert ("wheel" in row) == ("cuda_major" in row) != ("apt" in row), row
        if "wheel" in row:  # since CUDA 13 the toolkit's have no suffix
            suffix = row["wheel"].rpartition("-cu")[2]
            assert suffix == str(row["cuda_major"]) or row["cuda_major"] == 13, row


def test_the_driver_s_libraries_are_in_no_package():
    names = {name for row in rows("library") for name in row["names"]}
    assert not any(name.startswith(("libcuda.so", "libnvidia-ml.so")) for name in names)


def test_every_nvidia_wheel_that_torch_pins_is_known():
    """But for those that bring no library which torch links."""
    wheels = {row["wheel"] for row in rows("library") if "wheel" in row}
    pinned = {re.split(r"[=<>~ ]", one)[0] for row in rows("pins") for one in row.get("pins", ())}
    rest = {one for one in pinned - wheels if one.startswith("nvidia-")}
    assert rest <= {"nvidia-nvtx", "nvidia-cuda-cupti-cu11"}, rest


# ---- platforms


def test_every_variable_that_was_collected_of_pai_is_there():
    """tests/data/pai_variables.csv: each name with the products it was found in."""
    with open(str(Path(__file__).parent / "data" / "pai_variables.csv"), newline="") as stream:
        collected = [tuple(row) for row in csv.reader(stream)][1:]
    there = {(row["name"], row["product"], row["trust"]) for row in rows("variable")}
    assert len(collected) == 158 and set(collected) - there == set()


def test_every_platform_that_is_recognised_has_its_variables():
    """Its marks among them, and those that its counts are read from."""
    for mark in rows("mark"):
        names = {row["name"] for row in rows("variable") if row["platform"] == mark["platform"]}
        patterns = [re.sub(r"<[A-Z]+>", "[A-Z0-9]+", one) + "$" for one in names]
        counts = [mark[one] for one in ("nodes", "node_rank", "processes") if one in mark]
        for name in (*mark["variables"], *counts):
            inherited = mark["platform"] == "pai-training" and name in PYTORCH
            assert inherited or any(re.match(one, name) for one in patterns), (mark, name)


#: A training job of the PAI SDK has those of the DLC job that it is.
PYTORCH = {"WORLD_SIZE", "RANK", "NPROC_PER_NODE"}


def test_no_platform_is_recognised_by_a_prefix_or_a_common_name():
    common = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "NPROC_PER_NODE",
              "TF_CONFIG", "HOSTNAME", "KUBERNETES_SERVICE_HOST"}  # fmt: skip
    for mark in rows("mark"):
        assert not set(mark["variables"]) & common
        assert not any(one.endswith("_") or "<" in one or "*" in one for one in mark["variables"])


def test_each_file_is_of_one_platform():
    for path in (COMPAT / "platforms").glob("*.toml"):
        table = tables.read_toml(str(path))
        found = {row["platform"] for row in table["variable"]}
        assert found == {path.stem}, path
