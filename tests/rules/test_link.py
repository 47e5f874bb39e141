"""Rules about what the loader would pick."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import finding, outcomes, say, snap, torch, word

STUB = "link/stub-libcuda"
MISSING = "link/missing-library"
SYMBOL = "link/undefined-symbol"
SHADOWED = "link/library-shadowed"
CUDNN = "link/cudnn-mismatch"
BARE = "link/libcuda-unversioned-missing"
GLIBC = "link/glibc-too-old"
LIBSTDCXX = "link/libstdcxx-too-old"
ALL = [MISSING, SYMBOL, SHADOWED, CUDNN, BARE, GLIBC, LIBSTDCXX]

TORCH_LIB = "/usr/lib/python3/dist-packages/torch/lib/"
NVIDIA = "/opt/venv/lib/python3.11/site-packages/nvidia/"
SYSTEM = "/usr/lib/x86_64-linux-gnu/"


def lib(name, needed_by="libtorch_cuda.so", **more):
    """A described library; `needed_by` None leaves it out."""
    more = {"name": name, **more}
    return more if needed_by is None else {**more, "needed_by": needed_by}


def says(name, *libraries, **document):
    return say(name, libraries=list(libraries), **document)


def found_in(name, *libraries, **document):
    return finding(name, libraries=list(libraries), **document)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"libcuda": "stub"}, "fail"),
        ({"libcuda": "host"}, "pass"),
        ({"libcuda": "compat"}, "pass"),
        ({"libcuda": "missing"}, "n/a"),
        ({"libcuda": None}, "n/a"),
        ({"version": "535.104.05"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_stub_libcuda(given, expected):
    assert say(STUB, driver=given) == [expected]


def test_the_stub_is_named_with_what_put_it_there():
    path = "/usr/local/cuda/lib64/stubs/libcuda.so"
    env = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"}
    found = finding(STUB, driver={"libcuda": "stub", "libcuda_path": path}, env=env)
    assert path in found.observed
    assert "env.LD_LIBRARY_PATH" in [one.fact for one in found.evidence]


# -- what could not be seen -------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_libraries_that_could_not_be_read_are_unknown(name):
    lost = replace(snap(), libraries=s.unknown("timed out"))
    assert [word(name, one) for one in outcomes(name, lost)] == ["unknown"]


@pytest.mark.parametrize("name", ALL)
def test_where_no_library_is_loaded_there_is_nothing_to_judge(name):
    assert says(name) == ["n/a"]
    none = replace(snap(), libraries=s.absent("nothing to load"))
    assert [word(name, one) for one in outcomes(name, none)] == ["n/a"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("found_by", ["rpath", "runpath", "ld-cache", "default"])
def test_a_healthy_closure_has_no_finding(name, found_by):
    """The framework's own copies by RPATH, the system's by the cache."""
    healthy = [
        lib("libcudnn.so.9", version="9.1.0", needed_version="9.1.0", found_by=found_by,
            path=NVIDIA + "cudnn/lib/libcudnn.so.9"),
        lib("libnvJitLink.so.12", "libcusparse.so.12", version="12.4", needed_version="12.4",
            found_by=found_by),
        lib("libnccl.so.2", version="2.21.5", found_by=found_by),
        lib("libc.so.6", version="2.35", needed_version="2.28", found_by="ld-cache"),
        lib("libstdc++.so.6", version="3.4.30", needed_version="3.4.29", found_by="ld-cache"),
        lib("libcuda.so", None), lib("libcuda.so.1", None, path=SYSTEM + "libcuda.so.1"),
    ]  # fmt: skip
    assert set(says(name, *healthy)) <= {"pass", "n/a"}


# -- link/missing-library ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (lib("libcudart.so.12", missing=True), "fail"),
        (lib("libcudart.so.12", missing=False), "pass"),
        (lib("libcudart.so.12"), "pass"),
        # Looked for, and not needed.
        (lib("libnccl-net.so", None, missing=True), "pass"),
        (lib("libibverbs.so.1", None, missing=True), "pass"),
        (lib("libibverbs.so.1", "libmlx5.so.1", missing=True), "fail"),
        # The driver's: other rules speak.
        (lib("libcuda.so.1", "libcaffe2_nvrtc.so", missing=True), "n/a"),
        (lib("libcuda.so", "triton", missing=True), "n/a"),
        (lib("libnvidia-ml.so.1", missing=True), "n/a"),
    ],
)
def test_missing_library(library, expected):
    assert says(MISSING, library) == [expected]


def test_each_missing_library_is_named_with_who_needs_it():
    lost = [lib("libcudart.so.12", missing=True), lib("libcupti.so.12", "kineto", missing=True)]
    there = [lib("libc10.so"), lib("libnccl-net.so", None, missing=True)]
    assert says(MISSING, *lost, *there) == ["fail", "fail"]
    found = found_in(MISSING, lost[1])
    assert "libcupti.so.12" in found.summary and "kineto" in found.summary
    assert found.subject == "kineto"
    assert "LIBCUPTI" in found.fix[1] and "libraries[0].missing" in [e.fact for e in found.evidence]


def test_a_numpy_that_would_not_load_is_a_warning():
    lost = lib("libscipy_openblas64_.so", "numpy", missing=True, required=False)
    assert says(MISSING, lost) == ["warn"]
    found = found_in(MISSING, lost)
    assert found.subject == "numpy" and found.fix == ("reinstall numpy, for this Python",)
    lacking = lib("_multiarray_umath.so", "numpy", missing_symbols=["x"], required=False)
    assert says(SYMBOL, lacking) == ["warn"]


def test_a_damaged_library_is_not_said_to_be_missing():
    path = TORCH_LIB + "libtorch_cuda.so"
    broken = lib("libtorch_cuda.so", "libtorch.so", missing=True, damaged="file too short",
                 path=path)  # fmt: skip
    assert says(MISSING, broken) == ["fail"]
    assert says(MISSING, dict(broken, required=False)) == ["warn"]
    found = found_in(MISSING, broken)
    assert f"{path} is damaged (file too short)" in found.summary
    assert found.fix == ("reinstall the package that brings libtorch_cuda.so",)
    words = " ".join([found.summary, found.observed, found.why, *found.fix])
    assert "cannot be found" not in words and "LD_LIBRARY_PATH" not in words
    front = found_in(MISSING, dict(broken, found_by="ld-library-path"))
    assert "unset LD_LIBRARY_PATH" in front.fix[0] and "reinstall" in front.fix[1]


def test_a_module_that_may_never_be_imported_fails_no_job():
    """`required` false: only a module of another package asks for it."""
    lost = lib("libcupti.so.12", "profiler.so", missing=True)
    assert says(MISSING, dict(lost, required=False)) == ["info"]
    assert says(MISSING, dict(lost, required=True)) == ["fail"]
    lacking = lib("libcublas.so.12", "fast.so", missing_symbols=["cublasNew"])
    assert says(SYMBOL, dict(lacking, required=False)) == ["warn"]
    assert says(SYMBOL, dict(lacking, required=True)) == ["fail"]
    old = lib("libc.so.6", "fast.so", version="2.26", needed_version="2.28")
    assert says(GLIBC, dict(old, required=False)) == ["warn"]
    assert says(GLIBC, dict(old, required=True)) == ["fail"]
    both = [dict(lost, required=False), dict(lost, needed_by="libtorch_cuda.so", required=True)]
    assert says(MISSING, *both) == ["fail"], "one thing is missing"
    found = found_in(MISSING, *both)
    assert found.subject == "libtorch_cuda.so, profiler.so", "what the job needs goes first"


def test_what_many_ask_for_is_missing_once():
    askers = [f"module{n}.so" for n in range(30)]
    found = found_in(MISSING, *[lib("libcupti.so.12", one, missing=True) for one in askers])
    assert "module0.so, module1.so, module2.so and 27 more need it" in found.summary
    assert "module19.so and 10 more" in found.observed
    places = [one.fact for one in found.evidence]
    assert all(f"libraries[{n}].needed_by" in places for n in range(30)), "the evidence has all"
    two = [lib("libcupti.so.12", missing=True), lib("libcufft.so.11", missing=True)]
    assert says(MISSING, *two) == ["fail", "fail"]


def test_a_damaged_library_is_named_once():
    broken = {"missing": True, "damaged": "file too short", "path": TORCH_LIB + "libc10.so"}
    given = [lib("libc10.so", one, **broken) for one in ("libtorch_cpu.so", "libtorch_cuda.so")]
    found = found_in(MISSING, *given)
    assert "libtorch_cpu.so, libtorch_cuda.so need it" in found.summary
    elsewhere = dict(given[1], path="/opt/libc10.so")
    assert says(MISSING, given[0], elsewhere) == ["fail", "fail"]


# -- link/undefined-symbol --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        (["ncclCommRegister"], "fail"),
        ([], "pass"),
        (None, "pass"),
    ],
)
def test_undefined_symbol(symbols, expected):
    given = lib("libnccl.so.2", missing_symbols=symbols) if symbols is not None else lib("libx.so")
    assert says(SYMBOL, given) == [expected]


def test_many_symbols_are_summed_up():
    names = [f"ncclThing{n}" for n in range(1000)]
    found = found_in(SYMBOL, lib("libnccl.so.2", version="2.18.3", missing_symbols=names))
    assert "and 997 more" in found.summary and len(found.summary) < 300
    assert "libnccl.so.2 2.18.3" in found.summary


def test_what_lacks_symbols_is_named_once():
    """One hollow copy, and each library that asks it for something else."""
    hollow = {"found_by": "ld-preload", "path": "/opt/libnccl.so.2"}
    given = [
        lib("libnccl.so.2", "amp.so", missing_symbols=["ncclB"], required=False, **hollow),
        lib("libnccl.so.2", "libtorch_cuda.so", missing_symbols=["ncclA", "ncclB"], **hollow),
    ]
    assert says(SYMBOL, *given) == ["fail"] and says(SHADOWED, *given) == ["n/a"]
    found = found_in(SYMBOL, *given)
    assert "lacks ncclA, ncclB, which libtorch_cuda.so, amp.so need" in found.summary
    assert "/opt/libnccl.so.2 (by LD_PRELOAD)" in found.observed
    assert "in front" in found.why and found.fix[0].startswith("unset LD_PRELOAD")
    places = [one.fact for one in found.evidence]
    assert {"libraries[0].missing_symbols", "libraries[1].missing_symbols"} <= set(places)
    other = dict(given[0], path="/usr/lib/libnccl.so.2", found_by="ld-cache")
    assert sorted(says(SYMBOL, given[1], other)) == ["fail", "warn"], "two copies, two findings"


def test_a_hollow_copy_beside_an_older_one():
    """Each is spoken of once, by the rule whose it is."""
    hollow = lib("libnccl.so.2", found_by="ld-preload", path="/a", missing_symbols=["ncclA"])
    older = lib("libnvJitLink.so.12", "libcusparse.so.12", version="12.2", needed_version="12.4",
                path="/b", found_by="ld-preload")  # fmt: skip
    assert says(SYMBOL, hollow, older) == ["fail"] and says(SHADOWED, hollow, older) == ["fail"]
    assert "/b" in found_in(SHADOWED, hollow, older).summary


def test_the_cure_depends_on_how_the_copy_was_found():
    bad = lib("libnvJitLink.so.12", "libcusparse.so.12",
              missing_symbols=["__nvJitLinkComplete_12_4"])  # fmt: skip
    assert "LD_LIBRARY_PATH" in found_in(SYMBOL, dict(bad, found_by="ld-library-path")).fix[0]
    assert "install" in found_in(SYMBOL, dict(bad, found_by="ld-cache")).fix[0]


# -- link/library-shadowed --------------------------------------------------------------------


@pytest.mark.parametrize("found_by", ["ld-library-path", "ld-preload"])
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"version": "12.4", "needed_version": "12.4"}, "warn"),
        ({"version": "12.9", "needed_version": "12.4"}, "warn"),
        ({"version": "12.4.131", "needed_version": "12.4"}, "warn"),
        ({"needed_version": "12.4"}, "warn"),
        ({"version": "12", "needed_version": "12.4"}, "warn"),  # of one major: not surely older
        ({"version": "unreadable", "needed_version": "12.4"}, "warn"),
        # Nothing says that there is another copy: the path is how this one is found at all.
        ({}, "pass"),
        ({"missing_symbols": []}, "pass"),
        ({"version": "12.2", "needed_version": "12.4"}, "fail"),
        ({"version": "11.8", "needed_version": "12"}, "fail"),
        # link/undefined-symbol speaks of it.
        ({"missing_symbols": ["__nvJitLinkComplete_12_4"]}, "n/a"),
    ],
)
def test_a_copy_in_front_fails_only_when_it_does_not_serve(found_by, more, expected):
    front = lib("libnvJitLink.so.12", "libcusparse.so.12", found_by=found_by,
                path="/usr/local/cuda/lib64/libnvJitLink.so.12", **more)  # fmt: skip
    assert says(SHADOWED, front) == [expected]


@pytest.mark.parametrize("found_by", ["rpath", "runpath", "default", "ld-cache", None])
def test_what_the_loader_does_not_take_is_no_finding(found_by):
    """torch >= 1.13 carries RPATH: a directory on LD_LIBRARY_PATH has no effect on it."""
    own = lib("libnccl.so.2", version="2.21.5", needed_version="2.21.5", found_by=found_by,
              path=NVIDIA + "nccl/lib/libnccl.so.2")  # fmt: skip
    env = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/opt/old"}
    assert says(SHADOWED, own, env=env) == ["pass"]


@pytest.mark.parametrize("library", [
    lib("libcuda.so.1", found_by="ld-library-path"),
    lib("libnvidia-ml.so.1", found_by="ld-library-path"),
    lib("libc.so.6", found_by="ld-library-path", needed_version="2.28", version="2.35"),
    lib("libjemalloc.so.2", None, found_by="ld-preload"),  # nothing asks for it: a tool
])  # fmt: skip
def test_what_is_in_front_and_no_copy_of_a_framework_s(library):
    assert says(SHADOWED, library) == ["pass"]


@pytest.mark.parametrize("found_by", ["ld-library-path", "ld-cache"])
def test_the_toolkit_of_the_image_is_no_shadow(found_by):
    """An extension without RPATH finds the CUDA image's libcudart: nobody ships another."""
    toolkit_s = lib("libcudart.so.12", "amp_C.so", version="12.4", found_by=found_by,
                    path="/usr/local/cuda/lib64/libcudart.so.12")  # fmt: skip
    env = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    assert says(SHADOWED, toolkit_s, env=env) == ["pass"]


