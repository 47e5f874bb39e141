"""Snapshots for tests of rules, written as described environments, and what a rule says of them."""

from dataclasses import replace

from preflight import matrix
from preflight.intake import described
from preflight.rules.registry import Finding, NotApplicable, Passed, Undecided, rule

M = matrix.load()

A100 = {"name": "NVIDIA A100-SXM4-80GB", "count": 1, "compute_capability": "8.0"}
H100 = {"name": "NVIDIA H100 80GB HBM3", "count": 1, "compute_capability": "9.0"}
V100 = {"name": "Tesla V100-SXM2-16GB", "count": 1, "compute_capability": "7.0"}
T4 = {"name": "Tesla T4", "count": 1, "compute_capability": "7.5"}
RTX4090 = {"name": "NVIDIA GeForce RTX 4090", "count": 1, "compute_capability": "8.9"}


def snap(origin="described", **document):
    """A snapshot of a described environment; `origin` as of another kind of look."""
    return replace(described.read(document), origin=origin)


def torch(cuda, version="2.6.0", **more):
    """A described torch build; `cuda` None is a CPU build."""
    return {"version": version, "cuda": cuda, "build": "pip", **more}


def outcomes(name, snapshot):
    """Everything the rule of that name says of a snapshot."""
    return list(rule(name).function(snapshot, M))


def word(name, outcome):
    """fail, warn, info, pass, unknown or n/a."""
    if isinstance(outcome, Finding):
        return outcome.severity or rule(name).severity
    return {Passed: "pass", Undecided: "unknown", NotApplicable: "n/a"}[type(outcome)]


def say(name, origin="described", **document):
    """What the rule says of a described environment, in one word an outcome."""
    return [word(name, one) for one in outcomes(name, snap(origin, **document))]


def finding(name, origin="described", **document):
    """The one finding of a rule; fails when there is another number of them."""
    found = [one for one in outcomes(name, snap(origin, **document)) if isinstance(one, Finding)]
    assert len(found) == 1, found
    return found[0]
