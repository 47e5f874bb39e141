"""ELF files are read as readelf reads them."""

import random
import re
import shutil
import subprocess
import time

import pytest

from preflight.binary import elf
from tests.binary.test_loader import libraries

needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf here")
SOME = libraries("/usr/lib/x86_64-linux-gnu", 40) if shutil.which("readelf") else []


def readelf(option, path):
    done = subprocess.run(
        ["readelf", option, "-W", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    return done.stdout


def bracketed(text, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


@needs_readelf
@pytest.mark.parametrize("path", SOME)
def test_the_dynamic_section_is_that_of_readelf(path):
    text = readelf("-d", path)
    with elf.ElfFile(path) as file:
        assert file.needed == bracketed(text, "NEEDED")
        assert [file.soname] == (bracketed(text, "SONAME") or [None])
        assert [file.rpath] == (bracketed(text, "RPATH") or [None])
        assert [file.runpath] == (bracketed(text, "RUNPATH") or [None])
        assert bool(file.flags_1 & elf.NODEFLIB) == ("NODEFLIB" in text)


@needs_readelf
@pytest.mark.parametrize("path", SOME)
def test_versions_are_those_of_readelf(path):
    text = readelf("-V", path)
    needed = re.findall(r"File: (\S+)|Name: (\S+)  Flags: (.*?)  Version: (\d+)", text)
    found, file_name = [], ""
    for name, version, flags, index in needed:
        file_name = name or file_name
        if version:
            found.append(elf.Need(file_name, version.encode(), "WEAK" in flags, int(index)))
    defined = re.findall(r"Rev: 1  Flags: (.*?)  Index: (\d+)  Cnt: \d+  Name: (\S+)", text)
    with elf.ElfFile(path) as file:
        assert file.version_needs() == found
        assert file.version_definitions() == [
            elf.Definition(name.encode(), int(index), "BASE" in flags)
            for flags, index, name in defined
        ]


def listed_symbols(path):
    """(name, version) of what is defined and of what is not, and how many entries there are."""
    text = readelf("--dyn-syms", path)
    defined, undefined, count = [], [], 0
    for line in text.splitlines():
        row = line.split(None, 7)
        if len(row) < 7 or not re.match(r"\d+:$", row[0]):
            continue
        count += 1
        name, _, version = (row[7] if len(row) > 7 else "").partition("@")
        version = version.lstrip("@").partition(" (")[0]
        if not name or row[4] not in ("GLOBAL", "WEAK", "UNIQUE"):
            continue
        if row[6] == "UND":
            undefined.append((name, row[4] == "WEAK"))
        elif row[3] in ("NOTYPE", "OBJECT", "FUNC", "TLS", "IFUNC", "COMMON"):
            defined.append((name, version))
    return sorted(defined), sorted(undefined), count


@needs_readelf
@pytest.mark.parametrize("path", SOME)
def test_symbols_are_those_of_readelf(path):
    defined, undefined, count = listed_symbols(path)
    with elf.ElfFile(path) as file:
        names = file.version_names()
        found = file.exported()
        words = found.versions or [0] * len(found.names)
        versions = [names.get(word & 0x7FFF, b"") for word in words]
        exported = sorted(
            # readelf leaves it out where the symbol is the version itself.
            (name.decode(), version.decode() if version != name else "")
            for name, version in zip(found.names, versions)
        )
        taken = [(name.decode(), False) for name in file.undefined().names]
        taken += [(name.decode(), True) for name in file.undefined(weak=True).names]
        assert file.symbol_count() == count
        assert exported == defined
        assert sorted(taken) == undefined
        for name, version in defined[:: max(1, len(defined) // 50)]:
            versions = [one.version.decode() for one in file.lookup(name.encode())]
            assert (version or name) in versions or version in versions
        assert file.lookup(b"no such name in any library") == []


@needs_readelf
@pytest.mark.parametrize("path", SOME)
def test_names_are_found_by_their_hashes_as_by_reading_all(path):
    with elf.ElfFile(path) as file:
        everything = set(file.exported().names)
        for step in (1, 500):  # the whole table is passed over, or each hash is looked up
            some = sorted(everything)[::step] + [b"no such name", b"x" * 5000]
            for wanted in (some, some[:-1]):
                assert set(file.exported_like(elf.hashed(wanted))) >= everything & set(wanted)


def test_many_hashes_are_those_of_each_name():
    dice = random.Random(20261129)
    names = [bytes(dice.choices(range(1, 256), k=dice.randrange(600))) for _ in range(300)]
    for some in ([], [b""], names, [*names, b"x" * 3000]):
        assert elf.hashed(some).hashes == [elf.gnu_hash(one) for one in some]


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_both_kinds_of_hash_table_find_a_name(tmp_path, style):
    path = tmp_path / "lib.so"
    source = "".join(f"int name_{number}(void) {{ return {number}; }}\n" for number in range(300))
    (tmp_path / "a.c").write_text(
        source + "extern int other(void); int f(void) { return other(); }"
    )
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,--hash-style={style}"]
        + [str(tmp_path / "a.c"), "-o", str(path)],
        check=True,
    )
    with elf.ElfFile(str(path)) as file:
        assert file.undefined().names == [b"other"]
        assert len(file.exported().names) == 301
        for number in (0, 7, 299):
            (symbol,) = file.lookup(b"name_%d" % number)
            assert symbol.defined and symbol.value
        assert file.lookup(b"name_300") == []


def test_sections_and_notes(tmp_path):
    with elf.ElfFile("/bin/sh") as file:
        assert file.interpreter and file.kind == elf.SHARED and file.machine
        assert file.section(".text").size > 0 and file.section(".nothing") is None
        owners = [owner for owner, _, _ in file.notes()]
        assert b"GNU" in owners
    assert elf.note("/bin/sh", ".note.gnu.build-id", b"GNU")
    assert elf.note("/bin/sh", ".note.gnu.build-id", b"nobody") is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty file"),
        (b"\x7fELF", "file too short"),
        (b"#!/bin/sh\n" * 20, "invalid ELF header"),
        (b"\x7fELF\x01\x01\x01" + bytes(100), "not a 64-bit little-endian ELF file"),
        (b"\x7fELF\x02\x02\x01" + bytes(100), "not a 64-bit little-endian ELF file"),
    ],
)
def test_what_is_no_such_file_is_one_error(tmp_path, data, words):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(elf.BadElf, match=words):
        elf.ElfFile(str(tmp_path / "file"))


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
def test_a_hash_table_of_one_long_chain_takes_no_longer(tmp_path):
    """All buckets lead to its beginning: valid, and made to be slow."""
    count, path = 60_000, tmp_path / "lib.so"
    lines = [f".globl name_{number}\nname_{number}: .byte 0\n" for number in range(count)]
    (tmp_path / "a.s").write_text(".data\n" + "".join(lines))
    words = ["gcc", "-shared", "-nostdlib", "-Wl,--hash-style=gnu", "a.s", "-o", str(path)]
    subprocess.run(words, check=True, cwd=str(tmp_path))
    data = bytearray(path.read_bytes())
    with elf.ElfFile(str(path)) as file:
        buckets, first, at, chains = file._gnu_hash()
        last = file.symbol_count()
    for place in range(at, at + buckets * 4, 4):
        data[place : place + 4] = first.to_bytes(4, "little")
    for place in range(chains, chains + (last - first - 1) * 4, 4):
        data[place] &= 0xFE
    path.write_bytes(data)
    wanted = [b"name_%d" % number for number in range(0, count, 30)]
    with elf.ElfFile(str(path)) as file:
        started = time.process_time()
        assert set(file.exported_like(elf.hashed(wanted))) >= set(wanted)
        assert time.process_time() - started < 5
