"""The questions one asks of the matrix, against what NVIDIA and PyTorch document."""

import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

from preflight import matrix, tables
from preflight.matrix import FORWARD, MINOR, NATIVE, NO, UNDECIDED, cuda_numbers, numbers

M = matrix.load()
ROOT = Path(__file__).resolve().parents[1]
COMPAT = ROOT / "compat"
RAW = tables.whole_tables(tables.toml_files(str(COMPAT)))
CUDAS = [row["cuda"] for row in RAW["toolkits"]["toolkit"]] + ["11.9", "12.7", "12.10", "13.9"]

#: Drivers in ascending order: one of each branch, and both sides of each floor.
DRIVERS = sorted(
    {f"{row['branch']}.1" for row in RAW["drivers"]["branch"]}
    | {"410.47", "410.48", "418.87", "440.33.01", "450.36.06", "450.51.06", "450.80.01",
       "450.80.02", "450.119.04", "470.82.01", "525.53", "525.60.11", "525.60.13", "525.125.06",
       "535.104.05", "580.65.05", "580.65.06", "580.95.05", "700.10", "999.99.99"},
    key=numbers,
)  # fmt: skip

# -- versions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("535.104.05", (535, 104, 5)),
        ("12.4", (12, 4)),
        ("12", (12,)),
        (" 12.4 ", (12, 4)),
        ("2.6.0+cu124", (2, 6, 0)),
        ("2.1.0a0+32f93b1", (2, 1, 0)),
        ("1.2rc3.4", (1, 2)),
        ("12.x.3", (12,)),
        ("1..2", (1,)),
        ("12.", (12,)),
        ("", ()),
        ("x", ()),
        ("v12", ()),
        (".5", ()),
        ("-1.2", ()),
        ("1" * 50, (111111111,)),
    ],
)
def test_numbers(text, found):
    assert numbers(text) == found


@pytest.mark.parametrize(
    "text", ["²", "12.²", "١٢.4", "１２.4", "12.\u0e51", "\x00", "\ud800", "🄀.1"]
)
def test_numbers_of_strange_digits(text):
    """Characters that Unicode calls digits do not make a number of something, nor a fault."""
    assert all(isinstance(one, int) for one in numbers(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12.4.131", (12, 4)),
        ("12.4", (12, 4)),
        ("12", (12, 0)),
        ("9.0", (9, 0)),
        ("11.10", (11, 10)),
        ("", None),
        ("cu124", None),
    ],
)
def test_cuda_numbers(text, found):
    assert cuda_numbers(text) == found


def test_later_minors_are_not_compared_as_text():
    assert cuda_numbers("12.10") > cuda_numbers("12.9")
    assert numbers("450.119.04") > numbers("450.80.02")


