"""What a real torch does on a described driver is what preflight said it would do.

`torch_says` turns torch's own words into the name of the rule that would have to fire, or
"pass"; it knows nothing of preflight's answer. Then the two are compared, with the numbers.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from preflight import matrix
from tests import fakes
from tests.fakes import A100, H100, RTX_5090, T4, V100, FakeGpu
from tests.real import stack, truth

Answer = Dict[str, Any]

#: What torch, or the CUDA under it, says of each trouble.
WORDS = (
    ("driver/too-old-for-cuda", r"driver on your system is too old \(found version \d+\)"),
    ("driver/not-visible", r"Found no NVIDIA driver on your system"),
    ("link/stub-libcuda", r"Error 34: CUDA driver is a stub library"),
    ("compat/older-than-driver", r"Error 803: system has unsupported display driver"),
    ("compat/unsupported-gpu", r"Error 804: forward compatibility was attempted on non supported"),
    ("framework/cpu-only-build", r"Torch not compiled with CUDA enabled"),
    ("gpu/visible-devices-invalid", r"No CUDA GPUs are available"),
)
#: The warning of a build without code for a GPU, of new releases and of older ones.
NO_KERNELS = (
    r"Found GPU0 (?P<name>.+) which is of compute capability \(CC\) (?P<capability>[\d.]+)\.",
    r"with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
)
#: Warnings that are about something else.
UNRELATED = ("Failed to initialize NumPy",)
#: Rules that may fail beside the one torch would name: they say where its cure lies.
BESIDE = {"compat/not-active": "driver/too-old-for-cuda"}

#: What a compat libcuda of CUDA 13.2 says of itself: branches 535 to 580, data-center brands.
NOTE = {"CUDA Version": 13020, "Driver": [535, 550, 570, 575, 580], "Device": [2, 14]}


@dataclass(frozen=True)
class Case:
    """A described driver, and the rule that both must name ("pass" when there is none).

    `compat` is (driver version, CUDA) of a compat libcuda, "first" or "second" on the path.
    `init` is what cuInit answers there: whether kernel and GPU accept that libcuda is for the
    kernel to say, so a stand-in must be told. `options` go to `fakes.build`.
    """

    driver: str
    cuda: str
    gpus: Tuple[FakeGpu, ...]
    expected: str
    torch: str = "cu130"
    compat: Optional[Tuple[str, str]] = None
    place: str = "first"
    init: int = 0
    options: Dict[str, Any] = field(default_factory=dict)
    env: Dict[str, str] = field(default_factory=dict)
    warns: str = ""  # the rule that warns: torch starts, and not all that is asked for will run


TOO_OLD = "driver/too-old-for-cuda"
CASES = {
    "too old": Case("535.104.05", "12.2", (A100,), TOO_OLD),
    "too old by a minor": Case("575.57.08", "12.9", (H100,), TOO_OLD),
    "far too old": Case("470.82.01", "11.4", (T4,), TOO_OLD),
    "native": Case("580.95.05", "13.0", (H100,) * 8, "pass"),
    "native, T4": Case(
        "580.95.05", "13.0", (T4,), "pass", warns="gpu/no-kernels-for-architecture"
    ),
    "native, GeForce": Case("580.95.05", "13.0", (RTX_5090,), "pass"),
    "two kinds of GPU": Case("580.95.05", "13.0", (A100, H100), "pass"),
    "newer": Case("590.48.01", "13.1", (H100,), "pass"),
    "newer than any known": Case("699.10", "14.2", (H100,), "pass"),
    "forward-compat": Case("535.104.05", "12.2", (A100,), "pass", compat=("595.45.04", "13.2")),
    "compat second on the path": Case(
        "535.104.05", "12.2", (A100,), TOO_OLD, compat=("595.45.04", "13.2"), place="second"
    ),
    "compat not needed, second": Case(
        "580.95.05", "13.0", (A100,), "pass", compat=("595.45.04", "13.2"), place="second"
    ),
    "compat on GeForce": Case(
        "570.86.10", "12.8", (RTX_5090,), "compat/unsupported-gpu",
        compat=("595.45.04", "13.2"), init=804,
    ),
    "compat older than the driver": Case(
        "610.43.02", "13.3", (H100,), "compat/older-than-driver",
        compat=("595.45.04", "13.2"), init=803,
    ),
    "none": Case("", "", (), "driver/not-visible"),
    "stub": Case(
        "580.95.05", "13.0", (H100,), "link/stub-libcuda", options={"libcuda": "stub"}
    ),
    "no kernels": Case("580.95.05", "13.0", (V100,), "gpu/no-kernels-for-architecture"),
    "a device too many": Case(
        "580.95.05", "13.0", (H100, H100), "gpu/visible-devices-invalid",
        env={"CUDA_VISIBLE_DEVICES": "0,7"}, warns="gpu/visible-devices-invalid",
    ),
    "a device named twice": Case(
        "580.95.05", "13.0", (H100, H100), "gpu/visible-devices-invalid",
        env={"CUDA_VISIBLE_DEVICES": "1,1"},
    ),
    "fewer devices on purpose": Case(
        "580.95.05", "13.0", (H100, H100), "pass", env={"CUDA_VISIBLE_DEVICES": "1"}
    ),
    "another order": Case(
        "580.95.05", "13.0", (H100, A100), "pass", env={"CUDA_VISIBLE_DEVICES": "1,0"}
    ),
    "devices by UUID": Case(
        "580.95.05", "13.0", (replace(H100, uuid="GPU-aaaa1"), replace(A100, uuid="GPU-aaab2")),
        "pass", env={"CUDA_VISIBLE_DEVICES": "GPU-aaab"},
    ),
    "a MIG instance": Case("580.95.05", "13.0", (replace(A100, mig=True),), "pass"),
    "CPU-only torch": Case("580.95.05", "13.0", (H100,), "framework/cpu-only-build", torch="cpu"),
    "minor-version": Case("535.104.05", "12.2", (A100,), "pass", torch="cu12"),
    "minor-version, from its floor": Case("525.60.13", "12.0", (A100,), "pass", torch="cu12"),
    "below the floor": Case("520.61.05", "11.8", (A100,), TOO_OLD, torch="cu12"),
    "newer major": Case("580.95.05", "13.0", (V100,), "pass", torch="cu12"),
}  # fmt: skip


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> str:
    """The library that lets a torch, once the real CUDA runtime is content, see its devices."""
    return str(fakes.build_runtime(tmp_path_factory.mktemp("runtime"), cache=cache))


def environment_of(kind: str, cu130: str) -> str:
    """The environment of a kind of torch; skips where there is none."""
    found, problem = cu130, ""
    if kind == "cpu":
        found, problem = stack.extra_venv("torch-cpu", "torch==2.13.0+cpu", always=True)
    elif kind == "cu12":
        found, problem = stack.extra_venv("torch-cu12", "torch==2.8.0")
    if problem:
        pytest.skip(problem)
    return found


def libraries_of(case: Case, directory: Path, cache: Path) -> str:
    """The LD_LIBRARY_PATH of a case."""
    if not case.driver:
        return ""
    driver = fakes.build(
        directory / "driver", driver=case.driver, cuda=case.cuda, gpus=case.gpus, cache=cache,
        **case.options,
    )  # fmt: skip
    if not case.compat:
        return str(driver)
    version, cuda = case.compat
    compat = fakes.build(
        directory / "cuda-13.2" / "compat",
        driver=version, cuda=cuda, gpus=case.gpus, nvml="absent", cuda_init=case.init,
        libcuda_file=f"libcuda.so.{version}", fwd_note=NOTE, cache=cache,
    )  # fmt: skip
    order = [str(compat), str(driver)]
    return ":".join(order if case.place == "first" else reversed(order))


def torch_says(answer: Answer, gpus: int, asked: str) -> str:
    """The rule that torch's own words stand for, or "pass"."""
    warnings = [one for one in answer["warnings"] if not one.startswith(UNRELATED)]
    said = "\n".join([*filter(None, [answer["error"]]), *warnings])
    for rule, words in WORDS:
        if re.search(words, said):
            return rule
    if any(re.search(words, said) for words in NO_KERNELS):
        return "gpu/no-kernels-for-architecture"
    assert not said, "torch complains about something that this mapping does not know"
    wanted = len(asked.split(",")) if asked else gpus
    return "pass" if len(answer["capabilities"]) == wanted else "gpu/visible-devices-invalid"


