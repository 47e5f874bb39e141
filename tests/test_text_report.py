"""The report for a terminal: the chain, the findings, the long form, at any width."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from preflight import __version__, matrix, verdict
from preflight import snapshot as s
from preflight.intake import described
from preflight.policy import Policy, Waiver
from preflight.reports import text
from tests import random_snapshots
from tests.rules.build import A100, V100, snap, torch

M = matrix.load()
CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
CODE = re.compile("\033\\[[0-9;]*m")

HOST = {"version": "535.104.05", "libcuda": "host", "visible": True}
GOOD = snap(driver=HOST, gpus=[dict(A100, count=8)], torch=torch("12.4", "2.6.0+cu124"),
            os={"arch": "x86_64"})  # fmt: skip
TOO_OLD = snap(driver=dict(HOST, version="470.82.01"), gpus=[A100],
               torch=torch("12.4", "2.6.0+cu124"), os={"arch": "x86_64"})  # fmt: skip


def report_on(snapshot, **choices):
    return verdict.judge(snapshot, M, Policy(**choices), "2026-11-29")


def shown(snapshot, explain=False, width=100, colour=False, **choices):
    return text.render(report_on(snapshot, **choices), text.Style(colour, width), explain)


def chain(snapshot, **choices):
    """{link: (mark, words)} of the chain."""
    found = {}
    for line in shown(snapshot, width=1000, **choices).splitlines():
        match = re.match(
            r"^  +(\S+)  (driver|libcuda|CUDA|framework|GPU|container|platform) +(.*)$", line
        )
        if match:
            found[match.group(2)] = (match.group(1), match.group(3))
    return found


# -- the chain --------------------------------------------------------------------------------


def test_a_good_chain():
    links = chain(GOOD)
    assert {name: mark for name, (mark, _words) in links.items()} == {
        "driver": "ok", "libcuda": "ok", "CUDA": "ok", "framework": "ok", "GPU": "ok",
    }  # fmt: skip
    assert "535.104.05" in links["driver"][1]
    assert "minor-version" in links["CUDA"][1]
    assert "torch 2.6.0+cu124 (CUDA 12.4, pip)" in links["framework"][1]
    assert "8 x NVIDIA A100-SXM4-80GB (sm_80)" in links["GPU"][1]


def test_the_broken_link_is_marked():
    assert {name: mark for name, (mark, _words) in chain(TOO_OLD).items()}["CUDA"] == "FAIL"
    links = chain(snap(driver=HOST, gpus=[V100], torch=torch("12.8", arch_list=["sm_80"])))
    assert (links["GPU"][0], links["CUDA"][0]) == ("FAIL", "ok")
    assert chain(snap(driver={"libcuda": "stub"}))["libcuda"][0] == "FAIL"


def test_the_worst_finding_marks_the_link():
    p100 = {"name": "Tesla P100-PCIE-16GB", "count": 1, "compute_capability": "6.0"}
    seen = snap(driver=HOST, gpus=[p100], torch=torch("12.8", arch_list=["sm_80"]),
                job={"uses_torch_compile": True})  # fmt: skip
    severities = {one.severity for one in report_on(seen).findings if one.rule.rung == "gpu"}
    assert severities == {"fail", "warn"}
    assert chain(seen)["GPU"][0] == "FAIL"


def test_what_is_waived_marks_no_link():
    waiver = Waiver("driver/too-old-for-cuda", "known", "2099-01-01")
    assert chain(TOO_OLD, waivers=(waiver,))["CUDA"][0] != "FAIL"


def test_what_is_not_known_is_not_ok():
    for name, (mark, words) in chain(s.Snapshot()).items():
        assert mark in ("?", "-"), (name, mark)
        assert words
    live = replace(GOOD, origin="live", driver=s.Driver(version=s.unknown("timed out")))
    mark, words = chain(live)["driver"]
    assert mark in ("?", "-") and "timed out" in words


def test_absent_and_unknown_are_said_apart():
    assert "none that can be seen" in chain(snap(driver={"visible": False}))["driver"][1]
    assert "unknown" in chain(s.Snapshot())["driver"][1]
    assert chain(snap(driver={"libcuda": "missing"}))["libcuda"][1] == "none found"
    assert chain(snap(gpus=[]))["GPU"][1] == "none"
    assert "unknown" in chain(s.Snapshot())["GPU"][1]
    assert "no CUDA" in chain(snap(torch=torch(None)))["framework"][1]


def test_what_is_assumed_is_said():
    version = s.known("535.1", "assumed: driver=535.1", assumed=True)
    seen = replace(GOOD, driver=replace(GOOD.driver, version=version),
                   gpus=replace(GOOD.gpus, assumed=True))  # fmt: skip
    assert "535.1 (assumed)" in chain(seen)["driver"][1]
    assert "(assumed)" in chain(seen)["GPU"][1]


def test_witnesses_that_differ_are_both_named():
    version = s.merge(s.known("535.1", "/proc"), s.known("535.2", "nvml"))
    seen = replace(GOOD, driver=replace(GOOD.driver, version=version))
    assert "535.1 (nvml says 535.2)" in chain(seen)["driver"][1]


# -- the whole --------------------------------------------------------------------------------


def test_title_and_last_line():
    lines = shown(GOOD).splitlines()
    assert lines[0].startswith(f"preflight {__version__} (matrix of {M.date})")
    assert lines[-1].startswith("PASS: torch 2.6.0+cu124 runs")
    assert shown(GOOD).endswith(lines[-1] + "\n")
    last = shown(TOO_OLD).splitlines()[-1]
    assert last.startswith("FAIL: driver/too-old-for-cuda: ") and "; fix: " in last


@pytest.mark.parametrize(
    ("origin", "words"),
    [("live", "this machine"), ("directory", "/image"), ("described", "a described environment")],
)
def test_what_was_looked_at(origin, words):
    seen = replace(GOOD, origin=origin, root="/image")
    assert shown(seen).splitlines()[0].endswith("looked at " + words)


def test_the_short_form_is_one_screen():
    """The README's promise: 24 lines for one finding."""
    assert len(shown(TOO_OLD, width=100).splitlines()) <= 24
    assert len(shown(GOOD, width=80).splitlines()) <= 16


