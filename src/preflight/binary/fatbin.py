"""For which GPU architectures there is code inside a library, an object file or a static archive.

nvcc puts its fatbins, one per source file, into the section `.nv_fatbin`; those of `-rdc=true`
into `__nv_relfatbin`, from which the device linker makes loadable ones (so they do not run by
themselves). A fatbin is a header and entries, each with a header that says the kind of code, the
architecture and whether it is compressed; nothing is decompressed here. There is no public
description: the fields are those that nvcc 11.8 to 13.0 and `cuobjdump --list-elf` agree on, and
tests/binary/samples holds files made to order.
"""

from __future__ import annotations

import mmap
import os
import struct
from functools import partial
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import elf

#: libtorch_cuda.so has 3000 entries; a library with more than that is garbage.
ENTRY_LIMIT = 500_000
MEMBER_LIMIT = 100_000

_MAGIC = 0xBA55ED50
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
#: magic, version, header size, size of all entries.
_HEAD = struct.Struct("<IHHQ")
#: kind, header size, payload size, architecture, flags. Left out: a version, the compressed size,
#: the options' place, the code's own version, the name's place and length.
_ENTRY = struct.Struct("<H2xIQ12xI8xI4x")
_PREFIX = {1: "compute", 2: "sm", 8: "lto"}
_PTX, _CODE = "compute_", "sm_"
_COMPRESSED = 0x2000 | 0x8000  # LZ4, zstd
_EXACT, _FAMILY = 0x100000, 0x200000
_FATBINS, _RELOCATABLE, _REGISTERED = b".nv_fatbin", b"__nv_relfatbin", b".nvFatBinSegment"
_NOBITS = 8
_WRAPPER_SIZE = 24
_ARCHIVE, _MEMBER_SIZE = b"!<arch>\n", 60


#: Bytes of a file: so many, from this offset on.
Read = Callable[[int, int], bytes]
#: Kind, number and flags of one piece of code; `name` and `is_compressed` read them.
Entry = Tuple[int, int, int]


class Kernels(NamedTuple):
    """The GPU code of one file.

    `code`, `ptx` and `other` count entries by architecture; `groups` count fatbins by the
    architectures in them, for a kernel runs only where its own fatbin has something for the GPU.
    `relocatable` counts what waits for a device linker. `registered` is how many fatbins the file
    hands to the CUDA runtime when it is loaded.
    """

    code: Dict[str, int]
    ptx: Dict[str, int]
    other: Dict[str, int]
    groups: Dict[Tuple[str, ...], int]
    relocatable: Dict[str, int]
    registered: int

    @property
    def fatbins(self) -> int:
        """How many fatbins there are."""
        return sum(self.groups.values())


def read(host_path: str) -> Kernels:
    """The GPU code of an ELF file or an archive of them; raises BadElf and OSError."""
    handle = elf.open_file(host_path)
    try:
        with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
            # Read, not looked at in the mapping: where places are far apart, mapping the page that
            # each is in takes several times as long.
            return _collect(data, partial(os.pread, handle))
    except struct.error:
        raise elf.BadElf("the file ends before its end: it is being written") from None
    finally:
        os.close(handle)


def _collect(data: mmap.mmap, read: Read) -> Kernels:
    kernels = Kernels({}, {}, {}, {}, {}, 0)
    registered, room = 0, ENTRY_LIMIT
    # Most fatbins of a file are alike, so each kind is looked at once.
    alike: Dict[Tuple[bool, Tuple[Entry, ...]], int] = {}
    for section in _sections(data):
        if section.name == _REGISTERED:
            registered += section.size // _WRAPPER_SIZE
            continue
        for entries in fatbins(data, section.offset, section.offset + section.size, read):
            room -= 1 + len(entries)
            if room < 0:
                raise elf.BadElf("too many fatbin entries")
            key = section.name == _RELOCATABLE, tuple(entries)
            alike[key] = alike.get(key, 0) + 1
    for (relocatable, together), times in alike.items():
        _add(kernels, together, times, relocatable)
    return kernels._replace(registered=registered)


def _sections(data: mmap.mmap) -> Iterator[elf.Section]:
    wanted = (_FATBINS, _RELOCATABLE, _REGISTERED)
    starts = _members(data) if data[: len(_ARCHIVE)] == _ARCHIVE else iter([0])
    for start in starts:
        for one in elf.sections(data, start):
            if one.name in wanted and one.kind != _NOBITS:
                yield one


def _members(data: mmap.mmap) -> Iterator[int]:
    """Where the ELF files of an archive start (ar(5))."""
    at = len(_ARCHIVE)
    for _ in range(MEMBER_LIMIT):
        head = data[at : at + _MEMBER_SIZE]
        if len(head) < _MEMBER_SIZE:
            return
        try:
            size = int(head[48:58])
        except ValueError:
            size = -1
        if head[58:] != b"`\n" or size < 0:
            raise elf.BadElf("the archive makes no sense")
        at += _MEMBER_SIZE
        if data[at : at + 4] == b"\x7fELF":
            yield at
        at += size + size % 2


