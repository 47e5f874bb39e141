"""From outcomes to the report: severities, waivers, unknowns, the verdict and the exit code."""

import random
from dataclasses import replace

import pytest

from preflight import matrix, policy, verdict
from preflight import snapshot as s
from preflight.policy import Policy, Waiver
from preflight.rules.registry import RULES, Finding
from tests import random_snapshots
from tests.rules.build import A100, H100, V100, snap, torch

M = matrix.load()
HOST = {"version": "535.104.05", "libcuda": "host", "visible": True}
GOOD = snap(driver=HOST, gpus=[A100], torch=torch("12.4", "2.6.0+cu124"), os={"arch": "x86_64"})
TOO_OLD = snap(driver=dict(HOST, version="470.82.01"), gpus=[A100], torch=torch("12.4"))
#: Warns: a GPU too old for Triton, under a job that compiles.
P100 = {"name": "Tesla P100-PCIE-16GB", "count": 1, "compute_capability": "6.0"}
COMPILES = {"uses_torch_compile": True}
WARNS = snap(driver=HOST, gpus=[P100], torch=torch("12.4", arch_list=["sm_60"]), job=COMPILES)
#: Fails in a way that another node may cure.
SICK = snap(driver=dict(HOST, library_version="535.86.10"), gpus=[A100])


def judge(snapshot, today="2026-11-29", **choices):
    return verdict.judge(snapshot, M, Policy(**choices), today)


def names(report, counting=True):
    return [one.rule.name for one in report.findings if one.counts or not counting]


# -- the verdict ------------------------------------------------------------------------------


def test_the_four_verdicts():
    assert judge(GOOD).verdict == "pass" and not judge(GOOD).findings
    assert judge(TOO_OLD).verdict == "fail"
    assert judge(WARNS).verdict == "warn"
    assert judge(s.Snapshot()).verdict == "unknown"
    assert verdict.judge(GOOD, M).verdict == "pass"


def test_what_was_looked_for_in_vain_and_needed_makes_it_unknown():
    live = replace(GOOD, origin="live")
    lost = replace(live, driver=replace(live.driver, version=s.unknown("timed out")))
    report = judge(lost)
    assert report.verdict == "unknown"
    missing = [one for one in report.unknowns if one.fact == "driver.version"]
    assert missing and all(one.reason == "timed out" and one.looked for one in missing)
    assert all("/proc/driver/nvidia/version" in one.how_to_know for one in missing)


def test_what_nobody_looked_for_is_listed_and_changes_nothing():
    """A description without the driver libraries' version still passes."""
    report = judge(GOOD)
    facts = {one.fact for one in report.unknowns}
    assert "driver.library_version" in facts
    assert not any(one.looked for one in report.unknowns)


def test_a_driver_that_does_not_decide_is_no_pass():
    """CUDA 11.0 offered and 11.8 needed: it depends on the driver's version."""
    told = snap(driver={"cuda": "11.0"}, gpus=[A100], torch=torch("11.8", "2.0.1+cu118"))
    assert judge(told).verdict == "unknown"
    untold = snap(gpus=[A100], torch=torch("11.8", "2.0.1+cu118"))
    assert judge(untold).verdict == "pass"


def test_a_fail_stays_a_fail_whatever_is_unknown():
    lost = replace(TOO_OLD, compats=s.unknown("timed out"), libraries=s.unknown("timed out"))
    assert judge(lost).verdict == "fail"


def test_every_unknown_says_how_to_know_it_once_a_rule():
    report = judge(snap(torch=torch("12.4")))
    keys = [(one.fact, one.rule) for one in report.unknowns]
    assert len(keys) == len(set(keys)) > 3
    assert all(one.how_to_know and one.reason and one.note for one in report.unknowns)


@pytest.mark.parametrize(
    ("place", "word"),
    [("driver.version", "--assume driver"), ("driver.cuda", "nvidia-smi"),
     ("driver.libcuda_path", "ldconfig"), ("driver.uvm_device", "container"),
     ("gpus[0].name", "--assume gpu"), ("compats[0].cuda", "compat"),
     ("frameworks[1].arch_list", "get_arch_list"), ("extensions[0].x", "cuobjdump"),
     ("env.A", "job")],
)  # fmt: skip
def test_how_to_know(place, word):
    assert word in verdict.how_to_know(place)


# -- findings ---------------------------------------------------------------------------------


def test_worst_first_and_waived_last():
    seen = snap(driver=dict(HOST, library_version="535.86.10"), gpus=[A100, P100],
                torch=torch("12.4", arch_list=["sm_80"]), job=COMPILES)  # fmt: skip
    report = judge(seen)
    severities = [one.severity for one in report.findings]
    assert severities == sorted(severities, key=["fail", "warn", "info"].index)
    assert len(set(severities)) == 2
    waived = judge(seen, waivers=(Waiver("driver/library-mismatch", "known", "2027-01-01"),))
    assert waived.findings[-1].rule.name == "driver/library-mismatch"
    assert not waived.findings[-1].counts


def test_findings_carry_the_references_of_rule_and_finding():
    for one in judge(TOO_OLD).findings:
        keys = (*one.rule.sources, *one.finding.sources)
        assert [tuple(r) for r in one.references] == M.references(keys)
        assert one.references


def test_alike_findings_are_said_once_a_gpu_kind():
    eight = snap(driver=HOST, gpus=[dict(V100) for _ in range(8)],
                 torch=torch("12.4", arch_list=["sm_80"]))  # fmt: skip
    assert names(judge(eight)) == ["gpu/no-kernels-for-architecture"]