@pytest.mark.parametrize("path", [TORCH_LIB + "libc10.so", NVIDIA + "nccl/lib/libnccl.so.2"])
def test_a_path_to_the_framework_s_own_folder_shadows_nothing(path):
    """NGC images put torch/lib on LD_LIBRARY_PATH for their extensions."""
    own = lib(path.rpartition("/")[2], "amp_C.so", found_by="ld-library-path", path=path)
    assert says(SHADOWED, own) == ["pass"]
    older = dict(own, version="2.18.3", needed_version="2.21.5")
    assert says(SHADOWED, older) == ["fail"]


def test_ld_so_conf_is_judged_where_its_copy_is_older():
    """An older toolkit in /etc/ld.so.conf.d: no other rule would speak of libnvJitLink."""
    older = lib("libnvJitLink.so.12", "libcusparse.so.12", found_by="ld-cache", version="12.2",
                needed_version="12.4", path="/usr/local/cuda/lib64/libnvJitLink.so.12")  # fmt: skip
    assert says(SHADOWED, older) == ["fail"]
    assert "ld.so.conf" in found_in(SHADOWED, older).fix[0]


def test_what_is_shadowed_is_said_with_path_and_cause():
    front = lib("libcudnn.so.8", version="8.4.1", needed_version="8.5.0",
                path="/usr/local/cuda/lib64/libcudnn.so.8", found_by="ld-library-path")  # fmt: skip
    found = found_in(SHADOWED, front, env={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"})
    assert "/usr/local/cuda/lib64/libcudnn.so.8 (by LD_LIBRARY_PATH)" in found.summary
    assert "8.5.0" in found.summary
    assert "env.LD_LIBRARY_PATH" in [one.fact for one in found.evidence]


def test_an_older_copy_with_every_symbol_is_a_warning():
    """The import was followed to its end with it: it serves."""
    older = lib("libnvJitLink.so.12", "libcusparse.so.12", found_by="ld-preload", version="12.2",
                needed_version="12.4", path="/opt/old/libnvJitLink.so.12")  # fmt: skip
    seen = snap(libraries=[older], torch=torch("12.4"))
    assert [word(SHADOWED, one) for one in outcomes(SHADOWED, seen)] == ["fail"]
    works = replace(seen.frameworks.value[0], import_problem=s.absent("played"))
    seen = replace(seen, frameworks=s.known((works,), "torch"))
    (found,) = outcomes(SHADOWED, seen)
    assert word(SHADOWED, found) == "warn"
    assert found.fix == ("unset LD_PRELOAD, or take that library out of it",)


# -- link/cudnn-mismatch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ("8.4.1", "8.5.0", "fail"),
        ("8.5.0", "8.5.0", "pass"),
        ("8.9.7", "8.5.0", "pass"),  # a newer minor serves
        ("9.10.2", "9.1.0", "pass"),
        ("9.1.0", "9.10.2", "fail"),
        ("9.10.1", "9.10.2", "pass"),  # frameworks compare major and minor
        ("9.1.0.70", "9.1.0", "pass"),
        ("9.1.0", "9.1.0.70", "pass"),  # the header has three numbers, the wheel four
        # Not enough to tell.
        ("9", "9.1.0", None),
        ("unreadable", "9.1.0", "unknown"),
        (None, "9.1.0", "unknown"),
        ("9.1.0", None, "n/a"),
        (None, None, "n/a"),
    ],
)
def test_cudnn_against_what_was_built_with_it(have, need, expected):
    given = {k: v for k, v in (("version", have), ("needed_version", need)) if v is not None}
    said = says(CUDNN, lib("libcudnn.so.9", **given))
    assert said == [expected] if expected else "fail" not in said


