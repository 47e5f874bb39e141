"""Which file ld.so would pick: against the real one, and in directories with a ld.so.conf."""

import os
import random
import shutil
import struct
import subprocess
import sys
import time
from functools import partial

import pytest

from preflight.binary import ldcache, loader
from preflight.roots import Root

ARCH = os.uname().machine
MACHINES = {"x86_64": 62, "aarch64": 183}
LIVE = Root("/")

NAMES = ["libm.so.6", "libc.so.6", "libz.so.1", "libssl.so.3", "libcrypto.so.3", "libstdc++.so.6",
         "libgcc_s.so.1", "libffi.so.8", "liblzma.so.5", "libbz2.so.1.0", "libdl.so.2",
         "libpthread.so.0", "libutil.so.1", "libresolv.so.2", "libexpat.so.1", "libuuid.so.1",
         "libno-such-library.so.9", "libcuda.so.1"]  # fmt: skip

LOAD = """
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
except OSError:
    sys.exit(3)
with open("/proc/self/maps") as stream:
    rows = [line.split(None, 5) for line in stream]
print("\\n".join(sorted({row[5].strip() for row in rows if len(row) == 6})))
"""


def really_loaded(name, path=""):
    """The files mapped after dlopen(name); None when the loader finds none."""
    env = {"LD_LIBRARY_PATH": path, "PATH": os.environ.get("PATH", "")}
    words = [sys.executable, "-I", "-S", "-c", LOAD, name]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode in (0, 3)
    return None if done.returncode else done.stdout.decode().splitlines()


def found(name, path="", root=LIVE):
    return loader.find(root, {"LD_LIBRARY_PATH": path}, name, ARCH)


def agrees(name, path=""):
    """Our answer is the real loader's."""
    loaded, ours = really_loaded(name, path), found(name, path)
    if loaded is None:
        return ours is None
    return ours is not None and os.path.realpath(ours.path) in loaded


needs_glibc = pytest.mark.skipif(
    ARCH not in MACHINES or not os.path.exists("/etc/ld.so.cache"),
    reason="no glibc with a loader cache on a 64-bit machine",
)


@needs_glibc
@pytest.mark.parametrize("name", NAMES)
def test_the_real_loader_picks_the_same(name):
    assert agrees(name)


@needs_glibc
def test_most_of_them_are_here_at_all():
    assert sum(found(name) is not None for name in NAMES) >= 4


@pytest.fixture
def copy(tmp_path):
    """A library of this machine that can be copied elsewhere: (its name, copy it to)."""
    for name in ("libutil.so.1", "libbz2.so.1.0", "libresolv.so.2", "libz.so.1"):
        here = found(name)
        if here is not None:
            return name, partial(_copied, os.path.realpath(here.path), name)
    pytest.skip("no small library to copy")
    return None


def _copied(real, name, to):
    shutil.copyfile(real, str(to / name))


@needs_glibc
def test_ld_library_path_comes_first_and_in_its_order(tmp_path, copy):
    name, put = copy
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    put(second)
    both = f"{first}:{second}"
    assert agrees(name, both)
    assert found(name, both) == (str(second / name), "ld-library-path")
    put(first)
    assert agrees(name, both)
    assert found(name, both).path == str(first / name)
    for text in (f"{first}/:{second}", f"{first};{second}", f":{first}::", f"/no/such:{first}"):
        assert found(name, text).path.replace("//", "/") == str(first / name)
        assert agrees(name, text)


@needs_glibc
def test_libraries_of_another_kind_are_passed_over(tmp_path, copy):
    """32-bit ones and those of another processor, as the loader does."""
    name, put = copy
    for at, value in ((4, 1), (18, 0)):
        put(tmp_path)
        with open(str(tmp_path / name), "r+b") as stream:
            stream.seek(at)
            stream.write(bytes([value]))
        assert str(tmp_path / name) not in (really_loaded(name, str(tmp_path)) or [])
        ours = found(name, str(tmp_path))
        assert ours is None or ours.path != str(tmp_path / name)


