"""Whether a directory of tables is well formed, agrees with itself and cites its sources."""

from __future__ import annotations

from typing import List


def check(directory: str) -> List[str]:
    """Problems of the tables in a directory, each with file and row; empty when there are none."""
    raise NotImplementedError(directory)
