"""Overlays: a company's own rows on top of the built-in tables, and what then shows of them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import preflight
from preflight import assume, matrix, pages, tables, verdict, whatif
from preflight import snapshot as s
from preflight.tables_schema import DIRECTORIES, IDENTITY, SPLIT, TABLES

HOME = str(Path(preflight.__file__).parent.parent)
M = matrix.load()

SOURCES = """
[source.our-wiki]
title = "Example Corp: drivers of the training fleet"
url = "https://wiki.example.com/drivers"
read = "2026-11-29"
"""
#: R470 as this company has it: with a libcuda of CUDA 12.2 on the node.
BRANCH = """
[[branch]]
branch = 470
cuda = "12.2"
kind = "patched"
oldest = "Kepler"
newest = "Ampere"
trust = "secondary"
source = ["our-wiki"]
"""
#: 2.4.1 built in house, for Hopper alone.
BUILD = """
[[build]]
versions = ["2.4.1"]
platform = "x86_64"
variant = "cu121"
cuda = "12.1"
sm = ["9.0"]
min_glibc = "2.28"
trust = "primary"
source = ["our-wiki"]
"""
GPU = """
[[gpu]]
name = "Example GX-1"
names = ["GX1"]
capability = "9.0"
class = "data-center"
forward = "yes"
first_branch = 535
trust = "primary"
source = ["our-wiki"]
"""


@pytest.fixture
def laid(tmp_path, monkeypatch):
    """Write an overlay and return its directory: laid(drivers=BRANCH)."""
    monkeypatch.chdir(tmp_path)

    def write(name="overlay", **files):
        directory = tmp_path / name
        directory.mkdir()
        for stem, text in {"sources": SOURCES, **files}.items():
            if text is not None:
                file = f"{stem}/ours.toml" if stem in DIRECTORIES else f"{stem}.toml"
                (directory / file).parent.mkdir(exist_ok=True)
                (directory / file).write_text(text, "utf-8")
        return str(directory)

    return write


def run(*words, **env):
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8", **env}
    return subprocess.run(
        [sys.executable, "-m", "preflight", *words], env=mine, timeout=60,
        capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip


def judged(m, **stack):
    return verdict.judge(whatif.stack(m, **stack), m)


def rules(report):
    return [one.rule.name for one in report.findings if one.severity == "fail"]


# -- what an overlay changes ----------------------------------------------------------------

OLD = {"driver": "470.82.01", "gpus": ["A10"], "torch": "2.4.0+cu121"}


def test_a_companys_driver_branch_changes_the_verdict(laid):
    with_ours = matrix.load([laid(drivers=BRANCH)])
    assert rules(judged(M, **OLD)) == ["driver/too-old-for-cuda"]
    assert judged(with_ours, **OLD).verdict == "pass"
    assert with_ours.newest_cuda("470.82.01") == "12.2"
    assert M.newest_cuda("470.82.01") == "11.4", "the built-in tables are as they were"
    assert matrix.load().newest_cuda("470.82.01") == "11.4"


def test_a_private_build_takes_the_place_of_exactly_its_version(laid):
    ours = matrix.load([laid(torch=BUILD)])
    a10 = {"driver": "550.54.15", "gpus": ["A10"]}
    assert judged(M, torch="2.4.1+cu121", **a10).verdict == "pass"
    assert rules(judged(ours, torch="2.4.1+cu121", **a10)) == ["gpu/no-kernels-for-architecture"]
    for text in M.torch_releases():
        for row in M.torch_builds(text):
            key = (text, row["variant"], row["platform"])
            mine = ours.torch_build(*key)
            if key == ("2.4.1", "cu121", "x86_64"):
                assert mine["sm"] == ["9.0"] and mine["overlay"]
            else:
                assert matrix.targets(mine) == matrix.targets(row), key
                assert "overlay" not in mine
    assert ours.torch_releases() == M.torch_releases()


def test_a_version_that_is_replaced_is_the_default_no_longer(laid):
    """An overlay's row says itself whether the default index gives it."""
    row = BUILD.replace('["2.4.1"]', '["2.2.0"]')
    assert M.default_torch("2.2.0", "x86_64")["variant"] == "cu121"
    assert matrix.load([laid(torch=row)]).default_torch("2.2.0", "x86_64") is None
    said = row.replace("sm =", 'default = ["2.2.0"]\nsm =')
    ours = matrix.load([laid("second", torch=said)])
    assert ours.default_torch("2.2.0", "x86_64")["sm"] == ["9.0"]
    assert ours.default_torch("2.2.1", "x86_64")["sm"] != ["9.0"]