# -- directories ------------------------------------------------------------------------------


def put(root, path, machine=62):
    """The smallest 64-bit library that the loader maps: one segment, an empty string table."""
    where = root / path.lstrip("/")
    where.parent.mkdir(parents=True, exist_ok=True)
    texts, dynamic, size = 176, 184, 232
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x1000)
    head += struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, 48, 48, 8)
    tags = struct.pack("<QQQQQQ", 5, texts, 10, 1, 0, 0)
    where.write_bytes(head.ljust(dynamic, b"\0") + tags)


def text(root, path, content):
    where = root / path.lstrip("/")
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(content)


def look(root, name="libx.so.1", path="", arch="x86_64"):
    one = loader.find(Root(str(root)), {"LD_LIBRARY_PATH": path}, name, arch)
    return tuple(one) if one else None


def test_nothing_in_an_empty_directory(tmp_path):
    assert look(tmp_path) is None
    assert look(tmp_path, path="/opt") is None


def test_default_directories(tmp_path):
    put(tmp_path, "/usr/lib/libx.so.1")
    assert look(tmp_path) == ("/usr/lib/libx.so.1", "default")
    put(tmp_path, "/usr/lib/x86_64-linux-gnu/libx.so.1")
    assert look(tmp_path) == ("/usr/lib/x86_64-linux-gnu/libx.so.1", "default")


def test_ld_so_conf_and_what_it_includes_in_order(tmp_path):
    text(tmp_path, "/etc/ld.so.conf",
         "# libx\n/first # comment\n\ninclude ld.so.conf.d/*.conf\n"
         "/last/\nrelative/path\n")  # fmt: skip
    text(tmp_path, "/etc/ld.so.conf.d/10-b.conf", "/b\n")
    text(tmp_path, "/etc/ld.so.conf.d/00-a.conf", "/a\n")
    text(tmp_path, "/etc/ld.so.conf.d/20-c.txt", "/c\n")
    assert ldcache.conf_directories(Root(str(tmp_path))) == ["/first", "/a", "/b", "/last"]
    for directory in ("/last", "/b", "/a", "/first"):
        put(tmp_path, directory + "/libx.so.1")
        assert look(tmp_path) == (directory + "/libx.so.1", "ld-conf")
    put(tmp_path, "/usr/lib/libx.so.1")
    put(tmp_path, "/own/libx.so.1")
    assert look(tmp_path)[0] == "/first/libx.so.1"
    assert look(tmp_path, path="/own") == ("/own/libx.so.1", "ld-library-path")


def test_includes_that_go_in_circles_end(tmp_path):
    text(tmp_path, "/etc/ld.so.conf", "include /etc/ld.so.conf\n/a\ninclude /etc/nothing/*.conf\n")
    found_here = ldcache.conf_directories(Root(str(tmp_path)))
    assert set(found_here) == {"/a"} and len(found_here) < 10


@pytest.mark.timed
def test_includes_that_multiply_end_soon(tmp_path):
    """Ten files that each include all ten: not ten to the fourth reads."""
    for number in range(10):
        text(tmp_path, f"/etc/d/{number}.conf", "include /etc/d/*.conf\n/a\n" * 3)
    text(tmp_path, "/etc/ld.so.conf", "include /etc/d/*.conf\n")
    started = time.monotonic()
    assert set(ldcache.conf_directories(Root(str(tmp_path)))) == {"/a"}
    assert time.monotonic() - started < 1


def test_a_link_out_of_the_directory_is_not_followed(tmp_path):
    put(tmp_path, "/outside/libx.so.1")
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/libx.so.1").symlink_to("../../../outside/libx.so.1")
    assert look(root) is None
    put(root, "/real/libx.so.1.2")
    (root / "usr/lib/libx.so.1").unlink()
    (root / "usr/lib/libx.so.1").symlink_to("/real/libx.so.1.2")
    assert look(root) == ("/usr/lib/libx.so.1", "default")


