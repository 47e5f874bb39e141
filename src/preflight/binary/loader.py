"""Which file glibc's dynamic loader would pick for every library a process needs.

The rules are those of glibc's dl-load.c (_dl_map_object), dl-deps.c (_dl_map_object_deps),
rtld.c and dl-open.c, in the order of ld.so(8):

1. what is already loaded under that name (or, once found, is the same file);
2. DT_RPATH of the object that asks and of those that loaded it, then of the executable; only
   where the object that asks has no DT_RUNPATH;
3. LD_LIBRARY_PATH;
4. DT_RUNPATH of the object that asks;
5. /etc/ld.so.cache, then the default directories (neither below -z nodeflib).

Left out: setuid programs, auditing, dlmopen, prelinking, and GLIBC_TUNABLES. Nothing is loaded.
"""

from __future__ import annotations

import errno
import os
import re
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..roots import Root
from . import elf, ldcache
from .machine import INTERPRETERS, Cpu, Machine, read_cpu, read_machine

#: Cache entry flags of 64-bit libraries (glibc dl-cache.h): ELF libc6 with x86-64 or AArch64.
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
#: No process loads as many, or asks as often; a closure that does is not walked to its end.
OBJECT_LIMIT = 1000
REQUEST_LIMIT = 20_000
PRELOAD = "/etc/ld.so.preload"

#: Another loader, with rules of its own.
MUSL = "ld-musl-"

#: The rule that found a file.
RPATH, LD_LIBRARY_PATH, RUNPATH = "rpath", "ld-library-path", "runpath"
CACHE, CONF, DEFAULT = "ld-cache", "ld-conf", "default"
LD_PRELOAD, LOADED, PATH, START = "ld-preload", "already-loaded", "path", "start"

NOT_FOUND = "cannot open shared object file: No such file or directory"

_ORIGIN_TOKEN = re.compile(r"\$(?:\{(ORIGIN|PLATFORM|LIB)\}|(ORIGIN|PLATFORM|LIB))(?![A-Za-z0-9_])")


class Found(NamedTuple):
    """A library file as the root sees it, before symlinks, and what found it."""

    path: str
    found_by: str


class Linkage(NamedTuple):
    """What the loader reads of a file when it maps it."""

    machine: str
    kind: int
    needed: Tuple[str, ...]  # and what it is a filter of (DT_FILTER): both must be there
    soname: Optional[str]
    rpath: Optional[str]
    runpath: Optional[str]
    flags_1: int
    interpreter: Optional[str]
    auxiliary: Tuple[str, ...]  # need not


class File(NamedTuple):
    """A file that was looked at. `problem` is in the loader's words; empty when it can be mapped.

    A file of another architecture is `foreign`: the loader passes over it.
    """

    host_path: str
    identity: Tuple[int, int]
    linkage: Optional[Linkage]
    problem: str = ""
    foreign: bool = False


class Hit(NamedTuple):
    """A file that the search meets, the rule that leads to it, and the path as the loader says."""

    rule: str
    path: str
    file: File


class Object:
    """A library in a process, as glibc's link_map."""

    def __init__(
        self,
        path: str,
        name: str,
        file: File,
        linkage: Linkage,
        loader: Optional[Object],
        rule: str,
    ) -> None:
        #: As the loader names it: absolute, or relative to the working directory.
        self.path = path
        #: The name it was first asked for by.
        self.name = name
        self.file = file
        self.linkage = linkage
        self.loader = loader
        self.rule = rule
        self.asked_by = loader.path if loader else ""
        self.is_executable = False
        self.origin = ""
        self.names = {name}
        self.soname_known = linkage.soname is None
        self.directories: Dict[str, List[str]] = {}
        #: What answers its DT_NEEDED, in order.
        self.dependencies: List[Object] = []

    def __repr__(self) -> str:
        return f"<Object {self.path}>"

    def copy(self) -> Object:
        """Another of the same file, for a process of its own."""
        other = Object(self.path, self.name, self.file, self.linkage, self.loader, self.rule)
        other.__dict__.update(self.__dict__)
        other.names = set(self.names)
        other.dependencies = []
        return other

    def called(self, name: str) -> bool:
        """Whether the loader takes a request for `name` as one for this (_dl_name_match_p)."""
        return name in self.names or (name == self.path and not self.is_executable)

    def answers(self, name: str) -> bool:
        """The same, or its DT_SONAME is `name`, which then becomes one of its names."""
        if self.called(name):
            return True
        if self.soname_known or self.linkage.soname != name:
            return False
        self.soname_known = True
        self.names.add(name)
        return True


