"""The described environments of tests/cases: what healthy people run is never failed, what the
present rules decide stays decided, and one changed fact turns a verdict."""

import copy
import json
from pathlib import Path

import pytest

from preflight import matrix, verdict
from preflight.intake import described
from preflight.policy import Waiver
from preflight.rules.registry import Finding, rule
from tests import cases_table

M = matrix.load()
CASES = {path.stem: json.loads(path.read_text(encoding="utf-8"))
         for path in sorted((Path(__file__).parent / "cases").glob("*.json"))}  # fmt: skip
HEALTHY = [name for name, one in CASES.items() if one["expected"]["verdict"] == "pass"]

#: The cases that the rules of today decide as their maintainers did. A new rule adds to it.
DECIDED = [
    "001", "004", "005", "006", "007", "008", "009", "010", "018", "022", "033",
    "034", "038", "041", "043", "044", "046", "049", "051", "053", "054", "058",
    "059", "062", "063", "067", "071", "072", "073", "074", "076", "077", "080",
    "081", "084", "085", "087", "090", "091", "093", "094", "098", "099", "100",
    "103", "110", "111", "112", "116", "117", "121", "124", "125", "126", "127",
    "131", "134", "138", "139", "142", "148", "161", "163", "166", "167", "173",
    "175", "176", "178", "181", "185", "186", "189", "193", "194", "195", "196",
    "197", "204", "205", "206", "209", "216", "220", "221",
]  # fmt: skip

#: Decided by facts and a line of the log that agree: neither fails a job alone.
NEEDS_LOG = ["009", "010", "072", "073", "085"]


def case(number):
    """(name, document) of a case by its number."""
    found = [name for name in CASES if name.startswith(number + "-")]
    assert len(found) == 1, number
    return found[0], copy.deepcopy(CASES[found[0]])


def report_on(document):
    return verdict.judge(described.read(document), M)


def failing(report):
    return {one.rule.name for one in report.findings if one.counts and one.severity == "fail"}


# -- every case -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_healthy_is_failed(name):
    report = report_on(CASES[name])
    assert report.verdict in ("pass", "unknown"), [one.finding.summary for one in report.findings]
    assert not failing(report)


def test_there_are_enough_of_both():
    assert len(HEALTHY) >= 13 and len(CASES) - len(HEALTHY) >= 80


@pytest.mark.parametrize("number", DECIDED)
def test_what_is_decided_stays_decided(number):
    name, document = case(number)
    result = cases_table.compare(name, document, report_on(document))
    assert result.outcome == "named", result


def test_the_list_is_complete():
    named = {one.name[:3] for one in cases_table.results() if one.outcome == "named"}
    assert named == set(DECIDED), "add newly decided cases to DECIDED"


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_log_alone_decides_nothing(name):
    """Error lines support a finding; with no facts at all they may not make one."""
    logs = CASES[name]["description"].get("logs", [])
    report = report_on({"logs": logs})
    assert report.verdict == "unknown" and not report.findings


@pytest.mark.parametrize("number", DECIDED)
def test_without_its_log_a_case_is_decided_as_well(number):
    name, document = case(number)
    with_log = report_on(document)
    document["description"].pop("logs", None)
    without = report_on(document)
    if number in NEEDS_LOG:
        assert not failing(without)
    else:
        assert (without.verdict, failing(without)) == (with_log.verdict, failing(with_log))


# -- twins: the same stack, one fact different ------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("071", "197"),  # CUDA newer than the driver: an idle compat library, and one in use
        ("076", "197"),  # a compat libcuda in use: on GeForce, and on a data-center GPU
        ("018", "197"),
        ("004", "195"),  # driver 470: across majors, and within CUDA 11
        ("005", "193"),  # CUDA 12 on an 11.0 driver, CUDA 11.3 on an 11.2 one
        ("007", "206"),  # 13.0 on a 12.8 driver, 12.8 on a 12.9 one
        ("059", "196"),  # V100: a build without sm_70, and one with it
        ("058", "196"),
        ("072", "205"),  # H100 on R550: PTX of 12.8, and machine code
        ("051", "194"),
        ("099", "204"),  # a CPU build, and a CUDA build
        ("074", "197"),  # a compat libcuda that is older than its driver, and one that is newer
        ("044", "220"),  # an NCCL older than torch was built with, and a newer one
    ],
)
def test_twins_come_out_opposite(bad, good):
    (_name, broken), (_other, healthy) = case(bad), case(good)
    assert report_on(broken).verdict == "fail"
    report = report_on(healthy)
    assert report.verdict == "pass" and not failing(report)


def changed(number, *changes):
    """The case with facts changed: (section, field, value); value None takes the field out."""
    _name, document = case(number)
    for section, field, value in changes:
        here = document["description"].setdefault(section, {})
        here = here[0] if isinstance(here, list) else here
        if value is None:
            here.pop(field, None)
        else:
            here[field] = value
    return document


