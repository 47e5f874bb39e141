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

from collections import Counter, defaultdict
from itertools import chain, groupby
from typing import (
    DefaultDict,
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


class Exports:
    """What an object provides, by `words`: its names under their words of `.gnu.version`.

    `versions` are the versions that the words stand for, None for a file without versions; then
    all names are in one group. `bare`: a file that was linked without versions on either side.
    """

    def __init__(
        self,
        words: Dict[int, List[bytes]],
        versions: Optional[Dict[int, bytes]] = None,
        bare: bool = False,
    ) -> None:
        self.bare = bare
        self.versions = versions
        self._words = words
        self._of: Dict[bytes, FrozenSet[bytes]] = {}
        self._names: Optional[FrozenSet[bytes]] = None
        self._plain: Optional[FrozenSet[bytes]] = None

    @property
    def names(self) -> FrozenSet[bytes]:
        """All its names, whatever their version."""
        if self._names is None:
            self._names = frozenset(chain.from_iterable(self._words.values()))
        return self._names

    @property
    def plain(self) -> FrozenSet[bytes]:
        """Those that a reference without a version can bind to."""
        if self.versions is None:
            return self.names
        if self._plain is None:
            base = [names for word, names in self._words.items() if word & 0x7FFF < 3]
            defaults = [names for word, names in self._words.items() if 3 <= word < _HIDDEN]
            once = _only_once(list(chain.from_iterable(defaults)))
            self._plain = frozenset(chain(once, *base))
        return self._plain

    def of(self, version: bytes) -> FrozenSet[bytes]:
        """Those that satisfy a reference with this version: with it, or without any in the file."""
        if self.versions is None:
            return self.names
        if version not in self._of:
            said = self.versions
            self._of[version] = frozenset(chain.from_iterable(
                names for word, names in self._words.items()
                if (said[word & 0x7FFF] == version if word & 0x7FFF in said else word < _HIDDEN)
            ))  # fmt: skip
        return self._of[version]


class Version(NamedTuple):
    """The version of a reference, the file that should have it (or empty), and its binding."""

    version: bytes
    file: str
    weak: bool = False


class Wants(NamedTuple):
    """What an object takes: `plain` references, and `versioned` ones by what they ask for.

    Weak ones only with a version: they may stay unfound, but can meet what ends a search.
    """

    plain: Set[bytes]
    versioned: Dict[Version, List[bytes]]
    needs: Sequence[elf.Need]


class Failure(NamedTuple):
    """A reference without a provider; `file` when the search ended at that file.

    `ends`: because it met the symbol there without a version. `owner`: the file that the reference
    names, wherever the search ended.
    """

    name: bytes
    version: bytes
    file: str = ""
    ends: bool = False
    owner: str = ""


class _File:
    """What was read of one file so far."""

    def __init__(self) -> None:
        self.size = 0
        #: The versions it defines; None where it has none at all, which ld.so lets pass.
        self.defined: Optional[FrozenSet[bytes]] = None
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
        at_start = not process.history and not process.env.get("LD_BIND_NOW")
        order = _once(one for scope in scopes for one in scope)
        nowhere = self._nowhere({name for _, wanted in wants for name in wanted.plain}, order)
        for one, wanted in wants:
            if nowhere.isdisjoint(wanted.plain) and self._at_once(wanted, order, process.machine):
                continue
            left = self._without_provider(wanted, order, process.machine)
            if left:
                file = self._map(one)
                lazily = at_start and not file.binds_now
                problems += _problems(one, file, left, lazily)[:REPORT_LIMIT]
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

        They can come from any: those that are known are asked first, then the largest; most are
        never asked.
        """
        wanted: Optional[elf.Hashed] = None
        files = [(self._file(one), one) for one in order]
        files.sort(key=lambda pair: (pair[0].exports is None, -pair[0].size))
        for known, provider in files:
            if not plain:
                break
            if known.exports is None:
                wanted = wanted or elf.hashed(list(plain))
                if not self._has_any(plain, provider, wanted):
                    continue
            plain = plain - self.exports(provider).plain
        return plain

    def _has_any(self, plain: Set[bytes], provider: Object, wanted: elf.Hashed) -> bool:
        """Whether the file has one of the names; those of a file without versions are taken."""
        known = self._file(provider)
        try:
            names = self._map(provider).exported_like(wanted)
        except elf.BadElf:
            known.exports = NOTHING
            return False
        if known.defined is not None:
            return not plain.isdisjoint(names)
        plain.difference_update(names)
        return False

    def _at_once(self, wants: Wants, order: Sequence[Object], machine: Machine) -> bool:
        """Whether each reference with a version finds that version, with no need of more rules.

        Where the file that it names has versions, nothing but a missing symbol ends the search.
        """
        named: Dict[str, Optional[Exports]] = {}
        for one, names in wants.versioned.items():
            if one.file not in named:
                named[one.file] = self._with_versions(one.file, order)
            exports = named[one.file]
            if exports is None:
                return False
            provided = exports.of(one.version)
            if provided.issuperset(names):
                continue
            for name in set(names) - provided:
                if machine.ends_at_named_file or not (
                    one.weak or self._elsewhere(name, one.version, order)
                ):
                    return False
        return True

    def _elsewhere(self, name: bytes, version: bytes, order: Sequence[Object]) -> bool:
        """Whether some file has this version of it, as libc has of what was libpthread's."""
        for provider in order:
            defined = self._file(provider).defined or ()
            if version in defined and name in self.exports(provider).of(version):
                return True
        return False

    def _with_versions(self, file: str, order: Sequence[Object]) -> Optional[Exports]:
        provider = next((one for one in order if one.called(file)), None) if file else None
        exports = self.exports(provider) if provider else None
        return exports if exports and exports.versions is not None else None

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

    def __init__(self, wanted: Dict[Version, List[bytes]], machine: Machine) -> None:
        self.wanted: Dict[bytes, List[Version]] = {}
        self._machine = machine
        self._failed: List[Failure] = []
        self._by_file: Dict[str, List[bytes]] = {}
        for one, names in wanted.items():
            self._by_file.setdefault(one.file, []).extend(names)
            for name in names:
                self.wanted.setdefault(name, []).append(one)

    def at(self, provider: Object, exports: Exports) -> None:
        """Take what `provider` has; fail what ends the search at this file."""
        for file in [one for one in self._by_file if one and provider.called(one)]:
            self._at_named(file, self._by_file.pop(file), exports)
        for name in exports.names.intersection(self.wanted):
            rest = [one for one in self.wanted[name] if name not in exports.of(one.version)]
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
                    Failure(name, one.version, file, here, file)
                    for one in versions
                    if one.file == file
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
            Failure(name, one.version, owner=one.file)
            for name, versions in self.wanted.items()
            for one in versions
            if not one.weak
        ]
        return self._failed + rest