class Link(NamedTuple):
    """One request of the loader and its answer: `object` None with a `problem` in its words."""

    name: str
    by: str
    rule: str
    path: str
    problem: str = ""
    object: Optional[Object] = None


class Problem(NamedTuple):
    """Why an object cannot be used: `text` as the loader says it, `path` the file it names.

    `kind` is "library" (cannot be opened), "version" or "symbol"; `name` the library, version or
    symbol; `needed_by` who needs it. A `lazy` one is met when it is called, unless all is bound at
    once: by dlopen with RTLD_NOW always, at the start by LD_BIND_NOW or -z now. `owner` is the
    library that should have a symbol, where the reference names it by its version.
    """

    kind: str
    path: str
    text: str
    name: str
    needed_by: str = ""
    lazy: bool = False
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class Opened(NamedTuple):
    """What one start or dlopen does: requests in order, new objects in order, its search scope.

    With `problems` it fails, and none of the new objects stays. The first problem is the one
    that the loader would tell (of several undefined symbols it may tell another).
    """

    name: str
    object: Optional[Object]
    links: Tuple[Link, ...]
    objects: Tuple[Object, ...]
    scope: Tuple[Object, ...]
    problems: Tuple[Problem, ...]

    @property
    def error(self) -> str:
        """The loader's message; empty when it works."""
        return str(self.problems[0]) if self.problems else ""

    @property
    def stopping(self) -> Tuple[Problem, ...]:
        """The problems that are met at once."""
        return tuple(one for one in self.problems if not one.lazy)


#: Checks versions and symbols of new objects of a process, which come in the order in which they
#: are relocated, given the scopes in which they are looked up.
Check = Callable[["Process", Sequence[Object], Sequence[Sequence[Object]]], List[Problem]]


#: What we lack ourselves, and says nothing of a file.
OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)


class Files:
    """The files of a root, each looked at once. `cwd` is what relative paths start from."""

    def __init__(self, root: Root, arch: str, cwd: str = "") -> None:
        self.root = root
        self.arch = arch
        self.cwd = cwd
        self._linkages: Dict[Tuple[int, int], File] = {}
        self._listings: Dict[str, Optional[Set[str]]] = {}

    def look(self, path: str) -> Optional[File]:
        """What lies at `path`; None for nothing. Raises OSError where the loader gives up."""
        try:
            where = self.host(path)
            info = os.stat(where)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EACCES):
                return None
            raise
        identity = (info.st_dev, info.st_ino)
        known = self._linkages.get(identity)
        if known is None:
            try:
                known = self._linkages[identity] = _examine(where, identity, self.arch)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM):
                    return None
                if error.errno in OURS:
                    raise
                return File(where, identity, None, f"cannot read file data: {error.strerror}")
        return known

    def host(self, path: str) -> str:
        """Where `path` lies for this process; raises OSError."""
        absolute = self.absolute(path)
        if not absolute:
            raise OSError(errno.ENOENT, "no working directory is known", path)
        return absolute if self.root.live else self.root.on_host(absolute)

    def absolute(self, path: str) -> str:
        """`path` from the working directory; empty where that is not known."""
        if path.startswith("/"):
            return path
        return self.cwd.rstrip("/") + "/" + path if self.cwd else ""

    def real(self, path: str) -> str:
        """`path` with its symlinks followed, or as it is where it leads nowhere."""
        try:
            return self.root.resolve(self.absolute(path))
        except OSError:
            return path

    def listing(self, directory: str) -> Optional[Set[str]]:
        """Names in a directory, empty when there is none; None when it cannot be listed."""
        if directory not in self._listings:
            try:
                names: Optional[Set[str]] = set(os.listdir(self.host(directory or ".")))
            except OSError as error:
                missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
                names = set() if missing else None
            self._listings[directory] = names
        return self._listings[directory]


def _examine(where: str, identity: Tuple[int, int], arch: str) -> File:
    """The checks of glibc's open_verify and _dl_map_object_from_fd, with their words."""
    try:
        with elf.ElfFile(where) as file:
            linkage = _linkage(file)
    except elf.BadElf as error:
        return File(where, identity, None, _refusal(where, error), _is_32_bit(where))
    if linkage.machine != arch:
        return File(where, identity, linkage, "", True)
    problem = ""
    if linkage.kind not in (elf.EXECUTABLE, elf.SHARED):
        problem = "only ET_DYN and ET_EXEC can be loaded"
    elif not file.is_dynamic:
        problem = "object file has no dynamic section"
    return File(where, identity, linkage, problem)


