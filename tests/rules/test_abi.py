"""Rules about compiled extensions and what they were built for."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import finding, outcomes, say, snap, torch, word

ABI = "framework/extension-abi-mismatch"
PYTHON = "framework/python-abi-mismatch"
NUMPY = "framework/numpy-abi-mismatch"
ALL = [ABI, PYTHON, NUMPY]


def built(name="fast-ops", version=None, **built_for):
    """A compiled extension and what it was built for."""
    extension = {"name": name, "built_for": built_for}
    return dict(extension, version=version) if version else extension


def against(framework, *extensions, **document):
    """What is said of extensions beside a torch."""
    return say(ABI, torch=framework, extensions=list(extensions), **document)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"extensions": []},
        {"extensions": [{"name": "fast-ops"}]},
        {"extensions": [built()]},
        {"extensions": [{"name": "fast-ops", "built_for": None}]},
    ],
)
def test_nothing_to_judge(name, document):
    more = {"torch": torch("12.4"), "python": "3.11", "packages": {"numpy": "2.0"}}
    assert set(say(name, **document, **more)) <= {"n/a", "unknown"}
    assert "fail" not in say(name, **document)


# -- framework/extension-abi-mismatch: torch --------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "have", "expected"),
    [
        ("2.6.0", "2.6.0", "pass"),
        ("2.6.0+cu124", "2.6.0", "pass"),
        ("2.6.0", "2.6.1", "pass"),  # one release line
        ("2.6", "2.6.1", "pass"),
        ("2.6", "2.6.0+cu124", "pass"),
        ("2.6.0", "2.6", "pass"),
        ("2.6.0", "2.7.0", "fail"),
        ("2.7.0", "2.6.0", "fail"),
        ("2.6", "2.7.1", "fail"),
        ("1.13.1", "2.1.0", "fail"),
        ("2.1", "2.10.0", "fail"),
        # conda-forge rebuilds a release.
        ("2.1.2", "2.1.2.post304", "pass"),
        ("2.1.2.post300", "2.1.2.post304", "pass"),
        ("2.0.1", "2.1.2.post304", "fail"),
        # Nightlies and vendors' alphas fit themselves.
        ("2.5.0.dev20240720+cu124", "2.5.0.dev20240720+cu124", "pass"),
        ("2.5.0.dev20240720+cu121", "2.5.0.dev20240720+cu124", "pass"),
        ("2.5.0.dev20240720", "2.5.0.dev20240801", "fail"),
        ("2.5.0.dev20240720", "2.5.0", "fail"),
        ("2.2.0.dev20231106", "2.2.0a0+81ea7a4", "fail"),
        ("2.2.0", "2.2.0a0+81ea7a4", "fail"),
        ("2.2.0a0+81ea7a4", "2.2.0", "fail"),
        ("2.2.0a0+81ea7a4", "2.2.0a0+81ea7a4", "pass"),
        ("2.1", "2.2.0a0+81ea7a4", "fail"),
        # Two snapshots of one number, a line alone, half a version: nobody knows.
        ("2.2.0a0+6a974be", "2.2.0a0+81ea7a4", "unknown"),
        ("2.2", "2.2.0a0+81ea7a4", "unknown"),
        ("2.5", "2.5.0.dev20240720", "unknown"),
        ("2", "2.6.0", "unknown"),
        ("1", "2.6.0", "fail"),
        ("2.6.0", "2", "unknown"),
        (">=2.0", "2.6.0", "unknown"),
        ("unreadable", "2.6.0", "unknown"),
        ("", "2.6.0", "unknown"),
    ],
)
def test_the_torch_it_was_built_for(made_for, have, expected):
    assert against(torch("12.4", have), built(torch=made_for)) == [expected]


def test_a_torch_of_unknown_version_decides_nothing():
    unknown = {"build": "pip", "cuda": "12.4"}
    assert against(unknown, built(torch="2.6.0")) == ["unknown"]
    assert against(torch("12.4"), built(arch_list=["sm_80"])) == ["unknown"]


def test_without_torch_nothing_is_bound_to_it():
    assert say(ABI, extensions=[built(torch="2.6.0")]) == ["n/a"]
    jax = {"version": "0.4.30", "cuda": "12.3"}
    assert say(ABI, jax=jax, extensions=[built(torch="2.6.0")]) == ["n/a"]


# -- the C++ ABI ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "have", "expected"),
    [
        (True, True, "pass"),
        (False, False, "pass"),
        (False, True, "fail"),
        (True, False, "fail"),
        (True, None, "unknown"),
        (False, None, "unknown"),
        (None, True, "unknown"),
    ],
)
def test_the_cxx_abi(made_for, have, expected):
    framework = torch("12.4") if have is None else torch("12.4", cxx11_abi=have)
    extension = built(arch_list=[]) if made_for is None else built(cxx11_abi=made_for)
    assert against(framework, extension) == [expected]


def test_the_cxx_abi_counts_beside_the_right_torch():
    mixed = built("flash-attn", "2.7.4.post1", torch="2.7.0", cxx11_abi=False)
    assert against(torch("12.8", "2.7.0", cxx11_abi=True), mixed) == ["fail"]
    found = finding(ABI, torch=torch("12.8", "2.7.0", cxx11_abi=True), extensions=[mixed])
    assert "old C++ ABI" in found.summary and "new one" in found.summary
    assert "flash-attn" in found.fix[0] and "undefined symbol" in found.why
    facts = [one.fact for one in found.evidence]
    assert "extensions[0].built_for.cxx11_abi" in facts and "frameworks[0].cxx11_abi" in facts


# -- CUDA -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "have", "expected"),
    [
        ("12.4", "12.4", "pass"),
        ("12.1", "12.8", "pass"),  # minor differences are fine
        ("12.8", "12.1", "pass"),
        ("12", "12.8", "pass"),
        ("11.8", "12.4", "fail"),
        ("12.8", "13.0", "fail"),
        ("13.0", "12.8", "fail"),
        ("12.4", None, "fail"),  # libc10_cuda is not there
        ("unreadable", "12.4", "unknown"),
    ],
)
def test_the_cuda_it_was_built_with(made_for, have, expected):
    framework = torch(have, "2.6.0" if have else "2.6.0+cpu")
    assert against(framework, built(cuda=made_for)) == [expected]


def test_another_cuda_is_no_missing_symbol_of_torch():
    found = finding(ABI, torch=torch("13.0", "2.11.0"), extensions=[built(cuda="12.8")])
    assert "CUDA 12.8" in found.summary and "libcudart" in found.why


def test_a_torch_whose_cuda_is_not_known():
    unclear = {"version": "2.6.0", "build": "conda"}
    assert against(unclear, built(cuda="12.4")) == ["unknown"]
    assert against(unclear, built(cuda="12.4", torch="2.6.0")) == ["pass"]


# -- what is bound to CUDA only ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "expected"),
    [
        ({"torch": "2.1.0", "cuda": "12.1"}, "pass"),
        ({"cuda": "12.4"}, "pass"),
        ({"torch": "2.1.0", "cuda": "11.8"}, "fail"),
        ({"torch": "2.1.0"}, "unknown"),
    ],
)
def test_bitsandbytes_knows_no_torch(made_for, expected):
    """Plain C through ctypes: only its CUDA must be torch's."""
    assert against(torch("12.4", "2.6.0"), built("bitsandbytes", **made_for)) == [expected]
    if "torch" in made_for:
        assert against(torch("12.4", "2.6.0"), built("flash-attn", **made_for)) == ["fail"]