@pytest.mark.parametrize(
    ("number", "changes", "rule_name"),
    [
        # Healthy: one fact breaks it.
        ("193", [("driver", "version", "418.87"), ("driver", "cuda", "10.1")],
         "driver/too-old-for-cuda"),
        ("195", [("torch", "cuda", "12.1")], "driver/too-old-for-cuda"),
        ("195", [("torch", "arch_list", ["sm_75", "sm_80"])], "gpu/no-kernels-for-architecture"),
        ("196", [("torch", "version", "2.7.1+cu128"), ("torch", "cuda", "12.8"),
                 ("driver", "version", "575.57.08"), ("os", "arch", "x86_64")],
         "gpu/no-kernels-for-architecture"),
        ("196", [("driver", "version", "590.44.01")], "driver/too-new-for-gpu"),
        ("197", [("gpus", "name", "NVIDIA GeForce RTX 3090")], "compat/unsupported-gpu"),
        ("197", [("driver", "libcuda", "host"), ("driver", "cuda", "11.4"),
                 ("compat", "resolved", False)], "driver/too-old-for-cuda"),
        ("197", [("driver", "version", "580.65.06")], "compat/older-than-driver"),
        ("197", [("driver", "version", "460.91.03")], "compat/unsupported-branch"),
        ("206", [("torch", "cuda", "13.0")], "driver/too-old-for-cuda"),
        ("194", [("driver", "libcuda", "stub")], "link/stub-libcuda"),
        ("194", [("env", "CUDA_VISIBLE_DEVICES", "1")], "gpu/visible-devices-invalid"),
        ("194", [("driver", "library_version", "550.54.15")], "driver/library-mismatch"),
        ("220", [("libraries", "version", "2.28.9")], "nccl/older-shadows-framework"),
        ("220", [("packages", "nvidia-nccl-cu12", "2.27.5"), ("libraries", "version", None)],
         "nccl/duplicate"),
        ("220", [("libraries", "missing", True), ("libraries", "needed_by", "libtorch_cuda.so")],
         "link/missing-library"),
        ("204", [("packages", "torchvision", "0.19.1")], "framework/companion-mismatch"),
    ],
)  # fmt: skip
def test_one_fact_breaks_a_healthy_case(number, changes, rule_name):
    _name, before = case(number)
    assert not failing(report_on(before))
    assert rule_name in failing(report_on(changed(number, *changes)))


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        # Broken: one fact mends it.
        ("004", [("driver", "version", "525.60.13"), ("driver", "cuda", "12.0")]),
        ("005", [("torch", "cuda", "11.1"), ("torch", "version", None),
                 ("driver", "version", "450.80.02")]),
        ("007", [("driver", "cuda", "13.0")]),
        ("059", [("gpus", "compute_capability", "7.5")]),
        ("058", [("gpus", "compute_capability", "7.0")]),
        ("051", [("torch", "arch_list", ["sm_80"])]),
        ("071", [("driver", "libcuda", "compat"), ("driver", "cuda", "13.0"),
                 ("compat", "resolved", True)]),
        ("076", [("gpus", "name", "NVIDIA A10")]),
        ("033", [("libraries", "missing_symbols", [])]),
        ("034", [("libraries", "version", "12.4")]),
        ("038", [("libraries", "version", "8.5.0")]),
        ("043", [("packages", "nvidia-nccl-cu11", None)]),
        ("080", [("torch", "version", "2.11.0"), ("torch", "cuda", "13.0")]),
        ("081", [("torch", "cxx11_abi", False)]),
        ("084", [("torch", "version", "2.2.0.dev20231106")]),
        ("087", [("torch", "cxx11_abi", True)]),
        ("116", [("libraries", "version", "2.28")]),
        ("121", [("libraries", "version", "8.9.7")]),
        ("125", [("packages", "jaxlib", "0.4.30")]),
        ("126", [("libraries", "missing", False)]),
    ],
)  # fmt: skip
def test_one_fact_mends_a_broken_case(number, changes):
    _name, before = case(number)
    assert failing(report_on(before))
    assert not failing(report_on(changed(number, *changes)))


# -- the comparison itself --------------------------------------------------------------------

CASE = {"expected": {"verdict": "fail", "rule": "driver/too-old-for-cuda", "also": []}, "case": {}}


def made_up(verdict_word, *found, waived=None):
    """A report with findings of (rule, severity)."""
    findings = tuple(
        verdict.Judged(rule(name), severity, Finding("x", "x", "x", "x"), waived=waived)
        for name, severity in found
    )
    return verdict.Report(verdict_word, findings, (), (), described.read({}), "2026-01-01")


RIGHT = ("driver/too-old-for-cuda", "fail")
WRONG = ("link/stub-libcuda", "fail")


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (made_up("fail", RIGHT), "named"),
        (made_up("fail", WRONG, RIGHT), "named"),
        (made_up("fail", WRONG), "other rule"),
        (made_up("pass"), "missed"),
        (made_up("unknown"), "missed"),
        (made_up("warn", ("driver/too-old-for-cuda", "warn")), "missed"),
        (made_up("pass", RIGHT, waived=Waiver("driver/too-old-for-cuda", "x", "2099-01-01")),
         "missed"),
    ],
)  # fmt: skip
def test_compare_with_a_fail(report, outcome):
    assert cases_table.compare("a", CASE, report).outcome == outcome


def test_compare_with_other_acceptable_answers():
    also = {"expected": dict(CASE["expected"], also=["link/stub-libcuda"]), "case": {}}
    assert cases_table.compare("a", also, made_up("fail", WRONG)).outcome == "named"
    softer = {"expected": CASE["expected"], "case": {"verdict_also": ["warn"]}}
    warned = made_up("warn", ("driver/too-old-for-cuda", "warn"))
    assert cases_table.compare("a", softer, warned).outcome == "named"
    assert cases_table.compare("a", softer, made_up("fail", RIGHT)).outcome == "named"
    mentioned = made_up("pass", ("driver/too-old-for-cuda", "info"))
    assert cases_table.compare("a", softer, mentioned).outcome == "missed"


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (made_up("pass"), "named"),
        (made_up("fail", WRONG), "false alarm"),
        (made_up("warn", ("link/stub-libcuda", "warn")), "other verdict"),
        (made_up("unknown"), "other verdict"),
    ],
)
def test_compare_with_something_healthy(report, outcome):
    healthy = {"expected": {"verdict": "pass", "rule": None, "also": []}, "case": {}}
    assert cases_table.compare("a", healthy, report).outcome == outcome
