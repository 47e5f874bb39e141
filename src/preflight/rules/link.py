"""Rules about what the loader would pick."""

from __future__ import annotations

from typing import Iterator

from ..matrix import Matrix
from ..snapshot import Snapshot
from .registry import Finding, NotApplicable, Outcome, Passed, Undecided, evidence


def stub_libcuda(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The toolkit's stub libcuda would be loaded instead of the driver's.

    The toolkit ships an empty libcuda in its `stubs` directory, to link against on machines
    without a driver. When that directory is on LD_LIBRARY_PATH or in ld.so.conf, the stub is
    loaded and every call fails (error 34).

    Fix: take the stubs directory off the search path.
    """
    kind = s.driver.libcuda
    if kind.value == "stub":
        yield Finding(
            summary="the toolkit's stub libcuda would be loaded instead of the driver's",
            observed=f"libcuda.so.1 is {s.driver.libcuda_path.get('a stub')}",
            needed="the driver's libcuda.so.1",
            why="The stub only serves the linker: every CUDA call fails with error 34.",
            fix=(
                "take the stubs directory off LD_LIBRARY_PATH and out of /etc/ld.so.conf.d, "
                "then run ldconfig",
            ),
            evidence=evidence(s, "driver.libcuda", "driver.libcuda_path", "env.LD_LIBRARY_PATH"),
        )
    elif kind.value == "missing" or kind.absent:
        yield NotApplicable("no libcuda here")
    elif kind.known:
        yield Passed(f"libcuda is not a stub ({kind.value})")
    else:
        yield Undecided(("driver.libcuda",), "which libcuda would be loaded")
