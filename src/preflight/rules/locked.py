"""What the `lock/*` rules share: the locks of a snapshot, what is installed, what matters."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..lockfiles.model import CONSTRAINTS, LOCK, normalize
from ..lockfiles.versions import satisfies
from ..matrix import Matrix
from ..snapshot import Lock, Pin, Snapshot
from .registry import FAIL, WARN, Evidence

FRAMEWORKS = {
    "torch", "torchvision", "torchaudio", "pytorch", "pytorch-cuda", "triton", "pytorch-triton",
    "tensorflow", "tensorflow-gpu", "tf-nightly", "jax", "jaxlib", "paddlepaddle-gpu", "mindspore",
}  # fmt: skip
_CUDA = re.compile(r"nvidia-|cuda|cudnn$|lib(cublas|cufft|curand|cusolver|cusparse|npp|nvjitlink)")
#: Bindings and tools in plain Python under such names: no CUDA job depends on their version.
_PLAIN_PYTHON = {"nvidia-ml-py", "nvidia-ml-py3", "nvidia-pyindex", "nvidia-htop"}
_JAX_PLUGIN = re.compile(r"jax-cuda\d+-(plugin|pjrt)")
#: More entries than this are counted, not named, in one line.
NAMED = 4


class Held(NamedTuple):
    """A lock that could be read: its place in the snapshot, and the entries that are for here."""

    lock: Lock
    place: str
    path: str
    pins: Tuple[Pin, ...]

    @property
    def constraints(self) -> bool:
        return self.lock.role.value == CONSTRAINTS

    @property
    def strict(self) -> bool:
        """A tool wrote it, or somebody asked for it by name: it is meant."""
        return self.lock.role.value == LOCK or bool(self.lock.named.value)

    def by_name(self) -> Dict[str, List[Pin]]:
        found: Dict[str, List[Pin]] = {}
        for one in self.pins:
            found.setdefault(one.name, []).append(one)
        return found


def held(s: Snapshot) -> Iterator[Held]:
    """The locks whose entries are known."""
    for number, lock in enumerate(s.locks.get(())):
        if lock.entries.known:
            pins = tuple(one for one in lock.entries.get(()) if not one.applies)
            yield Held(lock, f"locks[{number}]", lock.path.get("lock"), pins)


def matters(m: Matrix, name: str) -> bool:
    """A framework, a library of CUDA's, NCCL, or an extension tied to one of them."""
    plain = normalize(name)
    if plain in FRAMEWORKS or _JAX_PLUGIN.fullmatch(plain) or plain in ("nccl", "cudatoolkit"):
        return True
    return of_cuda(plain) or m.is_extension(plain)


def of_cuda(name: str) -> bool:
    """A library of CUDA's, as a package of pip or conda."""
    return bool(_CUDA.match(name)) and name not in _PLAIN_PYTHON


def installed(s: Snapshot, pin: Pin) -> Optional[str]:
    """The version that is there of what an entry names, its local part too; None: none known.

    What METADATA leaves out (the default index's torch), version.py says.
    """
    if pin.manager:
        return s.python.packages_conda.get({}).get(pin.name)
    version = s.python.packages.get({}).get(pin.name)
    for one in s.frameworks.get(()):
        if one.name.value == pin.name and one.version.known:
            said = one.version.get("")
            if version is None or said.partition("+")[0] == version.partition("+")[0]:
                return said
    local = s.python.locals.get({}).get(pin.name)
    if version and local and "+" not in version:
        return f"{version}+{local}"
    return version


def complete(s: Snapshot) -> bool:
    """Whether what is not among the packages is not installed (a description names only some)."""
    return s.origin != "described" and bool(s.python.packages.value)


#: Whose CUDA is in its build string alone, of conda.
BY_BUILD = ("pytorch", "pytorch-gpu", "libtorch", "tensorflow", "tensorflow-gpu", "jaxlib")


def exact(pin: Pin) -> Optional[str]:
    """The one version that an entry pins; None where it leaves it open."""
    spec = pin.spec
    if pin.manager:
        plain = spec.lstrip("=")
        closed = spec.startswith("==") or pin.build or plain.count(".") >= 2
        return plain if spec.startswith("=") and closed and "*" not in plain else None
    if spec.startswith("===") and "," not in spec:
        return spec[3:]
    if spec.startswith("==") and "," not in spec and not spec.endswith("*"):
        return spec[2:]
    return None


def is_open(pin: Pin) -> bool:
    """Whether the next installation may take another artefact for an entry than the last."""
    if pin.manager and pin.name in BY_BUILD and not pin.build:
        return True
    if exact(pin) is not None or pin.name in ("", "pip"):
        return False
    if pin.manager:
        # What conda calls python=3.11 is as far as people pin it.
        return not (pin.name == "python" and pin.spec.startswith("="))
    if not pin.url:
        return True
    repository = pin.url.partition("+")[0] in ("git", "hg", "bzr", "svn")
    return repository and "@" not in pin.url.rpartition("/")[2]


def admits(pin: Pin, version: str, build: str = "") -> bool:
    """Whether an installed version is what an entry asks for."""
    if pin.manager:
        from ..lockfiles import conda_versions

        return conda_versions.satisfies(version, build, pin.spec, pin.build)
    return satisfies(version, pin.spec) if pin.spec else True


def written(pin: Pin) -> str:
    """An entry as its file has it."""
    build = f"={pin.build}" if pin.manager and pin.build else ""
    if pin.url and not pin.spec:
        return f"{pin.name} @ {pin.url}" if pin.name else pin.url
    return f"{pin.name}{pin.spec}{build}"


def some(words: List[str]) -> str:
    """ "a, b, c, d and 3 more"."""
    more = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more} more" if more > 0 else "")


def evidence_of(one: Held, pins: List[Pin], limit: int = 20) -> Tuple[Evidence, ...]:
    """The lines of a lock that a finding rests on."""
    found = []
    for pin in pins[:limit]:
        place = f"{one.path}:{pin.line}" if pin.line else one.path
        found.append(Evidence(f"{one.place}.entries", written(pin), place))
    return tuple(found)


def severity(one: Held, s: Snapshot) -> str:
    """Fail for a lock that is meant; a file of requirements beside a framework is an intention.

    Such a file names what people would install, and the job runs what is there: it may only warn.
    So does the lock of another environment. Where no framework is there, it is what will run.
    """
    meant = one.strict and not foreign(s, one)
    return FAIL if meant or not s.frameworks.value else WARN


def foreign(s: Snapshot, one: Held) -> bool:
    """Whether a lock that nobody named is another environment's: most of it is not installed."""
    if one.lock.named.value or not complete(s):
        return False
    there = sum(1 for pin in one.pins if pin.name and installed(s, pin) is not None)
    return there * 2 < len(one.pins)
