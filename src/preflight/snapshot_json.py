"""Snapshots as JSON, out and in without loss, and the JSON Schema of that form.

A fact is ``{"value": ..., "source": ...}``, ``{"absent": true, "source": ...}`` or
``{"unknown": reason}``; one that nobody looked at is left out.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Dict, List, Mapping, Tuple, Type

from . import snapshot as s


class BadSnapshot(ValueError):
    """A document that is no snapshot: the message names the place and what is wrong there."""


def to_json(snapshot: s.Snapshot) -> Dict[str, Any]:
    """The snapshot as a JSON document (`preflight.snapshot/1`)."""
    return {"schema": s.SCHEMA, **_record_out(snapshot)}


def from_json(document: Any) -> s.Snapshot:
    """The snapshot of a JSON document; raises :class:`BadSnapshot` naming the place."""
    if not isinstance(document, dict):
        raise BadSnapshot("snapshot: expected an object, got " + type(document).__name__)
    if document.get("schema") != s.SCHEMA:
        raise BadSnapshot(f"schema: expected {s.SCHEMA!r}, got {document.get('schema')!r}")
    body = {key: value for key, value in document.items() if key != "schema"}
    result = _record_in(s.Snapshot, body, "")
    assert isinstance(result, s.Snapshot)
    return result


# -- out ----------------------------------------------------------------------------------


def _record_out(record: Any) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    for one in fields(record):
        value = getattr(record, one.name)
        if "section" in one.metadata:
            section = _record_out(value)
            if section:
                out[one.name] = section
        elif "kind" in one.metadata:
            if value != s.UNKNOWN:
                out[one.name] = _fact_out(value, one.metadata["kind"])
        elif value or "optional" not in one.metadata:
            out[one.name] = value
    return out


def _fact_out(fact: s.Fact[Any], kind: str) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    if fact.unknown:
        out["unknown"] = fact.unknown
    elif fact.value is None:
        out["absent"] = True
    else:
        out["value"] = _value_out(fact.value, kind)
    if fact.source:
        out["source"] = fact.source
    if fact.assumed:
        out["assumed"] = True
    if fact.differs:
        out["differs"] = [
            {"value": _value_out(other.value, kind), "source": other.source}
            for other in fact.differs
        ]
    return out


def _value_out(value: Any, kind: str) -> Any:
    if kind == s.RECORD:
        return _record_out(value)
    if kind == s.RECORDS:
        return [_record_out(one) for one in value]
    if kind == s.ROWS:
        return [{name: one for name, one in vars(row).items() if one} for row in value]
    if kind == s.TEXTS:
        return list(value)
    if kind == s.NAMES:
        return dict(value)
    return value


# -- in -----------------------------------------------------------------------------------


def _record_in(record: Type[Any], document: Any, where: str) -> Any:
    if not isinstance(document, dict):
        raise BadSnapshot(f"{where}: expected an object, got {type(document).__name__}")
    known = {one.name: one for one in fields(record)}
    values: Dict[str, Any] = {}
    for key, value in document.items():
        place = where + "." + str(key) if where else str(key)
        if key not in known:
            raise BadSnapshot(f"{place}: unknown field")
        metadata = known[key].metadata
        if "section" in metadata:
            values[key] = _record_in(metadata["section"], value, place)
        elif "kind" in metadata:
            values[key] = _fact_in(value, metadata["kind"], metadata["item"], place)
        else:
            values[key] = check(value, s.TEXT, place)
    return record(**values)


_FACT_KEYS = {"value", "absent", "unknown", "source", "assumed", "differs"}


def _fact_in(document: Any, kind: str, item: Any, where: str) -> s.Fact[Any]:
    if not isinstance(document, dict):
        raise BadSnapshot(f"{where}: expected a fact object, got {type(document).__name__}")
    for key in document:
        if key not in _FACT_KEYS:
            raise BadSnapshot(f"{where}.{key}: unknown field")
    states = [key for key in ("value", "absent", "unknown") if key in document]
    if len(states) != 1:
        raise BadSnapshot(f"{where}: exactly one of value, absent, unknown is needed")
    value = None
    if states[0] == "value":
        value = _value_in(document["value"], kind, item, where)
    elif states[0] == "absent":
        if document["absent"] is not True:
            raise BadSnapshot(f"{where}.absent: can only be true")
    elif not check(document["unknown"], s.TEXT, where + ".unknown"):
        raise BadSnapshot(f"{where}.unknown: the reason is empty")
    return s.Fact(
        value=value,
        source=check(document.get("source", ""), s.TEXT, where + ".source"),
        unknown=document.get("unknown", ""),
        assumed=check(document.get("assumed", False), s.FLAG, where + ".assumed"),
        differs=_differs_in(document.get("differs", []), kind, item, where + ".differs"),
    )


def _differs_in(document: Any, kind: str, item: Any, where: str) -> Tuple[Any, ...]:
    if not isinstance(document, list):
        raise BadSnapshot(f"{where}: expected a list")
    others: List[Any] = []
    for number, one in enumerate(document):
        place = f"{where}[{number}]"
        if not isinstance(one, dict) or set(one) != {"value", "source"}:
            raise BadSnapshot(f"{place}: expected an object with value and source")
        source = check(one["source"], s.TEXT, place + ".source")
        others.append(s.Observation(_value_in(one["value"], kind, item, place), source))
    return tuple(others)


def _value_in(value: Any, kind: str, item: Any, where: str) -> Any:
    if kind == s.RECORD:
        return _record_in(item, value, where)
    if kind == s.RECORDS:
        if not isinstance(value, list):
            raise BadSnapshot(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_record_in(item, one, f"{where}[{i}]") for i, one in enumerate(value))
    if kind == s.ROWS:
        return _rows_in(value, item, where)
    return check(value, kind, where)


def _rows_in(value: Any, item: Any, where: str) -> Tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadSnapshot(f"{where}: expected a list, got {type(value).__name__}")
    plain = {one.name: s.INT if isinstance(one.default, int) else s.TEXT for one in fields(item)}
    rows = []
    for number, row in enumerate(value):
        place = f"{where}[{number}]"
        if not isinstance(row, dict):
            raise BadSnapshot(f"{place}: expected an object, got {type(row).__name__}")
        for name, one in row.items():
            if name not in plain:
                raise BadSnapshot(f"{place}.{name}: unknown field")
            check(one, plain[name], f"{place}.{name}")
        rows.append(item(**row))
    return tuple(rows)


_PLAIN = {
    s.TEXT: (str, "a string"),
    s.INT: (int, "a whole number"),
    s.FLAG: (bool, "true or false"),
}


def check(value: Any, kind: str, where: str) -> Any:
    """`value` as a leaf of `kind` holds it; raises :class:`BadSnapshot` naming `where`."""
    if kind == s.NUMBER:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadSnapshot(f"{where}: expected a number, got {type(value).__name__}")
        if value != value or value in (float("inf"), float("-inf")):
            raise BadSnapshot(f"{where}: {value} is no number that JSON has")
        return value
    if kind == s.TEXTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise BadSnapshot(f"{where}: expected a list of strings")
        return tuple(value)
    if kind == s.NAMES:
        if not isinstance(value, Mapping):
            raise BadSnapshot(f"{where}: expected an object of strings")
        for name, one in value.items():
            if not isinstance(one, str):
                raise BadSnapshot(f"{where}.{name}: expected a string, got {type(one).__name__}")
        return dict(value)
    wanted, words = _PLAIN[kind]
    if not isinstance(value, wanted) or (kind == s.INT and isinstance(value, bool)):
        raise BadSnapshot(f"{where}: expected {words}, got {type(value).__name__}")
    return value


# -- schema -------------------------------------------------------------------------------

_LEAVES: Dict[str, Dict[str, Any]] = {
    s.TEXT: {"type": "string"},
    s.INT: {"type": "integer"},
    s.NUMBER: {"type": "number"},
    s.FLAG: {"type": "boolean"},
    s.TEXTS: {"type": "array", "items": {"type": "string"}},
    s.NAMES: {"type": "object", "additionalProperties": {"type": "string"}},
}


def json_schema() -> Dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what :func:`to_json` writes."""
    definitions: Dict[str, Any] = {}
    schema = _record_schema(s.Snapshot, definitions)
    schema["properties"]["schema"] = {"const": s.SCHEMA}
    schema["required"] = ["schema"]
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": s.SCHEMA, "$defs": definitions, **schema}


