"""`preflight link`: the tree, what fails, what stands in front of what, and the GPU code inside."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import preflight

HOME = str(Path(preflight.__file__).parent.parent)
SAMPLES = Path(__file__).parent / "binary" / "samples"
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH")


def link(*words, **env):
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8", **env}
    return subprocess.run(
        [sys.executable, "-m", "preflight", "link", *words], env=mine, timeout=60,
        capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip


def library(path, code="int f(void) { return 1; }\n", *options):
    """A small shared library, built by gcc."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options],
        input=code, check=True, encoding="utf-8",
    )  # fmt: skip
    return path


@pytest.fixture
def pair(tmp_path):
    """A library that needs libdown.so, which lies beside it and in another place."""
    soname = "-Wl,-soname,libdown.so"
    down = library(tmp_path / "own" / "libdown.so", "int down(void) { return 1; }\n", soname)
    other = library(tmp_path / "other" / "libdown.so", "int nothing;\n", soname)
    up = library(
        tmp_path / "own" / "libup.so", "int down(void); int up(void) { return down(); }\n",
        str(down), "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags",
    )  # fmt: skip
    return up, down, other


def nodes(done):
    document = json.loads(done.stdout)
    assert document["schema"] == "preflight.link/1"
    return {one["name"]: one for one in document["trees"][0]["libraries"]}


def test_what_is_found_and_by_which_rule(pair):
    up, down, _other = pair
    done = link(str(up))
    assert done.returncode == 0, done.stderr
    assert "every library is found and every symbol has a provider" in done.stdout
    found = nodes(link(str(up), "--format", "json"))["libdown.so"]
    assert (found["path"], found["rule"], found["asked_by"]) == (str(down), "runpath", str(up))
    assert found["shadows"] == []


def test_what_stands_in_front(pair):
    """LD_LIBRARY_PATH comes before RUNPATH; the hollow copy is what the loader takes."""
    up, down, other = pair
    done = link(str(up), LD_LIBRARY_PATH=str(other.parent))
    assert done.returncode == 78
    assert f"in front of {down}" in done.stdout
    real = subprocess.run(
        ["ldd", "-r", str(up)], env={**os.environ, "LD_LIBRARY_PATH": str(other.parent)},
        capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip
    assert "undefined symbol: down" in real.stdout + real.stderr
    assert "would fail" in done.stdout and "undefined symbol: down" in done.stdout
    again = link(str(up), "--format", "json", LD_LIBRARY_PATH=str(other.parent))
    found = nodes(again)["libdown.so"]
    assert (found["path"], found["rule"]) == (str(other), "ld-library-path")
    assert found["shadows"] == [str(down)]
    assert "undefined symbol: down" in json.loads(again.stdout)["trees"][0]["problems"][0]


def test_what_is_missing(pair):
    up, down, _other = pair
    down.unlink()
    done = link(str(up))
    assert done.returncode == 78 and "\n  libup.so " in done.stdout
    assert "libdown.so: cannot open shared object file" in done.stdout


def test_the_gpu_code_inside(tmp_path):
    """An nvcc-built sample's code, in a library of its own."""
    if not shutil.which("objcopy"):
        pytest.skip("no objcopy on PATH")
    made = json.loads((SAMPLES / "samples.json").read_text())
    name = "many.elf"
    raw = tmp_path / "raw"
    subprocess.run(
        ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", "--set-section-flags",
         ".nv_fatbin=alloc", str(SAMPLES / name), str(raw)],
        check=True,
    )  # fmt: skip
    code = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n.incbin \\"{raw}\\"\\n.text\\n");\n'
    built = library(tmp_path / "libkernels.so", code)
    found = nodes(link(str(built), "--format", "json"))["libkernels.so"]
    assert set(found["targets"]) == {one for group in made[name]["fatbins"] for one in group}


def test_a_program(tmp_path):
    done = link(sys.executable)
    assert done.returncode == 0 and "libc.so.6" in done.stdout
    assert "start" in done.stdout and "ld-cache" in done.stdout or "default" in done.stdout


def program(path, *options):
    subprocess.run(
        ["gcc", "-o", str(path), "-x", "c", "-", "-x", "none", *options],
        input="int main(void) { return 0; }\n", check=True, encoding="utf-8",
    )  # fmt: skip
    return path


def test_a_program_with_an_empty_library(tmp_path):
    """As a full disk leaves it."""
    lib = library(
        tmp_path / "libempty.so", "int f(void) { return 1; }\n", "-Wl,-soname,libempty.so"
    )
    path = program(tmp_path / "prog", "-Wl,--no-as-needed", str(lib), f"-Wl,-rpath,{tmp_path}")
    assert link(str(path)).returncode == 0
    lib.write_bytes(b"")
    real = subprocess.run([str(path)], capture_output=True, check=False, encoding="utf-8")
    done = link(str(path))
    assert done.returncode == 78 and done.stdout.count("would fail") == 1
    assert "file too short" in real.stderr and f"{lib}: file too short" in done.stdout
    assert str(lib) in real.stderr and "every library" not in done.stdout


