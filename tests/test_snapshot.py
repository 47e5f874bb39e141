"""Facts, how witnesses merge, and snapshots as JSON: out, in, and against the schema."""

import copy
import json
import random
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

from preflight import snapshot as s
from preflight import snapshot_json
from preflight.reports import json_report
from preflight.snapshot_json import BadSnapshot
from tests import random_snapshots

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
VALIDATOR = jsonschema.Draft202012Validator(snapshot_json.json_schema())

# -- facts ----------------------------------------------------------------------------------


def test_a_fact_is_known_absent_or_unknown():
    states = [(one.known, one.absent, bool(one.unknown)) for one in (
        s.known("1", "here"), s.absent("here"), s.unknown("broken"), s.UNKNOWN, s.unknown(""),
    )]  # fmt: skip
    assert states == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (False, False, True),
        (False, False, True),
    ]


@pytest.mark.parametrize("value", ["", 0, 0.0, False, (), {}])
def test_what_python_calls_false_is_known_all_the_same(value):
    fact = s.known(value, "here")
    assert fact.known and not fact.absent
    assert fact.get("default") == value


def test_only_what_nobody_tried_was_not_looked_at():
    assert not s.UNKNOWN.looked
    assert s.unknown("timed out").looked and s.absent("x").looked and s.known(1, "x").looked
    assert s.UNKNOWN.get("default") == s.absent("x").get("default") == "default"


A, B = s.known("a", "first"), s.known("b", "second")
GONE, BROKEN = s.absent("first"), s.unknown("timed out", "second")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (A, s.UNKNOWN, A),
        (s.UNKNOWN, A, A),
        (GONE, A, A),
        (BROKEN, A, A),
        (A, BROKEN, A),
        (A, s.absent("second"), A),
        (A, s.known("a", "second"), A),
        (s.UNKNOWN, GONE, GONE),
        (s.UNKNOWN, BROKEN, BROKEN),
        (GONE, s.UNKNOWN, GONE),
        (GONE, s.absent("second"), GONE),
        (BROKEN, s.UNKNOWN, BROKEN),
        (BROKEN, s.unknown("other", "x"), BROKEN),
        (BROKEN, GONE, BROKEN),
        (GONE, BROKEN, BROKEN),  # one says no, one could not look: nobody knows
        (s.UNKNOWN, s.UNKNOWN, s.UNKNOWN),
    ],
)
def test_merge(first, second, expected):
    assert s.merge(first, second) == expected


def test_merge_keeps_what_another_witness_says_otherwise():
    merged = s.merge(A, B)
    assert (merged.value, merged.source) == ("a", "first")
    assert merged.differs == (s.Observation("b", "second"),)
    three = s.merge(merged, s.known("c", "third"))
    assert [one.value for one in three.differs] == ["b", "c"]
    assert s.merge(A, s.merge(B, s.known("c", "third"))).differs == three.differs


def test_merge_keeps_an_assumption_marked():
    assumed = s.known("a", "assumed: x", assumed=True)
    assert s.merge(assumed, B).assumed
    assert not s.merge(A, assumed).assumed


def test_variables():
    given = s.Snapshot(env=s.known({"A": "", "B": "1"}, "environment"))
    assert given.variable("A").known and given.variable("A").value == ""
    assert given.variable("B").source == "environment variable B"
    assert given.variable("C").absent
    assert not s.Snapshot().variable("A").looked
    assert s.Snapshot(env=s.unknown("no /proc")).variable("A").unknown == "no /proc"
    assert s.Snapshot(env=s.absent("image")).variable("A").absent


# -- JSON out and in ------------------------------------------------------------------------


def samples(count, seed=1):
    source = random.Random(seed)
    return [random_snapshots.snapshot(source, odd=0.5) for _ in range(count)]


