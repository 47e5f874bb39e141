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
    """What an object takes: `plain` references, `versioned` ones, and each name's numbers.

    Weak ones only with a version: they may stay unfound, but can meet what ends a search.
    """

    plain: Set[bytes]
    versioned: Dict[bytes, List[Version]]
    numbers: Dict[bytes, List[int]]


class Failure(NamedTuple):
    """A reference without a provider; `file` when the search ended at that file.

    `ends`: because it met the symbol there without a version.
    """

    name: bytes
    version: bytes
    file: str = ""
    ends: bool = False


class Checker:
    """Reads each file once; pass `check` to a Process, or call it with what was opened."""

    def __init__(self) -> None:
        self._exports: Dict[Tuple[int, int], Exports] = {}
        self._defined: Dict[Tuple[int, int], Optional[FrozenSet[bytes]]] = {}

    def check(
        self, process: Process, new: Sequence[Object], scopes: Sequence[Sequence[Object]]
    ) -> List[Problem]:
        """What ld.so would refuse the `new` objects of a process for."""
        problems = [one for each in new for one in self._missing_versions(each, process.objects)]
        if problems:
            return problems
        order = _once(one for scope in scopes for one in scope)
        for each in reversed(new):  # as ld.so relocates
            problems += self._unresolved(each, order, process.machine)
        return problems

    def exports(self, one: Object) -> Exports:
        """What an object provides to others; nothing where it cannot be read."""
        found = self._exports.get(one.file.identity)
        if found is None:
            found = self._exports[one.file.identity] = _exports(one)
        return found

    def defined(self, one: Object) -> Optional[FrozenSet[bytes]]:
        """The versions a file defines; None where it has none at all, which ld.so lets pass."""
        identity = one.file.identity
        if identity not in self._defined:
            self._defined[identity] = _defined(one)
        return self._defined[identity]

    def _missing_versions(self, one: Object, loaded: Sequence[Object]) -> Iterator[Problem]:
        """The versions that `one` needs of a file which defines versions, but not these."""
        try:
            with elf.ElfFile(one.file.host_path) as file:
                needs = file.version_needs()
        except (OSError, elf.BadElf):
            return
        for file_name, group in groupby(needs, lambda need: need.file):
            provider = next((each for each in loaded if each.called(file_name)), None)
            defined = self.defined(provider) if provider else None
            if provider is None or defined is None:
                continue
            for need in group:
                if need.version not in defined and not need.weak:
                    version = _text(need.version)
                    text = f"version `{version}' not found (required by {one.path})"
                    yield Problem("version", provider.path, text, version, one.path)

    def _unresolved(self, one: Object, order: Sequence[Object], machine: Machine) -> List[Problem]:
        try:
            with elf.ElfFile(one.file.host_path) as file:
                wants = _wants(file)
                left = self._without_provider(wants, order, machine)
                return _problems(one, file, wants, left)[:REPORT_LIMIT] if left else []
        except (OSError, elf.BadElf) as error:
            return [Problem("symbol", one.path, str(error), "", one.path)]

    def _without_provider(
        self, wants: Wants, order: Sequence[Object], machine: Machine
    ) -> List[Failure]:
        plain = wants.plain
        search = _Search(wants.versioned, machine)
        for provider in order:
            if not plain and not search.wanted:
                break
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


def _exports(one: Object) -> Exports:
    try:
        with elf.ElfFile(one.file.host_path) as file:
            found = file.exported()
            versions = file.version_names() if file.has_definitions else {}
    except (OSError, elf.BadElf):
        return Exports(frozenset(), frozenset(), None, frozenset(), False)
    names = frozenset(found.names)
    if found.versions is None or not versions:
        return Exports(names, names, None, names, found.versions is None)
    loose, versioned, defaults = set(), [], {}  # type: Set[bytes], List[bytes], Dict[bytes, int]
    plain = set()
    for name, word in zip(found.names, found.versions):
        index = word & 0x7FFF
        version = versions.get(index, b"")
        if version:
            versioned.append(name + b"@" + version)
        elif word < _HIDDEN:
            loose.add(name)
        if index < 3:
            plain.add(name)
        elif word < _HIDDEN:
            defaults[name] = defaults.get(name, 0) + 1
    plain.update(name for name, count in defaults.items() if count == 1)
    return Exports(names, frozenset(plain), frozenset(versioned), frozenset(loose), False)


def _wants(file: elf.ElfFile) -> Wants:
    found = file.undefined()
    if found.versions is None:
        numbers = dict(zip(found.names, ([one] for one in found.numbers)))
        return Wants(set(found.names), {}, numbers)
    wants = Wants(set(), {}, {})
    needs = {one.number: Version(one.version, one.file) for one in file.version_needs()}
    # A reference may also name a version that the file itself defines.
    for definition in file.version_definitions():
        if not definition.base:
            needs.setdefault(definition.number, Version(definition.version, ""))
    _sort(found, needs, wants, wants.plain)
    weak = {index: one._replace(weak=True) for index, one in needs.items()}
    _sort(file.undefined(weak=True), weak, wants, set())
    return wants


def _sort(found: elf.Names, needs: Dict[int, Version], wants: Wants, plain: Set[bytes]) -> None:
    """References into `wants`, those without a version into `plain`."""
    for name, word, number in zip(found.names, found.versions or (), found.numbers):
        wants.numbers.setdefault(name, []).append(number)
        need = needs.get(word & 0x7FFF)
        if need is None:
            plain.add(name)
        else:
            wants.versioned.setdefault(name, []).append(need)


def _problems(one: Object, file: elf.ElfFile, wants: Wants, left: List[Failure]) -> List[Problem]:
    suspects = {number for each in left for number in wants.numbers.get(each.name, ())}
    used = file.referenced(suspects)
    problems = []
    for failure in sorted(left):
        if used.intersection(wants.numbers.get(failure.name, ())):
            path = "" if failure.ends else one.path
            problems.append(Problem("symbol", path, _words(failure), _text(failure.name), one.path))
    return problems


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


def _defined(one: Object) -> Optional[FrozenSet[bytes]]:
    try:
        with elf.ElfFile(one.file.host_path) as file:
            if file.has_definitions:
                return frozenset(each.version for each in file.version_definitions())
    except (OSError, elf.BadElf):
        pass
    return None


def _once(objects: Iterable[Object]) -> List[Object]:
    seen: Dict[int, Object] = {}
    for one in objects:
        seen.setdefault(id(one), one)
    return list(seen.values())


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