def test_short_has_the_first_fix_and_long_has_everything():
    (finding,) = [one.finding for one in report_on(TOO_OLD).findings]
    short, long = shown(TOO_OLD, width=1000), shown(TOO_OLD, explain=True, width=1000)
    assert finding.summary in short and finding.fix[0] in short
    assert finding.why not in short
    for words in (finding.summary, finding.observed, finding.needed, finding.why, *finding.fix):
        assert words in long
    for label in ("seen", "needed", "why", "fix", "source"):
        assert re.search(rf"^  {label} ", long, re.MULTILINE), label
    assert "driver.version = 470.82.01  [described]" in long
    for one in report_on(TOO_OLD).findings[0].references:
        assert one.title in long and one.url in long


def test_the_long_form_lists_what_is_not_known_once():
    long = shown(snap(torch=torch("12.4")), explain=True, width=1000)
    assert "not known:" in long
    listed = [line.split()[0] for line in long.partition("not known:")[2].splitlines()
              if line.startswith("  ")]  # fmt: skip
    assert "driver.version" in listed and len(listed) == len(set(listed))
    assert "to know it: " in long
    assert "not known:" not in shown(snap(torch=torch("12.4")))


def test_what_nobody_looks_for_on_a_machine_is_not_listed():
    live = replace(snap(torch=torch("12.4")), origin="live")
    assert "not known:" not in shown(live, explain=True)


def test_a_waiver_is_shown_with_its_reason():
    waiver = Waiver("driver/too-old-for-cuda", "the queue is being retired", "2027-03-31")
    out = shown(TOO_OLD, waivers=(waiver,), width=1000)
    assert "waived" in out and "the queue is being retired (until 2027-03-31)" in out
    assert not out.splitlines()[-1].startswith("FAIL")


def test_answers_are_one_for_each_outcome():
    report = report_on(TOO_OLD)
    lines = text.answers(report, text.Style(width=1000)).splitlines()[2:]
    assert len(lines) == len(report.outcomes)
    assert any(line.startswith("  driver/too-old-for-cuda: found: ") for line in lines)
    assert {re.match(r"  \S+: (ok|found|unknown|not applicable)", line) is not None
            for line in lines} == {True}  # fmt: skip