# -- policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("severity", "outcome"),
    [("warn", "warn"), ("info", "pass"), ("fail", "fail"), ("off", "pass")],
)
def test_severities(severity, outcome):
    report = judge(TOO_OLD, severity={"driver/too-old-for-cuda": severity})
    assert report.verdict == outcome
    shown = [one.severity for one in report.findings]
    assert shown == ([] if severity == "off" else [severity])


def test_a_policy_can_raise_a_warning():
    assert judge(WARNS, severity={"gpu/too-old-for-triton": "fail"}).verdict == "fail"


def test_a_policy_does_not_raise_what_is_only_mentioned():
    """An info of a rule is a remark; the policy's severity is of its findings."""
    seen = snap(driver=HOST, gpus=[A100], torch=torch("12.4", "2.6.0+cu124"),
                compat={"cuda": "12.4", "resolved": False})  # fmt: skip
    assert [one.severity for one in judge(seen).findings] == ["info"]
    raised = judge(seen, severity={"compat/not-active": "fail"})
    assert raised.verdict == "pass" and raised.findings[0].severity == "info"


def test_a_rule_that_is_off_is_not_run_at_all():
    report = judge(TOO_OLD, severity={one.name: "off" for one in RULES})
    assert not report.outcomes and not report.findings and report.verdict == "unknown"


WAIVER = Waiver("driver/too-old-for-cuda", "being replaced", "2026-11-29")


@pytest.mark.parametrize(
    ("today", "outcome"),
    [("2026-11-28", "pass"), ("2026-11-29", "pass"), ("2026-11-30", "fail"), ("2027-01-01", "fail"),
     ("2026-12-01", "fail")],
)  # fmt: skip
def test_a_waiver_holds_up_to_its_day(today, outcome):
    report = judge(TOO_OLD, today, waivers=(WAIVER,))
    assert report.verdict == outcome
    assert (report.findings[0].waived == WAIVER) == (outcome == "pass")
    assert names(report, counting=False) == ["driver/too-old-for-cuda"]


@pytest.mark.parametrize("until", ["2027-3-1", "2027-03-1", "2027-3-01", "2027-03-01"])
def test_a_waiver_ends_however_its_day_is_written(until):
    row = {"rule": "driver/too-old-for-cuda", "reason": "x", "until": until}
    try:
        waivers = policy.parse({"waiver": [row]}).waivers
    except policy.BadPolicy:
        return  # refusing it is as good
    assert judge(TOO_OLD, "2027-03-01", waivers=waivers).verdict == "pass"
    assert judge(TOO_OLD, "2027-10-01", waivers=waivers).verdict == "fail"


def test_a_waiver_is_of_its_rule_alone():
    other = Waiver("link/stub-libcuda", "x", "2099-01-01")
    assert judge(TOO_OLD, waivers=(other,)).verdict == "fail"
    both = judge(TOO_OLD, waivers=(other, WAIVER))
    assert both.findings[0].waived == WAIVER


# -- the exit code ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot", "fail_on", "code"),
    [
        (GOOD, "fail", 0),
        (GOOD, "warn", 0),
        (GOOD, "unknown", 0),
        (TOO_OLD, "fail", 78),
        (TOO_OLD, "unknown", 78),
        (WARNS, "fail", 0),
        (WARNS, "warn", 78),
        (WARNS, "unknown", 78),
        (s.Snapshot(), "fail", 0),
        (s.Snapshot(), "warn", 0),
        (SICK, "fail", 75),
        (SICK, "warn", 75),
    ],
)
def test_exit_codes(snapshot, fail_on, code):
    assert verdict.exit_code(judge(snapshot), fail_on) == code


def test_unknown_can_be_made_to_count():
    assert verdict.exit_code(judge(s.Snapshot()), "unknown") in (75, 78)


def test_facts_that_another_try_does_not_bring_are_no_reason_to_retry():
    """An image that a build machine cannot judge is not cured by another node."""
    assert verdict.exit_code(judge(snap(torch=torch("12.4"))), "unknown") == 78


def test_one_cause_that_stays_makes_a_retry_useless():
    both = snap(driver=dict(HOST, library_version="535.86.10"), gpus=[H100],
                torch=torch("12.4", arch_list=["sm_80"]))  # fmt: skip
    assert len(names(judge(both))) == 2
    assert verdict.exit_code(judge(both)) == 78
    waived = judge(both, waivers=(Waiver("gpu/no-kernels-for-architecture", "x", "2099-01-01"),))
    assert verdict.exit_code(waived) == 75


def test_the_retry_code_can_be_mapped():
    assert verdict.exit_code(judge(SICK), "fail", 138) == 138
    assert verdict.exit_code(judge(TOO_OLD), "fail", 138) == 78


# -- anything ---------------------------------------------------------------------------------


def test_any_snapshot_is_judged():
    source = random.Random(7)
    seen = set()
    for number in range(400):
        one = random_snapshots.snapshot(source)
        if number % 2:  # hardly any random lock, image, path or machine is without a finding
            one = replace(one, locks=s.UNKNOWN, host=s.Host(), image=s.Image(), storage=s.Storage())
        try:
            report = judge(one)
        except Exception as error:
            raise AssertionError(f"random snapshot {number} of seed 7: {error!r}") from error
        seen.add(report.verdict)
        counted = {found.severity for found in report.findings if found.counts}
        expected = "fail" if "fail" in counted else "warn" if "warn" in counted else report.verdict
        assert report.verdict == expected
        assert report.verdict in ("fail", "warn") or not counted & {"fail", "warn"}
        findings = [o for _rule, o in report.outcomes if isinstance(o, Finding)]
        assert len(findings) == len(report.findings)
        assert judge(one) == report
    assert seen == {"fail", "warn", "pass", "unknown"}


def test_times_are_carried():
    assert verdict.with_times(judge(GOOD), {"total": 1.5}).milliseconds == {"total": 1.5}
