"""What all tests share."""

import time
from typing import Optional

import pytest

ATTEMPTS = 3


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "timed: holds a time limit, and is tried again where a busy machine broke it"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Optional[object]:
    """A limit that holds once is held: what another process takes away is not ours."""
    if pyfuncitem.get_closest_marker("timed") is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}
    for attempt in range(ATTEMPTS):
        try:
            pyfuncitem.obj(**given)
            return True
        except AssertionError:
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(1)
    return True
