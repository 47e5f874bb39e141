"""Rules about what the platform injected and what the launch command makes of it."""

from __future__ import annotations

from .masters import master_unreachable, master_unresolvable
from .ranks import omp_threads, rank_out_of_range
from .variables import variable_malformed, variable_renamed
from .worldsize import world_size_mismatch

__all__ = [
    "master_unreachable",
    "master_unresolvable",
    "omp_threads",
    "rank_out_of_range",
    "variable_malformed",
    "variable_renamed",
    "world_size_mismatch",
]