def test_words_of_an_unknown_verdict():
    report = report_on(snap(driver=HOST))
    assert text.verdict_words(report)
    lost = replace(s.Snapshot(origin="live"), frameworks=s.absent("no Python"))
    assert "nothing to judge" in text.verdict_words(report_on(lost))
    silent = replace(GOOD, origin="live",
                     driver=replace(GOOD.driver, version=s.unknown("timed out")))  # fmt: skip
    assert "timed out" in text.verdict_words(report_on(silent))


# -- width and colour -------------------------------------------------------------------------


def every_report():
    for path in CASES:
        yield path.stem, report_on(described.read(json.loads(path.read_text(encoding="utf-8"))))


REPORTS = dict(every_report())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("explain", [False, True])
def test_no_line_is_wider_than_asked_unless_one_word_is(width, explain):
    for name, report in REPORTS.items():
        lines = text.render(report, text.Style(width=width), explain).splitlines()[1:]
        for line in lines[:-1]:  # the verdict stays on one line, for logs
            if len(line) <= width:
                continue
            # What is too long is one word behind the line's beginning (a label, a rule's name).
            head = re.match(r"^(\s*\S* +\S*(?: *)|  \S+: |\S+ \S+: |\s+)", line)
            rest = line[len(head.group(0)) if head else 0 :]
            assert len(rest.split()) <= 1 or len(rest) <= width, (name, line)


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_width_changes_no_word(width):
    for name, report in REPORTS.items():
        wide = text.render(report, text.Style(width=10_000), True)
        narrow = text.render(report, text.Style(width=width), True)
        assert narrow.split() == wide.split(), name


@pytest.mark.parametrize("explain", [False, True])
def test_no_colour_unless_asked(explain):
    for name, report in REPORTS.items():
        assert "\033" not in text.render(report, text.PLAIN, explain), name


def test_colour_changes_nothing_else():
    for name, report in REPORTS.items():
        for width in (60, 100):
            painted = text.render(report, text.Style(True, width), True)
            assert CODE.sub("", painted) == text.render(report, text.Style(False, width), True), (
                name
            )
            assert painted.count("\033[0m") * 2 == painted.count("\033["), name


def test_marks_are_painted():
    painted = shown(TOO_OLD, colour=True)
    assert "\033[31;1mFAIL\033[0m" in painted and "\033[32m" in painted


# -- anything ---------------------------------------------------------------------------------


def test_any_snapshot_can_be_shown():
    source = random.Random(8)
    for number in range(150):
        report = report_on(random_snapshots.snapshot(source))
        for style in (text.Style(width=40), text.Style(True, 100)):
            for explain in (False, True):
                out = text.render(report, style, explain) + text.answers(report, style)
                assert out.endswith("\n"), number
                assert text.verdict_line(report, text.PLAIN).count("\n") == 0


HOSTILE = "A\033[31m100\x07\x9b2J\r\n\u202efake\nPASS: all is well"


@pytest.mark.parametrize("explain", [False, True])
def test_control_characters_of_what_is_looked_at_do_not_reach_the_terminal(explain):
    """A pasted report or an image is not trusted: no escape codes, no lines of its own."""
    seen = snap(driver=dict(HOST, version="470.82.01"), gpus=[{"name": HOSTILE}],
                torch=torch("12.4", HOSTILE), env={"CUDA_VISIBLE_DEVICES": HOSTILE})  # fmt: skip
    report = report_on(seen)
    for out in (text.render(report, text.PLAIN, explain), text.answers(report),
                text.verdict_line(report) + "\n"):  # fmt: skip
        for line in out.split("\n"):
            assert all(char.isprintable() for char in line), line
        assert "\nPASS" not in out


# -- the platform -----------------------------------------------------------------------------


def test_the_platform_and_by_what_it_was_recognised():
    dlc = s.known("pai-dlc", "environment variable DLC_JOB_ID")
    job = s.Job(platform=dlc, kind=s.known("pytorch", "x"), nodes=s.known(2, "x"),
                node_rank=s.known(1, "x"))  # fmt: skip
    mark, words = chain(s.Snapshot(job=job))["platform"]
    assert words.startswith("pai-dlc pytorch (by environment variable DLC_JOB_ID), node 1 of 2")
    assert "platform" not in chain(s.Snapshot()), "none, none recognised: no line"
    assumed = s.known("ours", "assumed: platform=ours", assumed=True)
    assert "ours (by assumed" in chain(s.Snapshot(job=s.Job(platform=assumed)))["platform"][1]