# -- which driver runs which CUDA -------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "kind"),
    [
        # CUDA 9 and 10: no minor-version compatibility.
        ("384.81", "9.0", NATIVE),
        ("384.81", "9.2", NO),
        ("410.48", "10.0", NATIVE),
        ("410.48", "10.2", NO),
        ("418.87", "10.2", NO),
        ("418.87", "10.1", NATIVE),
        ("440.33", "10.2", NATIVE),
        ("440.33.01", "10.2", NATIVE),
        # CUDA 11: 450.36.06 came with 11.0, 450.80.02 is the floor of the others.
        ("440.33.01", "11.0", NO),
        ("450.36.06", "11.0", NATIVE),
        ("450.36.06", "11.1", NO),
        ("450.51.06", "11.1", NO),
        ("450.80.02", "11.1", MINOR),
        ("450.80.02", "11.8", MINOR),
        ("450.119.04", "11.8", MINOR),
        ("460.32.03", "11.3", MINOR),
        ("470.82.01", "11.8", MINOR),
        ("470.82.01", "11.4", NATIVE),
        ("470.82.01", "12.0", NO),
        ("470.182.03", "12.1", NO),
        ("515.105.01", "11.8", MINOR),
        # CUDA 12.
        ("520.61.05", "12.0", NO),
        ("525.53", "12.1", NO),
        ("525.60.11", "12.1", NO),
        ("525.60.13", "12.1", MINOR),
        ("525.60.13", "12.9", MINOR),
        ("525.60.13", "12.0", NATIVE),
        ("535.104.05", "12.2", NATIVE),
        ("535.104.05", "12.9", MINOR),
        ("535.104.05", "13.0", NO),
        ("575.57.08", "13.0", NO),
        # 12.7 is what R565 reports; there is no such toolkit.
        ("565.57.01", "12.7", NATIVE),
        ("550.54.14", "12.7", MINOR),
        ("515.105.01", "12.7", NO),
        # CUDA 13.
        ("580.65.06", "13.0", NATIVE),
        ("580.65.06", "13.4", MINOR),
        ("570.86.10", "13.4", NO),
        ("580.95.05", "12.6", NATIVE),
        ("580.95.05", "9.0", NATIVE),
        # A minor release and a driver that the tables do not know yet.
        ("450.80.02", "11.99", MINOR),
        ("580.65.06", "13.99", MINOR),
        ("700.10", "13.9", MINOR),
        ("700.10", "10.2", NATIVE),
        ("700.10", "14.0", UNDECIDED),
        ("700.10", "15.0", UNDECIDED),
        ("580.65.06", "15.0", UNDECIDED),
        # Nothing usable.
        ("", "12.1", UNDECIDED),
        ("nonsense", "12.1", UNDECIDED),
        ("375.26", "9.0", NO),
        ("100.1", "13.0", NO),
        ("31.0.15.3623", "12.4", UNDECIDED),  # as Windows counts
        ("535.104.05", "", UNDECIDED),
        ("535.104.05", "nonsense", UNDECIDED),
    ],
)
def test_way(driver, cuda, kind):
    assert M.way(cuda, driver=driver).kind == kind


@pytest.mark.parametrize("text", ["12.4", "12.4.1", "12.4.131"])
def test_the_patch_of_a_cuda_does_not_matter(text):
    assert M.way(text, driver="550.54.14").kind == NATIVE
    assert M.way(text, driver="535.104.05").kind == MINOR


@pytest.mark.parametrize(
    ("ceiling", "cuda", "kind"),
    [
        ("12.2", "12.2", NATIVE),
        ("12.2", "11.8", NATIVE),
        ("12.2", "12.9", MINOR),
        ("12.0", "12.9", MINOR),
        ("12.2", "13.0", NO),
        ("11.4", "11.8", MINOR),
        ("11.4", "12.1", NO),
        ("11.0", "11.0", NATIVE),
        ("11.0", "11.1", UNDECIDED),  # 450.36 or 450.80.02? both offer 11.0
        ("10.1", "10.2", NO),
        ("13.0", "14.0", UNDECIDED),
    ],
)
def test_way_by_the_cuda_of_libcuda_alone(ceiling, cuda, kind):
    assert M.way(cuda, ceiling=ceiling).kind == kind


@pytest.mark.parametrize(
    ("driver", "ceiling", "cuda", "kind"),
    [
        ("470.129.06", "12.2", "12.1", FORWARD),
        ("470.129.06", "12.2", "11.4", NATIVE),
        ("470.129.06", "12.2", "12.9", MINOR),  # minor-version compatibility of the compat libcuda
        ("535.104.05", "13.0", "13.0", FORWARD),
        ("535.104.05", "13.0", "13.4", MINOR),
        ("535.104.05", "12.9", "13.0", NO),
        ("418.87", "10.2", "10.2", FORWARD),
        ("418.87", "10.2", "11.0", NO),
    ],
)
def test_way_with_a_compat_libcuda(driver, ceiling, cuda, kind):
    assert M.way(cuda, driver=driver, ceiling=ceiling, compat=True).kind == kind
    # A libcuda newer than its kernel driver is a compat one, said or not.
    assert M.way(cuda, driver=driver, ceiling=ceiling).kind == kind


