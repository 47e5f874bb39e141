"""Whether a command can be executed, against the kernel: it is executed, and says so itself."""

import subprocess

import pytest

from preflight.probes import entry
from preflight.probes.place import Place
from preflight.roots import Root
from tests.probes.fake_root import Image

PATH = "/usr/local/bin:/usr/bin:/bin"

#: Of a script: its bytes, its mode, and a word of what is wrong ("": nothing).
SCRIPTS = {
    "plain": (b"#!/bin/sh\nexit 0\n", 0o755, ""),
    "no permission": (b"#!/bin/sh\nexit 0\n", 0o644, "x permission"),
    "carriage returns": (b"#!/bin/sh\r\nexit 0\r\n", 0o755, "is not there"),
    "blanks at the end": (b"#!/bin/sh  \t\nexit 0\n", 0o755, ""),
    "blanks before": (b"#! \t/bin/sh\nexit 0\n", 0o755, ""),
    "by env": (b"#!/usr/bin/env sh\nexit 0\n", 0o755, ""),
    "by env, a blank at the end": (b"#!/usr/bin/env sh \nexit 0\n", 0o755, ""),
    "by env, a carriage return": (b"#!/usr/bin/env sh\r\nexit 0\r\n", 0o755, "env finds no"),
    "by env, a hard blank": ("#!/usr/bin/env sh\u00a0\nexit 0\n".encode(), 0o755, "env finds no"),
    "by env, two words": (b"#!/usr/bin/env sh -e\nexit 0\n", 0o755, "env finds no"),
    "by env -S": (b"#!/usr/bin/env -S sh -e\nexit 0\n", 0o755, ""),
    "no such interpreter": (b"#!/opt/none/python\n", 0o755, "is not there"),
    "no line": (b"echo hello\n", 0o755, "no #! line"),
    "an empty line": (b"#!\nexit 0\n", 0o755, "without an interpreter"),
}


def kernel(path):
    """Whether it can be executed and ends with 0, by doing so."""
    try:
        return subprocess.run([str(path)], env={"PATH": PATH}, check=False,
                              capture_output=True).returncode == 0  # fmt: skip
    except OSError:
        return False


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_as_the_kernel_has_it(name, tmp_path):
    text, mode, words = SCRIPTS[name]
    path = tmp_path / "start.sh"
    path.write_bytes(text)
    path.chmod(mode)
    found = entry.problem(Place(Root(), {"PATH": PATH}, "/"), [str(path)])
    assert (found is None) == kernel(path), found
    assert found is None if not words else words in found.words


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_starts_all_the_same_is_told_apart(name, tmp_path):
    """execve itself refuses the others; what env does not find ends with 127 only then."""
    text, mode, words = SCRIPTS[name]
    path = tmp_path / "start.sh"
    path.write_bytes(text)
    path.chmod(mode)
    try:
        done = subprocess.run([str(path)], env={"PATH": PATH}, check=False, capture_output=True)
        started = True
        assert done.returncode == (127 if words else 0)
    except OSError:
        started = False
    found = entry.problem(Place(Root(), {"PATH": PATH}, "/"), [str(path)])
    assert started == (found is None or found.starts)


def test_in_an_image(tmp_path):
    image = Image(tmp_path).program("/bin/sh").write("/app/start.sh", "#!/bin/sh\n", 0o755)
    image.write("/app/other.sh", "#!/bin/bash\n", 0o755).folders("/app/folder")
    at = Place(image.root, {"PATH": "/app:/bin"}, "/app")

    def words(*command):
        found = entry.problem(at, command)
        return found.words if found else ""

    assert words("start.sh") == words("./start.sh") == words("/app/start.sh") == words("sh") == ""
    assert "'/bin/bash' is not there" in words("other.sh")
    assert words("none") == "none is not there" and words("/app/folder") == "/app/folder is no file"
    assert words() == "no command is given"
