"""`make cases`: the described environments of tests/cases, judged, as a table.

A case is *named* when the verdict and a rule are as its maintainers found, *other verdict* or
*other rule* when only one is, *missed* when something that failed there passes here, *false
alarm* when something healthy is failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

from preflight import matrix, verdict
from preflight.intake import described

CASES = Path(__file__).parent / "cases"
RANK = {"fail": 2, "warn": 1, "info": 0}


class Result(NamedTuple):
    """One case: what was expected, what came out, and how the two compare."""

    name: str
    decidable: str
    expected: str
    rule: str
    verdict: str
    rules: List[str]
    outcome: str


def results() -> Iterator[Result]:
    """Every case of tests/cases, judged."""
    table = matrix.load()
    for path in sorted(CASES.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        report = verdict.judge(described.read(document), table)
        yield compare(path.stem, document, report)


def compare(name: str, document: Dict[str, Any], report: verdict.Report) -> Result:
    """How a report compares with what a case expects (see tests/cases/README.md)."""
    expected, case = document["expected"], document["case"]
    wanted = [expected["rule"], *expected.get("also", [])]
    verdicts = [expected["verdict"], *case.get("verdict_also", [])]
    least = min(RANK.get(one, 0) for one in verdicts)
    found = [
        one.rule.name
        for one in report.findings
        if one.counts and RANK[one.severity] >= max(least, 1)
    ]
    named = expected["rule"] is None or bool(set(found) & set(wanted))
    right = report.verdict in verdicts
    if expected["verdict"] == "pass":
        outcome = (
            "named" if right else "false alarm" if report.verdict == "fail" else "other verdict"
        )
    elif named and right:
        outcome = "named"
    elif named:
        outcome = "other verdict"
    else:
        outcome = "other rule" if found else "missed"
    return Result(
        name, case.get("decidable", "facts"), expected["verdict"], expected["rule"] or "-",
        report.verdict, found, outcome,
    )  # fmt: skip


def main() -> int:
    """Print the table and the sums; 1 when something healthy was failed."""
    rows = list(results())
    for row in rows:
        found = ", ".join(row.rules) or "-"
        print(f"{row.outcome:<14} {row.name:<42} {row.expected:>4} {row.rule:<34} "
              f"{row.verdict:<8} {found}")  # fmt: skip
    kinds = ("named", "other verdict", "other rule", "missed", "false alarm")
    counts = {kind: sum(row.outcome == kind for row in rows) for kind in kinds}
    print("\n" + ", ".join(f"{kind}: {count}" for kind, count in counts.items()))
    return 1 if counts["false alarm"] else 0


if __name__ == "__main__":
    sys.exit(main())
