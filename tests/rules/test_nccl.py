"""Rules about which NCCL would be loaded."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import M, finding, outcomes, say, snap, torch, word

DUPLICATE = "nccl/duplicate"
OLDER = "nccl/older-shadows-framework"
MISMATCH = "nccl/version-mismatch"
ALL = [DUPLICATE, OLDER, MISMATCH]

CU11, CU12, CU13 = "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"
TORCH = torch("12.4", "2.6.0")  # pins nvidia-nccl-cu12 2.21.5


def nccl(version=None, needed=None, **more):
    """The libnccl.so.2 that the loader would pick."""
    given = {"name": "libnccl.so.2", "version": version, "needed_version": needed, **more}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize("name", ALL)
def test_what_could_not_be_read_is_unknown(name):
    lost = s.unknown("timed out")
    blind = snap(torch=dict(TORCH, nccl="2.21.5"))
    blind = replace(blind, libraries=lost, python=s.PythonEnv(packages=lost))
    assert [word(name, one) for one in outcomes(name, blind)] == ["unknown"]


@pytest.mark.parametrize("name", ALL)
def test_nothing_to_judge(name):
    assert say(name, torch=TORCH, packages={"numpy": "1.26"}, libraries=[]) == ["n/a"]
    none = replace(snap(torch=TORCH), python=s.PythonEnv(packages=s.absent("no Python here")))
    assert [word(name, one) for one in outcomes(name, none)] == ["n/a"]


@pytest.mark.parametrize("name", ALL)
def test_the_variable_of_the_base_image_is_no_fact(name):
    """NCCL_VERSION names the image's package; torch has its own."""
    healthy = {"torch": dict(TORCH, nccl="2.21.5"), "packages": {CU12: "2.21.5"},
               "libraries": [nccl("2.21.5", found_by="rpath")]}  # fmt: skip
    old = {"NCCL_VERSION": "2.8.4-1", "NV_LIBNCCL_PACKAGE": "libnccl2=2.8.4-1+cuda11.2"}
    assert say(name, env=old, **healthy) == say(name, **healthy) == ["pass"]
    assert say(name, env=old, torch=TORCH, packages={}, libraries=[]) == ["n/a"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("build", ["conda", "ngc", "source"])
def test_a_build_without_wheels_is_judged_by_no_wheel(name, build):
    """conda's torch carries NCCL inside; apt's libnccl2 and a stray wheel are not what it uses."""
    other = torch("11.8", "2.2.1", build=build)
    assert say(name, torch=other, packages={"libnccl2": "2.15.5-1+cuda11.8"}) == ["n/a"]
    assert "fail" not in say(name, torch=other, packages={CU12: "2.15.5"})
    assert "warn" not in say(name, torch=other, packages={CU12: "2.15.5"})


# -- nccl/duplicate ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({CU12: "2.21.5"}, "pass"),
        ({CU11: "2.14.3", CU12: "2.19.3"}, "fail"),
        ({CU12: "2.21.5", CU13: "2.21.5"}, "warn"),  # of one version: whichever is there serves
        ({CU11: "2.21.5", CU12: "2.21.5", CU13: "2.27.7"}, "fail"),
        ({"nvidia-nccl": "2.1", "libnccl2": "2.2"}, "n/a"),
        ({}, "n/a"),
    ],
)
def test_several_packages_share_one_file(packages, expected):
    assert say(DUPLICATE, packages=packages) == [expected]


def test_packages_that_nobody_looked_at_are_unknown():
    assert say(DUPLICATE) == ["unknown"]


@pytest.mark.parametrize(
    ("packages", "loaded", "expected"),
    [
        # What lies there now is known: it decides.
        ({CU12: "2.21.5", CU13: "2.27.7"}, "2.27.7", "warn"),
        ({CU12: "2.21.5", CU13: "2.27.7"}, "2.21.5", "warn"),
        ({CU11: "2.14.3", CU12: "2.21.5"}, "2.21.5", "warn"),
        ({CU11: "2.14.3", CU12: "2.21.5"}, "2.14.3", "fail"),
        # It is not: both serve torch, or one of them would not.
        ({CU12: "2.21.5", CU13: "2.27.7"}, None, "warn"),
        ({CU11: "2.14.3", CU12: "2.21.5"}, None, "fail"),
    ],
)
def test_two_packages_that_serve_torch_do_not_fail_it(packages, loaded, expected):
    """jax[cuda13] beside a CUDA 12 torch: a newer NCCL serves an older build."""
    there = [nccl(loaded)] if loaded else []
    assert say(DUPLICATE, torch=TORCH, packages=packages, libraries=there) == [expected]


