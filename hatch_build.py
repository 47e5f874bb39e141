"""Build hook: each `compat/NAME.toml` becomes `preflight/compat/NAME.json` in the wheel.

A directory of tables, `compat/NAME/`, becomes one NAME.json with the rows of all its files.

The tables are edited as TOML; at every start of a job those that are needed are read as JSON,
which is several times faster and needs no TOML parser on old Pythons.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class CompatHook(BuildHookInterface):
    """Adds the compiled tables to a wheel; an editable install reads `compat/` itself."""

    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        """Write the JSON and have it included. Raises ValueError naming a bad table."""
        if version == "editable":
            return
        self.scratch = tempfile.mkdtemp(prefix="preflight-compat-")
        for stem, text in compile_tables(os.path.join(self.root, "compat")).items():
            compiled = os.path.join(self.scratch, stem + ".json")
            with open(compiled, "w", encoding="utf-8") as stream:
                stream.write(text)
            build_data["force_include"][compiled] = f"preflight/compat/{stem}.json"

    def finalize(self, version: str, build_data: Dict[str, Any], artifact_path: str) -> None:
        """Remove the scratch directory."""
        shutil.rmtree(getattr(self, "scratch", ""), ignore_errors=True)


def compile_tables(directory: str) -> Dict[str, str]:
    """{file stem: its table as JSON}; dates become ISO text. An empty directory is an error."""
    tables = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        stem, extension = os.path.splitext(name)
        if extension == ".toml":
            table = _table(path)
        elif os.path.isdir(path):
            table = _joined(path)
        else:
            continue
        tables[stem] = json.dumps(table, default=str, ensure_ascii=False, separators=(",", ":"))
    if not tables:
        raise ValueError(f"no tables in {directory}: a wheel without them could judge nothing")
    return tables


def _joined(directory: str) -> Dict[str, Any]:
    """One table of the files in a directory."""
    found: Dict[str, Any] = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".toml"):
            for kind, rows in _table(os.path.join(directory, name)).items():
                found[kind] = found.get(kind, []) + rows
    return found


def _table(path: str) -> Dict[str, Any]:
    with open(path, "rb") as stream:
        try:
            return tomllib.load(stream)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: {error}") from None