#: Of a file that cannot be read.
NOTHING = Exports({})


def _exports(file: elf.ElfFile) -> Exports:
    found = file.exported()
    if found.versions is None or not file.has_definitions:
        return Exports({0: found.names}, None, found.versions is None)
    versions = {one.number: one.version for one in file.version_definitions() if not one.base}
    return Exports(_by_word(found), versions)


def _by_word(found: elf.Names) -> Dict[int, List[bytes]]:
    groups: DefaultDict[int, List[bytes]] = defaultdict(list)
    for name, word in zip(found.names, found.versions or ()):
        groups[word].append(name)
    return groups


def _only_once(names: List[bytes]) -> Iterable[bytes]:
    """The names that are there once: a reference without a version may not choose."""
    if len(set(names)) == len(names):
        return names
    return [name for name, count in Counter(names).items() if count == 1]


def _wants(file: elf.ElfFile) -> Wants:
    strong, weak = file.references()
    if strong.versions is None or weak.versions is None:
        return Wants(set(strong.names), {}, ())
    rows = file.version_needs()
    needs = {one.number: Version(one.version, one.file) for one in rows}
    # A reference may also name a version that the file itself defines.
    for definition in file.version_definitions():
        if not definition.base:
            needs.setdefault(definition.number, Version(definition.version, ""))
    wants = Wants(set(), {}, rows)
    for word, names in _by_word(strong).items():
        if word > 1 and word & 0x7FFF in needs:
            wants.versioned.setdefault(needs[word & 0x7FFF], []).extend(names)
        else:
            wants.plain.update(names)
    for word, names in _by_word(weak).items():
        if word > 1 and word & 0x7FFF in needs:
            asked = needs[word & 0x7FFF]._replace(weak=True)
            wants.versioned.setdefault(asked, []).extend(names)
    return wants


def _problems(one: Object, file: elf.ElfFile, left: List[Failure], lazily: bool) -> List[Problem]:
    """The failures that matter, in order: ld.so looks up only what a relocation refers to."""
    names: Dict[int, bytes] = {}
    wanted = {failure.name for failure in left}
    for found in (file.undefined(), file.undefined(weak=True)):
        names.update(pair for pair in zip(found.numbers, found.names) if pair[1] in wanted)
    by_name: Dict[bytes, List[Failure]] = {}
    for failure in left:
        by_name.setdefault(failure.name, []).append(failure)
    order = dict.fromkeys(names[number] for number in file.referenced(set(names)))
    at_once = {names[number] for number in file.referenced(set(names), lazily)}
    return [
        Problem(
            "symbol", "" if each.ends else one.path, _words(each), _text(name), one.path,
            name not in at_once, each.owner,
        )
        for name in order
        for each in by_name[name]
    ]  # fmt: skip


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