def test_a_way_says_ceiling_floor_and_sources():
    way = M.way("12.4", driver="470.82.01")
    assert (way.runs, way.ceiling, way.oldest_driver) == (False, "11.4", "525.60.13")
    assert len(M.references(way.sources)) == len(set(way.sources)) > 0
    assert M.way("12.4", driver="550.54.14").runs


RANK = {NO: 0, UNDECIDED: 1, MINOR: 2, FORWARD: 2, NATIVE: 3}


@pytest.mark.parametrize("cuda", CUDAS)
def test_a_newer_driver_never_runs_less(cuda):
    """Ascending drivers: once a CUDA runs, it runs with every newer one; a `no` stays below."""
    ranks = [RANK[M.way(cuda, driver=one).kind] for one in DRIVERS]
    assert ranks == sorted(ranks), dict(zip(DRIVERS, ranks))
    assert ranks[-1] >= RANK[MINOR]


@pytest.mark.parametrize("cuda", CUDAS)
def test_a_libcuda_with_a_higher_ceiling_never_runs_less(cuda):
    ceilings = sorted(CUDAS, key=cuda_numbers)
    ranks = [RANK[M.way(cuda, ceiling=one).kind] for one in ceilings]
    assert ranks == sorted(ranks), dict(zip(ceilings, ranks))


@pytest.mark.parametrize("driver", DRIVERS)
def test_backward_compatibility_is_total(driver):
    """Every CUDA up to the driver's own runs natively, across majors."""
    offered = cuda_numbers(M.newest_cuda(driver) or "")
    for cuda in CUDAS:
        if cuda_numbers(cuda) <= offered:
            assert M.way(cuda, driver=driver).kind == NATIVE, cuda


def test_every_toolkit_runs_on_its_own_floor_and_on_nothing_much_older():
    for row in RAW["toolkits"]["toolkit"]:
        assert M.way(row["cuda"], driver=row["minimum"]).runs, row["cuda"]
        older = [one for one in DRIVERS if numbers(one)[0] < numbers(row["minimum"])[0]]
        assert all(M.way(row["cuda"], driver=one).kind == NO for one in older), row["cuda"]


def test_branches():
    assert M.branch("535.104.05")["branch"] == 535
    assert M.branch("536.1")["branch"] == 535
    assert M.branch("700.10")["branch"] == max(row["branch"] for row in RAW["drivers"]["branch"])
    assert M.branch("100.1") is None and M.branch("") is None and M.branch("x") is None
    assert M.newer_than_known("700.10") and not M.newer_than_known("580.65.06")
    assert not M.newer_than_known("") and not M.newer_than_known("x")
    assert M.newest_cuda("535") == "12.2" and M.newest_cuda("x") is None
    assert M.branch_for_cuda("12.2")["branch"] == 535
    assert M.branch_for_cuda("12.7")["branch"] == 565
    assert M.branch_for_cuda("99.0") is None and M.branch_for_cuda("x") is None


@pytest.mark.parametrize(
    ("cuda", "oldest"),
    [("10.2", "440.33"), ("11.0", "450.36.06"), ("11.8", "450.80.02"), ("12.7", "525.60.13"),
     ("13.99", "580.65.06"), ("10.9", None), ("15.0", None), ("x", None)],
)  # fmt: skip
def test_oldest_driver(cuda, oldest):
    assert M.oldest_driver(cuda) == oldest


# -- PTX ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_by", "ceiling", "compiles"),
    [
        ("12.4", "12.4", True),
        ("11.8", "12.4", True),
        ("12.8", "12.4", False),
        ("12.6", "12.5", True),  # one PTX ISA, 8.5
        ("12.5", "12.4", False),
        ("11.8", "11.2", False),
        ("12.7", "12.6", True),  # no toolkit of its own: the ISA of 12.6
        ("12.7", "12.4", False),
        ("99.0", "13.0", False),
        ("13.0", "99.0", True),
        ("x", "12.0", None),
        ("12.0", "", None),
    ],
)
def test_compiles_ptx(made_by, ceiling, compiles):
    assert M.compiles_ptx(made_by, ceiling) is compiles


