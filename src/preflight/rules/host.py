"""Rules about the machine around the job, and where it reads and writes."""

from __future__ import annotations

from .host_room import cpus_low, disk_low, memory_low, open_files_low
from .storage import path_unusable

__all__ = ["cpus_low", "disk_low", "memory_low", "open_files_low", "path_unusable"]
