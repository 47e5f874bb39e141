"""What a 64-bit little-endian ELF file (x86-64, aarch64) says of itself, read by mmap.

Layout by the System V ABI (gABI 4.1) and, for symbol versions and the GNU hash, as glibc's
dl-load.c, dl-version.c and dl-lookup.c read them. What the loader uses is found as the loader
finds it: through PT_DYNAMIC and the loaded segments, never by section names, which patchelf
leaves behind. Every offset, size and count of the file is checked before it is used, every list
has a limit, so that a hostile file costs bounded time and memory and one error, BadElf.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
from functools import lru_cache
from itertools import compress, repeat
from typing import (
    Dict,
    Iterator,
    List,
    Literal,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    Union,
)

#: More of these than that is garbage (libtorch_cuda.so has about 40 sections, 12 segments).
SECTION_LIMIT = 10_000
SECTION_NAME_LIMIT = 1024
SEGMENT_LIMIT = 4096
DYNAMIC_LIMIT = 20_000
VERSION_LIMIT = 20_000
#: TensorFlow's largest library has some 300 000 dynamic symbols.
SYMBOL_LIMIT = 2_000_000
#: A note is a few hundred bytes.
NOTE_LIMIT = 1 << 20
#: Paths in the dynamic section; nix and spack write long ones.
TEXT_LIMIT = 1 << 18
#: Every stretch of the string table this long holds the end of a name (the longest in torch has
#: 2000 bytes); so no name is longer than twice that.
NAME_STRETCH = 1 << 16
#: Names may share their ends, but all together are not many times the string table.
SHARING_LIMIT = 8

MACHINES = {62: "x86_64", 183: "aarch64"}

#: e_type: what the loader loads.
EXECUTABLE, SHARED = 2, 3

#: d_tag values.
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
AUXILIARY, FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_HASH, _STRTAB, _SYMTAB, _STRSZ, _BIND_NOW, _FLAGS = 4, 5, 6, 10, 24, 30
_RELA, _RELASZ, _JMPREL, _PLTRELSZ = 7, 8, 23, 2
_GNU_HASH, _VERSYM, _FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB
_VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

#: DT_FLAGS_1: no default directories for this object; a position-independent executable.
NODEFLIB, PIE = 0x800, 0x08000000

_LOAD, _DYNAMIC, _INTERP, _NOTE = 1, 2, 3, 4

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_WORD = struct.Struct("<I")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED_HEAD, _VERNEED_PART = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_VERDEF_HEAD, _VERDEF_PART = struct.Struct("<HHHHIII"), struct.Struct("<II")

#: Bindings and types that glibc's do_lookup_x accepts: global, weak, unique; no section or file.
_VISIBLE = bytes(
    int(info >> 4 in (1, 2, 10) and info & 15 in (0, 1, 2, 5, 6, 10)) for info in range(256)
)
#: STV_INTERNAL, STV_HIDDEN: do_lookup_x passes over them.
_LOCAL = (1, 2)
_ABSOLUTE = 0xFFF1
_TLS = 6
_HIDDEN = 0x8000
#: Tables of relocations and their sizes; those of functions (.rela.plt) can wait.
_AT_ONCE = ((_RELA, _RELASZ),)
_RELOCATIONS = (*_AT_ONCE, (_JMPREL, _PLTRELSZ))
#: Elf64_Rela; its symbol is the fourth of six words.
_RELOCATION = 24

_CHUNK = 512


class _Column(NamedTuple):
    """A part of symbols: its form, at which place of that size it is, and to read it of one."""

    form: Literal["I", "Q"]
    place: int
    one: struct.Struct


#: st_name; st_info, st_other and st_shndx together; st_value.
_NAME, _KIND = _Column("I", 0, struct.Struct("<I")), _Column("I", 1, struct.Struct("<4xI"))
_VALUE = _Column("Q", 1, struct.Struct("<8xQ"))
#: So many symbols of a column are read while one is read by itself.
_READ_MEANWHILE = 6
#: So many symbols of a hash table are passed over while one hash is looked up in it.
_SCANNED_MEANWHILE = 24
#: int() takes no more digits than some limit, of 640 at least; and more would take it long.
_LONG_NAME = 600
_HASH_START = bytes((4, 31, 2))  # 5381, in base 33
_DIGITS = b"0123456789abcdefghijklmnopqrstuvw"
_REMAINDERS = b"\0" + bytes(_DIGITS[one % 33] for one in range(1, 256))
_QUOTIENTS = b"\0" + bytes(_DIGITS[one // 33] for one in range(1, 256))


class BadElf(ValueError):
    """Not an ELF file this module reads; the message says why."""


class Section(NamedTuple):
    """A section header with its name resolved."""

    name: bytes
    kind: int
    offset: int
    size: int


class Segment(NamedTuple):
    """A program header: what of the file is loaded where."""

    kind: int
    offset: int
    address: int
    size: int


class Need(NamedTuple):
    """A symbol version that must be in the library called `file` (its DT_NEEDED name)."""

    file: str
    version: bytes
    weak: bool
    number: int


class Definition(NamedTuple):
    """A symbol version that this file defines; the one of `base` names the file itself."""

    version: bytes
    number: int
    base: bool


class Symbol(NamedTuple):
    """One dynamic symbol. `version` is empty without one; `hidden` as foo@V is, foo@@V is not."""

    name: bytes
    version: bytes
    hidden: bool
    defined: bool
    weak: bool
    value: int
    size: int


class Hashed(NamedTuple):
    """Names to look for: their hashes, and how a table of hashes has them (see `hashed`)."""

    hashes: Sequence[int]
    words: Set[int]


class Names(NamedTuple):
    """Symbols in columns: names, their `.gnu.version` words (None: no versions), their numbers."""

    names: List[bytes]
    versions: Optional[List[int]]
    numbers: Sequence[int]


class ElfFile:
    """A mapped ELF file. Raises BadElf for what is none, OSError when it cannot be read.

    Any reading method may raise BadElf where that part of the file makes no sense.
    """

    def __init__(self, host_path: str) -> None:
        self.data = map_file(host_path)
        try:
            self._read_headers()
        except BaseException:
            self.data.close()
            raise

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: object
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file."""
        self.data.close()

    def _read_headers(self) -> None:
        head = _header(self.data)
        #: e_type: EXECUTABLE, SHARED, or 1 for an object file.
        self.kind: int = head[6]
        self.machine: str = MACHINES.get(head[7], f"machine-{head[7]}")
        self.segments: List[Segment] = list(self._read_segments(head[10], head[14], head[15]))
        self.dynamic: List[Tuple[int, int]] = list(self._read_dynamic())
        self._tags: Dict[int, int] = dict(self.dynamic)
        self._strings: Optional[Tuple[int, int]] = None
        self._count: Optional[int] = None
        self._checked = False
        self._texts: Dict[int, bytes] = {}
        self._texts_size = 0

    def _read_segments(self, start: int, size: int, count: int) -> Iterator[Segment]:
        if not count:
            return
        if size != _SEGMENT.size or count > SEGMENT_LIMIT:
            raise BadElf("program headers make no sense")
        self._check(start, size * count, "program headers")
        for row in _SEGMENT.iter_unpack(self.data[start : start + size * count]):
            yield Segment(row[0], row[2], row[3], row[5])

    def _read_dynamic(self) -> Iterator[Tuple[int, int]]:
        for one in self.segments:
            if one.kind == _DYNAMIC:
                start, size = self._offset(one.address), min(one.size, DYNAMIC_LIMIT * _ENTRY.size)
                size -= size % _ENTRY.size
                self._check(start, size, "the dynamic section")
                for tag, value in _ENTRY.iter_unpack(self.data[start : start + size]):
                    if not tag:
                        return
                    yield tag, value

    # -- what the loader asks first ---------------------------------------------------------

    @property
    def is_dynamic(self) -> bool:
        """Whether there is a dynamic section; without one the loader refuses the file."""
        return any(one.kind == _DYNAMIC for one in self.segments)

    @property
    def needed(self) -> List[str]:
        """DT_NEEDED, in order."""
        return self.texts(NEEDED)

    @property
    def soname(self) -> Optional[str]:
        """DT_SONAME."""
        return self._last_text(SONAME)

    @property
    def rpath(self) -> Optional[str]:
        """DT_RPATH as written; the loader ignores it where there is a RUNPATH."""
        return self._last_text(RPATH)

    @property
    def runpath(self) -> Optional[str]:
        """DT_RUNPATH as written."""
        return self._last_text(RUNPATH)

    @property
    def flags(self) -> int:
        """DT_FLAGS."""
        return self._tags.get(_FLAGS, 0)

    @property
    def flags_1(self) -> int:
        """DT_FLAGS_1 (NODEFLIB, PIE, …)."""
        return self._tags.get(_FLAGS_1, 0)

    @property
    def binds_now(self) -> bool:
        """Whether every function is looked up when the file is loaded (-z now)."""
        return bool(_BIND_NOW in self._tags or self.flags & 8 or self.flags_1 & 1)

    @property
    def interpreter(self) -> Optional[str]:
        """PT_INTERP: the loader that the kernel starts for this executable."""
        for one in self.segments:
            if one.kind == _INTERP:
                self._check(one.offset, one.size, "the interpreter's path")
                text = self.data[one.offset : one.offset + min(one.size, TEXT_LIMIT)]
                return _decode(text.partition(b"\0")[0])
        return None

    def texts(self, *tags: int) -> List[str]:
        """The strings of all dynamic entries with one of these tags, in order."""
        return [self._text(value) for tag, value in self.dynamic if tag in tags]

    def _last_text(self, tag: int) -> Optional[str]:
        # As the loader, which keeps the last entry of a tag.
        value = self._tags.get(tag)
        return None if value is None else self._text(value)

    # -- symbol versions --------------------------------------------------------------------

    def version_needs(self) -> List[Need]:
        """Every version this file needs of another, by DT_VERNEED; in order."""
        found: List[Need] = []
        for at in self._chain(_VERNEED, _VERNEEDNUM, _VERNEED_HEAD):
            _, count, file, part, _ = _VERNEED_HEAD.unpack_from(self.data, at)
            name = self._text(file)
            for at_part in self._parts(at + part, count, _VERNEED_PART, len(found)):
                _, flags, index, text, _ = _VERNEED_PART.unpack_from(self.data, at_part)
                found.append(Need(name, self._string(text), bool(flags & 2), index & 0x7FFF))
        return found

    def version_definitions(self) -> List[Definition]:
        """Every version this file defines, by DT_VERDEF; in order."""
        found: List[Definition] = []
        for at in self._chain(_VERDEF, _VERDEFNUM, _VERDEF_HEAD):
            _, flags, index, _, _, part, _ = _VERDEF_HEAD.unpack_from(self.data, at)
            self._check(at + part, _VERDEF_PART.size, "a version definition")
            text, _ = _VERDEF_PART.unpack_from(self.data, at + part)
            found.append(Definition(self._string(text), index & 0x7FFF, bool(flags & 1)))
        return found

    @property
    def has_definitions(self) -> bool:
        """Whether there is a DT_VERDEF at all."""
        return _VERDEF in self._tags

    def _chain(self, tag: int, count_tag: int, row: struct.Struct) -> Iterator[int]:
        """Offsets of linked records, whose last field is the distance to the next one."""
        if tag not in self._tags:
            return
        at = self._offset(self._tags[tag])
        for _ in range(min(self._tags.get(count_tag, VERSION_LIMIT), VERSION_LIMIT)):
            self._check(at, row.size, "a version record")
            yield at
            step = struct.unpack_from("<I", self.data, at + row.size - 4)[0]
            if not step:
                return
            at += step

    def _parts(self, at: int, count: int, row: struct.Struct, so_far: int) -> Iterator[int]:
        for number in range(count):
            if so_far + number >= VERSION_LIMIT:
                raise BadElf("too many symbol versions")
            self._check(at, row.size, "a version record")
            yield at
            step = struct.unpack_from("<I", self.data, at + row.size - 4)[0]
            if not step:
                return
            at += step

    # -- symbols ----------------------------------------------------------------------------

    def symbol_count(self) -> int:
        """How many dynamic symbols there are: DT_HASH says it, DT_GNU_HASH implies it."""
        if self._count is None:
            count = self._counted() if _SYMTAB in self._tags else 0
            if count > SYMBOL_LIMIT:
                raise BadElf("too many symbols")
            if count:
                self._check(self._offset(self._tags[_SYMTAB]), count * _SYMBOL.size, "symbols")
            self._count = count
        return self._count

    def _counted(self) -> int:
        if _HASH in self._tags:
            return self._word(self._offset(self._tags[_HASH]) + 4)
        if _GNU_HASH not in self._tags:
            return 0
        buckets, first, at, chains = self._gnu_hash()
        size = buckets * 4
        self._check(at, size, "the hash table")
        last = max(memoryview(self.data[at : at + size]).cast("I")) if buckets else 0
        if last < first:
            # Nothing is exported; then only relocations tell how many are taken from others.
            return max([first - 1, *self._relocated()]) + 1
        while not self._word(chains + (last - first) * 4) & 1:
            last += 1
            if last > SYMBOL_LIMIT:
                raise BadElf("too many symbols")
        return last + 1

    def _gnu_hash(self) -> Tuple[int, int, int, int]:
        """(number of buckets, first hashed symbol, offset of buckets, offset of chains)."""
        at = self._offset(self._tags[_GNU_HASH])
        self._check(at, 16, "the hash table")
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self.data, at)
        if buckets > SYMBOL_LIMIT or bloom > SYMBOL_LIMIT:
            raise BadElf("the hash table makes no sense")
        start = at + 16 + bloom * 8
        return buckets, first, start, start + buckets * 4

    def exported(self) -> Names:
        """What other objects can bind to: defined, global or weak; duplicates differ in version."""
        return self._named(self._binding(range(self._first_hashed(), self.symbol_count())))

    def exported_like(self, wanted: Hashed) -> List[bytes]:
        """Names of those exported symbols whose hash is a wanted one; there may be others still.

        By the hash table, so that of a large library's names few are read; without one, all.
        """
        if _SYMTAB not in self._tags or _GNU_HASH not in self._tags:
            return self.exported().names
        first, count = self._first_hashed(), self.symbol_count()
        numbers: Optional[List[int]] = None
        if count - first >= len(wanted.hashes) * _SCANNED_MEANWHILE:
            numbers = self._of_hashes(wanted.hashes)
        if numbers is None:
            among = map(wanted.words.__contains__, self._words())
            numbers = list(compress(range(first, count), among))
        return self._strings_at(self._picked(_NAME, self._binding(numbers)))

    def _binding(self, numbers: Sequence[int]) -> Sequence[int]:
        """Those of the symbols, in order, that others can bind to."""
        words, values = self._picked(_KIND, numbers), self._picked(_VALUE, numbers)
        fine = {word for word in set(words) if _can_bind(word)}
        if 0 not in values and fine.issuperset(words):
            return numbers  # as good as always: no need to look at each
        return [
            number
            for number, word, value in zip(numbers, words, values)
            if word in fine and (value or word >> 16 == _ABSOLUTE or word & 15 == _TLS)
        ]

    def _words(self) -> List[int]:
        """DT_GNU_HASH's word of every hashed symbol: its hash, with the lowest bit cleared."""
        _, first, _, chains = self._gnu_hash()
        size = max(0, self.symbol_count() - first) * 4
        self._check(chains, size, "the hash table")
        number = int.from_bytes(self.data[chains : chains + size], "little")
        even = number & int.from_bytes(b"\xfe\xff\xff\xff" * (size // 4), "little")
        return memoryview(even.to_bytes(size, "little")).cast("I").tolist()

    def undefined(self, weak: bool = False) -> Names:
        """What this file takes from others: the strong references, or else the weak ones."""
        return self._named(self._references()[weak])

    def references(self) -> Tuple[Names, Names]:
        """Both of them: strong, weak."""
        strong, weak = self._references()
        return self._named(strong), self._named(weak)

    def _references(self) -> Tuple[List[int], List[int]]:
        first, count = self._first_hashed(), self.symbol_count()
        # Hashed and undefined as well: in programs, which lend others their stub's address.
        words = self._column(_KIND, 0, count if self._lends(first, count) else first)
        # Neither section nor a visibility that keeps the name to this object.
        kinds = {one for one in set(words) if one < 0x10000 and not one & 0x300}
        strong = {one for one in kinds if one >> 4 & 15 == 1}
        weak = {one for one in kinds if one >> 4 & 15 == 2}
        return _places(words, strong), _places(words, weak)

    def _lends(self, first: int, count: int) -> bool:
        """Whether one of these symbols has no section (st_shndx is 0)."""
        if first >= count:
            return False
        table = self._offset(self._tags[_SYMTAB])
        start, end = table + first * _SYMBOL.size, table + count * _SYMBOL.size
        low, high = (self.data[start + at : end : _SYMBOL.size] for at in (6, 7))
        both = int.from_bytes(low, "little") | int.from_bytes(high, "little")
        return b"\0" in both.to_bytes(count - first, "little")

    def lookup(self, name: bytes) -> List[Symbol]:
        """The symbols of this name that the file's hash table finds, one per version."""
        found = []
        for number in self._hashed(name):
            row = self._row(number)
            if self._string(row[0]) == name:
                found.append(self._symbol(number, name, row))
        return found

    def referenced(self, numbers: Set[int], lazily: bool = False) -> List[int]:
        """Those of the symbol `numbers` that a relocation refers to, as the loader meets them.

        It looks up no others; `lazily` none either of functions, before they are called.
        """
        found: Dict[int, None] = {}
        for symbols in self._relocation_symbols(_AT_ONCE if lazily else _RELOCATIONS):
            if not numbers.isdisjoint(symbols):
                found.update((one, None) for one in symbols if one in numbers)
        return list(found)

    def _relocated(self) -> Iterator[int]:
        """The largest symbol number in each stretch of the relocations."""
        return (max(symbols) for symbols in self._relocation_symbols())

    def _relocation_symbols(
        self, tables: Sequence[Tuple[int, int]] = _RELOCATIONS
    ) -> Iterator[List[int]]:
        for start_tag, size_tag in tables:
            size = self._tags.get(size_tag, 0) // _RELOCATION * _RELOCATION
            if start_tag not in self._tags or not size:
                continue
            start = self._offset(self._tags[start_tag])
            self._check(start, size, "relocations")
            step = _RELOCATION << 12
            for at in range(start, start + size, step):
                rows = memoryview(self.data[at : min(at + step, start + size)]).cast("I")
                yield rows[3::6].tolist()

    def _first_hashed(self) -> int:
        """The number from which on symbols are defined; by DT_GNU_HASH, else not known."""
        count = self.symbol_count()
        return min(self._gnu_hash()[1], count) if count and _GNU_HASH in self._tags else 0

    def _picked(self, which: _Column, numbers: Sequence[int]) -> List[int]:
        """One column of these symbols, which are in order."""
        if not numbers:
            return []
        first, end = numbers[0], numbers[-1] + 1
        if len(numbers) * _READ_MEANWHILE < end - first:
            unpack, data = which.one.unpack_from, self.data
            start, step = self._offset(self._tags[_SYMTAB]), _SYMBOL.size
            return [unpack(data, start + number * step)[0] for number in numbers]
        column = self._column(which, first, end)
        if len(numbers) == end - first:
            return column
        return [column[number - first] for number in numbers]

    def _column(self, which: _Column, first: int, end: int) -> List[int]:
        """One column of the symbols from `first` to before `end`."""
        if first >= end:
            return []
        table = self._offset(self._tags[_SYMTAB])
        start, end = table + first * _SYMBOL.size, table + end * _SYMBOL.size
        # Released here, since a mapped file that is viewed cannot be closed.
        with memoryview(self.data) as data, data[start:end] as rows, rows.cast(which.form) as words:
            found: List[int] = words[which.place :: _SYMBOL.size // words.itemsize].tolist()
            return found

    def _named(self, numbers: Sequence[int]) -> Names:
        if not numbers:
            return Names([], [] if _VERSYM in self._tags else None, numbers)
        first, end = numbers[0], numbers[-1] + 1
        words = self._version_words(first, end)
        if words and len(numbers) < end - first:
            words = [words[number - first] for number in numbers]
        return Names(self._strings_at(self._picked(_NAME, numbers)), words, numbers)

    def _version_words(self, first: int, end: int) -> Optional[List[int]]:
        """The `.gnu.version` words of some symbols; None where there are none."""
        count = self.symbol_count()
        if _VERSYM not in self._tags or not count:
            return None
        start = self._offset(self._tags[_VERSYM])
        self._check(start, count * 2, "symbol versions")
        return memoryview(self.data[start + first * 2 : start + end * 2]).cast("H").tolist()

    def _strings_at(self, offsets: List[int]) -> List[bytes]:
        """Names by their place in the string table; bounded by its size, whatever the places."""
        start, size = self._string_table()
        if offsets and max(offsets) >= size:
            raise BadElf("a name lies outside the string table")
        table, start, end = self._terminated(start, start + size)
        find = table.find
        names: List[bytes] = []
        room = size * SHARING_LIMIT
        for at in range(0, len(offsets), _CHUNK):
            places = [start + one for one in offsets[at : at + _CHUNK]]
            more = [table[one : find(b"\0", one, end)] for one in places]
            room -= sum(map(len, more))
            if room < 0:
                raise BadElf("the string table makes no sense")
            names += more
        return names

    def _terminated(self, start: int, end: int) -> Tuple[Union[bytes, mmap.mmap], int, int]:
        """Where every name of the string table has an end: in the file, else in a copy."""
        if not self._checked:
            _check_stretches(self.data, start, end)
            self._checked = True
        if end == start or self.data[end - 1]:
            return self.data[start:end] + b"\0", 0, end - start + 1
        return self.data, start, end

    def _hashed(self, name: bytes) -> Iterator[int]:
        if _SYMTAB in self._tags and _GNU_HASH in self._tags:
            yield from self._gnu_hashed(name)
        elif _SYMTAB in self._tags and _HASH in self._tags:
            yield from self._sysv_hashed(name)

    def _gnu_hashed(self, name: bytes) -> Iterator[int]:
        return self._of_hash(gnu_hash(name))

    def _of_hashes(self, hashes: Sequence[int]) -> Optional[List[int]]:
        """The symbols that DT_GNU_HASH has under these hashes, in order.

        None where its chains are so long that passing over all symbols takes no longer.
        """
        buckets, first, at, chains = self._gnu_hash()
        count, data, unpack = self.symbol_count(), self.data, _WORD.unpack_from
        self._check(at, buckets * 4, "the hash table")
        self._check(chains, (count - first) * 4, "the hash table")
        found: Set[int] = set()
        room = count - first
        for value in hashes if buckets else ():
            number = unpack(data, at + value % buckets * 4)[0]
            while first <= number < count:
                word = unpack(data, chains + (number - first) * 4)[0]
                if (word ^ value) < 2:
                    found.add(number)
                number = count if word & 1 else number + 1
                room -= 1
            if room < 0:
                return None
        return sorted(found)

    def _of_hash(self, value: int) -> Iterator[int]:
        """The symbols that DT_GNU_HASH has under a hash."""
        buckets, first, at, chains = self._gnu_hash()
        if not buckets:
            return
        number = self._word(at + value % buckets * 4)
        while first <= number < SYMBOL_LIMIT:
            word = self._word(chains + (number - first) * 4)
            if (word ^ value) < 2:
                yield number
            if word & 1:
                return
            number += 1

    def _sysv_hashed(self, name: bytes) -> Iterator[int]:
        at = self._offset(self._tags[_HASH])
        buckets, count = self._word(at), self._word(at + 4)
        if not buckets:
            return
        number = self._word(at + 8 + sysv_hash(name) % buckets * 4)
        for _ in range(count):  # a chain in a circle ends here
            if not 0 < number < count:
                return
            yield number
            number = self._word(at + 8 + (buckets + number) * 4)

    def _row(self, number: int) -> Tuple[int, ...]:
        at = self._offset(self._tags[_SYMTAB]) + number * _SYMBOL.size
        self._check(at, _SYMBOL.size, "symbols")
        return _SYMBOL.unpack_from(self.data, at)

    def _symbol(self, number: int, name: bytes, row: Tuple[int, ...]) -> Symbol:
        words = self._version_words(number, number + 1)
        word = words[0] if words else 0
        version = self.version_names().get(word & 0x7FFF, b"")
        hidden, defined, weak = bool(word & _HIDDEN), bool(row[3]), row[1] >> 4 == 2
        return Symbol(name, version, hidden, defined, weak, row[4], row[5])

    def version_names(self) -> Dict[int, bytes]:
        """The version that each index in `.gnu.version` stands for; none for the base's."""
        names = {one.number: one.version for one in self.version_definitions() if not one.base}
        names.update((one.number, one.version) for one in self.version_needs())
        return names

    # -- sections and notes -----------------------------------------------------------------

    def section(self, name: str) -> Optional[Section]:
        """The first section of this name that lies in the file."""
        wanted = name.encode()
        return next((one for one in sections(self.data) if one.name == wanted), None)

    def notes(self) -> Iterator[Tuple[bytes, int, bytes]]:
        """(owner, type, body) of every note in the PT_NOTE segments."""
        for one in self.segments:
            if one.kind == _NOTE:
                self._check(one.offset, one.size, "a note")
                yield from _notes(self.data[one.offset : one.offset + min(one.size, NOTE_LIMIT)])

    # -- reading ----------------------------------------------------------------------------

    def loaded(self, address: int, size: int) -> bytes:
        """The `size` bytes that are loaded at `address`."""
        start = self._offset(address)
        self._check(start, size, "what is loaded there")
        return self.data[start : start + size]

    def _check(self, offset: int, size: int, what: str) -> None:
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise BadElf(what + " lie outside the file")

    def _offset(self, address: int) -> int:
        """Where in the file the byte lies that is loaded at `address`."""
        for one in self.segments:
            if one.kind == _LOAD and one.address <= address < one.address + one.size:
                return one.offset + address - one.address
        raise BadElf(f"address {address:#x} is in no loaded part of the file")

    def _word(self, offset: int) -> int:
        self._check(offset, 4, "the hash table")
        value: int = struct.unpack_from("<I", self.data, offset)[0]
        return value

    def _string_table(self) -> Tuple[int, int]:
        if self._strings is None:
            if _STRTAB not in self._tags:
                raise BadElf("no string table")
            start, size = self._offset(self._tags[_STRTAB]), self._tags.get(_STRSZ, 0)
            self._check(start, size, "strings")
            self._strings = start, size
        return self._strings

    def _string(self, at: int) -> bytes:
        """One string of the table; those read so are few, and not many times the table together."""
        found = self._texts.get(at)
        if found is None:
            start, size = self._string_table()
            if not 0 <= at < size:
                raise BadElf("a string lies outside the string table")
            end = self.data.find(b"\0", start + at, min(start + size, start + at + TEXT_LIMIT))
            self._texts_size += end - start - at
            if end < 0 or self._texts_size > size * SHARING_LIMIT:
                raise BadElf("a string has no end")
            found = self._texts[at] = self.data[start + at : end]
        return found

    def _text(self, at: int) -> str:
        return _decode(self._string(at))


def map_file(host_path: str) -> mmap.mmap:
    """A regular file mapped for reading; raises OSError, and BadElf when it is empty."""
    handle = open_file(host_path)
    try:
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(handle)


def open_file(host_path: str) -> int:
    """A descriptor of a regular file; raises OSError, and BadElf when it is empty."""
    # Without blocking on a FIFO or acting on a device that lies where a library should.
    handle = os.open(host_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", host_path)
        if not info.st_size:
            raise BadElf("empty file")
    except BaseException:
        os.close(handle)
        raise
    return handle


@lru_cache(maxsize=64)
def gnu_hash(name: bytes) -> int:
    """The hash of DT_GNU_HASH (glibc, dl_new_hash)."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def hashed(names: Sequence[bytes]) -> Hashed:
    """Names (without zero bytes) to look for in many tables.

    The hash is a number of base 33 whose digits are the name's bytes, so int() reads it, many times
    faster than a loop can: once from what is left of each byte after division by 33, once from the
    quotients. Before the name stands what the hash starts from.
    """
    if max(map(len, names), default=0) > _LONG_NAME:
        hashes = [gnu_hash(one) for one in names]
    else:
        text = b"".join([b"\0" + _HASH_START + one for one in names])[1:] if names else b""
        low = map(int, text.translate(_REMAINDERS).split(b"\0"), repeat(33))
        high = map(int, text.translate(_QUOTIENTS).split(b"\0"), repeat(33))
        hashes = [one + 33 * two & 0xFFFFFFFF for one, two in zip(low, high)] if names else []
    return Hashed(hashes, {one & ~1 for one in hashes})


def sysv_hash(name: bytes) -> int:
    """The hash of DT_HASH (gABI, "Hash Table")."""
    value = 0
    for byte in name:
        value = (value << 4) + byte & 0xFFFFFFFF
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def note(host_path: str, section: str, owner: bytes) -> Optional[bytes]:
    """The first note of `owner` in a named section; None when there is none.

    Raises BadElf for a file that is no such ELF, OSError when it cannot be read.
    """
    with map_file(host_path) as data:
        for one in sections(data):
            if one.name == section.encode():
                body = data[one.offset : one.offset + min(one.size, NOTE_LIMIT)]
                return next((text for who, _, text in _notes(body) if who == owner), None)
    return None


def sections(data: mmap.mmap, base: int = 0) -> Iterator[Section]:
    """The sections of an ELF file that starts at `base`; raises BadElf where headers lie outside.

    Offsets are those in `data`.
    """
    head = _header(data, base)
    start, size, count, names = base + head[11], head[16], head[17], head[18]
    if start == base or not count:
        return
    if size != _SECTION.size or count > SECTION_LIMIT or names >= count:
        raise BadElf("section headers make no sense")
    if start + size * count > len(data):
        raise BadElf("section headers lie outside the file")
    rows = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
    texts = base + rows[names][4]
    for row in rows:
        at, last = texts + row[0], min(texts + rows[names][5], texts + row[0] + SECTION_NAME_LIMIT)
        end = data.find(b"\0", at, last) if at < last <= len(data) else -1
        name = data[at:end] if end >= 0 else b""
        if base + row[4] + row[5] <= len(data) or row[1] == 8:  # SHT_NOBITS takes no room
            yield Section(name, row[1], base + row[4], row[5])


def _header(data: mmap.mmap, base: int = 0) -> Tuple[int, ...]:
    if len(data) - base < _HEADER.size:
        raise BadElf("file too short")
    head = _HEADER.unpack_from(data, base)
    magic, bits, order = head[0], head[1], head[2]
    if magic != b"\x7fELF":
        raise BadElf("invalid ELF header")
    if bits != 2 or order != 1:
        raise BadElf("not a 64-bit little-endian ELF file")
    return head


def _can_bind(word: int) -> bool:
    """Whether others can bind to a symbol with these st_info, st_other and st_shndx."""
    return word > 0xFFFF and bool(_VISIBLE[word & 0xFF]) and word >> 8 & 3 not in _LOCAL


def _places(words: List[int], wanted: Set[int]) -> List[int]:
    return [number for number, word in enumerate(words) if word in wanted] if wanted else []


def _check_stretches(table: mmap.mmap, start: int, end: int) -> None:
    for at in range(start, end - NAME_STRETCH, NAME_STRETCH):
        if table.find(b"\0", at, at + NAME_STRETCH) < 0:
            raise BadElf("a name is too long")


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _notes(data: bytes) -> Iterator[Tuple[bytes, int, bytes]]:
    at = 0
    while at + 12 <= len(data):
        name_size, body_size, kind = struct.unpack_from("<III", data, at)
        body = at + 12 + (name_size + 3) // 4 * 4
        if body + body_size > len(data):
            return
        yield (
            data[at + 12 : at + 12 + name_size].rstrip(b"\0"),
            kind,
            data[body : body + body_size],
        )
        at = body + (body_size + 3) // 4 * 4
