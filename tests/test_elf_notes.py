"""Notes of ELF files, from good files and from files that mean harm."""

import os
import random
import struct
import time

import pytest

from preflight.binary import elf
from preflight.binary.elf import BadElf

SECTION = ".note.cuda.fwd_compatibility"
OWNER = b"NVIDIA Corporation"
BODY = b'{"Format": 1, "CUDA Version": 13000, "Driver": [535, 570], "Device": [1, 3]}'


def note(body=BODY, owner=OWNER, kind=1):
    """One note, as the System V ABI lays it out."""
    name = owner + b"\0"
    return (
        struct.pack("<III", len(name), len(body), kind)
        + name.ljust((len(name) + 3) // 4 * 4, b"\0")
        + body.ljust((len(body) + 3) // 4 * 4, b"\0")
    )


def library(notes=None, section=SECTION, headers_last=True, **odd):
    """A small ELF file with one note section."""
    data = note() if notes is None else notes
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    rows, count = 64, 3
    start = 64 if not headers_last else 64 + len(data) + len(names)
    data_at = 64 if headers_last else 64 + rows * count
    names_at = data_at + len(data)
    table = b"\0" * 64
    table += struct.pack("<IIQQQQIIQQ", 1, 7, 2, 0, odd.get("offset", data_at),
                         odd.get("size", len(data)), 0, 0, 4, 0)  # fmt: skip
    table += struct.pack("<IIQQQQIIQQ", len(section) + 2, 3, 0, 0, odd.get("names_at", names_at),
                         odd.get("names_size", len(names)), 0, 0, 1, 0)  # fmt: skip
    head = b"\x7fELF" + bytes([odd.get("bits", 2), odd.get("order", 1), 1]) + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, odd.get("start", start), 0, 64, 0, 0,
                        odd.get("row", rows), odd.get("count", count),
                        odd.get("names", 2))  # fmt: skip
    return head + (data + names + table if headers_last else table + data + names)


@pytest.fixture
def ask(tmp_path):
    path = tmp_path / "libcuda.so.1"

    def asked(data, section=SECTION, owner=OWNER):
        path.write_bytes(data)
        return elf.note(str(path), section, owner)

    return asked


def survives(ask, data):
    """Whatever the file is: an answer or BadElf, and soon."""
    started = time.monotonic()
    try:
        found = ask(data)
    except BadElf as error:
        assert str(error) and "\n" not in str(error)
        found = None
    assert found is None or isinstance(found, bytes)
    assert time.monotonic() - started < 1
    return found


# -- good files -------------------------------------------------------------------------------


@pytest.mark.parametrize("headers_last", [True, False])
def test_the_note_is_found(ask, headers_last):
    assert ask(library(headers_last=headers_last)) == BODY


def test_the_first_of_its_owner_counts(ask):
    several = note(b"1", b"GNU") + note(b"22", b"NVIDIA") + note(b"333") + note(b"4444")
    assert ask(library(several)) == b"333"
    assert ask(library(note(b""))) == b""


def test_other_sections_and_owners_are_not_it(ask):
    assert ask(library(section=".note.gnu.build-id")) is None
    assert ask(library(note(owner=b"GNU"))) is None
    assert ask(library(), section=".note") is None
    assert ask(library(b"")) is None


def test_a_file_without_section_headers_has_no_notes(ask):
    assert ask(library(start=0)) is None
    assert ask(library(count=0)) is None


def test_the_python_that_runs_this_is_read():
    """A real file of this machine: whatever it is, no BadElf from a good 64-bit one."""
    path = os.path.realpath("/proc/self/exe")
    assert elf.note(path, SECTION, OWNER) is None


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        elf.note(str(tmp_path / "nothing"), SECTION, OWNER)


# -- files that mean harm ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", b"#!/bin/sh\n" * 50, library(bits=1), library(order=2), b"\0" * 5000,
     library(row=63), library(row=0), library(names=3), library(names=65535), library(count=65535),
     library(start=1 << 40), library(start=(1 << 64) - 1), library(start=(1 << 63) - 64)],
)  # fmt: skip
def test_what_is_no_such_file_is_said(ask, data):
    with pytest.raises(BadElf):
        ask(data)


@pytest.mark.parametrize("value", [0, 1, 63, 1 << 16, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1,
                                   1 << 63, (1 << 64) - 1])  # fmt: skip
@pytest.mark.parametrize("place", ["offset", "size", "names_at", "names_size", "start"])
def test_offsets_and_sizes_outside_the_file(ask, place, value):
    survives(ask, library(**{place: value}))


@pytest.mark.parametrize(
    "sizes",
    [(0, 0), (0xFFFFFFFF, 0), (0, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (1, 1 << 31),
     (19, 0x7FFF)],
)  # fmt: skip
def test_notes_with_impossible_sizes(ask, sizes):
    survives(ask, library(struct.pack("<III", *sizes, 1) + b"\0" * 40))
    survives(ask, library(note(owner=b"GNU") + struct.pack("<III", *sizes, 1)))


@pytest.mark.parametrize("headers_last", [True, False])
def test_cut_at_every_length(ask, headers_last):
    whole = library(headers_last=headers_last)
    for length in range(len(whole)):
        assert survives(ask, whole[:length]) in (None, BODY)
    assert ask(whole) == BODY


def test_many_empty_notes_take_no_time(ask):
    survives(ask, library(struct.pack("<III", 0, 0, 1) * 200_000))


@pytest.mark.parametrize("headers_last", [True, False])
def test_two_thousand_random_changes(ask, headers_last):
    source = random.Random(5)
    whole = library(headers_last=headers_last)
    for _ in range(1000):
        data = bytearray(whole)
        for _change in range(source.choice([1, 1, 2, 8])):
            data[source.randrange(len(data))] = source.choice([0, 1, 0x7F, 0x80, 0xFF,
                                                               source.randrange(256)])  # fmt: skip
        survives(ask, bytes(data))
