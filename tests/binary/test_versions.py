"""Versions that are compiled into a library are read from it."""

import shutil
import struct
import subprocess

import pytest

from preflight.binary import elf, versions

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")


def library(folder, source, soname="lib.so.1", *options):
    (folder / "source.c").write_text(source)
    path = folder / soname
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}", *options]
        + [str(folder / "source.c"), "-o", str(path)],
        check=True,
    )
    return str(path)


def said(path):
    return {one.library: one.version for one in versions.read(path)}


STORES = "int {name}(int *version) {{ if (!version) return 4; *version = {value}; return 0; }}\n"


@needs_gcc
@pytest.mark.parametrize("optimise", ["-O1", "-O2", "-O3"])
@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("ncclGetVersion", 23007, ("nccl", "2.30.7")),
        ("ncclGetVersion", 2708, ("nccl", "2.7.8")),
        ("cudaRuntimeGetVersion", 12080, ("cudart", "12.8")),
        ("cufftGetVersion", 11303, ("cufft", "11.3.3")),
        ("cusparseLtGetVersion", 801, ("cusparseLt", "0.8.1")),
    ],
)
def test_a_stored_constant_is_the_version(tmp_path, name, value, answer, optimise):
    path = library(tmp_path, STORES.format(name=name, value=value), "lib.so", optimise)
    assert said(path) == dict([answer])


@needs_gcc
def test_a_returned_constant_is_the_version(tmp_path):
    source = "unsigned long cublasLtGetVersion(void) { return 120804; }\n"
    source += "unsigned long cudnnGetVersion(void) { return 8907; }\n"
    assert said(library(tmp_path, source, "lib.so", "-O2")) == {
        "cublasLt": "12.8.4",
        "cudnn": "8.9.7",
    }


@needs_gcc
def test_major_and_minor_are_two_constants(tmp_path):
    source = "int nvJitLinkVersion(unsigned *major, unsigned *minor)\n"
    source += "{ if (!major || !minor) return 1; *major = 12; *minor = 4; return 0; }\n"
    assert said(library(tmp_path, source, "lib.so", "-O2")) == {"nvJitLink": "12.4"}


@needs_gcc
def test_another_function_may_answer(tmp_path):
    source = "__attribute__((noinline)) static int other(int *version)\n"
    source += "{ if (!version) return 1; *version = 13000; return 0; }\n"
    source += "int cudaRuntimeGetVersion(int *v) { return other(v) ? 7 : 0; }\n"
    assert said(library(tmp_path, source, "lib.so", "-O1")) == {"cudart": "13.0"}


@needs_gcc
def test_cudnn_says_it_as_data_whatever_its_functions_say(tmp_path):
    source = "const int cudnn_ops_infer_version = 9 << 16 | 10 << 8 | 2;\n"
    source += "unsigned long cudnnGetVersion(void) { return 8907; }\n"
    assert said(library(tmp_path, source, "libcudnn_ops.so.9", "-O2")) == {"cudnn": "9.10.2"}


@needs_gcc
def test_a_number_that_can_be_no_version_is_none(tmp_path):
    path = library(tmp_path, STORES.format(name="ncclGetVersion", value=7), "lib.so", "-O1")
    assert said(path) == {}


@needs_gcc
def test_nccl_linked_into_torch_says_it_in_its_text(tmp_path):
    source = 'const char *banner(void) { return "NCCL version 2.10.3+cuda10.2"; }\n'
    assert said(library(tmp_path, source, "libtorch_cuda.so", "-O1")) == {"nccl": "2.10.3"}
    assert said(library(tmp_path, source, "libother.so", "-O1")) == {}


@needs_gcc
def test_the_highest_version_of_its_symbols_is_that_of_libstdcxx(tmp_path):
    (tmp_path / "map").write_text(
        "GLIBCXX_3.4 { global: a; };\nGLIBCXX_3.4.9 { global: b; };\n"
        "GLIBCXX_3.4.30 { global: c; };\nCXXABI_9.9 { global: d; };\n"
    )
    source = "".join(f"void {one}(void) {{}}\n" for one in "abcd")
    path = library(tmp_path, source, "libstdc++.so.6", f"-Wl,--version-script,{tmp_path / 'map'}")
    assert said(path) == {"libstdc++": "3.4.30"}


def test_glibc_of_this_system():
    import platform

    name, version = platform.libc_ver()
    if name != "glibc":
        pytest.skip("no glibc here")
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "/libc.so.6" in line or "/libc-2" in line)
    assert said(path)["glibc"] == version


def words(*codes):
    return struct.pack(f"<{len(codes)}I", *codes)


def test_constants_in_arm_code():
    class Arm:
        machine = "aarch64"

    # mov w1, #23007; str w1, [x0]; mov w0, #0; ret
    nccl = words(0x528B3BE1, 0xB9000001, 0x52800000, 0xD65F03C0)
    assert 23007 in versions._constants(Arm, nccl)
    # mov w0, #64565; movk w0, #1, lsl #16; ret
    cublas = words(0x529F86A0, 0x72A00020, 0xD65F03C0)
    assert versions._constants(Arm, cublas) == [130101]
    # bl .+16; b .-4
    assert list(versions._calls_aarch64(words(0x94000004, 0x17FFFFFF))) == [16, 0]


@needs_gcc
def test_the_cxx_abi_that_torch_offers_and_an_extension_wants(tmp_path):
    def offered(names):
        source = "".join(f"void {one}(void) {{}}\n" for one in names)
        with elf.ElfFile(library(tmp_path, source, "libc10.so")) as file:
            return versions.cxx11_abi(file)

    def wanted(names):
        source = "".join(f"void {one}(void);\n" for one in names)
        source += "void f(void) {" + "".join(f"{one}();" for one in names) + "}\n"
        with elf.ElfFile(library(tmp_path, source, "ext.so")) as file:
            return versions.wanted_cxx11_abi(file)

    new = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    old = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
    other = "_ZN2at4_ops5emptyE"
    assert offered([new, other]) is True and offered([old]) is False and offered([other]) is None
    assert wanted([new]) is True and wanted([old, other]) is False and wanted([other]) is None
    # What it takes from others says nothing about torch.
    assert wanted(["_ZNSt7__cxx1112basic_stringIcE4dataEv"]) is None


def test_what_a_file_needs_of_glibc():
    with elf.ElfFile("/bin/sh") as file:
        assert versions.needed_version(file, "GLIBC_").startswith("2.")
        assert versions.needed_version(file, "NOTHING_") == ""
