"""Rules about what the loader would pick."""

import pytest

from tests.rules.build import finding, say

STUB = "link/stub-libcuda"


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