def test_a_newer_libcuda_never_compiles_less_ptx():
    ceilings = sorted(CUDAS, key=cuda_numbers)
    for made_by in CUDAS:
        answers = [M.compiles_ptx(made_by, one) for one in ceilings]
        assert None not in answers and answers == sorted(answers), made_by


# -- machine code and GPUs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "targets", "kind", "by"),
    [
        # Machine code: the same major, an equal or lower minor.
        ("8.0", ["sm_80"], "sass", "sm_80"),
        ("8.6", ["sm_80"], "sass", "sm_80"),
        ("8.9", ["sm_80", "sm_86"], "sass", "sm_86"),
        ("8.0", ["sm_86"], "none", ""),
        ("9.0", ["sm_80", "sm_86"], "none", ""),
        ("7.5", ["sm_70"], "sass", "sm_70"),
        ("7.0", ["sm_75"], "none", ""),
        ("6.1", ["sm_60"], "sass", "sm_60"),
        ("10.0", ["sm_90"], "none", ""),
        ("12.0", ["sm_90", "sm_100"], "none", ""),
        ("10.3", ["sm_100"], "sass", "sm_100"),
        ("12.1", ["sm_120"], "sass", "sm_120"),
        ("12.0", ["sm_121"], "none", ""),
        # PTX: any equal or newer capability.
        ("9.0", ["sm_80", "compute_80"], "ptx", "compute_80"),
        ("12.0", ["compute_70"], "ptx", "compute_70"),
        ("7.0", ["compute_75"], "none", ""),
        ("9.0", ["compute_80", "compute_90"], "ptx", "compute_90"),
        ("8.0", ["sm_80", "compute_80"], "sass", "sm_80"),
        # a: that capability only, the PTX too.
        ("9.0", ["sm_90a"], "sass", "sm_90a"),
        ("10.3", ["sm_100a"], "none", ""),
        ("10.0", ["sm_90a", "compute_90a"], "none", ""),
        ("9.0", ["compute_90a"], "ptx", "compute_90a"),
        ("12.1", ["sm_120a"], "none", ""),
        # f: the family.
        ("10.3", ["sm_100f"], "sass", "sm_100f"),
        ("10.0", ["sm_103f"], "none", ""),
        ("12.0", ["sm_100f"], "none", ""),
        ("12.1", ["sm_120f"], "sass", "sm_120f"),
        # Jetson and discrete code are not interchangeable though the numbers fit.
        ("8.7", ["sm_87"], "sass", "sm_87"),
        ("8.7", ["sm_80", "sm_86"], "unknown", "sm_86"),
        ("8.7", ["compute_80"], "ptx", "compute_80"),
        ("11.0", ["sm_110"], "sass", "sm_110"),
        ("11.0", ["sm_100"], "none", ""),
        # Nothing, and nonsense.
        ("8.0", [], "none", ""),
        ("8.0", ["sm_", "compute_", "sm_8", "gfx90a", "sm_xx", ""], "none", ""),
        ("", ["sm_80", "compute_80"], "none", ""),
        ("x", ["sm_80"], "none", ""),
    ],
)
def test_kernels(capability, targets, kind, by):
    assert M.kernels(capability, targets) == (kind, by)


def test_kernels_prefer_the_exact_target_whatever_the_order():
    assert M.kernels("8.6", ["sm_86", "sm_80"]).by == "sm_86"
    assert M.kernels("8.6", ["sm_80", "sm_86"]).by == "sm_86"