def test_bitsandbytes_runs_on_the_cpu_too():
    cpu = torch(None, "2.6.0+cpu")
    assert "fail" not in against(cpu, built("bitsandbytes", cuda="12.4"))


# -- what the files themselves say ------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "lacks", "expected"),
    [
        ({}, ["_ZN3c104cuda9SetDeviceEa"], "fail"),
        ({"torch": "2.6.0"}, ["_ZN3c104cuda9SetDeviceEa"], "fail"),
        ({"cxx11_abi": True}, ["_ZN3c104cuda9SetDeviceEa"], "fail"),
        ({}, [], "pass"),
        ({"cxx11_abi": True}, [], "pass"),
        ({"cxx11_abi": False}, [], "fail"),
        ({"cuda": "11"}, [], "fail"),
    ],
)
def test_the_symbols_of_torch_that_it_needs(made_for, lacks, expected):
    """Looked up, they decide where nobody wrote down what it was built for."""
    extension = dict(built(**made_for), missing_symbols=lacks)
    framework = torch("12.4", "2.6.0", cxx11_abi=True)
    assert against(framework, extension) == [expected]


def test_a_snapshot_of_the_right_number_is_decided_by_its_symbols():
    alpha = torch("12.3", "2.2.0a0+81ea7a4", build="ngc")
    vendor_s = built("transformer-engine", torch="2.2.0a0+6a974be")
    assert against(alpha, vendor_s) == ["unknown"]
    assert against(alpha, dict(vendor_s, missing_symbols=[])) == ["pass"]
    found = finding(ABI, torch=alpha, extensions=[dict(vendor_s, missing_symbols=["_ZN2at4_ops"])])
    assert "_ZN2at4_ops" in found.summary