def _linkage(file: elf.ElfFile) -> Linkage:
    return Linkage(
        file.machine, file.kind, (*file.needed, *file.texts(elf.FILTER)), file.soname,
        None if file.runpath is not None else file.rpath, file.runpath,
        file.flags_1, file.interpreter, tuple(file.texts(elf.AUXILIARY)),
    )  # fmt: skip


def _refusal(where: str, error: elf.BadElf) -> str:
    text = str(error)
    return "file too short" if text == "empty file" else text


def _is_32_bit(where: str) -> bool:
    try:
        with elf.map_file(where) as data:
            return len(data) >= 64 and data[:4] == b"\x7fELF" and data[4] == 1
    except elf.BadElf:
        return False


class Process:
    """A process of one executable under `root`, with the environment `env`, as ld.so fills it.

    `start` maps the executable and what it needs; `open` is dlopen. `check` is asked about every
    group of new objects, as ld.so checks versions and, bound at once, symbols. With `conf` the
    directories of ld.so.conf stand in for a missing cache, as if ldconfig was run; by default
    they do in an image, whose cache is often made when the container starts.
    """

    def __init__(
        self,
        root: Root,
        env: Mapping[str, str],
        executable: str,
        *,
        cwd: str = "",
        cpu: Optional[Cpu] = None,
        check: Optional[Check] = None,
        arch: str = "",
        conf: Optional[bool] = None,
    ) -> None:
        self.root = root
        self.env = env
        self.executable = executable
        self.check = check
        self.arch = arch or architecture(root, executable)
        self.files = Files(root, self.arch, cwd)
        self._cpu = cpu
        self._conf = not root.live if conf is None else conf
        self._machine: Optional[Machine] = None
        self._cache: Optional[ldcache.Cache] = None
        self._cache_read = False
        self._library_path: Optional[List[str]] = None
        self._interpreter = ""
        self.objects: List[Object] = []
        #: The scope that every object is searched in first.
        self.everywhere: List[Object] = []
        self.history: List[Opened] = []
        #: LD_PRELOAD entries that are ignored, and why.
        self.ignored: List[Link] = []

    @property
    def machine(self) -> Machine:
        """The loader's build and the processor."""
        if self._machine is None:
            interpreter = self._interpreter or INTERPRETERS.get(self.arch, "")
            cpu = read_cpu(self.root) if self._cpu is None else self._cpu
            self._machine = read_machine(self.root, interpreter, self.arch, cpu)
        return self._machine

    def fork(self) -> Process:
        """A process in the same state, to go on from differently."""
        other = Process.__new__(Process)
        other.__dict__.update(self.__dict__)
        copies = {id(one): one.copy() for one in self.objects}
        other.objects = [copies[id(one)] for one in self.objects]
        for one in other.objects:
            one.loader = copies.get(id(one.loader), one.loader)
        other.everywhere = [copies[id(one)] for one in self.everywhere]
        other.history = list(self.history)
        other.ignored = list(self.ignored)
        return other

    # -- loading ----------------------------------------------------------------------------

    def start(self) -> Opened:
        """Map the executable, LD_PRELOAD and all they need. Raises OSError and BadElf for it."""
        file = self.files.look(self.executable)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.executable)
        if file.linkage is None or file.problem or file.foreign:
            raise elf.BadElf(file.problem or "wrong ELF class or machine")
        if MUSL in (file.linkage.interpreter or ""):
            raise elf.BadElf(f"{file.linkage.interpreter} is not glibc's loader")
        path = self.files.absolute(self.executable)
        main = Object(path, path, file, file.linkage, None, START)
        main.is_executable = True
        # The kernel names the file behind every symlink (/proc/self/exe) where it starts a
        # program; a library that ld.so is given as the program is named as it is given.
        starts = file.linkage.interpreter is not None
        main.origin = _directory(self.files.real(path) if starts else path)
        self._interpreter = file.linkage.interpreter or ""
        self.objects = [main]
        self._map_interpreter()
        links: List[Link] = []
        preloads = self._preload(main, links)
        scope = self._with_needed([main, *preloads], links)
        self.everywhere = list(scope)
        opened = self._checked(self.executable, main, links, list(self.objects), scope, [scope])
        self.history.append(opened)
        return opened

    def open(self, name: str, caller: Optional[Object] = None, everywhere: bool = False) -> Opened:
        """dlopen(name, RTLD_NOW) from `caller`; `everywhere` is RTLD_GLOBAL."""
        before = len(self.objects)
        links: List[Link] = []
        link = self._request(name, caller or self.objects[0], True)
        links.append(link)
        scope = self._with_needed([link.object], links) if link.object else []
        new = self.objects[before:]
        opened = self._checked(name, link.object, links, new, scope, [self.everywhere, scope])
        if opened.problems:
            del self.objects[before:]
        elif everywhere:
            self.everywhere += [one for one in scope if one not in self.everywhere]
        self.history.append(opened)
        return opened

    def _checked(
        self,
        name: str,
        start: Optional[Object],
        links: List[Link],
        new: List[Object],
        scope: List[Object],
        scopes: Sequence[Sequence[Object]],
    ) -> Opened:
        problems = [
            Problem("library", _named(one), one.problem, one.name, one.by)
            for one in links
            if one.problem
        ]
        if self.check and not problems and new:
            problems = self.check(self, _relocated(new, scope, start is self.objects[0]), scopes)
        return Opened(name, start, tuple(links), tuple(new), tuple(scope), tuple(problems))

    def _map_interpreter(self) -> None:
        """The loader itself is among the loaded, under its path and its soname."""
        path = self._interpreter or INTERPRETERS.get(self.arch, "")
        try:
            file = self.files.look(path) if path else None
        except OSError:
            file = None
        if file and file.linkage and not file.problem and not file.foreign:
            self._add(Object(path, path, file, file.linkage, None, START))

    def _preload(self, main: Object, links: List[Link]) -> List[Object]:
        found: List[Object] = []
        for name in self._preload_names():
            before = len(self.objects)
            link = self._request(name, main)
            if link.object is None:
                self.ignored.append(link._replace(rule=LD_PRELOAD))
            elif len(self.objects) > before:
                link.object.rule = LD_PRELOAD
                links.append(link._replace(rule=LD_PRELOAD, by=""))
                found.append(link.object)
        return found

    def _preload_names(self) -> List[str]:
        names = re.split("[ :]+", self.env.get("LD_PRELOAD", ""))
        try:
            text = self.root.text(PRELOAD)
        except OSError:
            text = ""
        for line in text.splitlines():
            names += re.split(r"[\s:]+", line.partition("#")[0])
        return [name for name in names if name]

    def _with_needed(self, start: Sequence[Object], links: List[Link]) -> List[Object]:
        """`start` and all they need, breadth first; the order in which symbols are looked up."""
        scope = list(start)
        seen = {id(one) for one in scope}
        for one in scope:  # grows as it goes
            needed = one.linkage.needed
            for number, name in enumerate(needed + one.linkage.auxiliary):
                if len(links) >= REQUEST_LIMIT:
                    return scope
                link = self._request(name, one)
                if link.problem and number >= len(needed):
                    continue
                links.append(link)
                if link.object:
                    one.dependencies.append(link.object)
                if link.object and id(link.object) not in seen and len(scope) < OBJECT_LIMIT:
                    seen.add(id(link.object))
                    scope.append(link.object)
        return scope

    def _request(self, name: str, by: Object, by_dlopen: bool = False) -> Link:
        """_dl_map_object: the object that answers to `name`, mapped if it was not."""
        asker = "" if by_dlopen else by.path
        if "$" in name:
            expanded = self._expand(name, by)
            if not expanded:
                return Link(name, asker, "", "", "empty dynamic string token substitution")
            name = expanded
        for one in self.objects:
            if one.answers(name):
                return Link(name, asker, LOADED, one.path, "", one)
        hit = self._first(name, by)
        if hit is None:
            return Link(name, asker, "", "", NOT_FOUND)
        linkage = hit.file.linkage
        if hit.file.problem or linkage is None:
            return Link(name, asker, hit.rule, hit.path, hit.file.problem)
        for one in self.objects:
            if one.file.identity == hit.file.identity and not one.is_executable:
                one.names.add(name)
                return Link(name, asker, LOADED, one.path, "", one)
        problem = _not_a_library(linkage)
        if problem:
            return Link(name, asker, hit.rule, hit.path, problem)
        loader = None if by_dlopen else by
        made = self._add(Object(hit.path, name, hit.file, linkage, loader, hit.rule))
        return Link(name, asker, hit.rule, hit.path, "", made)

    def _add(self, made: Object) -> Object:
        made.origin = _directory(self.files.absolute(made.path))
        self.objects.append(made)
        return made

    # -- searching --------------------------------------------------------------------------

    def candidates(self, name: str, by: Optional[Object] = None) -> List[Hit]:
        """Every file that the search for `name` would meet, in order, foreign ones left out.

        The first is the one that is taken, unless something is loaded under that name.
        """
        return [one for one in self._search(name, by or self._main()) if not one.file.foreign]

    def _first(self, name: str, by: Object) -> Optional[Hit]:
        return next((one for one in self._search(name, by) if not one.file.foreign), None)

    def _main(self) -> Optional[Object]:
        return self.objects[0] if self.objects else None

    def _search(self, name: str, by: Optional[Object]) -> Iterator[Hit]:
        if "/" in name:
            file = self._look(name)
            if file:
                yield Hit(PATH, name, file)
            return
        for rule, directories in self._ways(by):
            yield from self._in_directories(rule, directories, name)
        yield from self._behind(name, by)

    def _ways(self, by: Optional[Object]) -> Iterator[Tuple[str, List[str]]]:
        main = self._main()
        if by and by.linkage.runpath is None:
            one: Optional[Object] = by
            chain = []
            while one:
                chain.append(one)
                one = one.loader
            if main and main not in chain:
                chain.append(main)
            for one in chain:
                yield RPATH, self._path_of(one, RPATH, one.linkage.rpath)
        yield LD_LIBRARY_PATH, self.library_path()
        if by:
            yield RUNPATH, self._path_of(by, RUNPATH, by.linkage.runpath)

    def _behind(self, name: str, by: Optional[Object]) -> Iterator[Hit]:
        nodeflib = bool(by and by.linkage.flags_1 & elf.NODEFLIB)
        defaults = [one + "/" for one in self.machine.directories]
        cached = self._cached(name)
        if cached and not (nodeflib and cached.startswith(tuple(defaults))):
            file = self._look(cached)
            if file:
                yield Hit(CACHE, cached, file)
        if self._cache is None and self._conf and not nodeflib:
            conf = [one + "/" for one in ldcache.conf_directories(self.root)]
            yield from self._in_directories(CONF, conf, name)
        if not nodeflib:
            yield from self._in_directories(DEFAULT, defaults, name)

    def _cached(self, name: str) -> Optional[str]:
        if not self._cache_read:
            self._cache = ldcache.read_cache(self.root)
            self._cache_read = True
        if self._cache is None or name not in self._cache:
            return None
        machine = self.machine
        ranks = {one: rank for rank, one in enumerate(machine.hwcaps)}
        flags = _FLAGS.get(self.arch, 0)
        return ldcache.lookup(self._cache, name, flags, ranks, machine.level, machine.legacy)

    def _in_directories(self, rule: str, directories: Iterable[str], name: str) -> Iterator[Hit]:
        """open_path: `name` in each directory (each ends in a slash, or is empty)."""
        for directory in directories:
            for path in self._places(directory, name):
                try:
                    file = self.files.look(path)
                except OSError:
                    if path == directory + name:
                        return  # there, but cannot be opened: the other directories are given up
                    continue
                if file:
                    yield Hit(rule, path, file)

    def _places(self, directory: str, name: str) -> Iterator[str]:
        names = self.files.listing(directory)
        if names is None or "glibc-hwcaps" in names or not names.isdisjoint(_older(self.machine)):
            for one in self.machine.subdirectories:
                yield directory + one + name
        if names is None or name in names:
            yield directory + name

    def _look(self, path: str) -> Optional[File]:
        try:
            return self.files.look(path)
        except OSError:
            return None

    def library_path(self) -> List[str]:
        """The directories of LD_LIBRARY_PATH, each with a slash at its end ("" is the cwd)."""
        if self._library_path is None:
            text = self.env.get("LD_LIBRARY_PATH", "")
            parts = text.replace(";", ":").split(":") if text else []
            self._library_path = self._fill(parts, self._main())
        return self._library_path

    def _path_of(self, one: Object, rule: str, text: Optional[str]) -> List[str]:
        if not text:
            return []
        if rule not in one.directories:
            one.directories[rule] = self._fill(text.split(":"), one)
        return one.directories[rule]

    def _fill(self, parts: Iterable[str], one: Optional[Object]) -> List[str]:
        """fillin_rpath: tokens expanded, a slash at each end, nothing twice."""
        found: List[str] = []
        for part in parts:
            directory = part
            if part:
                expanded = self._expand(part, one)
                if not expanded:
                    continue
                directory = expanded.rstrip("/") + "/"
            if directory not in found:
                found.append(directory)
        return found

    def _expand(self, text: str, one: Optional[Object]) -> str:
        """`text` with $ORIGIN, $LIB and $PLATFORM replaced; empty where one is not known."""
        if "$" not in text:
            return text
        values = {
            "ORIGIN": one.origin if one else "",
            "LIB": self.machine.lib,
            "PLATFORM": self.machine.platform,
        }
        pieces, at = [], 0
        for token in _ORIGIN_TOKEN.finditer(text):
            value = values[token.group(1) or token.group(2)]
            if not value:
                return ""
            pieces += [text[at : token.start()], value]
            at = token.end()
        return "".join(pieces) + text[at:]