@pytest.mark.parametrize(
    ("cuda", "capability", "known"),
    [("10.2", "8.0", False), ("11.0", "8.0", True), ("11.8", "9.0", True), ("12.9", "12.0", True),
     ("12.6", "12.0", False), ("13.0", "7.0", False), ("12.8", "7.0", True), ("x", "7.0", None),
     ("12.7", "7.0", None)],
)  # fmt: skip
def test_libraries_know(cuda, capability, known):
    assert M.libraries_know(cuda, capability) is known


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("A100", "8.0"),
        ("a100", "8.0"),
        ("NVIDIA A100", "8.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("A10", "8.6"),
        ("V100", "7.0"),
        ("Tesla V100-SXM2-32GB", "7.0"),
        ("P100", "6.0"),
        ("T4", "7.5"),
        ("RTX 4090", "8.9"),
        ("nvidia geforce rtx 4090", "8.9"),
        ("H20", "9.0"),
        ("H100", "9.0"),
        ("B200", "10.0"),
        ("GB200", "10.0"),
        ("nonsense", None),
        ("", None),
        (" ", None),
        ("-", None),
        ("NVIDIA", None),
        ("RTX", None),  # many, of several architectures
        ("Tesla", None),
    ],
)
def test_find_gpu(text, capability):
    row = M.find_gpu(text)
    assert (row["capability"] if row else None) == capability


def test_every_gpu_is_found_by_every_name():
    for row in RAW["gpus"]["gpu"]:
        for name in [row["name"], *row.get("names", [])]:
            for text in (name, name.upper(), "  " + name + " "):
                assert M.capability(text) == row["capability"], text
        assert M.architecture(row["capability"]) is not None, row["name"]


def test_the_driver_names_laptop_gpus_otherwise():
    assert M.capability("NVIDIA GeForce RTX 3060 Laptop GPU") == "8.6"
    assert M.capability("NVIDIA GeForce RTX 9999 Laptop GPU") is None


@pytest.mark.parametrize(
    ("name", "eligible"),
    [
        ("NVIDIA A100-SXM4-80GB", "yes"),
        ("Tesla T4", "yes"),
        ("NVIDIA H20", "yes"),
        ("NVIDIA GB200", "yes"),
        ("NVIDIA GeForce RTX 4090", "no"),
        ("NVIDIA GeForce RTX 9999", "no"),  # not in the table; GeForce in any case
        ("NVIDIA TITAN V", "no"),
        ("NVIDIA RTX A6000", "some"),
        ("A card nobody knows", "unknown"),
        ("", "unknown"),
    ],
)
def test_forward_eligible(name, eligible):
    assert M.forward_eligible(name) == eligible


def test_what_is_said_of_gpu_classes_has_sources():
    for eligible in ("yes", "no"):
        assert M.references(M.class_sources(eligible))


@pytest.mark.parametrize(
    ("capability", "name"),
    [("3.7", "Kepler"), ("6.1", "Pascal"), ("7.0", "Volta"), ("9.0", "Hopper"), ("99.9", None),
     ("", None)],
)  # fmt: skip
def test_architecture(capability, name):
    row = M.architecture(capability)
    assert (row["name"] if row else None) == name


# -- forward compatibility --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "driver", "answer"),
    [
        ("13.0", "535.104.05", "yes"),
        ("13.0", "570.86.10", "yes"),
        ("13.0", "550.54.15", "yes"),  # by NVIDIA's images, though no longer in the guide
        ("13.0", "560.35.03", "no"),
        ("13.0", "450.80.02", "no"),
        ("13.0", "580.65.06", "no"),  # newer: the package is not needed there
        ("13.0", "470.82.01", "unlisted"),  # only in texts that were not updated
        ("12.2", "470.129.06", "yes"),
        ("12.2", "418.87", "no"),
        ("11.8", "515.105.01", "yes"),
        ("10.2", "418.87", "yes"),
        ("13.0.1", "535.104.05", "yes"),
        ("99.0", "535.104.05", "unlisted"),
        ("13.0", "", "unlisted"),
        ("x", "535.104.05", "unlisted"),
    ],
)
def test_compat_base(cuda, driver, answer):
    found, sources = M.compat_base(cuda, driver)
    assert found == answer
    assert M.references(sources) or cuda in ("99.0", "x")


# -- torch ------------------------------------------------------------------------------------


