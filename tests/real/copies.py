"""A copy of an environment with a real torch, cheap enough to be broken in every test.

Directories that a loader walks through are real, their files are hard links; all else is a link to
the original. Files are replaced, never written: the original stays as it is.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Iterable, NamedTuple

from tests.binary.places import Install

#: Below site-packages: whose files are linked one by one, to this depth.
WALKED = {"torch": 2, "nvidia": 4}
#: Loads the module's library as an import does.
MODULE = """
import ctypes, os, torch
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "_C.so"))
"""

CHILD = """
import os, sys
error = ""
try:
    for name in sys.argv[2:]:
        __import__(name)
except BaseException as raised:
    error = f"{type(raised).__name__}: {raised}"
os.write(int(sys.argv[1]), ("done" + error).encode())
os._exit(0)
"""


class Copy(NamedTuple):
    """The copy: its interpreter and its site-packages."""

    python: str
    site: Path

    def remove(self, *patterns: str) -> None:
        """Uninstall what is below the patterns."""
        for pattern in patterns:
            found = list(self.site.glob(pattern))
            assert found, f"nothing is called {pattern}"
            for path in found:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(str(path))
                else:
                    path.unlink()

    def package(self, name: str, version: str) -> None:
        """The metadata of a distribution, as pip leaves it."""
        place = self.site / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
        (place / "INSTALLER").write_text("pip\n")

    def extension(self, name: str, symbol: str, *needs: Path, version: str = "1.0") -> Path:
        """An installed package with a compiled module that wants one symbol of torch's."""
        self.package(name, version)
        libraries = [self.site / "torch" / "lib" / one for one in ("libtorch.so", "libc10.so")]
        source = f"extern int {symbol}(); void *PyInit__C = (void *) &{symbol};"
        made = build(self.site / name / "_C.so", source, [*libraries, *needs])
        (self.site / name / "__init__.py").write_text(MODULE)
        return made

    def replace(self, source: Path, place: str) -> None:
        """Another file in place of one; `source` may be of another environment."""
        (self.site / place).unlink()
        link(source, self.site / place)

    def importing(self, *modules: str, **env: str) -> str:
        """What ends the import of these modules in a child; empty when they are imported."""
        read, write = os.pipe()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
        done = subprocess.run(
            [self.python, "-s", "-c", CHILD, str(write), *modules],
            env=dict(clean, PYTHONDONTWRITEBYTECODE="1", **env),
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            timeout=120,
        )
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read().decode()
        if not text.startswith("done"):  # the loader ends it before Python starts
            return done.stderr.decode(errors="replace").strip()
        return text[len("done") :]


def copy(install: Install, home: Path) -> Copy:
    """A copy of an environment at `home`."""
    original = Path(install.site)
    venv = Path(install.python).parents[1]
    site = home / original.relative_to(venv)
    (home / "bin").mkdir(parents=True)
    shutil.copy(str(venv / "pyvenv.cfg"), str(home))
    (home / "bin" / "python").symlink_to(os.path.realpath(install.python))
    mirror(original, site, 1)
    return Copy(str(home / "bin" / "python"), site)


def mirror(source: Path, target: Path, depth: int) -> None:
    """Link what is in a directory."""
    target.mkdir(parents=True)
    for one in source.iterdir():
        put = target / one.name
        more = WALKED.get(one.name, 0) if source.name == "site-packages" else depth - 1
        if one.is_dir() and (more > 0 and one.name != "include"):
            mirror(one, put, more)
        else:
            link(one, put)


def link(source: Path, target: Path) -> None:
    """A hard link, or a symbolic one to directories and other file systems."""
    if not source.is_dir():
        try:
            os.link(str(source.resolve()), str(target))
            return
        except OSError:
            pass
    target.symlink_to(source.resolve())


# -- small libraries ----------------------------------------------------------------------------


def build(
    path: Path, source: str = "", needs: Iterable[Path] = (), words: Iterable[str] = ()
) -> Path:
    """A shared library of C code that needs others by their names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(path.name + ".c")
    made.write_text(source + "\n")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-nostdlib", str(made), "-o", str(path), "-Wl,--no-as-needed",
         "-Wl,--unresolved-symbols=ignore-all", "-Wl,--allow-shlib-undefined",
         *map(str, needs), *words],
        check=True,
    )  # fmt: skip
    made.unlink()
    return path


def hollow(folder: Path, soname: str) -> Path:
    """A library of that name with nothing in it."""
    return build(folder / soname, words=[f"-Wl,-soname,{soname}"])


def with_gpu_code(library: Path, sample: Path) -> None:
    """Put the GPU code of a sample into a library."""
    raw = str(library) + ".fatbin"
    subprocess.run(
        ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", str(sample), raw], check=True
    )
    section = [f"--add-section=.nv_fatbin={raw}", "--set-section-flags=.nv_fatbin=alloc,readonly"]
    subprocess.run(
        ["objcopy", *section, str(library)], check=True, stderr=subprocess.DEVNULL
    )  # it warns that no segment has the section
    os.unlink(raw)


def rpath_to_runpath(path: Path) -> None:
    """Give a library a DT_RUNPATH in place of its DT_RPATH, in a file of its own."""
    data = bytearray(path.read_bytes())
    start, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        for place in range(offset, offset + length, 16) if kind == 2 else ():
            if struct.unpack_from("<Q", data, place) == (15,):
                struct.pack_into("<Q", data, place, 29)
    path.unlink()
    path.write_bytes(data)