class Closure(NamedTuple):
    """What would be loaded for a start set: objects in load order, every request, what fails."""

    objects: Tuple[Object, ...]
    links: Tuple[Link, ...]
    problems: Tuple[Problem, ...]
    opened: Tuple[Opened, ...]

    @property
    def missing(self) -> Tuple[Link, ...]:
        """The requests without an answer."""
        return tuple(one for one in self.links if one.problem)


def resolve(
    root: Root,
    env: Mapping[str, str],
    start: Sequence[str],
    *,
    cwd: str = "",
    cpu: Optional[Cpu] = None,
    check: Optional[Check] = None,
) -> Closure:
    """What the loader would load for `start`: an executable (or a library in its place), then
    libraries that it opens, each by dlopen.

    Raises OSError and BadElf when the first of them cannot be read.
    """
    process = Process(root, env, start[0], cwd=cwd, cpu=cpu, check=check)
    process.start()
    for name in start[1:]:
        process.open(name)
    return closure(process)


def closure(process: Process) -> Closure:
    """All that `process` did so far."""
    opened = tuple(process.history)
    return Closure(
        tuple(process.objects),
        tuple(link for one in opened for link in one.links),
        tuple(problem for one in opened for problem in one.problems),
        opened,
    )


def find(root: Root, env: Mapping[str, str], soname: str, arch: str) -> Optional[Found]:
    """The file ld.so would pick for `soname` asked for by bare name; None when there is none."""
    process = Process(root, env, "", arch=arch)
    for hit in process.candidates(soname):
        if not hit.file.problem:
            return Found(hit.path, hit.rule)
    return None


