"""Records are frozen dataclasses, only made more quickly."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from preflight import records


class Plain:
    """A field without a default, one with, and one that each has of its own."""

    name: str
    number: int = 7
    items: list = field(default_factory=list, metadata={"kind": "texts"})


Record = records.record(frozen=True)(type("Both", (Plain,), dict(Plain.__dict__)))
Truth = dataclass(frozen=True)(type("Both", (Plain,), dict(Plain.__dict__)))

GIVEN = [
    (("a",), {}),
    (("a", 1), {}),
    (("a", 1, [2]), {}),
    ((), {"name": "a", "items": [3]}),
    (("a",), {"number": 2}),
    ((), {}),
    (("a",), {"name": "b"}),
    (("a", 1), {"number": 1}),
    (("a", 1, [], 4), {}),
    (("a",), {"other": 1}),
    ((), {"other": 1}),
]


def made(kind, values, named):
    try:
        one = kind(*values, **named)
    except TypeError:
        return TypeError
    return [(each.name, getattr(one, each.name)) for each in fields(one)]


@pytest.mark.parametrize(("values", "named"), GIVEN)
def test_they_take_what_a_dataclass_takes(values, named):
    assert made(Record, values, named) == made(Truth, values, named)


def test_they_say_and_compare_as_a_dataclass_does():
    one, other = Record("a", 1, (2,)), Record("a", 2, (2,))
    assert repr(one) == repr(Truth("a", 1, (2,)))
    assert one == Record("a", 1, (2,)) != other and one != Truth("a", 1, (2,))
    assert hash(one) == hash(Truth("a", 1, (2,))) and one in {one} and other not in {one}
    assert Record("a").items is not Record("a").items
    assert replace(one, number=2) == other and copy.copy(one) == one
    assert [each.metadata for each in fields(Record)] == [each.metadata for each in fields(Truth)]


def test_they_stay_as_they_are():
    one = Record("a")
    for change in (lambda: setattr(one, "name", "b"), lambda: delattr(one, "name")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert one.name == "a"


def test_they_can_be_sent():
    from preflight.snapshot import known

    assert pickle.loads(pickle.dumps(known(1, "x"))) == known(1, "x")
