"""Rules about what the loader would pick."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from ..matrix import Matrix, numbers
from ..snapshot import Snapshot
from .bring import OF_TORCH, bring
from .lacking import LISTED, Lack, few, together
from .linked import Linked, asked_by, libraries, older, plain, served, where
from .quiet import is_quiet, unopened
from .registry import FAIL, INFO, WARN, Finding, NotApplicable, Outcome, Passed, Undecided, evidence

#: Judged by rules of their own, not as just any library.
DRIVER = ("libcuda.so", "libnvidia-ml.so")
C_LIBRARY = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux")
CXX_LIBRARY = ("libstdc++.so",)
CUDNN = ("libcudnn",)
NCCL = ("libnccl.so",)
#: Opens its parts when it is first called.
CUDNN_FRONT = "libcudnn.so.9"
PARTED = (
    " It is opened at the first call of cuDNN, which ends the process: 'Unable to load any of', "
    "'Invalid handle. Cannot load symbol cudnnGetVersion'."
)
#: The administrator's choice, for all programs (ld.so.conf).
SYSTEM_WIDE = ("ld-cache", "ld-conf")
#: torch imports it where it is installed, and many releases do without when that fails.
NUMPY = "numpy"
SKIP_CUDNN_CHECK = "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"
UNSET = ("unset LD_LIBRARY_PATH, or take that directory out of it",)
UNLOAD = ("unset LD_PRELOAD, or take that library out of it",)


def stub_libcuda(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The toolkit's stub libcuda would be loaded instead of the driver's.

    The toolkit ships an empty libcuda in its `stubs` directory, to link against on machines
    without a driver. When that directory is on LD_LIBRARY_PATH or in ld.so.conf, the stub is
    loaded and every call fails (error 34).

    Fix: take the stubs directory off the search path.
    """
    kind = s.driver.libcuda
    if kind.value == "stub":
        yield Finding(
            summary="the toolkit's stub libcuda would be loaded instead of the driver's",
            observed=f"libcuda.so.1 is {s.driver.libcuda_path.get('a stub')}",
            needed="the driver's libcuda.so.1",
            why="The stub only serves the linker: every CUDA call fails with error 34.",
            fix=(
                "take the stubs directory off LD_LIBRARY_PATH and out of /etc/ld.so.conf.d, "
                "then run ldconfig",
            ),
            evidence=evidence(s, "driver.libcuda", "driver.libcuda_path", "env.LD_LIBRARY_PATH"),
        )
    elif kind.value == "missing" or kind.absent:
        yield NotApplicable("no libcuda here")
    elif kind.known:
        yield Passed(f"libcuda is not a stub ({kind.value})")
    else:
        yield Undecided(("driver.libcuda",), "which libcuda would be loaded")


