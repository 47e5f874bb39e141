"""Versions and specs are judged as conda judges them: its own answers are in the samples."""

import itertools
import json
from typing import Any, Dict, Tuple

import pytest

from preflight.lockfiles import conda_spec
from preflight.lockfiles.conda_versions import matches, order, satisfies
from preflight.lockfiles.model import BadLock
from tests.lockfiles.reading import SAMPLES

ANSWERS: Dict[str, Any] = json.loads((SAMPLES / "conda-answers.json").read_text("utf-8"))


def test_versions_are_in_condas_order() -> None:
    for (one, rank), (other, second) in itertools.product(ANSWERS["order"], repeat=2):
        assert order(one, other) == (rank > second) - (rank < second), (one, other)


def test_specs_take_what_conda_takes() -> None:
    wrong = [(s, v, a) for s, v, a in ANSWERS["specs"] if satisfies(v, "", s) != a]
    assert wrong == []


def test_whole_specs_take_the_packages_that_conda_takes() -> None:
    for written, *rest in ANSWERS["whole"]:
        if rest == [None]:
            with pytest.raises(BadLock):
                conda_spec.parse(written, 1)
            continue
        name, version, build, answer = rest
        spec = conda_spec.parse(written, 1)
        assert spec.name == name
        assert satisfies(version, build, spec.version, spec.build) == answer, (written, version)


@pytest.mark.parametrize(
    ("version", "build", "spec", "build_spec", "answer"),
    [
        ("1.8.3", "", "=1.8", "", True),
        ("1.80", "", "=1.8", "", False),
        ("2.5.1", "cuda126_py311_0", "==2.5.1", "cuda*", True),
        ("2.5.1", "cpu_py311_0", "==2.5.1", "cuda*", False),
        ("2.5.1", "cpu_py311_0", "==2.5.1", "cpu_py311_0", True),
        ("2.5.1", "", "==2.5.1", "cuda*", True),  # which build it is, is not known
        ("2.5.1", "x", "==2.5.1", "^cuda.*$", True),  # a regex is not run
        ("2.5.1", "x", "^(a+)+$", "", True),
        ("2.5.1", "x", "((((", "", True),  # no spec at all: nothing can be said
        ("no version", "x", ">=1", "", True),
        ("2.5.1+cu124", "", "==2.5.1", "", False),  # other than for pip
    ],
)
def test_what_cannot_be_judged_is_no_failure(
    version: str, build: str, spec: str, build_spec: str, answer: bool
) -> None:
    assert satisfies(version, build, spec, build_spec) == answer


@pytest.mark.parametrize(
    "case", [("a" * 5000, "*a" * 2000 + "b"), ("ab", "a*b*"), ("ab", "a*ab"), ("", "*")]
)
def test_a_pattern_costs_no_more_than_its_length(case: Tuple[str, str]) -> None:
    assert matches(*case) == (case[1] in ("a*b*", "*"))


def test_a_spec_that_nests_without_end_is_not_judged() -> None:
    assert satisfies("1", "", "(" * 400 + "2" + ")" * 400)
    assert satisfies("1", "", "2|" * 5000 + "2")
