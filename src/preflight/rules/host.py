"""Rules about the machine around the job."""

from __future__ import annotations

from .host_room import cpus_low, disk_low, memory_low, open_files_low

__all__ = ["cpus_low", "disk_low", "memory_low", "open_files_low"]