@pytest.mark.parametrize(
    ("parts", "mixed"),
    [
        ({"libcudnn.so.9": "9.1.0", "libcudnn_ops.so.9": "9.1.0"}, False),
        ({"libcudnn.so.9": "9.1.0", "libcudnn_ops.so.9": "9.1.0.70"}, False),
        ({"libcudnn.so.9": "9.1.0", "libcudnn_ops.so.9": "9"}, False),
        ({"libcudnn.so.9": "9.1.0", "libcudnn_ops.so.9": "9.3.0"}, True),
        ({"libcudnn.so.8": "8.9.2", "libcudnn_cnn_infer.so.8": "8.5.0"}, True),
        # Two cuDNNs, one for TensorFlow and one for torch: no parts of each other.
        ({"libcudnn.so.8": "8.9.2", "libcudnn.so.9": "9.1.0"}, False),
    ],
)
def test_the_parts_of_cudnn_are_of_one_version(parts, mixed):
    said = says(CUDNN, *[lib(name, version=version) for name, version in parts.items()])
    assert said == ["fail"] if mixed else "fail" not in said


def test_two_whole_copies_of_cudnn_are_no_mixture():
    """torch's own and JAX's own, each found by RPATH."""
    torch_s = [lib(n, version="9.1.0") for n in ("libcudnn.so.9", "libcudnn_ops.so.9")]
    jax_s = [lib(n, "xla_cuda_plugin.so", version="9.8.0")
             for n in ("libcudnn.so.9", "libcudnn_ops.so.9")]  # fmt: skip
    assert "fail" not in says(CUDNN, *torch_s, *jax_s)