def test_every_torch_build_answers():
    for row in RAW["torch"]["build"]:
        for version in row["versions"]:
            found = M.torch_build(version, row["variant"], row["platform"])
            assert found is not None and found["variant"] == row["variant"]
            assert found in M.torch_builds(version)
        if "cuda" in row:
            inside = matrix.targets(row)
            assert inside, row
            assert M.way(row["cuda"], driver="999.1").runs
            for one in row["sm"]:
                assert M.kernels(one, inside).kind == "sass", (row, one)


def test_torch_builds_by_release_and_platform():
    assert M.torch_build("2.8.0", "cu128", "x86_64")["cuda"] == "12.8"
    assert M.torch_build("2.8.0", "cu102", "x86_64") is None
    assert M.torch_builds("0.0.1") == []
    platforms = {row["platform"] for row in M.torch_builds("2.8.0")}
    assert {"x86_64", "aarch64"} <= platforms
    assert {row["platform"] for row in M.torch_builds("2.8.0", "aarch64")} == {"aarch64"}


@pytest.mark.parametrize(
    ("version", "variant", "capability", "kind"),
    [
        ("2.8.0", "cu128", "7.0", "sass"),
        ("2.8.0", "cu128", "6.1", "none"),
        ("2.7.1", "cu128", "7.0", "none"),
        ("2.7.1", "cu128", "12.0", "sass"),
        ("2.6.0", "cu124", "12.0", "none"),
        ("2.6.0", "cu124", "9.0", "sass"),
        ("2.6.0", "cu118", "7.0", "sass"),
        ("1.7.1", "cu102", "8.0", "none"),
    ],
)
def test_what_public_wheels_hold(version, variant, capability, kind):
    row = M.torch_build(version, variant, "x86_64")
    assert M.kernels(capability, matrix.targets(row)).kind == kind


def test_unsure_targets_only_add():
    for row in RAW["torch"]["build"]:
        assert set(matrix.targets(row)) <= set(matrix.targets(row, unsure=True))


# -- loading ----------------------------------------------------------------------------------


def test_the_compiled_tables_answer_as_the_toml(monkeypatch):
    """What a wheel holds is what `compat/` says, but for dates, which become text."""
    texts = _build_hook(monkeypatch).compile_tables(str(COMPAT))
    compiled = {stem: json.loads(text) for stem, text in texts.items()}
    assert compiled == json.loads(json.dumps(RAW, default=str))
    _answers_alike(matrix.Matrix(compiled))


def _build_hook(monkeypatch):
    """hatch_build.py as a module; what it takes from hatchling at import is stood in for."""
    for name in ("", ".builders", ".builders.hooks", ".builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, "hatchling" + name, types.ModuleType("hatchling" + name))
    interface = types.ModuleType("interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    specification = importlib.util.spec_from_file_location("hook", str(ROOT / "hatch_build.py"))
    hook = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(hook)
    return hook


def test_what_is_loaded_is_what_compat_says():
    """From a checkout, or installed: then the wheel's tables are those of this checkout."""
    _answers_alike(M)


def _answers_alike(one):
    other = matrix.Matrix(RAW)
    assert one.date == other.date
    for cuda in CUDAS:
        for driver in DRIVERS:
            assert one.way(cuda, driver=driver) == other.way(cuda, driver=driver)
            assert one.compat_base(cuda, driver) == other.compat_base(cuda, driver)
    for row in RAW["gpus"]["gpu"]:
        assert one.gpu(row["name"]) == other.gpu(row["name"])
    assert one.torch_builds() == other.torch_builds()


def test_loading_twice_reads_once():
    assert matrix.load() is matrix.load()


def test_every_source_has_a_title_and_order_is_kept():
    keys = list(RAW["sources"]["source"])
    found = M.references(keys)
    assert [title for title, _ in found] == [RAW["sources"]["source"][k]["title"] for k in keys]
    assert all(title for title, _url in found)
    assert M.references([keys[1], keys[0], keys[1]]) == [found[1], found[0]]
    with pytest.raises(KeyError):
        M.references(["no such source"])