def test_random_snapshots_hold_every_field_in_every_state():
    """The generator itself: without this, the round trip below could prove less than it says."""
    seen = set()
    for one in samples(200):
        _collect(one, "Snapshot", seen)
    wanted = {(kind.__name__, one.name, state) for kind in _records()
              for one in fields(kind) if "kind" in one.metadata
              for state in ("known", "absent", "unknown")}  # fmt: skip
    assert wanted <= seen


def _records():
    found = [s.Snapshot]
    for kind in found:
        for one in fields(kind):
            more = one.metadata.get("section") or one.metadata.get("item")
            if more and more not in found:
                found.append(more)
    return found


def _collect(record, name, seen):
    for one in fields(record):
        value = getattr(record, one.name)
        if "section" in one.metadata:
            _collect(value, one.metadata["section"].__name__, seen)
        elif "kind" in one.metadata:
            state = "known" if value.known else "absent" if value.absent else "unknown"
            seen.add((name, one.name, state))
            item = one.metadata["item"]
            inner = value.value if value.known and item else ()
            for record_inside in inner if isinstance(inner, tuple) else (inner,):
                _collect(record_inside, item.__name__, seen)


def test_json_out_and_in_loses_nothing():
    for one in samples(200):
        text = json.dumps(snapshot_json.to_json(one), allow_nan=False)
        again = snapshot_json.from_json(json.loads(text))
        assert again == one
        assert json.dumps(snapshot_json.to_json(again)) == text


def test_what_is_written_fits_the_schema():
    jsonschema.Draft202012Validator.check_schema(snapshot_json.json_schema())
    jsonschema.Draft202012Validator.check_schema(json_report.json_schema())
    for one in samples(40, seed=2):
        VALIDATOR.validate(json.loads(json.dumps(snapshot_json.to_json(one))))


def test_an_empty_snapshot_says_next_to_nothing():
    assert snapshot_json.to_json(s.Snapshot()) == {
        "schema": s.SCHEMA, "origin": "described", "root": "",
    }  # fmt: skip


FULL = {
    "schema": s.SCHEMA,
    "origin": "live",
    "root": "/",
    "driver": {
        "version": {"value": "535.1", "source": "/proc",
                    "differs": [{"value": "535.2", "source": "nvml"}]},
        "visible": {"value": True},
        "mps": {"value": {"reachable": {"value": False}}},
    },
    "host": {"cpus": {"value": 1.5}, "shm_bytes": {"value": 64}, "interfaces": {"value": ["lo"]}},
    "gpus": {"value": [{"name": {"value": "Tesla T4"}, "count": {"value": 1}}]},
    "env": {"value": {"A": "1"}},
    "logs": {"absent": True, "source": "nowhere"},
    "locks": {"unknown": "not readable"},
}  # fmt: skip


def changed(*path, value=None, remove=False):
    """FULL with one place changed."""
    document = copy.deepcopy(FULL)
    here = document
    for one in path[:-1]:
        here = here[one]
    if remove:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return document