def missing_library(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A needed shared library cannot be found, or what is found is damaged.

    Decided by the loader's own search for every library that something loaded asks for. A file
    that is cut short, that is no library, or a directory in its place is damaged. A
    library that is only looked for and not needed (a NCCL network plugin) is no finding; the
    driver's libraries are judged by the `driver/*` rules. The parts of cuDNN 9 are needed, though
    they are opened at its first call only. What TensorFlow and JAX cannot open when they look for
    a GPU is a warning, for they go on with the CPU (mentioned where another framework is here too,
    or no GPU).

    Fix: install the package that brings the library (named where it is known, with the version
    that the framework's own metadata asks for), or put its directory on the search path; reinstall
    what is damaged.
    """
    known = [one for one in libraries(s) if not one.name.startswith(DRIVER)]
    if not s.libraries.known:
        yield _unseen(s, "whether every library is found")
        return
    lost = [one for one in known if one.library.missing.value and one.library.needed_by.known]
    yield from unopened(s, m, [one for one in lost if is_quiet(one)])
    for lack in together((one for one in lost if not is_quiet(one)), _damage):
        yield _damaged(s, lack) if lack.first.library.damaged.known else _missing(s, m, lack)
    if not lost:
        yield _fine(known, "every library that is needed is found")


def _damage(one: Linked) -> Optional[str]:
    return one.library.damaged.value


def _missing(s: Snapshot, m: Matrix, lack: Lack) -> Finding:
    name, numpy = lack.first.name, NUMPY in lack.askers
    cure = bring(s, m, lack)
    front = _alone_in_front(s, lack)
    return Finding(
        summary=f"{name} cannot be found, and {lack.who} {lack.need} it",
        observed=f"no {name} on the loader's search path; asked for by {lack.all}",
        needed=f"{name} where the loader looks",
        why="The loader stops: 'cannot open shared object file: No such file or directory'."
        + (PARTED if lack.askers == [CUDNN_FRONT] else ""),
        fix=("reinstall numpy, for this Python",) if lack.askers == [NUMPY] else front or (
            cure.line,
            f"export LD_LIBRARY_PATH=DIRECTORY_OF_{_variable(name)}:$LD_LIBRARY_PATH",
        ),
        evidence=evidence(s, *lack.proof, *cure.proof, "env.LD_LIBRARY_PATH"),
        sources=cure.sources,
        subject=lack.who,
        severity=_optional(lack, WARN if numpy or _by_import(lack) else INFO),
    )  # fmt: skip


def _alone_in_front(s: Snapshot, lack: Lack) -> Tuple[str, ...]:
    """The cure where the environment put a cuDNN in front without the parts that belong to it."""
    if lack.askers != [CUDNN_FRONT]:
        return ()
    fronts = (one for one in libraries(s, CUDNN_FRONT) if one.name == CUDNN_FRONT)
    return next(filter(None, map(_out_of_the_way, fronts)), ())


def _by_import(lack: Lack) -> bool:
    """Whether the import of a framework stops at it, though another may be the job's."""
    return any(one.startswith("import ") for one in lack.askers)


def _optional(lack: Lack, severity: str) -> str:
    """The severity where only modules need it that may never be imported; else the rule's."""
    return severity if lack.optional else ""


def _damaged(s: Snapshot, lack: Lack) -> Finding:
    one = lack.first
    path, text = one.library.path.get(one.name), one.library.damaged.value
    return Finding(
        summary=f"{path} is damaged ({text}), and {lack.who} {lack.need} it",
        observed=f"{where(one)}: {text}; asked for by {lack.all}",
        needed=f"a whole {one.name}",
        why=f"The loader stops: '{text}'. An install that was cut short or a full disk leaves such "
        "files.",
        fix=(*_out_of_the_way(one), f"reinstall the package that brings {one.name}"),
        evidence=evidence(s, *lack.proof),
        subject=lack.who,
        severity=_optional(lack, WARN),
    )


def _out_of_the_way(one: Linked) -> Tuple[str, ...]:
    """How to get a library that the environment puts in front out of there."""
    if not one.from_environment:
        return ()
    return UNLOAD if one.library.found_by.value == "ld-preload" else UNSET


def _variable(name: str) -> str:
    return name.split(".so")[0].upper().replace("-", "_").replace("+", "X")


def undefined_symbol(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A needed symbol or symbol version has no provider among the libraries that would be loaded.

    Decided by comparing what every library that would be loaded asks for with what the others
    export, as the loader does when it binds at once. The usual cause is an older or foreign
    copy of a library in front of the right one.

    Fix: let the right copy be found first, or install the version that is asked for.
    """
    if not s.libraries.known:
        yield _unseen(s, "whether every symbol has a provider")
        return
    known = list(libraries(s))
    lacking = [one for one in known if one.library.missing_symbols.value]
    for lack in together(lacking):
        one = lack.first
        yield Finding(
            summary=f"{one.label} lacks {few(lack.symbols)}, which {lack.who} {lack.need}",
            observed=f"{where(one)} does not export {few(lack.symbols, LISTED)}; asked for by "
            f"{lack.all}",
            needed=f"a {one.name} that exports it",
            why="The loader stops with 'undefined symbol' (or 'version … not found')."
            + (" A copy in front hides the right one." if one.from_environment else ""),
            fix=_out_of_the_way(one) or (
                f"install the {one.name} that {lack.who} {_was(lack)} built against",
            ),
            evidence=evidence(s, *lack.proof, *_front(one)),
            subject=lack.who,
            severity=_optional(lack, WARN),
        )  # fmt: skip
    if not lacking:
        yield _fine(known, "every symbol that was looked for has a provider")


def _was(lack: Lack) -> str:
    return "was" if len(lack.askers) == 1 else "were"


def _front(one: Linked) -> Tuple[str, ...]:
    """The variables that put a library in front."""
    return ("env.LD_LIBRARY_PATH", "env.LD_PRELOAD") if one.from_environment else ()


def library_shadowed(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """LD_LIBRARY_PATH, LD_PRELOAD or ld.so.conf puts another copy in place of the framework's own.

    A copy that satisfies every need is a warning at most; an older one where nobody could look for
    its symbols fails. Of one that lacks symbols `link/undefined-symbol` speaks, and says what put
    it in front. torch's wheels carry RPATH since 1.13 and preload their libraries, so
    LD_LIBRARY_PATH has no effect there: what counts is what the loader would do.

    Fix: take the directory off the search path.
    """
    if not s.libraries.known:
        yield _unseen(s, "which copy of each library would be loaded")
        return
    own = (*DRIVER, *C_LIBRARY)
    judged = [
        one
        for one in libraries(s)
        if (one.from_environment or one.outdated and one.library.found_by.value in SYSTEM_WIDE)
        and not one.name.startswith(own)
        and (one.library.needed_version.known or one.library.missing_symbols.value)
    ]
    hollow = {(one.name, one.library.path.value) for one in judged
              if one.library.missing_symbols.value}  # fmt: skip
    serving = [one for one in judged if (one.name, one.library.path.value) not in hollow]
    for lack in together(serving, lambda one: one.library.needed_version.value):
        one = lack.first
        broken = one.outdated and not served(s)
        needs = f" (it needs {one.library.needed_version.value})" if one.outdated else ""
        yield Finding(
            summary=f"{where(one)} is loaded in place of the copy that {lack.who} {_was(lack)} "
            f"built with{needs}",
            observed=f"{one.label} at {where(one)}; asked for by {lack.all}",
            needed=f"the {one.name} that belongs to {lack.who}",
            why="A copy in front hides the right one: "
            + ("it is older, and what needs it may not load." if broken else
               "it serves now, and changes without the framework."),
            fix=_out_of_the_way(one) or (
                "take its directory out of /etc/ld.so.conf.d, then run ldconfig",
            ),
            evidence=evidence(s, *lack.proof, "env.LD_LIBRARY_PATH", "env.LD_PRELOAD"),
            subject=lack.who,
            severity=FAIL if broken else WARN,
        )  # fmt: skip
    if hollow and not serving:
        yield NotApplicable("what is in front lacks symbols: link/undefined-symbol speaks of it")
    elif not judged:
        yield _fine(list(libraries(s)), "no library is put in place of the framework's own")


def cudnn_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """The cuDNN that would be loaded is older than the build needs, or its parts differ.

    cuDNN is compatible with builds against an older minor version of the same major, not with
    newer ones; frameworks compare at start and refuse. torch (from 2.0 on) does not where
    PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK is 1: then it warns. Since cuDNN 8 it consists of
    several libraries that must all be of one version.

    Fix: the cuDNN that the framework asks for (its own wheel brings it), and nothing in front.
    """
    found = [one for one in libraries(s, *CUDNN) if not one.library.missing.value]
    if not found:
        yield _nothing(s, "no cuDNN was seen", "which cuDNN would be loaded")
        return
    old = [one for one in found if _refused(one)]
    for one in old:
        skipped = _unchecked(s, one)
        yield Finding(
            summary=f"{one.label} would be loaded, and {asked_by(one)} was built with "
            f"{one.library.needed_version.value}",
            observed=f"{one.label} at {where(one)}",
            needed=f"cuDNN {one.library.needed_version.value} or newer of the same major",
            why=f"{SKIP_CUDNN_CHECK}=1: torch does not refuse it, and was not built for it; what "
            "it lacks fails when it is called." if skipped else
            "The framework refuses: 'cuDNN version incompatibility' or 'Loaded runtime CuDNN "
            "library … but source was compiled with'.",
            fix=_out_of_the_way(one) or (
                f"install cuDNN {one.library.needed_version.value}",
            ),
            evidence=evidence(s, *one.proof, "env." + SKIP_CUDNN_CHECK),
            subject=asked_by(one),
            severity=WARN if skipped else "",
        )  # fmt: skip
    parts = _parts_differ(found)
    for part in parts:
        shown = ", ".join(one.label for one in part)
        yield Finding(
            summary=f"parts of cuDNN are of different versions: {shown}",
            observed=shown,
            needed="all parts of one version",
            why="The parts call each other by private interfaces: CUDNN_STATUS_SUBLIBRARY_VERSION_"
            "MISMATCH.",
            fix=("reinstall cuDNN so that all its libraries come from one package",),
            evidence=evidence(s, *[p for one in part for p in one.places("name", "version")]),
        )
    if not old and not parts:
        yield _new_enough(found, "cuDNN is not older than what was built with it")


def _refused(one: Linked) -> bool:
    """Whether the framework's own check at start refuses it: it compares major and minor."""
    need = numbers(plain(one.library.needed_version.get("")))[:2]
    return one.compared and older(one.library.version.get(""), ".".join(map(str, need)))


def _unchecked(s: Snapshot, one: Linked) -> bool:
    """Whether torch is told not to compare its cuDNN: "1", and nothing else, since torch 2.0."""
    asker = one.library.needed_by.value  # nobody where torch itself opens it first
    if s.variable(SKIP_CUDNN_CHECK).value != "1" or asker and not asker.startswith(OF_TORCH):
        return False
    releases = [f.version.get("") for f in s.frameworks.get(()) if f.name.value == "torch"]
    return all(numbers(release)[:1] >= (2,) for release in releases if numbers(release))


def _parts_differ(found: List[Linked]) -> List[List[Linked]]:
    """The cuDNNs (one for each major: libcudnn*.so.9) whose parts cannot be of one version."""
    majors: Dict[str, Dict[str, List[Linked]]] = {}
    for one in found:
        name, _, major = one.name.partition(".so")
        if numbers(one.library.version.get("")):
            majors.setdefault(major.lstrip(".").partition(".")[0], {}).setdefault(name, []).append(
                one
            )
    differ = []
    for names in majors.values():
        everything = [one for copies in names.values() for one in copies]
        fits = [
            one
            for one in everything
            if all(any(_agree(one, copy) for copy in copies) for copies in names.values())
        ]
        if not fits:
            differ.append(everything)
    return differ


def _agree(one: Linked, other: Linked) -> bool:
    """Whether two versions may be one: "9.1.0" and "9.1.0.70" are."""
    mine, theirs = (numbers(each.library.version.get("")) for each in (one, other))
    return mine[: len(theirs)] == theirs[: len(mine)]


def libcuda_unversioned_missing(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """libcuda.so.1 is there and libcuda.so is not.

    The container runtime mounts the driver's libcuda.so.1; the bare name is a development link.
    What links or opens the bare name (Triton, numba, builds of extensions) fails; all else runs.

    Fix: a link beside it, in the image or at start.
    """
    bare = next((one for one in libraries(s, "libcuda.so") if one.name == "libcuda.so"), None)
    versioned = next((one for one in libraries(s, "libcuda.so.1")), None)
    if bare is None:
        yield _nothing(s, "libcuda.so was not looked for", "whether libcuda.so is there")
        return
    if bare.library.missing.value is not True:
        yield Passed("libcuda.so is there")
        return
    if versioned and versioned.library.missing.value:
        yield NotApplicable("no libcuda here")
        return
    if not bare.library.needed_by.known and not _links(s):
        yield NotApplicable("nothing here looks for libcuda.so by that name")
        return
    path = versioned.library.path.value if versioned else None
    link = f"ln -s {path} {path.rpartition('/')[0]}/libcuda.so" if path else (
        "ln -s libcuda.so.1 libcuda.so"
    )  # fmt: skip
    yield Finding(
        summary=f"libcuda.so is not there, and {asked_by(bare)} looks for it by that name",
        observed=f"libcuda.so.1 at {path or 'its place'}, no libcuda.so",
        needed="a libcuda.so beside libcuda.so.1",
        why="Linking with -lcuda stops: 'cannot find -lcuda'; torch.compile and Triton kernels "
        "are what meets it first.",
        fix=(link,),
        evidence=evidence(s, *bare.proof, "job.uses_torch_compile"),
        subject=asked_by(bare),
    )


def _links(s: Snapshot) -> bool:
    return bool(s.job.uses_torch_compile.value or s.job.builds_extensions.value)


def glibc_too_old(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A binary needs a newer glibc than the image has.

    Decided by the GLIBC_x.y versions that the binaries ask for. torch's wheels need 2.28 since
    2.7 (some variants since 2.6), older ones 2.17.

    Fix: an image with a newer distribution, or an older release of what asks for it.
    """
    yield from _too_old(s, "glibc", list(libraries(s, *C_LIBRARY)))


def libstdcxx_too_old(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A binary needs a newer libstdc++ than would be loaded.

    Decided by the GLIBCXX_x.y.z versions that the binaries ask for, and the copy that the loader
    would pick: conda and the system often have one each, and the first one loaded serves all.

    Fix: let the newer copy be found first (conda: its lib directory), or install it.
    """
    yield from _too_old(s, "libstdc++", list(libraries(s, *CXX_LIBRARY)))


def _too_old(s: Snapshot, name: str, found: List[Linked]) -> Iterator[Outcome]:
    found = [one for one in found if one.library.needed_version.known]
    if not found:
        yield _nothing(s, f"no need of {name} was seen", f"which {name} is needed")
        return
    old = [one for one in found if one.outdated]
    for lack in together(old):
        one, need = lack.first, _newest(lack)
        yield Finding(
            summary=f"{lack.who} {lack.need} {name} {need}, and {one.label} would be loaded",
            observed=f"{one.label} at {where(one)}; asked for by {lack.all}",
            needed=f"{name} {need} or newer",
            why=f"The loader stops: 'version … not found (required by {asked_by(one)})'.",
            fix=(
                f"an image whose distribution has {name} {need} or newer",
                f"or an older release of what {lack.who} {_belongs(lack)} to",
            ),
            evidence=evidence(s, *lack.proof, "os.name", "os.glibc"),
            subject=lack.who,
            severity=_optional(lack, WARN),
        )
    if not old:
        yield _new_enough(found, f"{name} is new enough")


def _newest(lack: Lack) -> str:
    """The newest version that an asker needs."""
    every = [one.library.needed_version.get("") for one in lack.records]
    return max(every, key=lambda need: numbers(plain(need)))


def _belongs(lack: Lack) -> str:
    return "belongs" if len(lack.askers) == 1 else "belong"


def _new_enough(found: List[Linked], note: str) -> Outcome:
    """A pass, when every need could be compared with what would be loaded."""
    for one in found:
        if one.library.needed_version.known and not one.compared:
            return Undecided(one.places("version"), f"the version of {one.name}", one.name)
    if not any(one.compared for one in found):
        return NotApplicable("nobody said which version is needed")
    return Passed(note)


def _nothing(s: Snapshot, why: str, note: str) -> Outcome:
    """Nothing to judge, or nothing that could be seen."""
    lost = s.libraries.unknown and s.libraries.looked
    return Undecided(("libraries",), note) if lost else NotApplicable(why)


def _unseen(s: Snapshot, note: str) -> Outcome:
    if s.libraries.unknown:
        return Undecided(("libraries",), note)
    return NotApplicable("no library is looked at here")


def _fine(known: List[Linked], note: str) -> Outcome:
    return Passed(note) if known else NotApplicable("no library is loaded")
