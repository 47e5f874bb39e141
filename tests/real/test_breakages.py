"""Ways in which a real CUDA torch is broken: preflight names each as `import torch` meets it."""

import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from tests.binary.places import INSTALLS, TORCH, Install, needs_torch
from tests.real import copies, stack
from tests.real.copies import Copy

SAMPLES = Path(__file__).resolve().parents[1] / "binary" / "samples"
SUBJECTS = ("link/", "nccl/", "framework/", "gpu/")
SONAMES = ("libnccl.so.2", "libcudnn.so.9", "libnvJitLink.so.13")
#: c10::detail::torchCheckFail(const char *, const char *, uint32_t, const std::string &): of the
#: new C++ ABI, and of the old one.
NEW_ABI = (
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
OLD_ABI = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
#: In no torch.
GONE = "_ZN3c104impl19taken_out_long_agoEv"

pytestmark = [
    needs_torch,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here"),
    pytest.mark.skipif(
        TORCH is None or not TORCH.name.startswith("2.14.1"), reason="not torch 2.14.1+cu130"
    ),
]


def other(kind: str) -> Install:
    """An environment with another torch."""
    for name, install in INSTALLS.items():
        cuda = os.path.isdir(os.path.join(install.site, "nvidia"))
        if name.endswith("+cpu") if kind == "cpu" else cuda and not name.startswith("2.14.1"):
            return install
    pytest.skip(f"no environment with a torch for {kind} (PREFLIGHT_VENVS)")
    raise AssertionError


@pytest.fixture
def broken(tmp_path: Path) -> Copy:
    """A copy, to break."""
    assert TORCH is not None
    return copies.copy(TORCH, tmp_path / "venv")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy that stays as it is."""
    assert TORCH is not None
    return copies.copy(TORCH, tmp_path_factory.mktemp("whole") / "venv")


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with empty libraries under the names of CUDA's."""
    folder = tmp_path_factory.mktemp("hollow")
    for soname in SONAMES:
        copies.hollow(folder, soname)
    return folder


class Report:
    """What preflight says of a copy."""

    def __init__(self, place: Copy, gpu: str = "H100", **env: str) -> None:
        words = ["--assume", "driver=580.65.06", "--assume", "gpu=" + gpu]
        line = stack.command("check", "--python", place.python, "--format", "json", *words)
        self.document = stack.document(stack.run(line, stack.environment(**env)))
        found = self.document["findings"]
        self.findings: List[Dict[str, Any]] = [
            one for one in found if one["rule"].startswith(SUBJECTS)
        ]

    @property
    def said(self) -> Dict[str, str]:
        """{rule: its worst severity}, of all above info."""
        found: Dict[str, str] = {}
        for one in self.findings:
            if one["severity"] != "info":
                found.setdefault(one["rule"], one["severity"])
        return found

    @property
    def import_error(self) -> Optional[str]:
        """How it thinks that `import torch` ends; None when well."""
        problem: Optional[str] = self.document["snapshot"]["frameworks"]["value"][0][
            "import_problem"
        ].get("value")
        return problem

    def words(self, rule: str) -> str:
        """What is said under a rule."""
        parts = ("summary", "observed", "needed", "why", "subject")
        found = [one for one in self.findings if one["rule"] == rule]
        return "\n".join(" ".join([*(f[p] for p in parts), *f["fix"]]) for f in found)


def agreed(place: Copy, **env: str) -> Report:
    """The report, which tells the very error of the real import."""
    report, error = Report(place, **env), place.importing("torch", **env)
    assert report.import_error == (error or None)
    assert bool(error) == any(
        one["severity"] == "fail" and one["rule"].startswith("link/") for one in report.findings
    ), report.said
    return report


def test_an_intact_environment_has_no_finding(whole: Copy) -> None:
    report = agreed(whole)
    assert report.findings == [] and report.document["verdict"] == "pass"


# -- other libraries in front -------------------------------------------------------------------


def test_hollow_libraries_on_the_path_are_harmless(broken: Copy, hollow: Path) -> None:
    """RPATH and what torch itself loads first go before; so for an extension without RPATH."""
    broken.extension("collective", "ncclGetVersion", broken.site / "nvidia/nccl/lib/libnccl.so.2")
    path = str(hollow)
    assert agreed(broken, LD_LIBRARY_PATH=path).said == {}
    assert broken.importing("collective", LD_LIBRARY_PATH=path) == ""


def test_older_libraries_on_the_path_are_harmless(whole: Copy) -> None:
    older = Path(other("cuda").site, "nvidia")
    path = f"{older}/nccl/lib:{older}/cudnn/lib"
    assert agreed(whole, LD_LIBRARY_PATH=path).said == {}


@pytest.mark.parametrize("soname", SONAMES)
def test_a_hollow_preload_wins(whole: Copy, hollow: Path, soname: str) -> None:
    report = agreed(whole, LD_PRELOAD=str(hollow / soname))
    assert report.said["link/undefined-symbol"] == "fail"
    assert "link/library-shadowed" not in report.said, "said once"
    found = [one for one in report.findings if one["rule"] == "link/undefined-symbol"]
    assert len(found) == 1, "one finding, not one for each library that asks or each symbol"
    missing = str(report.import_error).split("undefined symbol: ")[1].split(",")[0]
    words = report.words("link/undefined-symbol")
    assert missing in words and f"{hollow / soname} (by LD_PRELOAD)" in words
    assert "unset LD_PRELOAD" in words and "unset LD_LIBRARY_PATH" not in words


def test_an_older_nccl_as_preload_wins(whole: Copy) -> None:
    older = f"{other('cuda').site}/nvidia/nccl/lib/libnccl.so.2"
    report = agreed(whole, LD_PRELOAD=older)
    assert report.said["link/undefined-symbol"] == "fail"
    assert report.said["nccl/older-shadows-framework"] == "fail"
    assert "built with 2.30.7" in report.words("nccl/older-shadows-framework")


def test_an_older_nccl_with_every_symbol_is_a_warning(whole: Copy, tmp_path: Path) -> None:
    """torch loads with it, so nothing may stop the job."""
    first = agreed(whole, LD_PRELOAD=str(copies.hollow(tmp_path / "hollow", "libnccl.so.2")))
    lacking = {
        symbol
        for one in first.document["snapshot"]["libraries"]["value"]
        for symbol in one.get("missing_symbols", {}).get("value", ())
    }
    source = "int ncclGetVersion(int *v) { *v = 23004; return 0; }\n"
    source += "\n".join(f"int {one}() {{ return 1; }}" for one in lacking - {"ncclGetVersion"})
    older = copies.build(
        tmp_path / "libnccl.so.2", source, words=["-Wl,-soname,libnccl.so.2", "-O2"]
    )
    report = agreed(whole, LD_PRELOAD=str(older))
    assert report.import_error is None
    assert report.said == {
        "link/library-shadowed": "warn", "nccl/older-shadows-framework": "warn",
    }  # fmt: skip
    assert "2.30.4" in report.words("nccl/older-shadows-framework")


@pytest.mark.parametrize("how", ["LD_PRELOAD", "LD_LIBRARY_PATH"])
def test_an_older_cudnn_loads_and_is_refused(broken: Copy, how: str) -> None:
    """`import torch` works; torch compares at the first use of cuDNN."""
    older = f"{other('cuda').site}/nvidia/cudnn/lib"
    if how == "LD_LIBRARY_PATH":
        broken.remove("nvidia/cudnn", "nvidia_cudnn_cu13-*")
    env = {how: older + ("/libcudnn.so.9" if how == "LD_PRELOAD" else "")}
    report = Report(broken, **env)
    assert report.import_error is None
    assert report.said == {"link/cudnn-mismatch": "fail", "link/library-shadowed": "warn"}
    words = report.words("link/cudnn-mismatch")
    assert "9.10.2 would be loaded" in words and "built with 9.24.0" in words
    assert "libtorch" in words and "cuDNN version incompatibility" in words
    (broken.site / "use_cudnn.py").write_text("import torch; torch.backends.cudnn.version()\n")
    error = broken.importing("use_cudnn", **env)
    assert "cuDNN version incompatibility" in error and "(9, 10, 2)" in error
    for value, severity in (("1", "warn"), ("true", "fail")):
        env["PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"] = value
        assert (broken.importing("use_cudnn", **env) == "") == (severity == "warn")
        assert Report(broken, **env).said["link/cudnn-mismatch"] == severity


def uses_cudnn(place: Copy, **env: str) -> str:
    """How the first call of cuDNN ends in the real torch; empty when well."""
    module = place.site / "use_cudnn.py"
    module.write_text("import torch; torch.backends.cudnn.version()\n")
    return place.importing("use_cudnn", **env)


@pytest.mark.parametrize("whose", ["older", "own"])
def test_a_cudnn_without_its_parts_as_preload(broken: Copy, tmp_path: Path, whose: str) -> None:
    """`import torch` works; the first call of cuDNN ends the process, without an exception."""
    site = other("cuda").site if whose == "older" else str(broken.site)
    front = tmp_path / "libcudnn.so.9"
    shutil.copy(f"{site}/nvidia/cudnn/lib/libcudnn.so.9", str(front))
    report = Report(broken, LD_PRELOAD=str(front))
    assert report.import_error is None and broken.importing("torch", LD_PRELOAD=str(front)) == ""
    assert report.said["link/missing-library"] == "fail"
    words = report.words("link/missing-library")
    assert "libcudnn_graph.so.9 cannot be found, and libcudnn.so.9 needs it" in words
    assert "unset LD_PRELOAD" in words and "pip install" not in words
    assert "Cannot load symbol" in uses_cudnn(broken, LD_PRELOAD=str(front))


def test_a_cudnn_without_its_parts_on_the_path(broken: Copy, tmp_path: Path) -> None:
    """Harmless beside torch's own; in place of it, it is what the loader takes."""
    shutil.copy(str(broken.site / "nvidia/cudnn/lib/libcudnn.so.9"), str(tmp_path))
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert Report(broken, **env).said == {} and uses_cudnn(broken, **env) == ""
    broken.remove("nvidia/cudnn", "nvidia_cudnn_cu13-*")
    report = Report(broken, **env)
    assert report.said["link/missing-library"] == "fail"
    assert "unset LD_LIBRARY_PATH" in report.words("link/missing-library")
    assert "Cannot load symbol" in uses_cudnn(broken, **env)


def test_a_cudnn_that_lost_its_parts(broken: Copy) -> None:
    broken.remove("nvidia/cudnn/lib/libcudnn_graph.so.9")
    report = Report(broken)
    assert report.said == {"link/missing-library": "fail"}
    assert "nvidia-cudnn-cu13==9.24" in report.words("link/missing-library")
    assert "Cannot load symbol" in uses_cudnn(broken)


@pytest.mark.parametrize("lacks", [True, False])
def test_an_older_nvjitlink_as_preload(whole: Copy, tmp_path: Path, lacks: bool) -> None:
    """Not hollow: it has what an older release had. What counts is what is asked of it."""
    first = agreed(whole, LD_PRELOAD=str(copies.hollow(tmp_path / "hollow", "libnvJitLink.so.13")))
    asked = sorted(
        symbol
        for one in first.document["snapshot"]["libraries"]["value"]
        for symbol in one.get("missing_symbols", {}).get("value", ())
    )
    assert "__nvJitLinkComplete_13_0" in asked
    version = tmp_path / "versions"
    version.write_text("libnvJitLink.so.13 { global: *; };\n")
    source = "\n".join(f"int {one}() {{ return 1; }}" for one in asked[lacks:])
    words = ["-Wl,-soname,libnvJitLink.so.13", f"-Wl,--version-script={version}"]
    older = copies.build(tmp_path / "libnvJitLink.so.13", source, words=words)
    report = agreed(whole, LD_PRELOAD=str(older))
    assert (report.import_error is not None) == lacks
    assert report.said == (
        {"link/undefined-symbol": "fail"} if lacks else {"link/library-shadowed": "warn"}
    )
    if lacks:
        assert f"lacks {asked[0]}, which" in report.words("link/undefined-symbol")


def test_a_runpath_lets_the_path_win(broken: Copy, tmp_path: Path) -> None:
    copies.rpath_to_runpath(broken.site / "torch/lib/libtorch_global_deps.so")
    copies.hollow(tmp_path / "front", "libcudart.so.13")
    report = agreed(broken, LD_LIBRARY_PATH=str(tmp_path / "front"))
    assert report.import_error and "libcudart.so.13" in report.import_error
    assert report.said.get("link/undefined-symbol") == "fail"
    words = report.words("link/undefined-symbol")
    assert f"{tmp_path / 'front' / 'libcudart.so.13'} (by LD_LIBRARY_PATH)" in words


# -- wheels removed, overwritten or exchanged ----------------------------------------------------


@pytest.mark.parametrize(
    ("wheel", "soname"),
    [("nccl", "libnccl.so.2"), ("cusparselt", "libcusparseLt.so.0"), ("cudnn", "libcudnn.so.9")],
)
def test_a_removed_wheel_is_missed(broken: Copy, wheel: str, soname: str) -> None:
    (metadata,) = broken.site.glob(f"nvidia_{wheel}_cu13-*")
    version = metadata.name.partition("-")[2].partition(".dist-info")[0]
    broken.remove(f"nvidia/{wheel}", f"nvidia_{wheel}_cu13-*")
    report = agreed(broken)
    assert report.said == {"link/missing-library": "fail"}
    assert len([one for one in report.findings if one["rule"] == "link/missing-library"]) == 1
    words = report.words("link/missing-library")
    assert f"{soname} cannot be found" in words
    assert f"pip install nvidia-{wheel}-cu13=={version}" in words


def test_a_library_that_the_metapackage_pins(broken: Copy) -> None:
    """The file is gone, and pip thinks that the wheel is there."""
    broken.remove("nvidia/cu13/lib/libcufft.so.12")
    report = agreed(broken)
    assert report.said == {"link/missing-library": "fail"}
    line = 'pip install --force-reinstall --no-deps "nvidia-cufft==12.0.0.61.*"'
    assert line in report.words("link/missing-library")


@pytest.mark.parametrize(
    ("place", "make", "words"),
    [
        ("nvidia/nccl/lib/libnccl.so.2", lambda path: path.write_bytes(b"\x7fELF"), "too short"),
        ("nvidia/nccl/lib/libnccl.so.2", lambda path: path.write_text("no library\n" * 9), "ELF"),
        ("torch/lib/libtorch_cuda.so", lambda path: path.write_bytes(b"\x7fELF"), "too short"),
        ("torch/lib/libtorch_cuda.so", lambda path: path.mkdir(), "cannot read file data"),
        ("torch/lib/libtorch_cuda.so", lambda path: os.mkfifo(str(path)), "cannot read file data"),
    ],
    ids=["nccl-short", "nccl-text", "torch-short", "torch-directory", "torch-fifo"],
)
def test_a_damaged_library(broken: Copy, place: str, make: Any, words: str) -> None:
    path = broken.site / place
    path.unlink()
    make(path)
    report = Report(broken)
    assert report.import_error and words in report.import_error
    if not path.is_fifo():  # the real loader waits at a FIFO
        assert path.name in broken.importing("torch")
    assert report.said == {"link/missing-library": "fail"}
    told = report.words("link/missing-library")
    assert f"{path} is damaged (" in told and words in told and "reinstall" in told
    assert "cannot be found" not in told and "LD_LIBRARY_PATH" not in told


@pytest.mark.parametrize("wheel", ["nccl", "cudnn"])
def test_what_is_on_the_path_takes_the_place_of_a_removed_wheel(
    broken: Copy, hollow: Path, wheel: str
) -> None:
    broken.remove(f"nvidia/{wheel}", f"nvidia_{wheel}_cu13-*")
    report = agreed(broken, LD_LIBRARY_PATH=str(hollow))
    assert report.said["link/undefined-symbol"] == "fail"
    words = report.words("link/undefined-symbol")
    assert f"{hollow}/lib{wheel}.so" in words and "(by LD_LIBRARY_PATH)" in words
    assert "unset LD_LIBRARY_PATH" in words


def test_the_nccl_of_cuda_12_over_that_of_13(broken: Copy) -> None:
    older = Path(other("cuda").site, "nvidia/nccl/lib/libnccl.so.2")
    broken.replace(older, "nvidia/nccl/lib/libnccl.so.2")
    broken.package("nvidia_nccl_cu12", "2.27.3")
    report = agreed(broken)
    assert report.said["nccl/duplicate"] == report.said["link/undefined-symbol"] == "fail"
    words = report.words("nccl/duplicate")
    assert "nvidia-nccl-cu12 2.27.3" in words and "nvidia-nccl-cu13 2.30.7" in words
    assert "ncclCommResume" in report.words("link/undefined-symbol")


def test_the_nccl_of_cuda_13_over_that_of_12(broken: Copy) -> None:
    broken.package("nvidia_nccl_cu12", "2.27.3")
    report = agreed(broken)
    assert report.said == {"nccl/duplicate": "warn"}, "it works, until one is removed"


def test_the_cpu_wheel_in_place_of_the_cuda_one(broken: Copy) -> None:
    broken.remove("torch", "torch-2.14.1.dist-info")
    site = Path(other("cpu").site)
    copies.mirror(site / "torch", broken.site / "torch", copies.WALKED["torch"])
    (metadata,) = site.glob("torch-*.dist-info")
    copies.link(metadata, broken.site / metadata.name)
    report = agreed(broken)
    assert report.said == {"framework/cpu-only-build": "fail"}


# -- numpy, which torch imports -----------------------------------------------------------------


@pytest.fixture
def numpy(broken: Copy) -> Path:
    """numpy's compiled module, in a numpy of the copy's own that is whole."""
    if not (broken.site / "numpy").exists():
        pytest.skip("the environment of the real torch has no numpy")
    (broken.site / "numpy").unlink()
    copies.mirror(Path(TORCH.site if TORCH else "", "numpy"), broken.site / "numpy", 2)
    (module,) = (broken.site / "numpy/_core").glob("_multiarray_umath.cpython-*.so")
    return module


def agreed_on_numpy(place: Copy, works: bool, **env: str) -> Report:
    """The report, for a torch that is loaded well and a numpy that is not: never a failure."""
    report = Report(place, **env)
    assert report.import_error is None
    assert (place.importing("numpy", **env) == "") == works
    assert "fail" not in report.said.values()
    assert ("numpy" in [one["subject"] for one in report.findings]) != works
    return report


def test_an_intact_numpy_has_no_finding(broken: Copy, numpy: Path) -> None:
    assert agreed_on_numpy(broken, True).findings == []


@pytest.mark.parametrize("size", [0, 4, 4096])
def test_a_damaged_numpy(broken: Copy, numpy: Path, size: int) -> None:
    data = (b"\x7fELF" + b"no library" * 400)[4 if size > 4 else 0 :][:size]
    numpy.unlink()
    numpy.write_bytes(data)
    assert agreed_on_numpy(broken, False).said == {"link/missing-library": "warn"}
    told = agreed_on_numpy(broken, False).words("link/missing-library")
    assert f"{numpy} is damaged (" in told and "numpy needs it" in told


def test_the_numpy_of_another_python(broken: Copy, numpy: Path) -> None:
    tag = numpy.name.split("-")[1]
    numpy.rename(numpy.with_name(numpy.name.replace(f"-{tag}-", "-36m-")))
    report = agreed_on_numpy(broken, False)
    assert report.said == {"link/missing-library": "warn"}
    told = report.words("link/missing-library")
    assert f"{numpy.name} cannot be found" in told and "reinstall numpy" in told


def test_a_numpy_without_its_openblas(broken: Copy, numpy: Path) -> None:
    (broken.site / "numpy.libs").unlink()
    report = agreed_on_numpy(broken, False)
    assert report.said == {"link/missing-library": "warn"}
    assert "openblas" in report.words("link/missing-library")


def test_a_hollow_openblas(broken: Copy, numpy: Path) -> None:
    folder = broken.site / "numpy.libs"
    original = folder.resolve()
    folder.unlink()
    for one in original.iterdir():
        if "openblas" in one.name:
            copies.hollow(folder, one.name)
        else:
            copies.link(one, folder / one.name)
    report = agreed_on_numpy(broken, False)
    assert report.said == {"link/undefined-symbol": "warn"}


# -- the toolkit's stub ---------------------------------------------------------------------------


def test_the_stubs_of_a_toolkit_in_front(whole: Copy, tmp_path: Path) -> None:
    stubs = tmp_path / "cuda-13.0" / "lib64" / "stubs"
    source = "int cuInit(unsigned flags) { return 34; }"
    copies.build(stubs / "libcuda.so", source, words=["-Wl,-soname,libcuda.so.1"])
    # The toolkit has only libcuda.so there: the loader, which asks for libcuda.so.1, passes by.
    assert agreed(whole, LD_LIBRARY_PATH=str(stubs)).said == {}
    (stubs / "libcuda.so.1").symlink_to("libcuda.so")
    report = Report(whole, LD_LIBRARY_PATH=str(stubs))
    assert report.said == {"link/stub-libcuda": "fail"}
    assert str(stubs) in report.words("link/stub-libcuda")


# -- extensions ---------------------------------------------------------------------------------


def test_an_extension_that_fits_has_no_finding(broken: Copy) -> None:
    broken.extension("fits", NEW_ABI)
    report = agreed(broken)
    assert report.findings == [] and broken.importing("fits") == ""
    assert not any(one["fact"].startswith("extensions") for one in report.document["unknowns"])


@pytest.mark.parametrize(
    ("name", "symbol", "words"),
    [
        ("ops_of_another", GONE, ["built for another torch", GONE]),
        ("ops_of_old_abi", OLD_ABI, ["old C++ ABI", "torch 2.14.1+cu130 has the new one"]),
    ],
)
def test_an_extension_for_another_torch(
    broken: Copy, name: str, symbol: str, words: List[str]
) -> None:
    broken.extension(name, symbol)
    report = agreed_but_for_extension(broken)
    assert report.said == {"framework/extension-abi-mismatch": "fail"}
    told = report.words("framework/extension-abi-mismatch")
    assert name.replace("_", "-") in told and [one for one in words if one not in told] == []
    assert broken.importing(name).endswith(f"undefined symbol: {symbol}")


def agreed_but_for_extension(place: Copy) -> Report:
    """The report, for a torch that is imported well beside an extension that is not."""
    report = Report(place)
    assert report.import_error is None and place.importing("torch") == ""
    return report


def test_an_extension_for_another_cuda(broken: Copy) -> None:
    runtime = Path(other("cuda").site, "nvidia/cuda_runtime/lib/libcudart.so.12")
    broken.extension("ops_of_12", NEW_ABI, runtime)
    report = agreed_but_for_extension(broken)
    assert report.said == {"framework/extension-abi-mismatch": "fail"}
    assert "built for CUDA 12" in report.words("framework/extension-abi-mismatch")
    assert "libcudart.so.12: cannot open shared object file" in broken.importing("ops_of_12")
    assert "libcudart.so.12" in report.words("link/missing-library")


def test_the_torchvision_of_another_torch(broken: Copy) -> None:
    broken.extension("torchvision", OLD_ABI, version="0.15.2")
    report = agreed_but_for_extension(broken)
    assert report.said == {
        "framework/extension-abi-mismatch": "fail", "framework/companion-mismatch": "fail",
    }  # fmt: skip
    assert "torchvision 0.15.2 is built for torch 2.0.1" in report.words(
        "framework/companion-mismatch"
    )
    assert "undefined symbol" in broken.importing("torchvision")


# -- GPU code -----------------------------------------------------------------------------------

NO_KERNELS = "gpu/no-kernels-for-architecture"


@pytest.mark.skipif(not shutil.which("objcopy"), reason="no objcopy here")
@pytest.mark.parametrize(
    ("sample", "gpu", "lacks"),
    [
        ("one", "H100", "sm_90"),  # sm_75 alone
        ("one", "T4", ""),
        ("exact", "H100", ""),  # sm_90a alone
        ("exact", "T4", "sm_75"),
        ("exact", "A100", "sm_80"),
        ("ptx-only", "H100", ""),
    ],
)
def test_an_extension_for_other_gpus(broken: Copy, sample: str, gpu: str, lacks: str) -> None:
    made = broken.extension("kernels", NEW_ABI)
    copies.with_gpu_code(made, SAMPLES / f"{sample}.elf")
    report = Report(broken, gpu=gpu)
    found = [one for one in report.findings if "of kernels" in one["subject"]]
    assert [one["rule"] for one in found] == ([NO_KERNELS] if lacks else [])
    assert all(f"no code for {lacks}" in one["summary"] for one in found)
    assert not any(one["fact"].startswith("extensions") for one in report.document["unknowns"])


def test_what_torch_lacks_for_a_t4_is_a_warning(whole: Copy) -> None:
    report = Report(whole, gpu="T4")
    assert report.said == {NO_KERNELS: "warn"} and report.document["verdict"] == "warn"
    words = report.words(NO_KERNELS)
    assert "libtorch_cuda_linalg.so" in words and "no code for sm_75" in words
    assert "torch.linalg" in words
