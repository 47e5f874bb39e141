"""What-if: every GPU × driver × torch build is answered, and newer drivers never run less."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Tuple

import pytest

import preflight
from preflight import assume, matrix, tables, verdict, whatif
from preflight import snapshot as s
from preflight.matrix import numbers, targets

HOME = str(Path(preflight.__file__).parent.parent)
M = matrix.load()
TABLES = tables.built_in()

GPUS = [row for row in TABLES["gpus"]["gpu"] if row["class"] == "data-center"]
BRANCHES = [row for row in TABLES["drivers"]["branch"] if row["kind"] != "developer"]
#: Twenty branches: those with long support, and the newest of the others.
LONG = [row for row in BRANCHES if row["kind"] in ("LTSB", "production", "long-lived", "legacy")]
OTHERS = [row for row in BRANCHES if row not in LONG]
DRIVERS = sorted(
    (row.get("first", f"{row['branch']}.10") for row in LONG + OTHERS[len(LONG) - 20 :]),
    key=numbers,
)
BUILDS = [
    (f"{text}+{row['variant']}", row)
    for row in TABLES["torch"]["build"]
    for text in row["versions"]
]


def asked_of_gpu(row):
    """What the rules ask of a GPU: products of equal answers are the same question."""
    return row["capability"], row["forward"], row["class"] == "jetson"


def asked_of_build(row):
    """What the rules ask of a public torch build: not its release, but what is inside."""
    return row["platform"], row.get("cuda"), targets(row), targets(row, unsure=True)


#: One of each question. What differs besides is only what is suggested instead.
DISTINCT_GPUS = list({asked_of_gpu(row): row for row in reversed(GPUS)}.values())
DISTINCT_BUILDS = list({asked_of_build(row): (spec, row) for spec, row in BUILDS}.values())

GPU_OF = {asked_of_gpu(row): row["name"] for row in DISTINCT_GPUS}
BUILD_OF = {asked_of_build(row): spec for spec, row in DISTINCT_BUILDS}


def judged(driver, gpu, spec, arch="x86_64", m=M, **more):
    return verdict.judge(
        whatif.stack(m, driver=driver, gpus=[gpu], torch=spec, arch=arch, **more), m
    )


def rules(report, severity="fail"):
    return [one.rule.name for one in report.findings if one.severity == severity]


class Answer(NamedTuple):
    """What is kept of a report: thousands of whole ones would be slow to hold."""

    verdict: str
    fails: Tuple[str, ...]
    helps: bool


def answer(driver, gpu, spec, arch):
    report = judged(driver, gpu, spec, arch)
    helps = all(
        one.finding.fix and one.finding.needed and one.references for one in report.findings
    )
    return Answer(report.verdict, tuple(rules(report)), helps)


@pytest.fixture(scope="module")
def answers():
    """({(GPU, driver, build, platform): answer} of the distinct questions, seconds it took)."""
    began = time.process_time()
    found = {
        (gpu["name"], driver, spec, row["platform"]): answer(
            driver, gpu["name"], spec, row["platform"]
        )
        for gpu in DISTINCT_GPUS
        for driver in DRIVERS
        for spec, row in DISTINCT_BUILDS
    }
    return found, time.process_time() - began


# -- all of it ------------------------------------------------------------------------------


def test_there_are_as_many_as_promised():
    assert len(GPUS) >= 27 and len(DRIVERS) == 20 == len(set(DRIVERS))
    assert len(BUILDS) > 250


def test_every_pair_is_answered_in_ten_seconds(answers):
    """Each of the pairs has the answer of its question; a question is judged once."""
    found, seconds = answers
    assert len(found) == len(DISTINCT_GPUS) * 20 * len(DISTINCT_BUILDS)
    began = time.process_time()
    gpus = [GPU_OF[asked_of_gpu(row)] for row in GPUS]
    builds = [(BUILD_OF[asked_of_build(row)], row["platform"]) for _spec, row in BUILDS]
    every = [
        found[gpu, driver, spec, platform]
        for gpu in gpus
        for driver in DRIVERS
        for spec, platform in builds
    ]
    seconds += time.process_time() - began
    assert len(every) == len(GPUS) * 20 * len(BUILDS)
    assert {one.verdict for one in found.values()} == {"pass", "fail", "unknown"}
    limit = 10 if sys.version_info >= (3, 11) else 20  # older ones take half as long again
    assert seconds < limit, f"{len(found)} answers in {seconds:.1f} s of processor time"


def test_every_gpu_and_every_build_makes_a_stack():
    for row in GPUS:
        stack = whatif.stack(M, driver="580.65.06", gpus=[row["name"]], torch="2.8.0")
        assert stack.gpus.value[0].compute_capability.value == row["capability"]
    for spec, row in BUILDS:
        stack = whatif.stack(M, driver="580.65.06", torch=spec, arch=row["platform"])
        assert stack.frameworks.value[0].cuda.value == row.get("cuda")


def test_what_is_the_same_question_has_the_same_answer(answers):
    """A few hundred of the pairs that were not judged, against those that stand for them."""
    found, _seconds = answers
    chosen = random.Random(3)
    for _ in range(300):
        gpu, driver, (spec, row) = map(chosen.choice, (GPUS, DRIVERS, BUILDS))
        same = answer(driver, gpu["name"], spec, row["platform"])
        key = (GPU_OF[asked_of_gpu(gpu)], driver, BUILD_OF[asked_of_build(row)], row["platform"])
        assert same == found[key], (gpu["name"], driver, spec)


def test_a_newer_driver_never_turns_a_pass_into_a_fail(answers):
    """… unless its branch dropped the GPU: then it does, and that rule says so."""
    found, _seconds = answers
    ends = 0
    for gpu in DISTINCT_GPUS:
        last = M.architecture(gpu["capability"]).get("last_branch", 9999)
        for spec, row in DISTINCT_BUILDS:
            ran = False
            for driver in DRIVERS:
                one = found[gpu["name"], driver, spec, row["platform"]]
                runs = one.verdict in ("pass", "warn")
                if numbers(driver)[0] > last:
                    dropped = "driver/too-new-for-gpu" in one.fails
                    assert dropped or "cuda" not in row, (gpu["name"], driver, spec)
                    ends += 1
                else:
                    assert runs or not ran, (gpu["name"], driver, spec, one.fails)
                    ran = runs
    assert ends


def test_a_finding_says_what_to_do_and_on_what_it_rests(answers):
    found, _seconds = answers
    assert [key for key, one in found.items() if not one.helps] == []


def test_a_build_for_an_older_cuda_never_needs_a_newer_driver(answers):
    """Of two builds with the same code, the one for the older CUDA runs wherever the other does."""
    found, _seconds = answers
    for older_spec, older in DISTINCT_BUILDS:
        for spec, row in DISTINCT_BUILDS:
            same = asked_of_build(row)[2:] == asked_of_build(older)[2:]
            if not same or "cuda" not in row or row["platform"] != older["platform"]:
                continue
            if numbers(older["cuda"]) < numbers(row["cuda"]):
                for gpu in DISTINCT_GPUS:
                    for driver in DRIVERS:
                        newer = found[gpu["name"], driver, spec, row["platform"]]
                        other = found[gpu["name"], driver, older_spec, row["platform"]]
                        cuda = "driver/too-old-for-cuda"
                        assert cuda not in other.fails or cuda in newer.fails


# -- cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "gpu", "spec", "expected"),
    [
        # TorchEasyRec moved from the cu129 to the cu126 build of 2.12.1 for the sake of V100.
        ("535.104.05", "V100", "2.12.1+cu129", ["gpu/no-kernels-for-architecture"]),
        ("580.65.06", "V100", "2.12.1+cu129", ["gpu/no-kernels-for-architecture"]),
        ("535.104.05", "V100", "2.12.1+cu126", []),
        ("580.65.06", "V100", "2.12.1+cu126", []),
        ("590.44.01", "V100", "2.12.1+cu126", ["driver/too-new-for-gpu"]),
        ("535.104.05", "A10", "2.12.1+cu129", []),
        ("535.104.05", "A10", "2.12.1+cu126", []),
        ("470.82.01", "A10", "2.12.1+cu126", ["driver/too-old-for-cuda"]),
        ("535.104.05", "B200", "2.12.1+cu129", ["driver/too-old-for-gpu"]),
        ("535.104.05", "RTX 5090", "2.12.1+cu129", ["driver/too-old-for-gpu"]),
        ("570.86.10", "B200", "2.12.1+cu129", []),
        ("570.86.10", "RTX 5090", "2.12.1+cu129", []),
        ("570.86.10", "B200", "2.12.1+cu126", ["gpu/no-kernels-for-architecture"]),
        # One stack of each way.
        ("550.54.15", "A10", "2.6.0+cu124", []),
        ("535.104.05", "A10", "2.6.0+cu124", []),
        ("470.82.01", "A10", "2.6.0+cu124", ["driver/too-old-for-cuda"]),
        ("470.82.01", "A10", "2.6.0+cu118", []),
        ("535.104.05", "A10", "2.6.0", []),
        ("535.104.05", "H20", "2.11.0", ["driver/too-old-for-cuda"]),
        ("580.65.06", "H20", "2.11.0", []),
    ],
)
def test_stacks(driver, gpu, spec, expected):
    report = judged(driver, gpu, spec)
    assert rules(report) == expected
    assert report.verdict == ("fail" if expected else "pass")


@pytest.mark.parametrize(
    ("gpu", "spec", "verdict_of_it"),
    [
        ("GH200", "2.7.0+cu128", "pass"),
        ("A100", "2.7.0+cu128", "fail"),  # no sm_80 in the aarch64 builds of 2.7
        ("A100", "2.8.0+cu129", "unknown"),  # whether it is in those of 2.8 was not read
        ("A100", "2.9.1+cu126", "pass"),
        ("GB200", "2.9.1+cu126", "fail"),
        ("GB200", "2.9.1+cu128", "pass"),
        ("GB10", "2.9.1+cu130", "pass"),
        ("T4", "2.12.0+cu130", "fail"),
        ("GB200", "2.12.0+cu132", "pass"),
        ("GB200", "2.10.0", "fail"),  # the default wheel is for the CPU
        ("GB200", "2.11.0", "pass"),
    ],
)
def test_stacks_on_aarch64(gpu, spec, verdict_of_it):
    report = judged("595.58.03", gpu, spec, arch="aarch64")
    assert report.verdict == verdict_of_it, rules(report)


def test_what_the_tables_are_not_sure_of_is_no_pass():
    """sm_70 in 2.10.0+cu129: seen in reports, without its architecture list."""
    report = judged("570.86.10", "V100", "2.10.0+cu129")
    assert (report.verdict, report.findings) == ("unknown", ())
    assert "whether torch 2.10.0+cu129 has sm_70" in [one.note for one in report.unknowns]
    assert judged("570.86.10", "A10", "2.10.0+cu129").verdict == "pass"


def test_a_finding_says_where_the_tables_concluded():
    """The aarch64 builds of 2.10 were not opened: their rows are derived, the report says so."""
    for spec, marked in (("2.10.0+cu130", True), ("2.9.1+cu130", False)):
        report = judged("595.58.03", "T4", spec, arch="aarch64")
        (found,) = [one for one in report.findings if one.severity == "fail"]
        titles = [one.title for one in found.references]
        assert any(one.endswith("(derived from it)") for one in titles) is marked, titles


# -- beyond the edge ------------------------------------------------------------------------


def test_a_driver_newer_than_the_tables():
    """It runs what the newest known one runs; of the rest nothing is claimed."""
    for spec, row in DISTINCT_BUILDS:
        for gpu in ("A10", "H20", "B200"):
            report = judged("999.1", gpu, spec, row["platform"])
            assert "driver/too-old-for-cuda" not in rules(report)
            assert "driver/too-new-for-gpu" not in rules(report)
    assert judged("999.1", "A10", "2.6.0+cu124").verdict == "pass"
    assert rules(judged("999.1", "V100", "2.6.0+cu124")) == ["driver/too-new-for-gpu"]


@pytest.mark.parametrize("driver", ["535.104.05", "620.10", "999.1"])
@pytest.mark.parametrize("cuda", ["19.0", "14.0", "99.9"])
def test_a_cuda_newer_than_the_tables(driver, cuda):
    report = verdict.judge(whatif.stack(M, driver=driver, gpus=["A10"], cuda=cuda), M)
    assert report.verdict == "unknown" and not report.findings
    assert f"whether this driver runs CUDA {cuda}" in [one.note for one in report.unknowns]


def test_a_minor_of_a_known_major_has_its_floor():
    for driver, expected in (("535.104.05", "fail"), ("580.65.06", "pass"), ("999.1", "pass")):
        stack = whatif.stack(M, driver=driver, gpus=["A10"], cuda="13.9")
        assert verdict.judge(stack, M).verdict == expected


@pytest.mark.parametrize("driver", ["535.104.05", "999.1"])
def test_a_torch_newer_than_the_tables(driver):
    report = judged(driver, "A10", "3.1.0")
    assert report.verdict == "unknown" and not report.findings
    assert "torch 3.1.0 is not in the matrix" in [one.reason for one in report.unknowns]
    report = judged(driver, "A10", "3.1.0+cu190")
    assert report.verdict == "unknown" and not report.findings
    # Its CUDA is in its name: what that needs is certain, which code it holds is not.
    assert rules(judged("470.82.01", "A10", "3.1.0+cu126")) == ["driver/too-old-for-cuda"]
    report = judged("535.104.05", "A10", "3.1.0+cu126")
    assert report.verdict == "unknown" and not report.findings


def unheard_of(capability, driver, spec, row):
    stack = whatif.stack(M, driver=driver, gpus=["A10"], torch=spec, arch=row["platform"])
    gpu = s.Gpu(count=s.known(1, "nvml"), compute_capability=s.known(capability, "nvml"))
    return replace(stack, gpus=s.known((gpu,), "nvml"))


#: What can be said of a build without knowing the GPU.
CERTAIN = {
    "gpu/no-kernels-for-architecture", "driver/too-old-for-cuda", "driver/too-old-for-ptx",
    "framework/cpu-only-build",
}  # fmt: skip


@pytest.mark.parametrize("capability", ["15.0", "12.9", "99.9"])
def test_a_gpu_newer_than_the_tables(capability):
    """Machine code of another major never serves it, that is certain; PTX may."""
    for driver in ("535.104.05", "620.10", "999.1"):
        for spec, row in DISTINCT_BUILDS:
            report = verdict.judge(unheard_of(capability, driver, spec, row), M)
            inside = targets(row, unsure=True)
            served = M.kernels(capability, inside).kind if inside else "none"
            assert set(rules(report)) <= CERTAIN
            if served != "none":
                assert "gpu/no-kernels-for-architecture" not in rules(report), spec
            notes = [one.note for one in report.unknowns]
            assert "whether the driver knows it" in notes, "so it is never a plain pass"


@pytest.mark.parametrize("name", ["15.0", "sm_150"])
def test_a_gpu_newer_than_the_tables_can_be_asked_for(name):
    assert judged("999.1", name, "2.6.0+cu124").verdict == "fail"
    assert judged("999.1", name, "2.9.1+cu130").verdict == "warn"
    with pytest.raises(assume.BadAssumption, match="no GPU has compute capability 8.4"):
        whatif.stack(M, gpus=["8.4"], torch="2.6.0")


def test_a_gpu_that_the_tables_do_not_know_by_name():
    with pytest.raises(assume.BadAssumption, match="no such GPU in the matrix"):
        whatif.stack(M, gpus=["NVIDIA Z9000"], torch="2.6.0")


@pytest.mark.parametrize(
    "written", ["2.6.0+cu124", "torch==2.6.0+cu124", "v2.6.0+CU124", "2.6+cu124", " 2.6.0+cu124 "]
)
def test_a_version_as_people_write_it(written):
    stack = whatif.stack(M, driver="550.54.15", gpus=["A100"], torch=written)
    assert stack.frameworks.value[0].version.value == "2.6.0+cu124"


def test_a_driver_older_than_the_tables():
    """R375 offers CUDA 8: none of the builds in the tables runs there, that is certain."""
    for spec in ("1.7.1+cu92", "1.13.1+cu117", "2.14.1+cu130"):
        report = judged("375.26", "P100", spec)
        assert report.verdict == "fail" and "driver/too-old-for-cuda" in rules(report)
        assert "CUDA ;" not in report.findings[0].finding.summary


@pytest.mark.parametrize("gpu", ["P40", "P100", "Tesla M60", "GTX 1080 Ti", "6.1"])
def test_gpus_older_than_every_branch_are_known_to_all(gpu):
    assert judged("580.65.06", gpu, "2.9.0+cu126").verdict == "pass"


def test_a_generation_is_no_product():
    """Blackwell is sm_100 and sm_120."""
    with pytest.raises(assume.BadAssumption, match="gpu=Blackwell: no such GPU"):
        whatif.stack(M, gpus=["Blackwell"], torch="2.9.1")


def test_a_rocm_build_is_said_to_be_one():
    report = judged("580.65.06", "A100", "2.6.0+rocm6.2")
    assert "ROCm 6.2 build" in report.findings[0].finding.summary


# -- what says nothing usable ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"driver": "535.104.05"}, "say --torch"),
        ({"torch": "2.6.0", "arch": "sparc"}, "--arch sparc: none of x86_64, aarch64"),
        ({"cuda": "twelve"}, "--cuda twelve: no CUDA version"),
        ({"torch": "2.6.0", "driver": "new"}, "driver=new: no driver version"),
        ({"torch": "torch 2"}, "--torch torch 2: no torch version"),
        ({"torch": "2.6.0", "cuda": "12.4"}, "say one of them"),
        ({"torch": "2.6.0", "compat": "new"}, "compat=new: no CUDA version"),
        ({"torch": "2.6.0", "gpus": ["RTX"]}, "gpu=RTX: no such GPU"),
    ],
)
def test_bad_stacks(stack, words):
    with pytest.raises((whatif.BadStack, assume.BadAssumption)) as caught:
        whatif.stack(M, **stack)
    assert words in str(caught.value)


# -- the command ----------------------------------------------------------------------------

EXAMPLE = ("--driver", "535.104.05", "--gpu", "A10", "--torch", "2.6.0+cu124")
OLD = ("--driver", "470.82.01", "--gpu", "A10", "--torch", "2.6.0+cu124")


def run(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "preflight", "what-if", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"},
        capture_output=True, check=False, timeout=60, encoding="utf-8", cwd=cwd,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            (*EXAMPLE, "--compat", "12.4"),
            0,
            "PASS: torch 2.6.0+cu124 runs by forward compatibility",
        ),
        (EXAMPLE, 0, "PASS: torch 2.6.0+cu124 runs by minor-version compatibility"),
        (OLD, 78, "FAIL: driver/too-old-for-cuda"),
        ((*OLD, "--compat", "12.4"), 0, "forward compatibility"),
        (("--driver", "999.1", "--gpu", "A10", "--cuda", "19.0"), 0, "UNKNOWN"),
        (("--driver", "999.1", "--cuda", "19.0", "--fail-on", "unknown"), 78, "UNKNOWN"),
    ],
)
def test_the_command(tmp_path, words, code, says):
    done = run(*words, cwd=str(tmp_path))
    assert (done.returncode, done.stderr) == (code, "")
    assert says in done.stdout
    document = json.loads(run(*words, "--format", "json", cwd=str(tmp_path)).stdout)
    assert document["verdict"] == says.split(":")[0].lower() or says.islower()
    facts = document["snapshot"]["driver"]["version"]
    assert facts["value"] == words[1] and facts["assumed"] is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say --torch RELEASE[+cuNNN] or --cuda VERSION"),
        (("--torch", "2.6.0", "--gpu", "Z9000"), "no such GPU in the matrix"),
        (("--torch", "2.6.0", "--driver", "x"), "driver=x"),
        (("--torch", "2.6.0", "--arch", "sparc"), "--arch sparc"),
    ],
)
def test_the_command_refuses_in_one_line(tmp_path, words, says):
    done = run(*words, cwd=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
