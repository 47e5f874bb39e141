"""What importing torch would load, in an environment of a few small libraries."""

import errno
import shutil
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight.binary import elf, fatbin
from preflight.binary.loader import Process
from preflight.probes import kernels, linkage
from preflight.roots import Root

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH")
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"


def library(path, *options):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-o", str(path), "-x", "c", "/dev/null", "-x", "none",
         *options],
        check=True,
    )  # fmt: skip
    return path


class Environment:
    """A torch and a numpy of one compiled module each."""

    def __init__(self, site):
        self.site = site
        library(site / "torch/lib/libc10.so")
        library(site / "torch/_C.so")
        (site / "torch/__init__.py").write_text("")
        (site / "numpy").mkdir()
        (site / "numpy/__init__.py").write_text("")
        self.numpy = library(site / f"numpy/_core/_multiarray_umath.{TAG}-x86_64-linux-gnu.so")
        self.python = s.PythonEnv(
            executable=s.known(sys.executable, "here"),
            version=s.known(".".join(map(str, sys.version_info[:3])), "here"),
            path=s.known((str(site),), "here"),
        )
        self.torch = s.Framework(
            name=s.known("torch", "here"), path=s.known(str(site / "torch"), "here")
        )

    def look(self, **env):
        return linkage.read(Root(), env, self.python, self.torch)

    def lost(self, **env):
        """{library: why} of what is missing or damaged."""
        found = self.look(**env).libraries.get(())
        return {one.name.value: one for one in found if one.missing.value}


@pytest.fixture
def here(tmp_path):
    return Environment(tmp_path / "site")


def test_nothing_is_missing(here):
    assert here.look().libraries.known and here.lost() == {}
    (torch,) = here.look().frameworks.value
    assert torch.import_problem.absent and not torch.requires.looked


def test_an_empty_numpy_module(here):
    here.numpy.write_bytes(b"")
    (one,) = here.lost().values()
    assert one.damaged.value == "file too short" and one.needed_by.value == "numpy"
    assert one.required.value is False
    real = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(here.numpy)!r})"],
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert b"file too short" in real.stderr


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), elf.BadElf("changed as it was read")]
)
def test_what_cannot_be_looked_at_is_unknown(here, monkeypatch, error):
    """Not "in order": the same numpy may well be damaged."""
    really = Process.open

    def failing(self, name, *rest, **more):
        if "_multiarray_umath" in name:
            raise error
        return really(self, name, *rest, **more)

    monkeypatch.setattr(Process, "open", failing)
    found = here.look()
    assert str(error) in found.libraries.unknown and found.extensions.unknown


# -- what stops Python itself -------------------------------------------------------------------

CALL = "int gone(); int use(void) { return gone(); }"
ADDRESS = "int gone(); void *at = (void *) gone;"


@pytest.mark.parametrize(
    ("code", "words", "env", "name"),
    [
        (ADDRESS, [], {}, "gone"),
        (CALL, [], {}, ""),  # until somebody calls it
        (CALL, [], {"LD_BIND_NOW": "1"}, "gone"),
        (CALL, [], {"LD_BIND_NOW": ""}, ""),
        (CALL, ["-Wl,-z,now"], {}, "gone"),
        ("", ["-Wl,--no-as-needed", "libgone.so"], {}, "libgone.so"),
    ],
)
def test_what_stops_python_stops_the_import(here, tmp_path, monkeypatch, code, words, env, name):
    monkeypatch.chdir(tmp_path)
    library(tmp_path / "libgone.so", "-Wl,-soname,libgone.so")
    (tmp_path / "pre.c").write_text(code)
    words = ["-Wl,-z,lazy", *words]
    pre = library(tmp_path / "libpre.so", "-fPIC", "-x", "c", "pre.c", "-x", "none", *words)
    (tmp_path / "libgone.so").unlink()
    env = {**env, "LD_PRELOAD": str(pre)}
    real = subprocess.run([sys.executable, "-c", ""], env=env, stderr=subprocess.PIPE, check=False)
    found = here.look(**env)
    problem = found.frameworks.value[0].import_problem
    assert bool(problem.value) == bool(real.returncode) == bool(name)
    lacking = [one for one in found.libraries.value
               if one.missing.value or one.missing_symbols.value]  # fmt: skip
    assert len(lacking) == bool(name)
    for one in lacking:
        assert one.required.value and one.needed_by.value == "libpre.so"
        assert name in (one.name.value, *one.missing_symbols.get(()))
        assert problem.value.split(": ")[-1].encode() in real.stderr


