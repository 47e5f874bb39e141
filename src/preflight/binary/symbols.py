"""Whether every symbol and version that new objects need has a provider, as ld.so would find it.

What is reported is what ld.so reports with LD_BIND_NOW=1 (and dlopen with RTLD_NOW), in its words.
Rules of glibc: versions first (dl-version.c, match_symbol), then each reference in its scopes
(dl-lookup.c, check_match and do_lookup_x):

- a reference with a version takes that version, or a definition without any version;
- a reference without one takes an unversioned or base definition, the file's first version, or
  the only default version there is;
- when the file that the reference names by its version has no such symbol at all, glibc before
  2.30 searches no further; when it has the symbol but no versions at all, ld.so ends the process;
- only symbols that a relocation refers to are looked up at all, and weak ones may stay unfound.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from . import elf
from .loader import Object, Problem, Process
from .machine import Machine

#: So many of one object's symbols are reported; the next would only repeat it.
REPORT_LIMIT = 1000
#: What ld.so says when it meets a library without versions where one with versions was linked.
ASSERTION = (
    "Inconsistency detected by ld.so: dl-lookup.c: check_match: Assertion `version->filename == "
    "NULL || ! _dl_name_match_p (version->filename, map)' failed!"
)

_HIDDEN = 0x8000


class Exports(NamedTuple):
    """What an object provides.

    `names` are all its names, whatever their version; `plain` those that a reference without a
    version can bind to, `versioned` are `name@version` of a file with versions (else None).
    `loose` are the names without a version in it, which satisfy any. `bare`: a file that was
    linked without versions on either side.
    """

    names: FrozenSet[bytes]
    plain: FrozenSet[bytes]
    versioned: Optional[FrozenSet[bytes]]
    loose: FrozenSet[bytes]
    bare: bool


class Version(NamedTuple):
    """The version of a reference, the file that should have it (or empty), and its binding."""

    version: bytes
    file: str
    weak: bool = False


class Wants(NamedTuple):
    """What an object takes: `plain` references and `versioned` ones.

    Weak ones only with a version: they may stay unfound, but can meet what ends a search.
    """

    plain: Set[bytes]
    versioned: Dict[bytes, List[Version]]
    needs: Sequence[elf.Need]


class Failure(NamedTuple):
    """A reference without a provider; `file` when the search ended at that file.

    `ends`: because it met the symbol there without a version.
    """

    name: bytes
    version: bytes
    file: str = ""
    ends: bool = False


class _File:
    """What was read of one file so far."""

    def __init__(self) -> None:
        self.size = 0
        #: The versions it defines; None where it has none at all, which ld.so lets pass.
        self.defined: Optional[FrozenSet[bytes]] = None
        self.names: Optional[List[bytes]] = None
        self.exports: Optional[Exports] = None


class Checker:
    """Reads each file once; pass `check` to a Process, or call it with what was opened."""

    def __init__(self) -> None:
        self._files: Dict[Tuple[int, int], _File] = {}
        #: Mapped while a check goes on, so that no file is read twice.
        self._open: Dict[Tuple[int, int], elf.ElfFile] = {}

    def _map(self, one: Object) -> elf.ElfFile:
        file = self._open.get(one.file.identity)
        if file is None:
            file = self._open[one.file.identity] = elf.ElfFile(one.file.host_path)
        return file

    def check(
        self, process: Process, new: Sequence[Object], scopes: Sequence[Sequence[Object]]
    ) -> List[Problem]:
        """What ld.so would refuse the `new` objects of a process for, as it meets it."""
        try:
            return self._check(process, new, scopes)
        finally:
            for file in self._open.values():
                file.close()
            self._open.clear()

    def _check(
        self, process: Process, new: Sequence[Object], scopes: Sequence[Sequence[Object]]
    ) -> List[Problem]:
        wants = [(one, self._read(one)) for one in new]
        problems = [
            problem
            for one, wanted in sorted(wants, key=lambda pair: process.objects.index(pair[0]))
            for problem in self._missing_versions(one, wanted.needs, process.objects)
        ]
        if problems:
            return problems
        order = _once(one for scope in scopes for one in scope)
        nowhere = self._nowhere({name for _, wanted in wants for name in wanted.plain}, order)
        for one, wanted in wants:
            if nowhere.isdisjoint(wanted.plain) and self._at_once(wanted, order, process.machine):
                continue
            left = self._without_provider(wanted, order, process.machine)
            problems += _problems(one, self._map(one), left)[:REPORT_LIMIT] if left else []
        return problems

    def exports(self, one: Object) -> Exports:
        """What an object provides to others; nothing where it is damaged.

        Raises OSError where it is not the file's fault (no descriptors, no memory).
        """
        known = self._file(one)
        if known.exports is None:
            try:
                known.exports = _exports(self._map(one))
            except elf.BadElf:
                known.exports = NOTHING
            known.names = None
        return known.exports

    def _read(self, one: Object) -> Wants:
        """What an object takes."""
        known = self._files.setdefault(one.file.identity, _File())
        try:
            file = self._map(one)
            known.size = file.symbol_count()
            if file.has_definitions:
                known.defined = frozenset(row.version for row in file.version_definitions())
            return _wants(file)
        except elf.BadElf:
            known.exports = NOTHING
            return Wants(set(), {}, ())

    def _file(self, one: Object) -> _File:
        if one.file.identity not in self._files:
            self._read(one)
        return self._files[one.file.identity]

    def _missing_versions(
        self, one: Object, needs: Sequence[elf.Need], loaded: Sequence[Object]
    ) -> Iterator[Problem]:
        """The versions that `one` needs of a file which defines versions, but not these."""
        for file_name, group in groupby(needs, lambda need: need.file):
            provider = next((each for each in loaded if each.called(file_name)), None)
            defined = self._file(provider).defined if provider else None
            if provider is None or defined is None:
                continue
            for need in group:
                if need.version not in defined and not need.weak:
                    version = _text(need.version)
                    text = f"version `{version}' not found (required by {one.path})"
                    yield Problem("version", provider.path, text, version, one.path)

    # -- quickly, for what is in order ------------------------------------------------------

    def _nowhere(self, plain: Set[bytes], order: Sequence[Object]) -> Set[bytes]:
        """Those of the names that no file has for a reference without a version.

        They can come from any, so the largest are asked first; most are never asked.
        """
        for provider in sorted(order, key=lambda one: -self._file(one).size):
            if not plain:
                break
            plain = self._without(plain, provider)
        return plain

    def _without(self, plain: Set[bytes], provider: Object) -> Set[bytes]:
        known = self._file(provider)
        if known.exports is None and known.defined is None and known.names is None:
            try:
                known.names = self._map(provider).exported().names
            except elf.BadElf:
                known.exports = NOTHING
                return plain
            # The first time without making a set of them, which takes as long again.
            plain.difference_update(known.names)
            return plain
        return plain - self.exports(provider).plain

    def _at_once(self, wants: Wants, order: Sequence[Object], machine: Machine) -> bool:
        """Whether each reference with a version finds that version, with no need of more rules.

        Where the file that it names has versions, nothing but a missing symbol ends the search.
        """
        named: Dict[str, Optional[Exports]] = {}
        for name, versions in wants.versioned.items():
            for one in versions:
                if one.file not in named:
                    named[one.file] = self._with_versions(one.file, order)
                exports = named[one.file]
                if exports is None:
                    return False
                if name in exports.names and _satisfies(exports, name, one.version):
                    continue
                if machine.ends_at_named_file or not (
                    one.weak or self._elsewhere(name, one.version, order)
                ):
                    return False
        return True

    def _elsewhere(self, name: bytes, version: bytes, order: Sequence[Object]) -> bool:
        """Whether some file has this version of it, as libc has of what was libpthread's."""
        for provider in order:
            if version in (self._file(provider).defined or ()):
                exports = self.exports(provider)
                if name in exports.names and _satisfies(exports, name, version):
                    return True
        return False

    def _with_versions(self, file: str, order: Sequence[Object]) -> Optional[Exports]:
        provider = next((one for one in order if one.called(file)), None) if file else None
        exports = self.exports(provider) if provider else None
        return exports if exports and exports.versioned is not None else None

    # -- exactly, for what is not -----------------------------------------------------------

    def _without_provider(
        self, wants: Wants, order: Sequence[Object], machine: Machine
    ) -> List[Failure]:
        plain = wants.plain
        search = _Search(wants.versioned, machine)
        for provider in order:
            if plain or search.wanted:
                exports = self.exports(provider)
                plain = plain - exports.plain
                search.at(provider, exports)
        return [Failure(name, b"") for name in plain] + search.failures()


