"""`import torch` for real, in every environment here, maps and says what was predicted."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from preflight import matrix
from preflight.binary import elf, fatbin, loader, symbols, torch_preload, versions
from preflight.roots import Root
from tests.binary import cost, trees
from tests.binary.places import INSTALLS, TORCH, needs_torch
from tests.binary.test_loader import head, started

COPY_LIMIT = 20 << 20

CHILD = """
import json, os, sys
answer = {"error": ""}
try:
    import torch
except BaseException as error:
    answer["error"] = f"{type(error).__name__}: {error}"
files = [getattr(module, "__file__", "") or "" for module in list(sys.modules.values())]
answer["extensions"] = [one for one in files if one.endswith(".so")]
answer["path"] = sys.path
with open("/proc/self/maps") as maps:
    paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
answer["mapped"] = sorted(one for one in paths if ".so" in one)
os.write(int(sys.argv[1]), json.dumps(answer).encode())
os._exit(0)
"""

EVERY = pytest.mark.parametrize("name", sorted(INSTALLS) or [None])
pytestmark = needs_torch


def really(install, env):
    """What a child that imports torch tells."""
    read, write = os.pipe()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
    done = subprocess.run(
        [install.python, "-s", "-c", CHILD, str(write)],
        env=dict(clean, **env),
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        timeout=300,
    )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    assert text, done.stderr.decode(errors="replace")[-2000:]
    return json.loads(text.decode())


def predicted(install, env, truth):
    """The same by looking: the extension modules that the child names, and `import torch`."""
    process = loader.Process(Root(), env, install.python, cwd="/", check=symbols.Checker().check)
    assert not process.start().error
    package = install.site + "/torch"
    torch_c = torch_preload.extension(Root(), package, "_C")
    others = truth["extensions"]
    cut = others.index(torch_c) if torch_c in others else len(others)
    for path in others[:cut]:
        process.open(path)
    cuda = torch_preload.cuda_version(Root(), package)
    imported = torch_preload.import_torch(process, package, truth["path"], cuda)
    for path in others[cut + 1 :]:
        process.open(path)
    mapped = {process.files.real(one.path) for one in process.objects[1:]}
    return imported, sorted(one for one in mapped if ".so" in one)


def check(install, env):
    """The real import and the predicted one are the same; returns the real one."""
    truth = really(install, env)
    imported, mapped = predicted(install, env, truth)
    if truth["error"]:
        kind = truth["error"].partition(":")[0]
        possible = {f"{kind}: {one}" for one in imported.problems} | {imported.error}
        assert truth["error"] in possible and imported.error.startswith(kind)
        if truth["error"] != imported.error:
            print("DIFF", truth["error"], "|", imported.error)
    else:
        assert imported.error == ""
        assert mapped == truth["mapped"]
    return truth


@EVERY
def test_a_plain_import_maps_what_was_predicted(name):
    truth = check(INSTALLS[name], {})
    assert not truth["error"]
    assert any("libtorch_python" in one for one in truth["mapped"])


def cuda_libraries(install):
    """The libraries of CUDA that this torch comes with, by the names they are asked for by."""
    found = {}
    for pattern in ("nvidia/*/lib/lib*.so*", "torch/lib/libcu*.so*", "torch/lib/libnv*.so*"):
        for path in sorted(Path(install.site).glob(pattern)):
            found.setdefault(path.name, path)
    return found


def hollow(folder, soname):
    """A library of that name with nothing in it."""
    path = folder / soname
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(path)]
        + [f"-Wl,-soname,{soname}"],
        check=True,
    )
    return path


@EVERY
def test_copies_in_front_are_used_or_not_as_predicted(name, tmp_path):
    install = INSTALLS[name]
    copied = []
    for soname, path in cuda_libraries(install).items():
        if path.stat().st_size < COPY_LIMIT:
            shutil.copy(str(path), str(tmp_path / soname))
            copied.append(soname)
    truth = check(install, {"LD_LIBRARY_PATH": str(tmp_path)})
    used = [one for one in truth["mapped"] if one.startswith(str(tmp_path))]
    if install.name.startswith("1.12"):
        assert used  # RUNPATH: LD_LIBRARY_PATH goes first


@EVERY
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
def test_hollow_libraries_in_front_break_it_or_not_as_predicted(name, tmp_path):
    install = INSTALLS[name]
    for soname in cuda_libraries(install):
        hollow(tmp_path, soname)
    check(install, {"LD_LIBRARY_PATH": str(tmp_path)})


@EVERY
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
@pytest.mark.parametrize("stem", ["libnccl.so", "libcudnn.so", "libnvJitLink.so", "libcudart.so"])
def test_a_hollow_preload_breaks_it_as_predicted(name, stem, tmp_path):
    install = INSTALLS[name]
    found = [one for one in cuda_libraries(install) if one.startswith(stem)]
    if not found:
        pytest.skip(f"torch {name} brings no {stem}")
    check(install, {"LD_PRELOAD": str(hollow(tmp_path, found[0]))})


def test_every_library_of_torch_is_resolved_as_ld_so_does():
    wrong = []
    for path in sorted(Path(TORCH.site).rglob("*.so*")):
        if path.is_symlink() or head(path) != b"\x7fELF\x02":
            continue
        truth = trees.trace_library(str(path))
        answer = started(loader.Process(Root(), {}, str(path), cwd="/"))
        if truth != answer:
            wrong.append((path, truth, answer))
    assert not wrong, wrong[0]


def extensions(site, parts):
    """Extension modules below some packages of a site-packages."""
    found = []
    for part in parts:
        found += [str(path) for path in sorted(Path(site, part).rglob("*.so"))]
    return [path for path in found if not os.path.islink(path) and head(path) == b"\x7fELF\x02"]


def extras(*packages, torch=""):
    """Extension modules of PREFLIGHT_EXTRAS, a directory that pip filled (`--target`).

    torchvision only where it is the one of that torch.
    """
    place = os.environ.get("PREFLIGHT_EXTRAS", "")
    found = extensions(place, packages) if place else []
    if torch and found:
        (metadata,) = Path(place).glob("torchvision-*.dist-info")
        version = metadata.name.partition("-")[2][: -len(".dist-info")]
        belongs = matrix.load().torches_of("torchvision", version)
        found = found if torch.partition("+")[0] in belongs else []
    return found


@EVERY
def test_a_healthy_install_has_no_problem(name):
    """torch's own libraries after `import torch`, and each other extension by itself."""
    install = INSTALLS[name]
    process = loader.Process(Root(), {}, install.python, cwd="/", check=symbols.Checker().check)
    assert not process.start().problems
    alone = extensions(install.site, ["numpy", "scipy"])
    alone += extras("numpy", "scipy")
    tag = "cpython-" + install.site.rpartition("/python")[2].partition("/")[0].replace(".", "")
    for path in (one for one in alone if tag in one):
        assert process.fork().open(path).error == ""
    cuda = torch_preload.cuda_version(Root(), install.site + "/torch")
    imported = torch_preload.import_torch(process, install.site + "/torch", [install.site], cuda)
    assert imported.error == ""
    after = [str(path) for path in sorted(Path(install.site, "torch/lib").glob("*.so"))]
    after += extensions(install.site, ["torchvision", "functorch"])
    after += extras("torchvision", torch=install.name)
    for path in after:
        opened = process.fork().open(path)
        # Only the driver's library may be missing: there is none in an image.
        driver = all(one.name == "libcuda.so.1" for one in opened.problems)
        assert driver or "rdma" in path or "mpi" in path, opened.error