@pytest.mark.parametrize(
    ("value", "version", "asker", "expected"),
    [
        ("1", "2.6.0", "libtorch_cuda.so", "warn"),
        ("1", "2.6.0", None, "warn"),  # opened by torch/__init__.py
        ("1", "2.0.0+cu118", "libtorch_python.so", "warn"),
        ("0", "2.6.0", "libtorch_cuda.so", "fail"),
        ("true", "2.6.0", "libtorch_cuda.so", "fail"),  # torch compares with "1"
        ("", "2.6.0", "libtorch_cuda.so", "fail"),
        ("1", "1.13.1+cu117", "libtorch_cuda.so", "fail"),  # does not know it
        ("1", "2.6.0", "libtensorflow_cc.so.2", "fail"),  # nor does TensorFlow
    ],
)
def test_torch_can_be_told_not_to_compare(value, version, asker, expected):
    older = lib("libcudnn.so.9", asker, version="9.1.0", needed_version="9.5.0")
    given = {
        "env": {"PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": value},
        "torch": torch("12.4", version),
    }
    assert says(CUDNN, older, **given) == [expected]
    found = found_in(CUDNN, older, **given)
    assert ("does not refuse" in found.why) == (expected == "warn")


def test_mixed_parts_fail_whatever_torch_is_told():
    given = [lib("libcudnn.so.9", version="9.1.0"), lib("libcudnn_ops.so.9", version="9.3.0")]
    env = {"PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": "1"}
    assert says(CUDNN, *given, env=env) == ["fail"]