def test_a_python_of_another_loader_is_not_followed(here, tmp_path):
    """musl looks elsewhere, and knows no versions."""
    (tmp_path / "main.c").write_text("void f(void) {}")
    musl = "-Wl,-dynamic-linker,/lib/ld-musl-x86_64.so.1"
    main = str(tmp_path / "python")
    subprocess.run(
        ["gcc", "-nostdlib", "-pie", "-fPIC", "-e", "f", musl, "main.c", "-o", main],
        check=True, cwd=str(tmp_path),
    )  # fmt: skip
    here.python = replace(here.python, executable=s.known(main, "here"))
    assert "ld-musl-x86_64.so.1" in here.look().libraries.unknown


# -- whose a missing name is --------------------------------------------------------------------


def test_what_a_reference_names_is_what_lacks_it(here, tmp_path):
    """Not who asks: a hollow copy in front, with neither the names nor the versions."""
    (tmp_path / "map").write_text("V1 { global: one; two; };")
    (tmp_path / "own.c").write_text("void one(void) {} void two(void) {}")
    (tmp_path / "use.c").write_text("void one(void); void two(void); void f() { one(); two(); }")
    folder, soname = here.site / "own", "-Wl,-soname,libown.so"
    own = library(folder / "libown.so", "-fPIC", soname, "-x", "c", str(tmp_path / "own.c"),
                  f"-Wl,--version-script={tmp_path / 'map'}")  # fmt: skip
    path = f"-Wl,-rpath,{folder},--enable-new-dtags"
    library(here.site / "torch/_C.so", "-fPIC", "-x", "c", str(tmp_path / "use.c"),
            "-x", "none", str(own), path)  # fmt: skip
    assert not any(one.missing_symbols.value for one in here.look().libraries.value)
    hollow = library(tmp_path / "front/libown.so", soname)
    found = here.look(LD_LIBRARY_PATH=str(tmp_path / "front")).libraries.value
    (one,) = [one for one in found if one.missing_symbols.value]
    assert (one.name.value, one.needed_by.value) == ("libown.so", "_C.so")
    assert set(one.missing_symbols.value) == {"one", "two"}
    assert (one.path.value, one.found_by.value) == (str(hollow), "ld-library-path")


# -- the parts of cuDNN -------------------------------------------------------------------------


@pytest.fixture
def cudnn(here):
    """A front that names its parts, which torch needs, and the parts beside it."""
    folder = here.site / "nvidia/cudnn/lib"
    names = ["libcudnn_graph", "libcudnn_ops", "libcudnn_cnn", "libcudnn_adv"]
    for name in names:
        library(folder / f"{name}.so.9", f"-Wl,-soname,{name}.so.9")
    code = folder / "front.c"
    code.parent.mkdir(parents=True, exist_ok=True)
    listed = ",".join(f'"{one}.so"' for one in names)
    code.write_text(f"const char *parts[] = {{{listed}}};")
    front = library(
        folder / "libcudnn.so.9", str(code), "-Wl,-soname,libcudnn.so.9", "-Wl,-rpath,$ORIGIN"
    )
    library(here.site / "torch/_C.so", "-Wl,--no-as-needed", str(front), f"-Wl,-rpath,{folder}")
    return folder


def test_the_parts_beside_it(here, cudnn):
    assert here.lost() == {}


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (["libcudnn_graph", "libcudnn_ops"], ["libcudnn_graph.so.9"]),
        (["libcudnn_ops"], ["libcudnn_ops.so.9"]),
        (["libcudnn_cnn", "libcudnn_adv"], ["libcudnn_cnn.so.9", "libcudnn_adv.so.9"]),
    ],
)
def test_parts_that_are_gone(here, cudnn, gone, told):
    for name in gone:
        (cudnn / f"{name}.so.9").unlink()
    assert list(here.lost()) == told
    assert {one.needed_by.value for one in here.lost().values()} == {"libcudnn.so.9"}