VERSION = ("driver", "version")
REFUSED = {
    "unknown section": changed("drivers", value={}),
    "unknown field": changed("driver", "versions", value={"value": "1"}),
    "unknown key of a fact": changed(*VERSION, "note", value="x"),
    "unknown field in a list": changed("gpus", "value", 0, "nam", value={"value": "x"}),
    "two states": changed(*VERSION, "absent", value=True),
    "value and unknown": changed(*VERSION, "unknown", value="why"),
    "no state": changed(*VERSION, "value", remove=True),
    "absent false": changed("logs", "absent", value=False),
    "absent 1": changed("logs", "absent", value=1),
    "no reason": changed("locks", "unknown", value=""),
    "reason no text": changed("locks", "unknown", value=3),
    "fact no object": changed(*VERSION, value="535.1"),
    "fact null": changed(*VERSION, value=None),
    "section no object": changed("driver", value=[]),
    "text is number": changed(*VERSION, "value", value=535),
    "text is null": changed(*VERSION, "value", value=None),
    "flag is number": changed("driver", "visible", "value", value=1),
    "flag is text": changed("driver", "visible", "value", value="true"),
    "int is flag": changed("gpus", "value", 0, "count", "value", value=True),
    "int is half": changed("gpus", "value", 0, "count", "value", value=1.5),
    "int is text": changed("gpus", "value", 0, "count", "value", value="1"),
    "number is flag": changed("host", "cpus", "value", value=False),
    "number is text": changed("host", "cpus", "value", value="8"),
    "list is text": changed("host", "interfaces", "value", value="lo"),
    "list of numbers": changed("host", "interfaces", "value", value=[1]),
    "names is list": changed("env", "value", value=["A=1"]),
    "names of numbers": changed("env", "value", value={"A": 1}),
    "records is object": changed("gpus", "value", value={}),
    "record is list": changed("driver", "mps", "value", value=[]),
    "source no text": changed(*VERSION, "source", value=1),
    "assumed no flag": changed(*VERSION, "assumed", value="yes"),
    "differs no list": changed(*VERSION, "differs", value={}),
    "differs without source": changed(*VERSION, "differs", value=[{"value": "1"}]),
    "differs of another type": changed(*VERSION, "differs", 0, "value", value=7),
    "origin no text": changed("origin", value=1),
    "no schema": changed("schema", remove=True),
    "another schema": changed("schema", value="preflight.snapshot/2"),
    "no object": [],
    "nothing": None,
}


def test_the_document_that_is_broken_below_is_good():
    VALIDATOR.validate(FULL)
    assert snapshot_json.to_json(snapshot_json.from_json(FULL)) == FULL


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_is_refused_by_reader_and_schema(name):
    document = REFUSED[name]
    with pytest.raises(BadSnapshot) as caught:
        snapshot_json.from_json(document)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (changed("driver", "versions", value={"value": "1"}), "driver.versions"),
        (changed("gpus", "value", 0, "count", "value", value="1"), "gpus[0].count"),
        (changed(*VERSION, "differs", 0, "value", value=7), "driver.version.differs[0]"),
        (changed("env", "value", value={"A": 1}), "env.A"),
        (changed("driver", "mps", "value", "reachable", value={}), "driver.mps.reachable"),
    ],
)
def test_the_place_is_named(document, place):
    with pytest.raises(BadSnapshot) as caught:
        snapshot_json.from_json(document)
    assert str(caught.value).startswith(place)


def test_reader_and_schema_agree_on_random_damage():
    """Small random changes to good documents: what one refuses, the other refuses."""
    source = random.Random(3)
    decided = {True: 0, False: 0}
    for number, one in enumerate(samples(40, seed=4)):
        for _ in range(5):
            document = json.loads(json.dumps(snapshot_json.to_json(one)))
            _damage(document, source)
            try:
                snapshot_json.from_json(document)
                read = True
            except BadSnapshot:
                read = False
            assert read == VALIDATOR.is_valid(document), (number, document)
            decided[read] += 1
    assert decided[True] and decided[False]


_JUNK = ["text", "", 3, 0.5, True, False, None, [], {}, ["x"], {"value": "x"}, {"absent": True}]


def _damage(document, source):
    places = []
    _walk(document, places)
    container, key = source.choice(places)
    if source.random() < 0.3 and isinstance(container, dict):
        del container[key]
    else:
        container[key] = copy.deepcopy(source.choice(_JUNK))


def _walk(here, places):
    for key in list(here) if isinstance(here, dict) else range(len(here)):
        places.append((here, key))
        if isinstance(here[key], (dict, list)):
            _walk(here[key], places)


# -- what is published ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("preflight.snapshot.1.json", snapshot_json.json_schema),
        ("preflight.report.1.json", json_report.json_schema),
    ],
)
def test_the_published_schema_is_what_the_code_says(name, schema):
    path = SCHEMAS / name
    regenerate = f"{path.name} is not what the code generates: run `make docs` and commit it"
    assert path.exists() and json.loads(path.read_text(encoding="utf-8")) == schema(), regenerate
