"""What the tests with a real torch need, and why they are skipped where it is missing."""

from pathlib import Path

import pytest

from tests import fakes
from tests.real import stack


@pytest.fixture(scope="session")
def venv() -> str:
    """The environment with the real torch, on a machine where a driver can be described."""
    found, problem = stack.torch_venv()
    problem = problem or stack.own_gpu()
    if not problem and fakes.compiler() is None:
        problem = "no C compiler to build the stand-in driver with"
    if problem:
        pytest.skip(problem)
    return found


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled libraries are shared by the tests of one run."""
    return tmp_path_factory.mktemp("fakes")


@pytest.fixture(scope="session")
def proc_driver() -> None:
    """A test that needs a /proc/driver of its own."""
    problem = stack.no_proc()
    if problem:
        pytest.skip(problem)