@pytest.mark.parametrize("name", ["Example GX-1", "GX1", "gx-1", "8 x GX1"])
def test_an_added_gpu_can_be_assumed(laid, name):
    ours = matrix.load([laid(gpus=GPU)])
    snapshot = assume.apply(s.Snapshot(), [f"gpu={name}"], ours)
    assert snapshot.gpus.value[0].compute_capability.value == "9.0"
    with pytest.raises(assume.BadAssumption):
        assume.apply(s.Snapshot(), [f"gpu={name}"], M)


def test_of_two_overlays_the_later_wins(laid):
    first = laid("first", drivers=BRANCH)
    second = laid("second", drivers=BRANCH.replace("12.2", "12.0"))
    assert matrix.load([first, second]).newest_cuda("470.1") == "12.0"
    assert matrix.load([second, first]).newest_cuda("470.1") == "12.2"
    assert matrix.load([first, laid("third", gpus=GPU)]).newest_cuda("470.1") == "12.2"


def test_a_later_overlay_may_cite_an_earlier_one(laid):
    first, second = laid("first", gpus=GPU), laid("second", sources=None, drivers=BRANCH)
    assert matrix.load([first, second]).newest_cuda("470.1") == "12.2"
    with pytest.raises(tables.BadTables, match="source 'our-wiki' is not in"):
        matrix.load([second, first])


# -- every table ----------------------------------------------------------------------------

KINDS = [(stem, kind) for stem, kinds in TABLES.items() for kind in kinds]


def toml(kind, row):
    def text(value):
        if isinstance(value, list):
            return "[" + ", ".join(text(one) for one in value) + "]"
        return json.dumps(value)

    return f"[[{kind}]]\n" + "".join(f"{key} = {text(value)}\n" for key, value in row.items())


