"""The package that brings a missing library, as the line that installs it."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from ..matrix import Matrix, Row, cited
from ..snapshot import Snapshot
from . import common
from .cures import WHEELS
from .lacking import Lack

#: Whose names begin like this is torch's own.
OF_TORCH = ("libtorch", "libc10", "libshm.so", "libcaffe2")
_SPECIFIER = re.compile(r"[\w.*,<>=!~+ -]*")


class Cure(NamedTuple):
    """What to do, what it rests on here, and in which tables."""

    line: str
    proof: Tuple[str, ...] = ()
    sources: Tuple[str, ...] = ()


def bring(s: Snapshot, m: Matrix, lack: Lack) -> Cure:
    """How to get the library that is missing there.

    A wheel is named only where what asks for it looks there: frameworks that pip installed, and
    the wheel of their own CUDA.
    """
    name = lack.first.name
    rows = m.packages_of(name)
    system = next((row for row in rows if "apt" in row), None)
    if system:
        package = system["apt"]
        words = f"apt-get install -y {package}, or what brings {name} where apt is not at hand"
        return Cure(words, (), cited(system))
    return (
        _again(s, lack)
        or _wheel(s, m, rows, lack)
        or Cure(f"install the package that brings {name} (or reinstall what needs it)")
    )


def _again(s: Snapshot, lack: Lack) -> Optional[Cure]:
    """torch once more, where a part of itself is gone."""
    if not lack.first.name.startswith(OF_TORCH) or lack.optional:
        return None
    for number, one in enumerate(s.frameworks.get(())):
        release, _, local = one.version.get("").partition("+")
        if one.name.value == "torch" and one.build.value == "pip" and release:
            line = f"pip install --force-reinstall --no-deps torch=={one.version.value}"
            index = f" --index-url {WHEELS}{local}" if local else ""
            return Cure(line + index, (f"frameworks[{number}].version",))
    return None


def _wheel(s: Snapshot, m: Matrix, rows: List[Row], lack: Lack) -> Optional[Cure]:
    frameworks = [one for one in s.frameworks.get(()) if one.build.get("pip") == "pip"]
    if not rows or len(frameworks) < len(s.frameworks.get(())):
        return None  # other builds look elsewhere
    for number, one in enumerate(s.frameworks.get(())):
        for row in rows:
            if row["wheel"] in one.requires.get({}):
                asked = one.requires.get({})[row["wheel"]]
                proof = (f"frameworks[{number}].requires",)
                return Cure(_pip(s, row["wheel"], asked), proof, cited(row))
    majors = _majors(s, m)
    fitting = [row for row in rows if not majors or str(row["cuda_major"]) in majors]
    if not fitting:
        wanted = " or ".join(dict.fromkeys(str(row["cuda_major"]) for row in rows))
        have = ", ".join(majors)
        words = f"a build of {lack.who} for CUDA {have} (it asks for the library of CUDA {wanted})"
        return Cure(words, tuple(majors.values()))
    lines = [_pip(s, row["wheel"], "") for row in fitting]
    words = lines[0] + "".join(f" (or {row['wheel']}, for CUDA {row['cuda_major']})"
                               for row in fitting[1:])  # fmt: skip
    return Cure(words, tuple(majors.values()), cited(fitting[0]))


def _majors(s: Snapshot, m: Matrix) -> Dict[str, str]:
    """{CUDA major of a framework: the place that says so}."""
    found: Dict[str, str] = {}
    for build in common.builds(s, m):
        found.setdefault(build.cuda.partition(".")[0], build.place + ".cuda")
    return found


def _pip(s: Snapshot, wheel: str, asked: str) -> str:
    """The line; where pip thinks that it is installed it must be told to do it again."""
    asked = asked if _SPECIFIER.fullmatch(asked) else ""  # it is to be pasted into a shell
    again = "--force-reinstall --no-deps " if wheel in s.python.packages.get({}) else ""
    what = f"{wheel}{asked}" if asked.startswith("==") and "*" not in asked else f'"{wheel}{asked}"'
    return f"pip install {again}{what if asked else wheel}"
