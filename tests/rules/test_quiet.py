"""What TensorFlow and JAX cannot open when they look for a GPU."""

import pytest

from tests.rules.build import H100, finding, say, torch

MISSING, SYMBOL = "link/missing-library", "link/undefined-symbol"
WHEEL = "/venv/lib/python3.11/site-packages/nvidia/cusolver/lib/libcusolver.so.11"


def lost(name, by="tensorflow", **more):
    return {"name": name, "needed_by": by, "missing": True, "required": False, **more}


def tensorflow(cuda="12.5.1", version="2.21.0"):
    return {"version": version, "cuda": cuda, "build": "pip"}


ALL = [lost(f"lib{one}") for one in ("cudart.so.12", "cublas.so.12", "cufft.so.11", "cudnn.so.9")]


def test_all_that_is_lost_is_one_warning():
    assert say(MISSING, libraries=ALL, tensorflow=tensorflow(), gpus=[H100]) == ["warn"]
    found = finding(MISSING, libraries=ALL, tensorflow=tensorflow(), gpus=[H100])
    assert "libcudart.so.12, libcublas.so.12, libcufft.so.11 and 1 more" in found.summary
    assert "tensorflow 2.21.0 takes the CPU without them" in found.summary
    assert "libcudnn.so.9" in found.observed and "Cannot dlopen" in found.why
    assert found.fix == ('pip install "tensorflow[and-cuda]==2.21.0"',)
    assert {f"libraries[{n}].missing" for n in range(4)} <= {e.fact for e in found.evidence}


def test_jax_names_its_own():
    given = {"libraries": [lost("libcudnn.so.9", "jax")],
             "jax": {"version": "0.10.2", "cuda": "13", "build": "pip"}}  # fmt: skip
    found = finding(MISSING, **given)
    assert found.fix == ('pip install "jax[cuda13]==0.10.2"',) and "Unable to load" in found.why
    assert say(MISSING, **given) == ["warn"]


def test_what_lies_in_a_wheel_only_needs_to_be_looked_for():
    found = finding(MISSING, libraries=[lost("libcusolver.so.11", path=WHEEL)],
                    tensorflow=tensorflow())  # fmt: skip
    assert found.fix == (f"export LD_LIBRARY_PATH={WHEEL.rpartition('/')[0]}:$LD_LIBRARY_PATH",)
    some = finding(MISSING, libraries=[lost("libcusolver.so.11", path=WHEEL), ALL[0]],
                   tensorflow=tensorflow())  # fmt: skip
    assert "and-cuda" in some.fix[0]


@pytest.mark.parametrize("build", ["conda", "ngc", "vendor"])
def test_other_builds_have_no_extra(build):
    found = finding(MISSING, libraries=ALL, tensorflow=dict(tensorflow(), build=build))
    assert "pip install" not in found.fix[0]


def test_a_damaged_one():
    one = lost("libcudnn.so.9", path="/x/libcudnn.so.9", damaged="file too short")
    found = finding(MISSING, libraries=[one], tensorflow=tensorflow())
    assert found.fix == ("reinstall the package that brings libcudnn.so.9",)


@pytest.mark.parametrize(
    "document",
    [
        {"torch": torch("12.4")},  # TensorFlow for its event files, beside the job's torch
        {"gpus": []},
        {"env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"job": {"gpus_per_node": 0}},
    ],
)
def test_where_it_may_well_not_matter_it_is_mentioned(document):
    assert say(MISSING, libraries=ALL, tensorflow=tensorflow(), **document) == ["info"]


def test_a_torch_for_the_cpu_is_no_other_way_to_a_gpu():
    given = {"libraries": ALL, "tensorflow": tensorflow(), "torch": torch(None, "2.6.0+cpu")}
    assert say(MISSING, **given) == ["warn"]


def test_each_framework_is_told_of():
    given = {"libraries": [*ALL, lost("libcudnn.so.9", "jax")], "tensorflow": tensorflow(),
             "jax": {"version": "0.10.2", "cuda": "12", "build": "pip"}}  # fmt: skip
    assert say(MISSING, **given) == ["warn", "warn"]


def test_an_import_that_stops_is_no_quiet_matter():
    alone = {"name": "libtensorflow_cc.so.2", "needed_by": "_pywrap_tensorflow_internal.so",
             "missing": True, "required": True}  # fmt: skip
    assert say(MISSING, libraries=[alone], tensorflow=tensorflow()) == ["fail"]
    beside = dict(alone, needed_by="import tensorflow", required=False)
    both = {"tensorflow": tensorflow(), "torch": torch("12.4")}
    assert say(MISSING, libraries=[beside], **both) == ["warn"]


def test_a_copy_that_lacks_symbols_is_a_warning():
    one = {"name": "libcudnn.so.9", "needed_by": "tensorflow", "missing_symbols": ["cudnnX"],
           "required": False}  # fmt: skip
    assert say(SYMBOL, libraries=[one], tensorflow=tensorflow()) == ["warn"]
