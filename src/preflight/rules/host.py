"""Rules about the machine that the job runs on, and where it reads and writes."""

from __future__ import annotations

from .storage import path_unusable as path_unusable
