"""The report as one JSON document (`preflight.report/1`), and its JSON Schema."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .. import __version__, snapshot_json
from ..policy import Waiver
from ..verdict import Judged, Report

SCHEMA = "preflight.report/1"


def to_json(report: Report) -> Dict[str, Any]:
    """The document of the contract in the README; keys and rule names never change by language."""
    return {
        "schema": SCHEMA,
        "preflight": __version__,
        "matrix": report.matrix_date,
        "replaced": list(report.replaced),
        "verdict": report.verdict,
        "findings": [_finding(one) for one in report.findings],
        "recommendations": [],
        "snapshot": snapshot_json.to_json(report.snapshot),
        "unknowns": _unknowns(report),
        "milliseconds": dict(report.milliseconds),
    }


def _finding(one: Judged) -> Dict[str, Any]:
    finding = one.finding
    return {
        "rule": one.rule.name,
        "severity": one.severity,
        "summary": finding.summary,
        "observed": finding.observed,
        "needed": finding.needed,
        "why": finding.why,
        "fix": list(finding.fix),
        "evidence": [
            {"fact": e.fact, "value": e.value, "source": e.source, "assumed": e.assumed}
            for e in finding.evidence
        ],
        "references": [{"title": r.title, "url": r.url} for r in one.references],
        "subject": finding.subject,
        "waived": _waiver(one.waived),
    }


def _waiver(waiver: Optional[Waiver]) -> Optional[Dict[str, str]]:
    return {"reason": waiver.reason, "until": waiver.until} if waiver else None


def _unknowns(report: Report) -> List[Dict[str, Any]]:
    return [
        {
            "fact": one.fact,
            "reason": one.reason,
            "how_to_know": one.how_to_know,
            "rule": one.rule,
            "undecided": one.note,
        }
        for one in report.unknowns
    ]


def json_schema() -> Dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what :func:`to_json` writes."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text}
    finding = _object(
        rule={"type": "string", "pattern": "^[a-z]+/[a-z0-9-]+$"},
        severity={"enum": ["fail", "warn", "info", "unknown"]},
        summary=text, observed=text, needed=text, why=text, fix=texts,
        evidence=_list(_object(fact=text, value=text, source=text, assumed={"type": "boolean"})),
        references=_list(_object(title=text, url=text)),
        subject=text,
        waived={"oneOf": [{"type": "null"}, _object(reason=text, until=text)]},
    )  # fmt: skip
    recommendation = _object(
        kind={"enum": ["image", "command", "node"]}, value=text, changes=texts,
        mode={"enum": ["native", "minor-version", "forward-compat"]}, source=text,
    )  # fmt: skip
    snapshot = snapshot_json.json_schema()
    definitions = snapshot.pop("$defs")
    snapshot.pop("$schema")
    document = _object(
        schema={"const": SCHEMA},
        preflight=text,
        matrix=text,
        replaced=texts,
        verdict={"enum": ["pass", "warn", "fail", "unknown"]},
        findings=_list(finding),
        recommendations=_list(recommendation),
        snapshot=snapshot,
        unknowns=_list(
            _object(fact=text, reason=text, how_to_know=text, rule=text, undecided=text)
        ),
        milliseconds={"type": "object", "additionalProperties": {"type": "number"}},
    )
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": SCHEMA, "$defs": definitions, **document}


def _object(**properties: Any) -> Dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any) -> Dict[str, Any]:
    return {"type": "array", "items": items}