def test_what_is_no_library_is_passed_over(tmp_path):
    text(tmp_path, "/a/libx.so.1", "not a library")
    (tmp_path / "b/libx.so.1").mkdir(parents=True)
    os.makedirs(str(tmp_path / "c"))
    os.mkfifo(str(tmp_path / "c/libx.so.1"))
    put(tmp_path, "/d/libx.so.1")
    assert look(tmp_path, path="/a:/b:/c:/d") == ("/d/libx.so.1", "ld-library-path")


# -- the cache --------------------------------------------------------------------------------


def cache(*entries, magic=b"glibc-ld.so.cache1.1"):
    """A loader cache of (soname, path, flags)."""
    start = 48 + 24 * len(entries)
    rows, texts = b"", b""
    for name, path, flags in entries:
        key = start + len(texts)
        texts += name.encode() + b"\0"
        value = start + len(texts)
        texts += path.encode() + b"\0"
        rows += struct.pack("<iIIIQ", flags, key, value, 0, 0)
    head = magic + struct.pack("<II", len(entries), len(texts)) + b"\0" * 20
    return head[:48] + rows + texts


X86, ARM, X32 = 0x0303, 0x0A03, 0x0803
ENTRIES = [
    ("libx.so.1", "/arm/libx.so.1", ARM),
    ("libx.so.1", "/x32/libx.so.1", X32),
    ("libx.so.1", "/one/libx.so.1", X86),
    ("libx.so.1", "/two/libx.so.1", X86),
    ("libother.so.1", "/other/libother.so.1", X86),
]


def cached(root, data):
    where = root / "etc/ld.so.cache"
    where.parent.mkdir(exist_ok=True)
    where.write_bytes(data)


def test_the_cache_in_its_order_and_for_this_processor(tmp_path):
    cached(tmp_path, cache(*ENTRIES))
    for directory in ("/arm", "/x32"):
        put(tmp_path, directory + "/libx.so.1", 183 if directory == "/arm" else 62)
    assert look(tmp_path) is None
    put(tmp_path, "/two/libx.so.1")
    assert look(tmp_path) is None  # the first is gone since; the loader asks the cache only once
    put(tmp_path, "/one/libx.so.1")
    assert look(tmp_path) == ("/one/libx.so.1", "ld-cache")
    assert look(tmp_path, arch="aarch64") == ("/arm/libx.so.1", "ld-cache")


def test_with_a_cache_ld_so_conf_is_not_asked(tmp_path):
    cached(tmp_path, cache(*ENTRIES))
    text(tmp_path, "/etc/ld.so.conf", "/conf\n")
    put(tmp_path, "/conf/libx.so.1")
    assert look(tmp_path) is None


def test_behind_an_old_cache_of_the_first_format(tmp_path):
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 0)
    cached(tmp_path, old + cache(*ENTRIES))
    put(tmp_path, "/one/libx.so.1")
    assert look(tmp_path) == ("/one/libx.so.1", "ld-cache")


@pytest.mark.parametrize("data", [b"", b"garbage", cache(*ENTRIES, magic=b"glibc-ld.so.cache9.9"),
                                  cache(*ENTRIES)[:60]])  # fmt: skip
def test_a_cache_that_cannot_be_read_is_none(tmp_path, data):
    cached(tmp_path, data)
    text(tmp_path, "/etc/ld.so.conf", "/conf\n")
    put(tmp_path, "/conf/libx.so.1")
    assert look(tmp_path) == ("/conf/libx.so.1", "ld-conf")


def test_a_cache_that_means_harm(tmp_path):
    """Cut at every length, and changed at random: an answer, never an error."""
    whole = cache(*ENTRIES)
    put(tmp_path, "/one/libx.so.1")
    source = random.Random(6)
    for length in range(len(whole)):
        cached(tmp_path, whole[:length])
        look(tmp_path)
    for _ in range(1000):
        data = bytearray(whole)
        for _change in range(source.choice([1, 2, 8])):
            data[source.randrange(len(data))] = source.choice([0, 0xFF, source.randrange(256)])
        cached(tmp_path, bytes(data))
        look(tmp_path)