def _record_schema(record: Type[Any], definitions: Dict[str, Any]) -> Dict[str, Any]:
    properties: Dict[str, Any] = {}
    for one in fields(record):
        if "section" in one.metadata:
            properties[one.name] = _record_schema(one.metadata["section"], definitions)
        elif "kind" in one.metadata:
            kind, item = one.metadata["kind"], one.metadata["item"]
            properties[one.name] = _fact_reference(kind, item, definitions)
        else:
            properties[one.name] = {"type": "string"}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _fact_reference(kind: str, item: Any, definitions: Dict[str, Any]) -> Dict[str, Any]:
    name = f"{kind}-fact" if item is None else f"{kind}-of-{item.__name__}"
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _fact_schema(_value_schema(kind, item, definitions))
    return {"$ref": "#/$defs/" + name}


def _value_schema(kind: str, item: Any, definitions: Dict[str, Any]) -> Dict[str, Any]:
    if kind == s.RECORD:
        return _record_schema(item, definitions)
    if kind == s.RECORDS:
        return {"type": "array", "items": _record_schema(item, definitions)}
    if kind == s.ROWS:
        return {"type": "array", "items": _row_schema(item)}
    return _LEAVES[kind]


def _row_schema(item: Any) -> Dict[str, Any]:
    properties = {
        one.name: _LEAVES[s.INT if isinstance(one.default, int) else s.TEXT] for one in fields(item)
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _fact_schema(value: Dict[str, Any]) -> Dict[str, Any]:
    other = {
        "type": "object",
        "properties": {"value": value, "source": {"type": "string"}},
        "required": ["value", "source"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "value": value,
            "absent": {"const": True},
            "unknown": {"type": "string", "minLength": 1},
            "source": {"type": "string"},
            "assumed": {"type": "boolean"},
            "differs": {"type": "array", "items": other},
        },
        "oneOf": [{"required": ["value"]}, {"required": ["absent"]}, {"required": ["unknown"]}],
        "additionalProperties": False,
    }
