"""Who installed what over whom."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight.rules.registry import Finding
from tests.rules.build import finding, outcomes, say, snap, torch, word

SITE = "/usr/lib/python3/dist-packages"
HOME_SITE = "/home/u/.local/lib/python3.10/site-packages"
SHADOWS = "framework/user-site-shadows"
MIXED = "framework/mixed-installers"
REPLACED = "framework/build-replaced"
NVCC = "framework/toolkit-major-mismatch"


def shadowed(path, package="torch", env=None):
    """A machine on which `package` 2.0.0 lies in SITE, and 2.6.0 in the first entry of `path`."""
    differs = (s.Observation({package: "2.0.0"}, f"{SITE}/{package}-2.0.0.dist-info"),)
    python = s.PythonEnv(
        path=s.known(tuple(path), "python"),
        packages=s.Fact({package: "2.6.0"}, "python", differs=differs),
    )
    return replace(snap("live", env=env or {}), python=python)


@pytest.mark.parametrize(
    ("path", "env", "package", "said"),
    [
        ([HOME_SITE, SITE], {}, "torch", ["warn"]),
        ([HOME_SITE, SITE], {}, "nvidia-nccl-cu12", ["warn"]),
        ([HOME_SITE, SITE], {}, "requests", ["info"]),
        (["/shared", SITE], {"PYTHONPATH": "/shared/"}, "torch", ["warn"]),
        (["/base/lib/python3.10/site-packages", SITE], {"PYTHONUSERBASE": "/base"}, "torch",
         ["warn"]),
        # The interpreter's own directories, in their order: nobody's home.
        (["/usr/local/lib/python3.10/dist-packages", SITE], {}, "torch", ["pass"]),
        (["/venv/lib/python3.10/site-packages", HOME_SITE, SITE], {}, "torch", ["pass"]),
    ],
)  # fmt: skip
def test_what_comes_first(path, env, package, said):
    assert [word(SHADOWS, one) for one in outcomes(SHADOWS, shadowed(path, package, env))] == said


def test_the_finding_names_both_copies_and_the_cure():
    (one,) = outcomes(SHADOWS, shadowed([HOME_SITE, SITE]))
    assert isinstance(one, Finding) and "torch 2.6.0 instead of 2.0.0" in one.summary
    assert one.fix[0] == "export PYTHONNOUSERSITE=1" and one.evidence[0].source.startswith(SITE)
    (other,) = outcomes(SHADOWS, shadowed(["/p", SITE], env={"PYTHONPATH": "/p"}))
    assert other.fix[0] == "unset PYTHONPATH"


def test_a_framework_that_people_installed_at_home_is_meant():
    """Everything of torch then lies there."""
    library = {"name": "libc10.so", "path": HOME_SITE + "/torch/lib/libc10.so"}
    at_home = torch("12.4", path=HOME_SITE + "/torch")
    assert say(SHADOWS, torch=at_home, libraries=[library]) == ["n/a"]
    assert say(SHADOWS, torch=torch("12.4", path="/opt/torch"), libraries=[library]) == ["fail"]
    told = {"env": {"PYTHONNOUSERSITE": "1"}, "libraries": [library]}
    assert say(SHADOWS, **told) == ["n/a"]


@pytest.mark.parametrize(
    ("conda", "pip", "said"),
    [
        ({"pytorch": "2.1.0"}, {"torch": "2.2.0"}, ["warn"]),
        ({"pytorch": "2.1.0"}, {"torch": "2.1.0"}, ["pass"]),
        ({"pytorch": "2.1.0"}, {"torch": "2.1.0.post300"}, ["pass"]),
        ({"pytorch": "2.1.0"}, {"torch": "2.1.0+cu121"}, ["pass"]),
        ({"pytorch": "2.1"}, {"torch": "2.1.0"}, ["pass"]),
        ({"pytorch": "2.1.0"}, {}, ["n/a"]),
        ({}, {"torch": "2.1.0"}, ["n/a"]),
        ({"jaxlib": "0.4.30"}, {"jaxlib": "0.4.28"}, ["warn"]),
    ],
)
def test_conda_and_pip(conda, pip, said):
    assert say(MIXED, packages_conda=conda, packages=pip) == said


def test_only_pip_is_known():
    assert say(MIXED, packages={"torch": "2.1.0"}) == ["n/a"]


NGC = "2.4.0a0+f70bd71a48.nv24.6"


def test_the_build_that_an_image_was_made_with():
    env = {"PYTORCH_BUILD_VERSION": NGC}
    found = finding(REPLACED, env=env, torch=torch("12.4", "2.6.0+cu124"))
    assert NGC in found.summary and found.severity == "warn"
    assert say(REPLACED, env=env, torch=torch("12.5", NGC, build="ngc")) == ["pass"]
    assert say(REPLACED, torch=torch("12.4")) == ["n/a"]
    assert say(REPLACED, torch=torch("12.5", NGC, build="ngc")) == ["n/a"]


def test_a_part_of_it_that_was_overwritten():
    image = snap("live", torch=torch("12.5", NGC, build="ngc"))

    def requiring(*rows):
        return replace(image, python=s.PythonEnv(unmet=s.known(rows, "metadata")))

    wrong = s.Unmet("transformer-engine 1.3.0", "flash-attn", "flash-attn<=2.4.2", "2.5.6", "x")
    (one,) = outcomes(REPLACED, requiring(wrong))
    assert word(REPLACED, one) == "warn" and "flash-attn 2.5.6" in one.summary
    other = s.Unmet("a 1", "requests", "requests<2", "2.1", "x")
    assert [word(REPLACED, o) for o in outcomes(REPLACED, requiring(other))] == ["pass"]
    assert [word(REPLACED, o) for o in outcomes(REPLACED, requiring())] == ["pass"]


@pytest.mark.parametrize(
    ("toolkit", "builds", "said"),
    [
        ("11.8", True, ["warn"]),
        ("11.8", False, ["info"]),
        ("11.8", None, ["info"]),
        ("12.1", True, ["pass"]),
        ("12.4.131", True, ["pass"]),
        ("13.0", True, ["warn"]),
    ],
)
def test_nvcc(toolkit, builds, said):
    job = {} if builds is None else {"builds_extensions": builds}
    described = {"cuda_toolkit": {"version": toolkit}, "job": job, "torch": torch("12.4")}
    assert say(NVCC, **described) == said


def test_without_a_toolkit_or_a_build_nothing_is_said_of_nvcc():
    assert say(NVCC, torch=torch("12.4")) == ["n/a"]
    assert say(NVCC, cuda_toolkit={"version": "11.8"}, torch=torch(None)) == ["n/a"]