@pytest.mark.parametrize(
    ("document", "keeps"),
    [
        ({"torch": torch("11.8", "2.6.0+cu118")}, f"{CU11}==2.21.5"),
        ({"torch": torch("12.4", "2.6.0+cu124")}, f"{CU12}==2.21.5"),
        ({"torch": torch("12.6", "2.11.0+cu126")}, f"{CU12}==2.28.9"),
        ({"torch": torch("13.0", "2.9.0+cu130")}, f"{CU13}==2.27.7"),
        ({}, CU12),  # the newest of them, where nothing pins one
    ],
)
def test_the_cure_keeps_what_this_torch_asks_for(document, keeps):
    found = finding(DUPLICATE, packages={CU11: "2.10.3", CU12: "2.14.3"}, **document)
    assert found.fix == (f"pip uninstall -y {CU11} {CU12} && pip install --no-deps {keeps}",)


# -- nccl/older-shadows-framework -------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ("2.18.3", "2.19.3", "fail"),
        ("2.19.3", "2.19.3", "pass"),
        ("2.30.7", "2.29.7", "pass"),  # newer than built with: NCCL keeps its interface
        ("2.9.9", "2.10.3", "fail"),
        ("2.19.3+cuda12.3", "2.19.3", "pass"),
        ("2.15.5-1+cuda11.8", "2.19.3", "fail"),
        # Not enough to tell.
        ("2", "2.19.3", "pass"),
        ("unreadable", "2.19.3", "unknown"),
        (None, "2.19.3", "unknown"),
        ("2.18.3", None, "n/a"),
        (None, None, "n/a"),
    ],
)
@pytest.mark.parametrize("by_library", [True, False])
def test_older_than_built_with(have, need, expected, by_library):
    """The need is known from the binary, or from the build."""
    build = torch("12.1", "2.2.0") if by_library or not need else torch("12.1", "2.2.0", nccl=need)
    given = [nccl(have, need if by_library else None, needed_by="libtorch_cuda.so")]
    assert say(OLDER, torch=build, libraries=given) == [expected]


def test_no_nccl_at_all_is_another_rule_s():
    build = torch("12.1", "2.2.0", nccl="2.19.3")
    gone = nccl(missing=True, needed_by="libtorch_cuda.so")
    assert say(OLDER, torch=build, libraries=[gone]) == ["n/a"]
    plugin = {"name": "libnccl-net.so", "version": "1.0", "needed_by": "libnccl.so.2"}
    assert say(OLDER, torch=build, libraries=[plugin]) == ["n/a"]
    assert say(OLDER, torch=build) == ["n/a"]


@pytest.mark.parametrize(
    "build",
    [
        torch("11.8", "2.2.1", nccl="2.19.3", build="conda"),
        torch("11.7", "1.13.1+cu117", nccl="2.14.3"),
        torch("11.8", "2.1.0+cu118", nccl="2.18.5"),
    ],
)
def test_an_nccl_inside_torch_is_not_shadowed_by_the_image_s(build):
    """Linked statically: apt's libnccl2 lies there unused."""
    idle = nccl("2.8.4", path="/usr/lib/x86_64-linux-gnu/libnccl.so.2", found_by="ld-cache")
    assert "fail" not in say(OLDER, torch=build, libraries=[idle])
    # Where something of torch asks for it by name, it is what would be loaded.
    asked = dict(idle, needed_by="libtorch_cuda.so")
    assert say(OLDER, torch=build, libraries=[asked]) == ["fail"]


