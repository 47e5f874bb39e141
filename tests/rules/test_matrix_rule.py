"""`matrix/outdated`: the tables' own age."""

import datetime
from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight import verdict
from tests.rules.build import M, outcomes, word

AGE = "matrix/outdated"


def after(days):
    """The day so many days after the tables' own."""
    day = datetime.date.fromisoformat(M.date) + datetime.timedelta(days=days)
    return day.isoformat()


@pytest.mark.parametrize(
    ("days", "says"), [(0, "n/a"), (-3000, "n/a"), (365, "n/a"), (366, "info"), (4000, "info")]
)
def test_a_year(days, says):
    (one,) = outcomes(AGE, replace(s.Snapshot(), taken=after(days)))
    assert word(AGE, one) == says


@pytest.mark.parametrize("taken", ["", "yesterday", "2099", "2099-1-1", "²²²²-01-01"])
def test_no_day(taken):
    (one,) = outcomes(AGE, replace(s.Snapshot(), taken=taken))
    assert word(AGE, one) == "n/a"


def test_the_day_of_judging_counts_where_nobody_said_when_it_was_taken():
    report = verdict.judge(s.Snapshot(), M, today=after(400))
    assert [one.rule.name for one in report.findings] == [AGE]
    assert "400 days" in report.findings[0].finding.summary
    assert report.verdict == "unknown"