@pytest.mark.parametrize(("stem", "kind"), KINDS)
def test_every_table_can_be_overlaid(laid, stem, kind):
    """Each row, laid on the tables with another note, takes the place of itself alone."""
    rows = tables.built_in()[stem][kind]
    new = {**rows[len(rows) // 2], "note": "ours", "source": ["our-wiki"]}
    directory = laid(**{stem: toml(kind, new)})
    ours = tables.built_in([directory])
    assert [one.table for one in ours.replaced] == [stem]
    merged = ours[stem][kind]
    assert merged[-1] == {**new, "overlay": directory}
    assert len(merged) == len(rows) and [one for one in rows if one in merged] == merged[:-1]


@pytest.mark.parametrize(("stem", "kind"), [k for k in KINDS if set(IDENTITY[k[1]]) & set(SPLIT)])
def test_a_row_takes_the_place_of_a_part_of_another(laid, stem, kind):
    rows = tables.built_in()[stem][kind]
    column = next(one for one in IDENTITY[kind] if one in SPLIT and one != "variants")
    old = max(rows, key=lambda row: len(row.get(column, [])))
    new = {**old, column: old[column][-1:], "note": "ours", "source": ["our-wiki"]}
    if "default" in new:
        new["default"] = [one for one in new["default"] if one in new["versions"]]
    ours = tables.built_in([laid(**{stem: toml(kind, {k: v for k, v in new.items() if v})})])
    (rest,) = [row for row in ours[stem][kind] if row not in rows and "overlay" not in row]
    assert rest[column] == old[column][:-1]
    assert {**rest, column: 0, "default": 0} == {**old, column: 0, "default": 0}


def test_platforms_and_versions_are_split_together(laid):
    """Of 2.12.0, 2.12.1 and 2.13.0 for two platforms, one version for one platform."""
    row = {"versions": ["2.12.1"], "platforms": ["aarch64"], "variant": "cu130",
           "libs": "bundled", "nccl_linkage": "static", "layout": ["libtorch_cuda.so"],
           "trust": "primary", "source": ["our-wiki"]}  # fmt: skip
    ours = matrix.load([laid(torch=toml("detail", row))])
    for text in ("2.12.0", "2.12.1", "2.13.0"):
        for platform in ("x86_64", "aarch64"):
            mine = ours.torch_detail(text, platform, "cu130")["libs"] == "bundled"
            assert mine is ((text, platform) == ("2.12.1", "aarch64"))


def test_what_is_replaced_is_said(laid):
    both = laid(drivers=BRANCH, torch=BUILD, gpus=GPU)
    ours = tables.built_in([both])
    assert ours.replaced == [
        tables.Replaced("drivers", "470", both),
        tables.Replaced("torch", "x86_64 cu121 2.4.1", both),
    ]
    assert tables.built_in().replaced == []


def test_the_reports_say_what_is_replaced_and_whose_word_counts(laid):
    both = laid(drivers=BRANCH)
    words = ("what-if", "--driver", "470.82.01", "--gpu", "A10", "--cuda", "12.4")
    said = f"drivers 470, replaced by {both}"
    report = json.loads(run(*words, "--format", "json", PREFLIGHT_COMPAT=both).stdout)
    assert report["replaced"] == [said]
    titles = {r["title"] for one in report["findings"] for r in one["references"]}
    assert f"{WIKI[0]} (a secondary source) (overlay {both})" in titles
    text = " ".join(run(*words, "--explain", PREFLIGHT_COMPAT=both).stdout.split())
    assert said in text and " (overlay " in text
    assert json.loads(run(*words, "--format", "json").stdout)["replaced"] == []


def test_a_copy_of_the_tables_changes_nothing(tmp_path):
    """The natural way to begin an overlay."""
    copied = tmp_path / "copied"
    shutil.copytree(Path(__file__).parents[1] / "compat", copied)
    ours = matrix.load([str(copied)])
    assert ours.replaced == () and ours.date == M.date
    only = tmp_path / "only"
    only.mkdir()
    shutil.copy(copied / "sources.toml", only)
    assert matrix.load([str(only)]).date == M.date


def test_a_source_that_is_replaced_is_said(laid):
    ours = tables.built_in([laid(sources=SOURCES.replace("our-wiki", "cuda-gpus"))])
    assert [(one.table, one.key) for one in ours.replaced] == [("sources", "cuda-gpus")]


# -- provenance -----------------------------------------------------------------------------

WIKI = ("Example Corp: drivers of the training fleet", "https://wiki.example.com/drivers")


def test_rows_carry_their_overlay_and_pages_show_it(laid):
    directory = laid(drivers=BRANCH, torch=BUILD, gpus=GPU)
    ours = matrix.load([directory])
    assert ours.branch("470.82.01")["overlay"] == directory
    for subject, name in (("driver", "470.82.01"), ("gpu", "GX1"), ("torch", "2.4.1")):
        page = pages.page(ours, subject, name)
        assert ("from overlay", (directory,)) in page.entries
        assert (f"{WIKI[0]} (overlay {directory})", WIKI[1]) in page.sources
    assert pages.page(ours, "driver", "470.82.01").trust == "secondary"
    for subject, name in (("driver", "535.104.05"), ("gpu", "A10"), ("torch", "2.6.0")):
        assert "from overlay" not in [one.label for one in pages.page(ours, subject, name).entries]


def test_the_command_shows_where_a_row_is_from(laid):
    directory = laid(drivers=BRANCH)
    done = run("matrix", "driver", "470.82.01", PREFLIGHT_COMPAT=directory)
    assert done.returncode == 0 and WIKI[0] in done.stdout
    assert f"from overlay {directory}" in " ".join(done.stdout.split())
    document = json.loads(
        run("matrix", "driver", "470.1", "--format", "json", PREFLIGHT_COMPAT=directory).stdout
    )
    assert document["entries"]["from overlay"] == [directory]
    title = f"{WIKI[0]} (overlay {directory})"
    assert {"title": title, "url": WIKI[1]} in document["references"]


def test_a_finding_refers_to_the_overlays_source(laid):
    stack = ("--driver", "550.54.15", "--gpu", "A10", "--torch", "2.4.1+cu121", "--format", "json")
    done = run("what-if", *stack, PREFLIGHT_COMPAT=laid(torch=BUILD))
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]) == (78, "fail")
    (finding,) = [one for one in document["findings"] if one["severity"] == "fail"]
    assert WIKI[0] in json.dumps(finding["references"])


# -- where overlays are named ---------------------------------------------------------------

ASKED = ("what-if", "--driver", "470.82.01", "--gpu", "A10", "--torch", "2.4.0+cu121")


def test_the_variable_names_several(laid):
    first, second = laid("first", drivers=BRANCH), laid("second", gpus=GPU)
    assert run(*ASKED).returncode == 78
    assert run(*ASKED, PREFLIGHT_COMPAT=first).returncode == 0
    both = os.pathsep.join((first, second))
    stack = ("what-if", "--driver", "470.82.01", "--gpu", "GX1", "--torch", "2.4.0+cu121")
    assert run(*stack, PREFLIGHT_COMPAT=second).returncode == 78
    done = run(*stack, PREFLIGHT_COMPAT=both)
    assert done.returncode == 78 and "does not know" in done.stdout, "Hopper begins with R515"
    assert "too-old-for-cuda" not in done.stdout