def search_path(env: Mapping[str, str]) -> List[str]:
    """The directories of LD_LIBRARY_PATH; empty entries (the working directory) are left out."""
    text = env.get("LD_LIBRARY_PATH", "").replace(";", ":")
    return [one for one in text.split(":") if one.startswith("/")]


def architecture(root: Root, path: str) -> str:
    """The machine of an executable: x86_64, aarch64; raises OSError and BadElf."""
    with elf.ElfFile(root.on_host(path)) as file:
        return file.machine


def _older(machine: Machine) -> Set[str]:
    return {one.partition("/")[0] for one in machine.legacy}


def _relocated(new: Sequence[Object], scope: Sequence[Object], at_start: bool) -> Sequence[Object]:
    """The order in which new objects are relocated, so in which their symbols are found missing.

    At the start backwards, with dlopen those first that others depend on (dl-sort-maps.c).
    """
    if at_start:
        return new[::-1]
    waiting = {id(one) for one in new}
    done: List[Object] = []
    for root in reversed(scope):
        todo = [(root, iter(root.dependencies))] if id(root) in waiting else []
        waiting.discard(id(root))
        while todo:
            one, dependencies = todo[-1]
            following = next((each for each in dependencies if id(each) in waiting), None)
            if following is None:
                done.append(todo.pop()[0])
            else:
                waiting.discard(id(following))
                todo.append((following, iter(following.dependencies)))
    return done


def _directory(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _named(link: Link) -> str:
    """The file that the loader's message begins with: the one that is bad, or the name."""
    return link.path or link.name


def _not_a_library(linkage: Linkage) -> str:
    if linkage.flags_1 & elf.PIE:
        return "cannot dynamically load position-independent executable"
    if linkage.kind == elf.EXECUTABLE:
        return "cannot dynamically load executable"
    return ""