class _Search:
    """The references with a version on their way through a scope."""

    def __init__(self, wanted: Dict[bytes, List[Version]], machine: Machine) -> None:
        self.wanted = dict(wanted)
        self._machine = machine
        self._failed: List[Failure] = []
        self._by_file: Dict[str, List[bytes]] = {}
        for name, versions in wanted.items():
            for one in versions:
                self._by_file.setdefault(one.file, []).append(name)

    def at(self, provider: Object, exports: Exports) -> None:
        """Take what `provider` has; fail what ends the search at this file."""
        for file in [one for one in self._by_file if one and provider.called(one)]:
            self._at_named(file, self._by_file.pop(file), exports)
        for name in exports.names.intersection(self.wanted):
            rest = [one for one in self.wanted[name] if not _satisfies(exports, name, one.version)]
            self._keep(name, rest)

    def _at_named(self, file: str, names: Sequence[bytes], exports: Exports) -> None:
        for name in names:
            here = name in exports.names
            if name in self.wanted and (
                (here and exports.bare and self._machine.asserts_versions)
                or (not here and self._machine.ends_at_named_file)
            ):
                versions = self.wanted[name]
                self._failed += [
                    Failure(name, one.version, file, here) for one in versions if one.file == file
                ]
                self._keep(name, [one for one in versions if one.file != file])

    def _keep(self, name: bytes, versions: List[Version]) -> None:
        if versions:
            self.wanted[name] = versions
        else:
            del self.wanted[name]

    def failures(self) -> List[Failure]:
        """What failed, and what found no provider to the end of the scope."""
        rest = [
            Failure(name, one.version)
            for name, versions in self.wanted.items()
            for one in versions
            if not one.weak
        ]
        return self._failed + rest


