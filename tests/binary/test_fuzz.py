"""Whatever is in a file, the readers answer or give one error, soon and without much memory."""

import os
import random
import resource
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from preflight.binary import elf, fatbin, ldcache, loader, symbols, torch_preload, versions
from preflight.roots import Root

SEED = int(os.environ.get("PREFLIGHT_SEED", "20261129"))
CASES = int(os.environ.get("PREFLIGHT_FUZZ", "2500"))
SAMPLES = Path(__file__).resolve().parent / "samples"
#: One damaged file costs less than this.
SECONDS = 3
MEBIBYTES = 300

WORDS = [0, 1, 2, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1]


def damaged(dice, data):
    """A copy with a few bytes or words changed, or cut off."""
    made = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        # Headers and tables are what is interesting.
        end = len(made) if dice.random() < 0.5 else min(len(made), 1024)
        at = dice.randrange(max(1, end - 8))
        if dice.random() < 0.5:
            made[at] = dice.randrange(256)
        else:
            form = dice.choice("BHIQ")
            value = dice.choice(WORDS) & (1 << 8 * struct.calcsize(form)) - 1
            struct.pack_into("<" + form, made, at // 8 * 8, value)
    if dice.random() < 0.15:
        del made[dice.randrange(len(made)) :]
    return bytes(made)


def tolerant(call, *arguments):
    """The answer; None for one of the two errors that are allowed."""
    try:
        return call(*arguments)
    except (elf.BadElf, OSError):
        return None


def read_everything(path):
    """Every reader over one file."""
    file = tolerant(elf.ElfFile, path)
    if file is not None:
        with file:
            for name in ("needed", "soname", "rpath", "runpath", "flags", "flags_1", "interpreter"):
                tolerant(getattr, file, name)
            for call in (
                file.version_needs, file.version_definitions, file.version_names,
                file.symbol_count, file.exported, file.undefined,
            ):  # fmt: skip
                tolerant(call)
            tolerant(file.lookup, b"p1")
            for names in ([b"p1"], [b"p%d" % number for number in range(9)]):
                tolerant(file.exported_like, elf.hashed(names))
            tolerant(file.referenced, {1, 2, 3})
            tolerant(file.section, ".text")
            tolerant(lambda: list(file.notes()))
            tolerant(versions.of, file)
            tolerant(versions.cxx11_abi, file)
    tolerant(fatbin.read, path)
    tolerant(elf.note, path, ".note.gnu.build-id", b"GNU")


def link_everything(path):
    """The loader and the symbol check with the file as program and as library."""
    check = symbols.Checker().check
    process = tolerant(lambda: loader.Process(Root(), {}, path, cwd="/", check=check))
    if process is not None:
        tolerant(process.start)
    process = loader.Process(Root(), {}, "/bin/sh", cwd="/", check=check)
    process.start()
    process.open(path)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Files worth damaging."""
    folder = tmp_path_factory.mktemp("originals")
    found = [(SAMPLES / name).read_bytes() for name in ("one.elf", "archive.a", "family.elf")]
    if shutil.which("gcc"):
        (folder / "map").write_text("V1 { global: p1; p2; local: *; }; V2 { global: p3; } V1;")
        (folder / "a.c").write_text(
            '#include <stdio.h>\nvoid p1(void) { puts(""); }\nvoid p2(void) {}\n'
            "void p3(void) { p1(); fopen(0, 0); }\nvoid hidden(void) {}\n"
        )
        for style in ("gnu", "sysv"):
            path = folder / style
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-s", f"-Wl,--hash-style={style}"]
                + [f"-Wl,--version-script,{folder / 'map'}", "-Wl,-rpath,$ORIGIN/../x"]
                + [str(folder / "a.c"), "-o", str(path)],
                check=True,
            )
            found.append(path.read_bytes())
    return found


def timed(call, *arguments):
    started = time.monotonic()
    call(*arguments)
    return time.monotonic() - started


def peak_mebibytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_damaged_files_are_read_soon_or_refused(originals, tmp_path):
    path = tmp_path / "damaged"
    before = peak_mebibytes()
    slowest = 0.0
    for number in range(CASES):
        dice = random.Random(SEED + number)
        path.write_bytes(damaged(dice, dice.choice(originals)))
        slowest = max(slowest, timed(read_everything, str(path)))
        if number % 5 == 0:
            slowest = max(slowest, timed(link_everything, str(path)))
        path.unlink()
    assert slowest < SECONDS
    assert peak_mebibytes() - before < MEBIBYTES


def made_cache(entries, text):
    """A cache of the new form."""
    rows = b"".join(struct.pack("<iIIIQ", 0x303, *row, 0, 0) for row in entries)
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(entries), len(text), 2, 0)
    return head + rows + text


def test_damaged_caches_are_read_soon_or_refused():
    text = b"libone.so.1\0/usr/lib/libone.so.1\0libtwo.so\0/usr/lib/libtwo.so\0"
    start = 48 + 2 * 24
    cache = made_cache([(start, start + 12), (start + 33, start + 43)], text)
    assert set(ldcache.parse_cache(cache)) == {"libone.so.1", "libtwo.so"}
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + struct.pack("<iII", 0x303, 0, 12) + text
    assert ldcache.parse_cache(old)["libone.so.1"][0].path == "/usr/lib/libone.so.1"
    try:
        originals = [cache, old, Path("/etc/ld.so.cache").read_bytes()]
    except OSError:
        originals = [cache, old]
    for number in range(CASES):
        dice = random.Random(SEED + number)
        found = ldcache.parse_cache(damaged(dice, dice.choice(originals)))
        assert found is None or isinstance(found, dict)


def test_a_cache_of_one_long_string_again_and_again_is_refused():
    text = b"x" * 4000 + b"\0"
    count = 200_000
    start = 48 + count * 24
    data = made_cache([(start, start)] * count, text)
    assert timed(ldcache.parse_cache, data) < SECONDS
    assert ldcache.parse_cache(data) is None


def made_elf(symbols_at_one_name, length):
    """A library whose many symbols all have the same, very long name."""
    strings = b"\0" + b"x" * length + b"\0"
    table = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 1, 1) * symbols_at_one_name
    entries = [(5, 0x1000), (10, len(strings)), (6, 0x1000 + len(strings)), (4, 0), (0, 0)]
    hashes_at = 0x1000 + len(strings) + len(table)
    entries[3] = (4, hashes_at)
    body = strings + table + struct.pack("<II", 0, symbols_at_one_name)
    dynamic = b"".join(struct.pack("<qQ", *one) for one in entries)
    end = 0x1000 + len(body) + len(dynamic)
    head = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, end, end, 0x1000)
    place = 0x1000 + len(body)
    dyn = struct.pack("<IIQQQQQQ", 2, 4, place, place, place, len(dynamic), len(dynamic), 8)
    return (head + load + dyn).ljust(0x1000, b"\0") + body + dynamic


@pytest.mark.parametrize("length", [100, 60_000, 200_000])
def test_many_symbols_of_one_long_name_are_refused(tmp_path, length):
    path = tmp_path / "long"
    path.write_bytes(made_elf(100_000, length))
    before = peak_mebibytes()
    with elf.ElfFile(str(path)) as file:
        assert file.symbol_count() == 100_000
        assert timed(tolerant, file.exported) < SECONDS
        with pytest.raises(elf.BadElf):
            file.exported()
    assert peak_mebibytes() - before < MEBIBYTES


@pytest.mark.timed
def test_a_fatbin_of_nothing_but_headers_is_bounded(tmp_path):
    data = bytearray((SAMPLES / "one.elf").read_bytes())
    with elf.map_file(str(SAMPLES / "one.elf")) as file:
        place = next(one for one in elf.sections(file) if one.name == b".nv_fatbin")
    entry = struct.pack("<HHIQ", 2, 0x101, 48, 0).ljust(48, b"\0")
    count = 700_000
    body = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, count * 48) + entry * count
    at = len(data)
    rows = struct.unpack_from("<Q", data, 40)[0]
    for number in range(struct.unpack_from("<H", data, 60)[0]):
        row = rows + number * 64
        if struct.unpack_from("<Q", data, row + 24)[0] == place.offset:
            struct.pack_into("<QQ", data, row + 24, at, len(body))
    (tmp_path / "headers").write_bytes(bytes(data) + body)
    started = time.monotonic()
    with pytest.raises(elf.BadElf):
        fatbin.read(str(tmp_path / "headers"))
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def _load_global_deps(:\n",
        "def _load_global_deps():\n" + "  " + "(" * 500 + "\n",
        "def _load_global_deps():\n    try:\n        CDLL(x)\n    except OSError:\n        pass\n",
        "def _load_global_deps():\n    try:\n        CDLL(x)\n    finally:\n        pass\n",
        "def _preload_cuda_deps():\n    cuda_libs = [('a', 'b.so'), ('c',), 3]\n"
        "def _load_global_deps():\n    try:\n        CDLL(1)\n        _preload_cuda_deps()\n"
        "    except OSError: _preload_cuda_deps(1, 2)\n",
        "\0\0def _load_global_deps():\n",
    ],
)
def test_any_text_in_place_of_torch_gives_a_plan(text):
    assert isinstance(torch_preload.plan(text), torch_preload.Plan)


def test_a_long_list_of_long_names_is_bounded(tmp_path):
    names = b"".join(b"x" * 200 + b"%d\0" % number for number in range(10)) + b"y" * 100_000
    path = tmp_path / "needy"
    data = bytearray(made_elf(1, 10))
    strings_at = len(data)
    data += b"\0" + names + b"\0"
    entries = [(1, 1 + number) for number in range(19_000)]
    entries += [(5, strings_at), (10, len(names) + 2), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *one) for one in entries)
    place = len(data)
    data += dynamic
    struct.pack_into("<QQ", data, 64 + 32, len(data), len(data))
    struct.pack_into("<QQQQQ", data, 120 + 8, place, place, place, len(dynamic), len(dynamic))
    path.write_bytes(bytes(data))
    before = peak_mebibytes()
    assert timed(tolerant, loader.resolve, Root(), {}, [str(path)]) < SECONDS
    assert peak_mebibytes() - before < MEBIBYTES