@EVERY
def test_versions_in_the_files_are_those_of_the_packages(name):
    install = INSTALLS[name]
    packages = {}
    for path in Path(install.site).glob("nvidia_*.dist-info"):
        dist, version = path.name[: -len(".dist-info")].rsplit("-", 1)
        packages[dist.replace("_cu11", "").replace("_cu12", "").replace("_cu13", "")] = version
    names = {
        "nccl": "nvidia_nccl", "cudnn": "nvidia_cudnn", "cublasLt": "nvidia_cublas",
        "cufft": "nvidia_cufft", "curand": "nvidia_curand", "cusolver": "nvidia_cusolver",
        "cusparse": "nvidia_cusparse", "cusparseLt": "nvidia_cusparselt",
        "cudart": "nvidia_cuda_runtime", "nvrtc": "nvidia_cuda_nvrtc",
        "nvJitLink": "nvidia_nvjitlink",
    }  # fmt: skip
    seen = set()
    for path in Path(install.site, "nvidia").rglob("*.so*"):
        for one in versions.read(str(path)):
            dist = packages.get(names.get(one.library, ""))
            if dist:
                seen.add(one.library)
                assert (dist + ".").startswith(one.version + "."), (path, one)
    assert len(seen) >= 8 or len(packages) < 8


@EVERY
def test_the_cxx_abi_is_that_of_the_release(name):
    install = INSTALLS[name]
    with elf.ElfFile(install.site + "/torch/lib/libc10.so") as file:
        abi = versions.cxx11_abi(file)
    assert abi == (tuple(map(int, name.split("+")[0].split(".")[:2])) >= (2, 7))


def test_kernels_of_torch_are_those_it_lists():
    found = fatbin.read(TORCH.site + "/torch/lib/libtorch_cuda.so")
    assert found.fatbins == found.registered > 100
    everywhere = [one for one, count in found.code.items() if count == found.fatbins]
    with open(TORCH.site + "/torch/lib/libtorch_python.so", "rb") as stream:
        listed = " ".join(sorted(everywhere, key=lambda one: int(one[3:])))
        assert listed.encode() in stream.read()


def test_the_whole_analysis_costs_a_tenth_of_the_import():
    """Of a few rounds the best: another process's turn on a small machine is not our cost."""
    rounds = []
    for _ in range(5):
        found = cost.measure(os.path.dirname(os.path.dirname(TORCH.python)))
        assert found["error"] == "" and found["objects"] > 30
        assert found["private_mib"] < 60
        rounds.append(found["seconds"] / found["import_torch"])
        if rounds[-1] <= 0.1:
            return
    pytest.fail(f"of import torch: {rounds}")
