"""Writes what is generated: docs/rules.md from the rules, schemas/*.json from the code.

python tools/docs.py            write
python tools/docs.py --check    exit 1 when a file is not what would be written
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Dict

from preflight import matrix, snapshot_json
from preflight.reports import json_report
from preflight.rules.registry import RULES, Rule

TOP = Path(__file__).resolve().parents[1]
INTRODUCTION = """\
# Rules

Made by `make docs` from the rules themselves (`src/preflight/rules/`); `preflight rules NAME`
prints one. A rule answers *ok*, *found* (fail, warn or info), *unknown* (a fact is missing: which,
and how to get it) or *not applicable*. Names do not change; severities can be set, and rules
waived, in a policy.

| rule | severity | retry may cure | meaning |
| --- | --- | --- | --- |
"""


def rules_page() -> str:
    """The page of all rules."""
    rows = "".join(
        f"| [{one.name}](#{one.name.replace('/', '')}) | {one.severity} | "
        f"{'yes' if one.retry else 'no'} | {one.meaning} |\n"
        for one in RULES
    )
    return INTRODUCTION + rows + "".join(map(_section, RULES))


def _section(one: Rule) -> str:
    code = "75" if one.retry else "78"
    rows = matrix.load().references(one.sources)
    sources = "".join(f"- [{t}]({url})\n" if url else f"- {t}\n" for t, url in rows)
    return (
        f"\n## {one.name}\n\n{one.documentation}\n\nExit code when it fails: {code}.\n\n"
        f"Sources:\n\n{sources}"
    )


def files() -> Dict[Path, str]:
    """Every generated file with its text."""
    return {
        TOP / "docs" / "rules.md": rules_page(),
        TOP / "schemas" / "preflight.snapshot.1.json": _schema(snapshot_json.json_schema()),
        TOP / "schemas" / "preflight.report.1.json": _schema(json_report.json_schema()),
    }


def _schema(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"


def main() -> int:
    """Write the files, or with --check compare them."""
    stale = 0
    for path, text in files().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{path.relative_to(TOP)} is stale: run make docs")
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(TOP)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