def test_cudnn_that_is_not_there_is_another_rule_s():
    assert says(CUDNN, lib("libcudnn.so.9", missing=True)) == ["n/a"]
    assert says(CUDNN, lib("libnccl.so.2", version="2.1", needed_version="2.2")) == ["n/a"]


def test_an_older_and_mixed_cudnn_is_told_twice():
    given = [lib("libcudnn.so.9", version="9.1.0", needed_version="9.5.0"),
             lib("libcudnn_ops.so.9", version="9.3.0")]  # fmt: skip
    assert says(CUDNN, *given) == ["fail", "fail"]


# -- link/libcuda-unversioned-missing ---------------------------------------------------------

GONE = lib("libcuda.so", "triton", missing=True)


@pytest.mark.parametrize(
    ("libraries", "document", "expected"),
    [
        ([GONE, lib("libcuda.so.1", None)], {}, "warn"),
        ([GONE], {}, "warn"),
        ([lib("libcuda.so", None, missing=True)], {"job": {"uses_torch_compile": True}}, "warn"),
        ([lib("libcuda.so", None, missing=True)], {"job": {"builds_extensions": True}}, "warn"),
        # Looked for, and nothing asks for it by that name.
        ([lib("libcuda.so", None, missing=True), lib("libcuda.so.1", None)], {}, "n/a"),
        # No driver at all: another rule speaks.
        ([GONE, lib("libcuda.so.1", None, missing=True)], {}, "n/a"),
        ([lib("libcuda.so", "triton"), lib("libcuda.so.1", None)], {}, "pass"),
        ([lib("libcuda.so.1", None)], {}, "n/a"),
    ],
)
def test_the_bare_libcuda(libraries, document, expected):
    assert says(BARE, *libraries, **document) == [expected]