def test_parts_that_lie_elsewhere(here, cudnn, tmp_path):
    """On LD_LIBRARY_PATH, where the front looks too."""
    (tmp_path / "other").mkdir()
    (cudnn / "libcudnn_graph.so.9").rename(tmp_path / "other/libcudnn_graph.so.9")
    assert here.lost(LD_LIBRARY_PATH=str(tmp_path / "other")) == {}
    assert list(here.lost()) == ["libcudnn_graph.so.9"]


def test_a_part_that_is_damaged(here, cudnn):
    (cudnn / "libcudnn_graph.so.9").write_bytes(b"")
    (one,) = here.lost().values()
    assert one.damaged.value == "file too short"


def test_a_front_that_opens_nothing_lacks_nothing(here, cudnn):
    """An older or another make in one piece."""
    for one in cudnn.glob("libcudnn_*"):
        one.unlink()
    library(cudnn / "libcudnn.so.9", "-Wl,-soname,libcudnn.so.9")
    assert here.lost() == {}


# -- GPU code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
def test_code_that_cannot_be_read_for_our_own_lack_is_not_none(here, monkeypatch, number):
    """The probe fails, and its facts are unknown."""

    def failing(_path):
        raise OSError(number, "ours")

    library(here.site / "torch/lib/libtorch_cuda.so")
    monkeypatch.setattr(fatbin, "read", failing)
    with pytest.raises(OSError, match="ours"):
        kernels.read(Root(), here.python, here.torch)


def test_a_library_that_nobody_may_read_holds_no_code_that_counts(here, monkeypatch):
    def failing(_path):
        raise OSError(errno.EACCES, "not ours")

    library(here.site / "torch/lib/libtorch_cuda.so")
    monkeypatch.setattr(fatbin, "read", failing)
    assert kernels.read(Root(), here.python, here.torch).code.value == ()


def fatbins(path, *groups):
    """Give a library fatbins of machine code for these architectures."""
    code = b""
    for group in groups:
        entries = b"".join(struct.pack("<H2xIQ12xI16x", 2, 48, 0, one) for one in group)
        code += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    raw = path.with_suffix(".fatbin")
    raw.write_bytes(code)
    subprocess.run(["objcopy", f"--add-section=.nv_fatbin={raw}", str(path)], check=True)


def listed(path, *words):
    """A library with texts in it."""
    code = path.with_suffix(".c")
    code.parent.mkdir(parents=True, exist_ok=True)
    names = ", ".join(f'"{one}"' for one in words)
    code.write_text(f"const char *const texts[] = {{{names}}};\n")
    library(path, "-x", "c", str(code))


@pytest.mark.skipif(not shutil.which("objcopy"), reason="no objcopy on PATH")
@pytest.mark.parametrize(
    ("words", "targets"),
    [
        # As in torch 1.12.1+cu102: cuBLAS, cuDNN and NCCL inside it have lists of their own.
        (["sm_%d", "needs sm_70 sm_80", "sm_37", "sm_37 sm_60 sm_70"], ["sm_37", "sm_60", "sm_70"]),
        (["sm_70 compute_70", "sm_90"], ["sm_70"]),
        (["sm_37 sm_90"], ["sm_37"]),  # what is listed and not in the file is not there
        (["no list"], []),
    ],
)
def test_the_code_of_libraries_inside_torch_is_not_what_torch_lacks(here, words, targets):
    library(here.site / "torch/lib/libtorch_cuda.so")
    own, others = [(37, 60, 70)] * 4, [(35, 60, 70), (75,), (35, 60), (61,)]
    fatbins(here.site / "torch/lib/libtorch_cuda.so", *own, *others)
    listed(here.site / "torch/lib/libtorch_python.so", *words)
    (code,) = kernels.read(Root(), here.python, here.torch).code.value
    assert sorted(code.targets.value) == targets
    assert set(code.targets.value) | set(code.partly.value) == {
        "sm_35", "sm_37", "sm_60", "sm_61", "sm_70", "sm_75",
    }  # fmt: skip