def test_what_another_library_needs_is_not_measured_by_torch():
    build = torch("12.1", "2.2.0", nccl="2.19.3")
    cupy_s = nccl("2.16.2", needed_by="cupy_nccl.so", found_by="rpath")
    assert say(OLDER, torch=build, libraries=[cupy_s]) == ["n/a"]


def test_the_cure_depends_on_how_it_was_found():
    old = nccl("2.18.3", "2.19.3", needed_by="libtorch_cuda.so", path="/opt/old/libnccl.so.2")
    for found_by in ("ld-preload", "ld-library-path"):
        found = finding(OLDER, libraries=[dict(old, found_by=found_by)])
        assert "LD_LIBRARY_PATH" in found.fix[0] and "/opt/old/libnccl.so.2" in found.observed
    assert "install NCCL 2.19.3" in finding(OLDER, libraries=[dict(old, found_by="rpath")]).fix[0]


def test_an_older_one_with_every_symbol_is_a_warning():
    """torch's import was followed to its end with it."""
    given = [nccl("2.21.3", "2.21.5", needed_by="libtorch_cuda.so", found_by="path")]
    seen = snap(torch=TORCH, libraries=given, packages={CU11: "2.21.3", CU12: "2.21.5"})
    works = replace(seen.frameworks.value[0], import_problem=s.absent("played"))
    followed = replace(seen, frameworks=s.known((works,), "torch"))
    for rule in (OLDER, DUPLICATE):
        assert [word(rule, one) for one in outcomes(rule, seen)] == ["fail"]
        assert [word(rule, one) for one in outcomes(rule, followed)] == ["warn"]


# -- nccl/version-mismatch --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({CU12: "2.21.5"}, "pass"),
        ({CU12: "2.20.5"}, "warn"),
        ({CU12: "2.9.9"}, "warn"),
        ({CU12: "2.27.3"}, "info"),  # a deliberate override
        ({CU13: "2.27.7"}, "warn"),  # for another CUDA major
        ({CU11: "2.21.5"}, "warn"),
        ({CU12: "2.21.5", CU13: "2.27.7"}, "pass"),  # nccl/duplicate speaks
        ({}, "n/a"),
    ],
)
def test_against_the_pin_of_torch(packages, expected):
    assert say(MISMATCH, torch=TORCH, packages=packages) == [expected]


@pytest.mark.parametrize(
    "build",
    [
        {},
        {"torch": torch(None, "2.6.0+cpu")},
        {"torch": torch("12.4", "99.0.0")},
        {"torch": torch("12.4", "2.7.0.dev20250101+cu124")},
        {"torch": {"build": "pip", "cuda": "12.4"}},
        {"jax": {"version": "0.4.30", "cuda": "12.3"}},
    ],
)
def test_what_pins_no_nccl_that_we_know_of(build):
    assert say(MISMATCH, packages={CU12: "2.1.0"}, **build) == ["n/a"]


def test_each_variant_asks_for_its_own():
    """2.6.0+cu118 asks for -cu11, 2.9.0+cu130 for -cu13: not what the default index pins."""
    judged = 0
    for row in M.torch_builds():
        for version in row["versions"] if "cuda" in row else ():
            detail = M.torch_detail(version, row["platform"], row["variant"])
            if detail.get("nccl_linkage") != "dynamic" or "nccl" not in detail:
                continue
            name = "nvidia-nccl-cu" + row["cuda"].partition(".")[0]
            build = torch(row["cuda"], f"{version}+{row['variant']}")
            document = {"torch": build, "os": {"arch": row["platform"]}}
            judged += 1
            assert say(MISMATCH, packages={name: detail["nccl"]}, **document) == ["pass"], build
            assert say(MISMATCH, packages={name: "1.0"}, **document) == ["warn"], build
    assert judged > 60


def test_a_mismatch_says_what_to_install():
    found = finding(MISMATCH, torch=torch("11.8", "2.6.0+cu118"), packages={CU11: "2.20.5"})
    assert found.fix == (f"pip install --no-deps {CU11}==2.21.5",)
    assert "2.20.5" in found.summary and found.needed == f"{CU11}==2.21.5"