@pytest.mark.parametrize("name", CASES)
def test_preflight_says_what_torch_does(
    name: str, venv: str, runtime: str, tmp_path: Path, cache: Path
) -> None:
    case = CASES[name]
    where = environment_of(case.torch, venv)
    libraries = libraries_of(case, tmp_path, cache)
    report = stack.document(
        stack.preflight(
            "check", "--format", "json", "--python", where, libraries=libraries, **case.env
        )
    )
    clean = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH"))
    given = {"LD_LIBRARY_PATH": libraries or None, "LD_PRELOAD": runtime, **case.env}
    answer = truth.ask_torch(f"{where}/bin/python", {**clean, **given})
    assert "died" not in answer, answer

    asked = case.env.get("CUDA_VISIBLE_DEVICES", "")
    real = torch_says(answer, len(case.gpus), asked)
    assert real == case.expected, f"the case is not what it claims: {answer}"
    failing = stack.failing(report)
    assert [BESIDE.get(one, one) for one in failing] == ([real] * len(failing)), failing
    expected = "warn" if case.warns else "pass" if real == "pass" else "fail"
    assert report["verdict"] == expected, (report["findings"], report["unknowns"])
    assert bool(failing) == (expected == "fail")
    warned = {f["rule"] for f in report["findings"] if f["severity"] == "warn"}
    assert failing or warned == ({case.warns} if case.warns else set())
    for same in AGREE:
        same(report, answer, real)


