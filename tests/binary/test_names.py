"""The NCCL_* variables that a library reads, by its own text: compiled ones, and real NCCLs.

The lists in tests/data/nccl_names are what `nccl_variables` found in the libnccl.so.2 of the
package index's wheels; a library that is at hand (the real torch's, PREFLIGHT_LIBNCCL) is read
again, and asked what it looks up while it starts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.binary import elf, names, versions
from tests import fakes
from tests.binary.places import TORCH_SITE

LISTS = Path(__file__).resolve().parents[1] / "data/nccl_names"
LIBRARIES = [one for one in os.environ.get("PREFLIGHT_LIBNCCL", "").split(":") if one]
LIBRARIES += [f"{TORCH_SITE}/nvidia/nccl/lib/libnccl.so.2"] if TORCH_SITE else []
LIBRARIES = [one for one in LIBRARIES if os.path.isfile(one)]
needs_gcc = pytest.mark.skipif(fakes.compiler() is None, reason="no C compiler")
real = pytest.mark.parametrize("library", LIBRARIES or [None])


def built(tmp_path, source, *options):
    (tmp_path / "lib.c").write_text(source)
    path = str(tmp_path / "lib.so")
    command = [fakes.compiler(), "-shared", "-fPIC", *options, "-o", path, str(tmp_path / "lib.c")]
    subprocess.run(command, check=True)
    return path


SOURCE = """
#include <stdlib.h>
#define PARAM(name, env) const char *name(void) { return getenv("NCCL_" env); }
PARAM(timeout, "IB_TIMEOUT")
PARAM(debug, "DEBUG")
const char *said(void) { return "NCCL_NET set by environment to %s"; }
const char *macro(void) { return "use NCCL_CONFIG_INITIALIZER"; }
const char *other(void) { return "TORCH_NCCL_BLOCKING_WAIT"; }
const char *small(void) { return "NCCL_lower"; }
"""


@needs_gcc
@pytest.mark.parametrize("options", [(), ("-O2",), ("-O2", "-s")])
def test_names_that_the_preprocessor_composed(tmp_path, options):
    found = names.nccl_variables(built(tmp_path, SOURCE, *options))
    # What ends another name counts, too: compilers lay one text behind another.
    assert found == {"NCCL_IB_TIMEOUT", "NCCL_DEBUG", "NCCL_BLOCKING_WAIT"}


@needs_gcc
def test_a_library_without_any(tmp_path):
    assert names.nccl_variables(built(tmp_path, 'const char *a(void) { return "a"; }\n')) == set()


def test_what_is_no_library(tmp_path):
    (tmp_path / "text").write_bytes(b"NCCL_DEBUG\0" * 100)
    with pytest.raises(elf.BadElf):
        names.nccl_variables(str(tmp_path / "text"))
    with pytest.raises(OSError):
        names.nccl_variables(str(tmp_path / "nothing"))


@needs_gcc
def test_a_file_of_names_without_end_is_refused(tmp_path):
    many = "".join(f'"NCCL_N{number}\\0"' for number in range(names.NAME_LIMIT + 1))
    path = built(tmp_path, f"const char all[] = {many};\n")
    with pytest.raises(elf.BadElf, match="more names"):
        names.nccl_variables(path)


@needs_gcc
def test_damaged_files_end_in_one_error(tmp_path):
    whole = Path(built(tmp_path, SOURCE)).read_bytes()
    for size in range(0, len(whole), 997):
        (tmp_path / "cut").write_bytes(whole[:size])
        try:
            names.nccl_variables(str(tmp_path / "cut"))
        except (elf.BadElf, OSError):
            pass


# -- real ones -------------------------------------------------------------------------------


def release(library):
    return next(one.version for one in versions.read(library) if one.library == "nccl")


@real
def test_a_real_library_has_the_names_of_its_list(library):
    if library is None:
        pytest.skip("no real libnccl: neither the real torch's nor PREFLIGHT_LIBNCCL")
    recorded = LISTS / (release(library) + ".txt")
    if not recorded.exists():
        pytest.skip(f"no list of NCCL {release(library)}")
    assert sorted(names.nccl_variables(library)) == recorded.read_text().split()


_SPY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static char *look(const char *which, const char *name) {
  char *(*next)(const char *) = (char *(*)(const char *)) dlsym(RTLD_NEXT, which);
  if (!strncmp(name, "NCCL_", 5)) dprintf(2, "GETENV %s\\n", name);
  return next(name);
}
char *getenv(const char *name) { return look("getenv", name); }
char *secure_getenv(const char *name) { return look("secure_getenv", name); }
"""


@needs_gcc
@real
def test_what_a_real_library_looks_up_is_among_the_names(tmp_path, library):
    """The library is started, as far as it goes without a GPU, with a spy in place of getenv."""
    if library is None:
        pytest.skip("no real libnccl: neither the real torch's nor PREFLIGHT_LIBNCCL")
    spy = built(tmp_path, _SPY, "-ldl")
    script = "import ctypes, os, sys; n = ctypes.CDLL(sys.argv[1]);"
    script += "n.ncclGetUniqueId(ctypes.create_string_buffer(128)); os._exit(0)"
    ran = subprocess.run(
        [sys.executable, "-c", script, library], stderr=subprocess.PIPE, timeout=60, check=False,
        env={"LD_PRELOAD": spy, "PATH": os.environ["PATH"], "HOME": "/nowhere"},
    )  # fmt: skip
    asked = {line[7:].decode() for line in ran.stderr.splitlines() if line.startswith(b"GETENV ")}
    assert len(asked) >= 5, ran.stderr
    assert asked <= names.nccl_variables(library)


@real
def test_reading_a_real_library_costs_next_to_nothing(library):
    if library is None:
        pytest.skip("no real libnccl: neither the real torch's nor PREFLIGHT_LIBNCCL")
    import time

    names.nccl_variables(library)
    best = min(_cpu(lambda: names.nccl_variables(library), time.process_time) for _ in range(5))
    assert best < 0.02, f"{best * 1000:.1f} ms"


def _cpu(call, clock):
    started = clock()
    call()
    return clock() - started
