"""Random trees of small ELF files, and what the real ld.so says of them.

A pool of libraries is linked once; a case strews copies, links and rubbish of it over a directory
that ld.so sees as its root (chroot), with a cache made by ldconfig, or in which it runs as it is.
"""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

LOADER = "/lib64/ld-linux-x86-64.so.2"
NAMES = [f"lib{letter}.so.1" for letter in "abcdef"]
DIRECTORIES = ["d1", "d2", "d3", "d4/sub", "usr/lib", "lib", "usr/lib/x86_64-linux-gnu"]
SUBDIRECTORIES = ["glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3", "tls", "x86_64", "tls/x86_64"]
IN_RPATH = [
    "$ORIGIN", "${ORIGIN}", "$ORIGIN/../d2", "$ORIGIN/../d3/", "${ORIGIN}/../d4/sub//", "/d1",
    "/d2/", "/d3", "/d4/sub", "/usr/$LIB", "/nothing", "/d1/$PLATFORM", "$ORIGIN/$LIB",
    "/$ORIGINAL", "d1", "", "$ORIGIN/../../d1",
]  # fmt: skip
IN_VARIABLE = ["/d1", "/d2/", "/d3", "/d4/sub", "$ORIGIN/../d2", "/nothing", "", "d2", "/usr/$LIB"]


def tools_missing() -> Optional[str]:
    """Which program the trees need and this machine lacks; None when all are here."""
    for tool in ("gcc", "ld", "ldconfig"):
        if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin"):
            return tool
    return None if os.path.exists(LOADER) else LOADER


class Pool(NamedTuple):
    """Linked files: libraries by the name they are made for, and executables."""

    libraries: Dict[str, List[Path]]
    executables: List[Path]


def make_pool(directory: Path, seed: int, variants: int = 14) -> Pool:
    """Link the pool with ld."""
    dice = random.Random(seed)
    source = directory / "empty.c"
    source.write_text("int unused;\n")
    made = directory / "empty.o"
    subprocess.run(["gcc", "-c", "-fPIC", str(source), "-o", str(made)], check=True)
    stubs = directory / "stubs"
    stubs.mkdir()
    for name in [*NAMES, "libnowhere.so.1"]:
        _link(["-shared", "-soname", name, str(made), "-o", str(stubs / name)])
    libraries = {
        name: [_library(dice, directory, made, stubs, name, number) for number in range(variants)]
        for name in NAMES
    }
    return Pool(libraries, [_executable(dice, directory, made, stubs, n) for n in range(16)])


def _link(arguments: List[str]) -> None:
    subprocess.run(["ld", *arguments], check=True, stderr=subprocess.DEVNULL)


def _paths(dice: random.Random) -> List[str]:
    if dice.random() < 0.45:
        return []
    kind = dice.choice(["--enable-new-dtags", "--disable-new-dtags"])
    path = ":".join(dice.choice(IN_RPATH) for _ in range(dice.randint(1, 4)))
    return [kind, "-rpath", path] if path else []


def _needed(dice: random.Random, stubs: Path, least: int, most: int) -> List[str]:
    names = dice.sample(NAMES, dice.randint(least, most))
    if dice.random() < 0.06:
        names.append("libnowhere.so.1")
    return ["--no-as-needed", *(str(stubs / name) for name in names)]


def _library(
    dice: random.Random, directory: Path, made: Path, stubs: Path, name: str, number: int
) -> Path:
    path = directory / f"{name}.{number}"
    soname = dice.choice([name] * 8 + [None, dice.choice(NAMES)])
    words = ["-soname", soname] if soname else []
    words += ["-z", "nodefaultlib"] if dice.random() < 0.08 else []
    _link(
        ["-shared", *words, *_paths(dice), str(made), *_needed(dice, stubs, 0, 3), "-o", str(path)]
    )
    return path


def _executable(dice: random.Random, directory: Path, made: Path, stubs: Path, number: int) -> Path:
    path = directory / f"program.{number}"
    words = ["-z", "nodefaultlib"] if dice.random() < 0.08 else []
    # ld.so prints nothing for a program that needs nothing.
    needed = _needed(dice, stubs, 1, 4)
    _link(
        ["-pie", "-e", "0", "-dynamic-linker", LOADER, *words, *_paths(dice), str(made), *needed]
        + ["-o", str(path)]
    )
    return path


class Case(NamedTuple):
    """A tree, how a program in it is started, and in which environment. Paths as the tree's."""

    top: Path
    program: str
    env: Dict[str, str]
    cwd: str
    chroot: bool


def make_case(pool: Pool, top: Path, seed: int, chroot: bool) -> Case:
    """Strew files over the empty directory `top`."""
    dice = random.Random(seed)
    for directory in DIRECTORIES:
        (top / directory).mkdir(parents=True)
    (top / "etc").mkdir()
    if chroot:
        target = top / LOADER.lstrip("/")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(LOADER, str(target))
    placed: List[Path] = []
    for name in NAMES:
        for _ in range(dice.choice([0, 1, 1, 2, 2, 3])):
            _place(dice, pool, top, name, placed)
    program = top / dice.choice(["d1", "d4/sub"]) / "program"
    shutil.copy(str(dice.choice(pool.executables)), str(program))
    if chroot:
        _configure(dice, top)
    return Case(top, _seen(program, top, chroot), _environment(dice, top, chroot), "/", chroot)