def _satisfies(exports: Exports, name: bytes, version: bytes) -> bool:
    if exports.versioned is None or name in exports.loose:
        return True
    return name + b"@" + version in exports.versioned


#: Of a file that cannot be read.
NOTHING = Exports(frozenset(), frozenset(), None, frozenset(), False)


def _exports(file: elf.ElfFile) -> Exports:
    found = file.exported()
    names = frozenset(found.names)
    if found.versions is None or not file.has_definitions:
        return Exports(names, names, None, names, found.versions is None)
    rows = file.version_definitions()
    # What is appended to a name for the version that its word stands for; as is, and hidden.
    endings = {one.number: b"@" + one.version for one in rows if not one.base}
    endings.update([(number | _HIDDEN, text) for number, text in endings.items()])
    pairs = list(zip(found.names, found.versions))
    loose = [name for name, word in pairs if word not in endings and word < _HIDDEN]
    versioned = frozenset([name + endings[word] for name, word in pairs if word in endings])
    plain = {name for name, word in pairs if word & 0x7FFF < 3}
    plain.update(_only_once([name for name, word in pairs if 3 <= word < _HIDDEN]))
    return Exports(names, frozenset(plain), versioned, frozenset(loose), False)


def _only_once(names: List[bytes]) -> Iterable[bytes]:
    """The names that are there once: a reference without a version may not choose."""
    if len(set(names)) == len(names):
        return names
    return [name for name, count in Counter(names).items() if count == 1]


def _wants(file: elf.ElfFile) -> Wants:
    found = file.undefined()
    if found.versions is None:
        return Wants(set(found.names), {}, ())
    rows = file.version_needs()
    needs = {one.number: Version(one.version, one.file) for one in rows}
    # A reference may also name a version that the file itself defines.
    for definition in file.version_definitions():
        if not definition.base:
            needs.setdefault(definition.number, Version(definition.version, ""))
    wants = Wants(set(), {}, rows)
    _sort(found, needs, wants)
    weak = {number: one._replace(weak=True) for number, one in needs.items()}
    _sort(file.undefined(weak=True), weak, wants._replace(plain=set()))
    return wants


def _sort(found: elf.Names, needs: Dict[int, Version], wants: Wants) -> None:
    """References into `wants`, by whether they name a version."""
    words = found.versions or ()
    wants.plain.update(
        [name for name, word in zip(found.names, words) if word < 2 or word & 0x7FFF not in needs]
    )
    if len(wants.plain) < len(found.names):
        for name, word in zip(found.names, words):
            if word > 1 and word & 0x7FFF in needs:
                wants.versioned.setdefault(name, []).append(needs[word & 0x7FFF])


def _problems(one: Object, file: elf.ElfFile, left: List[Failure]) -> List[Problem]:
    """The failures that matter, in order: ld.so looks up only what a relocation refers to."""
    names: Dict[int, bytes] = {}
    wanted = {failure.name for failure in left}
    for found in (file.undefined(), file.undefined(weak=True)):
        names.update(pair for pair in zip(found.numbers, found.names) if pair[1] in wanted)
    by_name: Dict[bytes, List[Failure]] = {}
    for failure in left:
        by_name.setdefault(failure.name, []).append(failure)
    order = dict.fromkeys(names[number] for number in file.referenced(set(names)))
    return [
        Problem("symbol", "" if each.ends else one.path, _words(each), _text(name), one.path)
        for name in order
        for each in by_name[name]
    ]


def _words(failure: Failure) -> str:
    name, version = _text(failure.name), _text(failure.version)
    if failure.ends:
        return ASSERTION
    if failure.file:
        return (
            f"symbol {name}, version {version} not defined in file {failure.file} "
            "with link time reference"
        )
    return (
        f"undefined symbol: {name}, version {version}" if version else f"undefined symbol: {name}"
    )


def _once(objects: Iterable[Object]) -> List[Object]:
    seen: Dict[int, Object] = {}
    for one in objects:
        seen.setdefault(id(one), one)
    return list(seen.values())


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