@pytest.mark.parametrize(
    ("path", "link"),
    [
        (SYSTEM + "libcuda.so.1", f"ln -s {SYSTEM}libcuda.so.1 {SYSTEM}libcuda.so"),
        (SYSTEM + "libcuda.so.535.104.05",
         f"ln -s {SYSTEM}libcuda.so.535.104.05 {SYSTEM}libcuda.so"),
    ],
)  # fmt: skip
def test_the_link_lies_beside_the_driver_s(path, link):
    assert found_in(BARE, GONE, lib("libcuda.so.1", None, path=path)).fix == (link,)


# -- link/glibc-too-old, link/libstdcxx-too-old -----------------------------------------------


@pytest.mark.parametrize(("name", "library"), [(GLIBC, "libc.so.6"), (GLIBC, "libm.so.6"),
                                               (LIBSTDCXX, "libstdc++.so.6")])  # fmt: skip
@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ("2.26", "2.28", "fail"),
        ("2.28", "2.28", "pass"),
        ("2.35", "2.28", "pass"),
        ("2.9", "2.28", "fail"),  # numbers, no decimals
        ("2.35-0ubuntu3.4", "2.28", "pass"),
        ("3.4.28", "3.4.30", "fail"),
        ("2.26", "GLIBC_2.28", "fail"),  # as the binary spells it
        ("3.4.28", "GLIBCXX_3.4.30", "fail"),
        ("2.35", "GLIBC_2.28", "pass"),
        (None, "2.28", "unknown"),
        ("unreadable", "2.28", "unknown"),
        ("2.17", None, "n/a"),
    ],
)
def test_a_c_library_that_is_too_old(name, library, have, need, expected):
    given = {k: v for k, v in (("version", have), ("needed_version", need)) if v is not None}
    assert says(name, lib(library, "libtorch_cpu.so", **given)) == [expected]