def _place(dice: random.Random, pool: Pool, top: Path, name: str, placed: List[Path]) -> None:
    folder = top / dice.choice(DIRECTORIES)
    if dice.random() < 0.2:
        folder = folder / dice.choice(SUBDIRECTORIES)
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if os.path.lexists(str(path)):
        return
    luck = dice.random()
    if luck < 0.12 and placed:
        there = dice.choice(placed)
        path.symlink_to(os.path.relpath(str(there), str(folder)))
    elif luck < 0.17 and placed:
        os.link(str(dice.choice(placed)), str(path))
    elif luck < 0.20:
        path.symlink_to(dice.choice(["nothing", name]))  # broken, or a circle
    elif luck < 0.25:
        _foreign(dice, dice.choice(pool.libraries[name]), path)
    elif luck < 0.26:
        path.write_text("not an ELF file, but longer than an ELF header, so that it is read\n")
    else:
        shutil.copy(str(dice.choice(pool.libraries[name])), str(path))
        placed.append(path)


def _foreign(dice: random.Random, source: Path, path: Path) -> None:
    """A file of another class or another machine, which the loader passes over."""
    data = bytearray(source.read_bytes())
    if dice.random() < 0.5:
        data[4] = 1
    else:
        data[18] = 183
    path.write_bytes(bytes(data))


def _configure(dice: random.Random, top: Path) -> None:
    listed = dice.sample(["/d1", "/d2", "/d3", "/d4/sub"], dice.randint(0, 3))
    (top / "etc/ld.so.conf").write_text("include ld.so.conf.d/*.conf\n" + "\n".join(listed) + "\n")
    _ldconfig(top, dice.choice(["new", "new", "compat", "old"]))
    if dice.random() < 0.3:
        (top / "etc/ld.so.preload").write_text("# one\n" + _preloads(dice) + "\n")


def _ldconfig(top: Path, form: str) -> None:
    cache = top / "etc/ld.so.cache"
    # -X: no links of its own. It is loud about rubbish.
    subprocess.run(
        ["/sbin/ldconfig", "-X", "-c", form, "-r", str(top)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if form != "new" and cache.exists() and _has_subdirectories(top):
        # ldconfig 2.36 writes more old entries than it counts then, over what follows.
        cache.unlink()


def _has_subdirectories(top: Path) -> bool:
    names = {one.partition("/")[0] for one in SUBDIRECTORIES}
    return any(path.name in names for path in top.glob("**/*") if path.is_dir())


def _preloads(dice: random.Random) -> str:
    names = [dice.choice(NAMES + ["/d1/" + NAMES[0], "/d2/" + NAMES[1], "/d3/libno.so"])]
    return dice.choice([" ", ":"]).join(names * dice.randint(1, 2))


def _environment(dice: random.Random, top: Path, chroot: bool) -> Dict[str, str]:
    env = {}
    if dice.random() < 0.6:
        parts = [dice.choice(IN_VARIABLE) for _ in range(dice.randint(1, 4))]
        env["LD_LIBRARY_PATH"] = dice.choice([":", ";"]).join(parts)
    if dice.random() < 0.3:
        env["LD_PRELOAD"] = _preloads(dice)
    if not chroot:
        env = {name: _rooted(value, top) for name, value in env.items()}
    return env


def _rooted(value: str, top: Path) -> str:
    return re.sub(r"(^|[:; ])/", lambda found: f"{found.group(1)}{top}/", value)


def _seen(path: Path, top: Path, chroot: bool) -> str:
    return "/" + os.path.relpath(str(path), str(top)) if chroot else str(path)


class Traced(NamedTuple):
    """What ld.so said: (name, path) of each library, names not found, and what stopped it."""

    found: Tuple[Tuple[str, str], ...]
    missing: Tuple[str, ...]
    error: str


_LINE = re.compile(r"^\t(.*?)(?: => (.*?))?(?: \(0x[0-9a-f]+\))?$")
_ERROR = re.compile(r"error while loading shared libraries: (.*)")


def trace(case: Case) -> Traced:
    """Ask the real ld.so about a case."""
    env = dict(case.env, LD_TRACE_LOADED_OBJECTS="1", LC_ALL="C")
    if case.chroot:
        # Only that ld.so finds no /proc in there: it is told the program by its path.
        words = [LOADER, case.program]
        return _traced(_run(words, env, lambda: (os.chroot(str(case.top)), os.chdir(case.cwd))))
    return _traced(_run([case.program], env, lambda: os.chdir(case.cwd)))


def trace_library(path: str) -> Traced:
    """What the real ld.so loads for a library in a program's place."""
    env = {"LD_TRACE_LOADED_OBJECTS": "1", "LC_ALL": "C"}
    return _traced(_run([LOADER, path], env, lambda: os.chdir("/")))


def _traced(done) -> Traced:
    error = _ERROR.search(done.stderr)
    rows = [_LINE.match(line) for line in done.stdout.splitlines()]
    found, missing = [], []
    for row in rows:
        if not row or row.group(1).startswith(("linux-vdso", "statically")):
            continue
        name, path = row.group(1), row.group(2) or row.group(1)
        if path == "not found":
            missing.append(name)
        elif name != LOADER:
            found.append((name, path))
    return Traced(tuple(sorted(found)), tuple(sorted(missing)), error.group(1) if error else "")


def _run(words, env, before):
    return subprocess.run(
        words,
        env=env,
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=20,
    )