def test_a_policy_names_them_and_the_variable_comes_after(laid, tmp_path):
    first = laid("first", drivers=BRANCH)
    second = laid("second", drivers=BRANCH.replace("12.2", "11.4"))
    (tmp_path / "preflight.toml").write_text(f"compat = [{json.dumps(first)}]")
    assert run(*ASKED).returncode == 0
    assert run(*ASKED, PREFLIGHT_COMPAT=second).returncode == 78
    diagnosed = tmp_path / "asked.json"
    diagnosed.write_text(json.dumps({"driver": "470.82.01", "gpus": ["NVIDIA A10"]}))
    shown = run("matrix", "driver", "470.82.01", "--policy", str(tmp_path / "preflight.toml"))
    assert first in shown.stdout


# -- bad overlays ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"drivers": BRANCH.replace("our-wiki", "our-wkii")},
         "drivers.toml: [[branch]] 1 (470): source 'our-wkii' is not in sources.toml"),
        ({"drivers": BRANCH.replace("branch = 470\n", "")}, "[[branch]] 1: has no 'branch'"),
        ({"drivers": BRANCH.replace('cuda = "12.2"\n', "")}, "[[branch]] 1 (470): has no 'cuda'"),
        ({"drivers": BRANCH.replace("470", '"470"')}, "(470): branch is not a number: '470'"),
        ({"drivers": BRANCH.replace('source = ["our-wiki"]', "")}, "(470): has no 'source'"),
        ({"drivers": BRANCH.replace("[[branch]]", "[[brunch]]")}, "'brunch' is none of its tables"),
        ({"drivers": BRANCH + BRANCH}, "[[branch]] 2 (470): says again what [[branch]] 1 says"),
        ({"drivers": BRANCH + 'note = "a'}, "drivers.toml: "),
        ({"torch": BUILD.replace('["2.4.1"]', '"2.4.1"')}, "versions is not a list of strings"),
        ({"torch": BUILD.replace('versions = ["2.4.1"]\n', "")}, "has no 'versions'"),
        ({"driver": BRANCH}, "driver.toml: no table is called so"),
        ({"sources": SOURCES.replace("read", "seen")}, "sources.toml: [source.our-wiki]: no key"),
        ({"sources": "source = 1"}, "sources.toml: it holds [source.KEY] tables"),
        ({"sources": None}, "no tables (NAME.toml) in this directory"),
    ],
)  # fmt: skip
def test_a_bad_overlay_is_named(laid, files, words):
    directory = laid(**files)
    with pytest.raises(tables.BadTables) as caught:
        matrix.load([directory])
    assert str(caught.value).startswith(directory) and words in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("matrix", "driver", "470.82.01"),
        ASKED,
        ("check", "--assume", "gpu=A100", "--assume", "driver=470.82.01"),
        ("diagnose", "-"),
    ],
    ids=["matrix", "what-if", "check", "diagnose"],
)
def test_every_command_names_a_bad_overlay(laid, tmp_path, words):
    bad = laid(drivers=BRANCH.replace('cuda = "12.2"\n', ""))
    (tmp_path / "in.json").write_text("{}")
    words = tuple(str(tmp_path / "in.json") if one == "-" else one for one in words)
    for overlay, said in ((bad, "has no 'cuda'"), (str(tmp_path / "nowhere"), "no such directory")):
        done = run(*words, PREFLIGHT_COMPAT=overlay)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert overlay in done.stderr and said in done.stderr and done.stderr.count("\n") == 1


def test_exec_says_it_before_the_job_and_starts_it_where_told_to(laid):
    """A bad overlay is wrong usage, as a bad policy is."""
    bad = laid(drivers=BRANCH.replace('cuda = "12.2"\n', ""))
    command = ("--", sys.executable, "-c", "print('the job')")
    done = run("exec", *command, PREFLIGHT_COMPAT=bad)
    assert (done.returncode, done.stdout) == (2, "") and "has no 'cuda'" in done.stderr
    warned = run("exec", "--mode", "warn", *command, PREFLIGHT_COMPAT=bad)
    assert (warned.returncode, warned.stdout) == (0, "the job\n")
    assert "has no 'cuda'" in warned.stderr