def test_each_rule_looks_at_its_own_library():
    old = {"version": "2.12", "needed_version": "2.28"}
    assert says(GLIBC, lib("libstdc++.so.6", **old)) == ["n/a"]
    assert says(LIBSTDCXX, lib("libc.so.6", **old)) == ["n/a"]
    assert says(GLIBC, lib("libcudnn.so.8", **old)) == ["n/a"]


def test_a_glibc_that_is_too_old_for_many_is_told_once():
    given = [lib("libc.so.6", f"module{n}.so", version="2.26", needed_version=f"2.{28 + n}")
             for n in range(5)]  # fmt: skip
    found = found_in(GLIBC, *given)
    assert "module0.so, module1.so, module2.so and 2 more need glibc 2.32" in found.summary


def test_who_needs_the_newer_glibc_is_named():
    old = lib("libc.so.6", "libtorch_cpu.so", version="2.26", needed_version="2.28")
    found = found_in(GLIBC, old, os={"name": "Amazon Linux 2", "glibc": "2.26"})
    assert "libtorch_cpu.so needs glibc 2.28" in found.summary
    assert found.subject == "libtorch_cpu.so" and "2.28" in found.fix[0]
    assert "os.name" in [one.fact for one in found.evidence]


def test_a_cudnn_without_its_parts():
    """The front opens them when it is first called."""
    part = lib("libcudnn_graph.so.9", "libcudnn.so.9", missing=True)
    found = found_in(MISSING, part, torch=torch("12.4"))
    assert "Cannot load symbol" in found.why and found.fix[0] == "pip install nvidia-cudnn-cu12"
    front = lib("libcudnn.so.9", found_by="ld-preload", path="/opt/libcudnn.so.9")
    assert found_in(MISSING, part, front).fix == (
        "unset LD_PRELOAD, or take that library out of it",
    )
    by_rpath = dict(front, found_by="rpath")
    assert "pip install" in found_in(MISSING, part, by_rpath, torch=torch("12.4")).fix[0]
    other = found_in(MISSING, lib("libfoo.so", "libbar.so", missing=True), front)
    assert "Cannot load symbol" not in other.why and "unset" not in other.fix[0]