def fatbins(
    data: mmap.mmap, start: int, end: int, read: Optional[Read] = None
) -> Iterator[List[Entry]]:
    """The entries of each fatbin between two offsets; raises BadElf where one is damaged.

    `read` reads of the file that is mapped, where that is quicker.
    """
    read = read or (lambda size, at: data[at : at + size])
    at = start
    while at + _HEAD.size <= end:
        magic, _, head, size = _HEAD.unpack(read(_HEAD.size, at))
        if magic != _MAGIC:
            at = data.find(_MAGIC_BYTES, at + 1, end)  # they are padded to eight bytes
            if at < 0:
                return
            continue
        if head < _HEAD.size or at + head + size > end:
            raise elf.BadElf("a fatbin lies outside its section")
        yield _entries(read, at + head, at + head + size)
        at += head + size


def _entries(read: Read, at: int, end: int) -> List[Entry]:
    found: List[Entry] = []
    unpack, size_of_head = _ENTRY.unpack, _ENTRY.size
    while at < end:
        if at + size_of_head > end or len(found) >= ENTRY_LIMIT:
            raise elf.BadElf("a fatbin entry lies outside its fatbin")
        kind, head, size, number, flags = unpack(read(size_of_head, at))
        at += head + size
        if head < size_of_head or at > end:
            raise elf.BadElf("a fatbin entry lies outside its fatbin")
        found.append((kind, number, flags))
    return found


def name(entry: Entry) -> str:
    """`sm_90a` (machine code), `compute_90` (PTX) or `lto_90` (to be linked)."""
    kind, number, flags = entry
    ending = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
    return f"{_PREFIX.get(kind, f'kind{kind}')}_{number}{ending}"


def is_compressed(entry: Entry) -> bool:
    """Whether the code is compressed."""
    return bool(entry[2] & _COMPRESSED)


def _add(kernels: Kernels, entries: Tuple[Entry, ...], times: int, relocatable: bool) -> None:
    names = [name(one) for one in entries]
    for one in names:
        table = kernels.relocatable if relocatable else _table(kernels, one)
        table[one] = table.get(one, 0) + times
    if not relocatable:
        group = tuple(sorted(set(names), key=_order))
        kernels.groups[group] = kernels.groups.get(group, 0) + times


def _table(kernels: Kernels, architecture: str) -> Dict[str, int]:
    if architecture.startswith(_CODE):
        return kernels.code
    return kernels.ptx if architecture.startswith(_PTX) else kernels.other


def _order(architecture: str) -> Tuple[str, int, str]:
    prefix, number, ending = parts(architecture)
    return prefix, number, ending


def parts(architecture: str) -> Tuple[str, int, str]:
    """("sm", 90, "a") of sm_90a."""
    prefix, _, rest = architecture.partition("_")
    ending = rest[-1:] if rest[-1:] in ("a", "f") else ""
    return prefix, int(rest[: len(rest) - len(ending)]), ending


def runs_on(architecture: str, capability: Tuple[int, int]) -> bool:
    """Whether this code serves a GPU (CUDA C++ Programming Guide, "Compute Capabilities").

    Machine code serves the same major and no lower minor; `a` code that GPU alone; `f` code is
    within its family, which so far is its major. PTX serves every later GPU (`a` and `f` as
    before), where the driver knows how to compile it. What has to be linked first serves none.
    """
    prefix, number, ending = parts(architecture)
    major, minor = divmod(number, 10)
    if prefix not in ("sm", "compute"):
        return False
    if ending == "a":
        return (major, minor) == capability
    if prefix == "sm" or ending == "f":
        return major == capability[0] and minor <= capability[1]
    return (major, minor) <= capability


class Coverage(NamedTuple):
    """How many fatbins of a file serve a GPU: by machine code, by PTX alone, or not at all."""

    native: int
    ptx: int
    none: int
    #: The architectures that do.
    by: Tuple[str, ...]


def coverage(kernels: Kernels, capability: Tuple[int, int]) -> Coverage:
    """What of a file's GPU code serves a GPU of this compute capability."""
    native = ptx = none = 0
    by: Dict[str, None] = {}
    for group, count in kernels.groups.items():
        serving = [one for one in group if runs_on(one, capability)]
        by.update(dict.fromkeys(serving))
        if any(one.startswith(_CODE) for one in serving):
            native += count
        elif serving:
            ptx += count
        else:
            none += count
    return Coverage(native, ptx, none, tuple(sorted(by, key=_order)))