@pytest.mark.parametrize("options", [["-static"], ["-static-pie"]], ids=["static", "static-pie"])
def test_a_static_program(tmp_path, options):
    try:
        path = program(tmp_path / "static", *options)
    except subprocess.CalledProcessError:
        pytest.skip("no static C library")
    assert subprocess.run([str(path)], check=False).returncode == 0
    done = link(str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  statically linked, nothing to load\n" in done.stdout
    assert "every library" not in done.stdout
    (tree,) = json.loads(link(str(path), "--format", "json").stdout)["trees"]
    assert tree["libraries"] == tree["problems"] == [] and "statically" in tree["note"]


def test_a_program_without_its_interpreter(tmp_path):
    path = program(tmp_path / "lost", "-Wl,-dynamic-linker,/nonexistent/ld.so")
    with pytest.raises(FileNotFoundError):
        subprocess.run([str(path)], check=False)
    done = link(str(path))
    assert done.returncode == 78
    assert done.stdout.count("would fail") == 1 and "every library" not in done.stdout
    assert "program interpreter /nonexistent/ld.so does not exist" in done.stdout


def test_a_program_for_another_machine(tmp_path):
    path = program(tmp_path / "other")
    data = bytearray(path.read_bytes())
    machine = {62: 183, 183: 62}[data[18]]
    data[18] = machine
    path.write_bytes(data)
    done = link(str(path))
    assert done.returncode == 78 and done.stdout.count("would fail") == 1
    other = {183: "aarch64", 62: "x86_64"}[machine]
    assert f"a program for {other}, this machine is {os.uname().machine}" in done.stdout


def test_the_interpreter_is_looked_for_in_the_image(tmp_path):
    (tmp_path / "bin").mkdir()
    path = program(tmp_path / "bin" / "sh")
    done = link("/bin/sh", "--root", str(tmp_path))
    assert done.returncode == 78 and "program interpreter" in done.stdout
    shown = link(str(path))
    assert shown.returncode == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("no library" * 20), "ELF"),
        (lambda path: path.write_bytes(b"\x7fELF" + bytes(60)), "ELF"),
        (lambda path: path.mkdir(), ""),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to(path), ""),
        (lambda path: None, "No such file"),
    ],
    ids=["text", "zeros", "directory", "fifo", "loop", "none"],
)
def test_what_is_no_library_is_one_line(tmp_path, make, words):
    path = tmp_path / "libx.so"
    make(path)
    done = link(str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert str(path) in done.stderr and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_what_can_be_imported_fails_a_package(tmp_path):
    """A plug-in that wants symbols of its host is listed, and does not count."""
    lacking = "int hosts(void); int f(void) { return hosts(); }\n"
    package = tmp_path / "site" / "some_package"
    plugin = library(package / "libplugin.so", lacking)
    library(package / "fast.so", "void *PyInit_fast(void) { return 0; }\n")
    env = {"PYTHONPATH": f"{HOME}:{tmp_path / 'site'}"}
    done = link("some_package", "--python", sys.executable, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"would not load on its own: {plugin}: undefined symbol: hosts" in done.stdout
    assert "would fail" not in done.stdout
    assert done.stdout.count("every library is found") == 1
    shown = json.loads(link("some_package", "--format", "json", **env).stdout)["trees"]
    assert [len(one["alone"]) for one in shown] in ([1, 0], [0, 1])


@pytest.mark.parametrize("name", ["_C.cpython-311-x86_64-linux-gnu.so", "_C.abi3.so", "_C.so"])
def test_a_module_that_would_not_load_fails_a_package(tmp_path, name):
    code = "int hosts(void); int PyInit__C(void) { return hosts(); }\n"
    library(tmp_path / "site" / "some_package" / name, code)
    done = link("some_package", PYTHONPATH=f"{HOME}:{tmp_path / 'site'}")
    assert done.returncode == 78
    assert "would fail" in done.stdout and "undefined symbol: hosts" in done.stdout


@pytest.mark.parametrize(("name", "expected"), [("_C.so", 78), ("libx.so", 0)])
def test_a_damaged_file_of_a_package(tmp_path, name, expected):
    (tmp_path / "site" / "some_package").mkdir(parents=True)
    (tmp_path / "site" / "some_package" / name).write_text("no library" * 20)
    done = link("some_package", PYTHONPATH=f"{HOME}:{tmp_path / 'site'}")
    assert done.returncode == expected and "invalid ELF header" in done.stdout


def test_a_file_that_is_named_without_its_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library(tmp_path / "dyn")
    done = link("dyn")
    assert done.returncode == 2 and "did you mean ./dyn?" in done.stderr
    assert done.stderr.count("\n") == 1
    assert link("./dyn").returncode == 0
    assert "did you mean" not in link("other").stderr


def test_a_module_that_is_not_there():
    done = link("no_such_module")
    assert done.returncode == 2 and "no compiled module of 'no_such_module'" in done.stderr