# -- the numbers behind the verdict -------------------------------------------------------------


def same_build(report: Dict[str, Any], answer: Answer, _real: str) -> None:
    """The torch that preflight read off its files is the one that was imported."""
    (framework,) = report["snapshot"]["frameworks"]["value"]
    assert framework["version"]["value"] == answer["version"]
    assert framework["cuda"].get("value") == answer["cuda"]


def same_cuda(report: Dict[str, Any], answer: Answer, real: str) -> None:
    """The version torch found is the CUDA of the libcuda that preflight judged."""
    if real == TOO_OLD:
        found = re.search(r"found version (\d+)", answer["error"])
        major, minor = report["snapshot"]["driver"]["cuda"]["value"].split(".")
        assert found and int(found.group(1)) == int(major) * 1000 + int(minor) * 10
    assert answer["available"] is bool(answer["capabilities"])
    if real != "gpu/visible-devices-invalid":  # which may leave some
        assert answer["available"] is (real in ("pass", "gpu/no-kernels-for-architecture"))


def same_gpus(report: Dict[str, Any], answer: Answer, real: str) -> None:
    """Torch's devices are preflight's GPUs: how many, what they are called, what they can."""
    gpus = report["snapshot"].get("gpus", {}).get("value") or []
    if "CUDA_VISIBLE_DEVICES" in report["snapshot"]["env"]["value"]:
        assert set(answer["capabilities"]) <= {one["compute_capability"]["value"] for one in gpus}
    elif real in ("pass", "gpu/no-kernels-for-architecture"):
        assert answer["device_count"] == stack.gpu_count(report) == len(gpus)
        names = [(said, one["name"]["value"]) for said, one in zip(answer["names"], gpus)]
        assert [pair for pair in names if not pair[0].startswith(pair[1])] == []  # "… MIG 1g.10gb"
        assert answer["capabilities"] == [one["compute_capability"]["value"] for one in gpus]


def same_kernels(report: Dict[str, Any], answer: Answer, real: str) -> None:
    """Torch names the GPU without code, and cures it as preflight does."""
    if real != "gpu/no-kernels-for-architecture":
        return
    found = report["findings"][0]
    said = " ".join(answer["warnings"])
    assert [one for one in answer["arch_list"] if one not in found["observed"]] == []
    match = re.search(NO_KERNELS[0], said)
    if match:
        assert match.group("name") in found["summary"]
        assert "sm_" + match.group("capability").replace(".", "") in found["summary"]
    advice: List[str] = re.findall(r"--index-url \S+/(cu\d+)", said)
    offered = re.findall(r"--index-url \S+/(cu\d+)", " ".join(found["fix"]))
    assert not advice or offered[0] in advice


AGREE = (same_build, same_cuda, same_gpus, same_kernels)


# -- the tables about the wheel -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cu130", "cu12"])
def test_the_table_has_the_targets_that_are_in_the_wheel(kind: str, venv: str) -> None:
    python = f"{environment_of(kind, venv)}/bin/python"
    answer = truth.ask_torch(python, {"PYTHONPATH": None, "LD_LIBRARY_PATH": None})
    release, _, local = answer["version"].partition("+")
    variant = local or "cu" + answer["cuda"].replace(".", "")
    row = matrix.load().torch_build(release, variant, "x86_64")
    assert row is not None, f"no row for torch {answer['version']}"
    assert sorted(matrix.targets(row)) == sorted(answer["arch_list"])
    assert row["cuda"] == answer["cuda"]


def test_the_cases_cover_what_was_promised() -> None:
    assert len({(case.driver, case.torch) for case in CASES.values()}) >= 8
    assert {case.expected for case in CASES.values()} >= {rule for rule, _words in WORDS}