# -- several ----------------------------------------------------------------------------------


def test_each_extension_is_judged_and_all_its_problems_are_told():
    good, bad = built("xformers", torch="2.6.0"), built("apex", torch="2.1.0", cuda="11.8")
    framework = torch("12.4", "2.6.0+cu124")
    assert against(framework, good, bad, built("nameless")) == ["pass", "fail", "unknown"]
    found = finding(ABI, torch=framework, extensions=[good, bad])
    assert "torch 2.1.0" in found.observed and "CUDA 11.8" in found.observed
    assert found.subject == "apex" and found.needed == "a build of apex for torch 2.6.0+cu124"


def test_an_extension_without_a_name():
    found = finding(ABI, torch=torch("12.4"), extensions=[{"built_for": {"torch": "2.1.0"}}])
    assert "an extension" in found.summary and "rebuild" in found.fix[0]


# -- framework/python-abi-mismatch ------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "python", "expected"),
    [
        ("3.11", "3.11.7", "pass"),
        ("3.11.2", "3.11.7", "pass"),
        ("3", "3.11.7", "pass"),
        ("3.10", "3.11.7", "fail"),
        ("3.12", "3.11.7", "fail"),
        ("3.1", "3.11.7", "fail"),
        ("2.7", "3.11.7", "fail"),
        # The limited API is for every Python; a tag that says no version says nothing.
        ("abi3", "3.11.7", "n/a"),
        ("cp311", "3.11.7", "n/a"),
        ("", "3.11.7", "n/a"),
        ("3.11", None, "unknown"),
        ("3.11", "unreadable", "unknown"),
    ],
)
def test_the_python_it_was_built_for(made_for, python, expected):
    document = {"python": python} if python else {}
    assert say(PYTHON, extensions=[built(python=made_for)], **document) == [expected]


def test_a_limited_api_module_beside_one_for_another_python():
    both = [built("vllm", python="abi3"), built("apex", python="3.10")]
    assert say(PYTHON, extensions=both, python="3.12") == ["fail"]
    found = finding(PYTHON, extensions=both, python="3.12")
    assert found.subject == "apex" and "apex" in found.fix[0]
    assert [one.fact for one in found.evidence] == ["python.version",
                                                    "extensions[1].built_for.python"]  # fmt: skip
    two = [built("one", python="3.9"), built("two", python="3.10")]
    assert say(PYTHON, extensions=two, python="3.12") == ["fail", "fail"]


# -- framework/numpy-abi-mismatch -------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_for", "numpy", "expected"),
    [
        ("1.26.4", "2.0.1", "fail"),
        ("1.21", "2.3.0", "fail"),
        ("1.26.4", "1.24.0", "pass"),
        ("1.19.5", "1.26.4", "pass"),
        ("2.0.0", "1.26.4", "pass"),  # built with NumPy 2, it runs in both
        ("2.0.0", "2.3.0", "pass"),
        ("2.3.0", "2.0.0rc1", "pass"),
        ("1.26.4", "2.0.0rc1", "fail"),
        ("2", "2.1.0", "pass"),
        ("unreadable", "2.1.0", "n/a"),
        ("1.26.4", "unreadable", "n/a"),
    ],
)
def test_the_numpy_it_was_built_with(made_for, numpy, expected):
    document = {"extensions": [built(numpy=made_for)], "packages": {"numpy": numpy}}
    assert say(NUMPY, **document) == [expected]


def test_numpy_that_is_not_there_or_not_known():
    extension = [built(numpy="1.26")]
    assert say(NUMPY, extensions=extension, packages={}) == ["n/a"]
    assert say(NUMPY, extensions=extension) == ["unknown"]
    blind = snap(extensions=extension)
    blind = replace(blind, python=s.PythonEnv(packages=s.unknown("timed out")))
    assert [word(NUMPY, one) for one in outcomes(NUMPY, blind)] == ["unknown"]


def test_the_cure_is_an_older_numpy_or_a_newer_module():
    document = {"extensions": [built("pyarrow", "14.0", numpy="1.26")],
                "packages": {"numpy": "2.1.0"}}  # fmt: skip
    found = finding(NUMPY, **document)
    assert found.fix == ('pip install "numpy<2"', "pip install --upgrade pyarrow")
    assert "pyarrow 14.0" in found.summary and "NumPy 2.1.0" in found.summary
