"""A lock that preflight writes: honest about builds, and installable where it was made."""

import ensurepip
import glob
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import partial

import pytest

from preflight import lockfiles, lockwrite, matrix
from preflight.probes import installed
from preflight.probes.python_env import read_environment
from preflight.roots import Root
from preflight.snapshot import PythonEnv, known, unknown
from tests.probes.fake_root import Image

SITE = "/env/lib/python3.11/site-packages"
WHL = "https://download.pytorch.org/whl"
EXTRA = f"--extra-index-url {WHL}"
FIND = f"--find-links {WHL}"


@pytest.fixture
def image(tmp_path):
    image = Image(tmp_path).python("/usr", "3.11").folders(SITE).program("/env/bin/python")
    alone = "home = /usr/bin\nversion = 3.11.7\ninclude-system-site-packages = false\n"
    return image.write("/env/pyvenv.cfg", alone)


def environment(root, interpreter="/env/bin/python", arch="x86_64"):
    python = read_environment(root, interpreter, {"HOME": "/nobody"})
    more = installed.read(root, python, arch)
    return replace(python, origins=more.origins, locals=more.locals)


def write(image, arch="x86_64", **more):
    python = replace(environment(image.root, arch=arch), **more)
    return lockwrite.lines(image.root, python, arch, matrix.load(), "2026-11-29")


def body(text):
    """What is no comment, without comments."""
    found = [one.partition("  #")[0] for one in text.splitlines()]
    return [one for one in found if one and not one.startswith("#")]


def torch(image, version, stated, name="torch"):
    image.dist(SITE, name, version)
    return image.write(f"{SITE}/{name}/version.py", f"__version__ = '{stated}'\n")


def origin(image, name, version, **document):
    image.dist(SITE, name, version)
    where = f"{SITE}/{name}-{version}.dist-info/direct_url.json"
    return image.write(where, json.dumps(document))


def test_the_head_says_what_made_it_and_for_what(image):
    image.dist(SITE, "b", "2").dist(SITE, "A_a", "1.0")
    text = write(image)
    mark = lockwrite.fingerprint([("a-a", "1.0"), ("b", "2")])
    assert text.splitlines() == [
        "# Made by preflight lock --write on 2026-11-29",
        "# Python 3.11.7, linux x86_64",
        f"# Packages: 2, fingerprint {mark}",
        "",
        "a-a==1.0",
        "b==2",
    ]
    assert lockwrite.fingerprint([("b", "2"), ("a-a", "1.0")]) == mark


def test_it_is_read_back_as_a_lock(image):
    torch(image, "2.6.0", "2.6.0+cu118")
    origin(image, "edited", "1", url="file:///env", dir_info={"editable": True})
    origin(
        image, "direct", "1", url="https://e.org/a.whl", archive_info={"hash": "sha256=" + "a" * 64}
    )
    parsed = lockfiles.read("requirements.lock.txt", write(image).encode())
    assert parsed.role == "lock"
    assert parsed.indexes == (f"{EXTRA}/cu118",)
    by_name = {one.name: one for one in parsed.entries}
    assert by_name["torch"].spec == "==2.6.0+cu118"
    assert by_name["direct"].url.startswith("https://e.org/a.whl")
    assert len(by_name) == 3


@pytest.mark.parametrize(
    "version, stated, arch, expected",
    [
        # What the default index gives needs nothing.
        ("2.6.0", "2.6.0+cu124", "x86_64", ["torch==2.6.0"]),
        # Another build: the metadata lost it, or has it.
        ("2.6.0", "2.6.0+cu118", "x86_64", [f"{EXTRA}/cu118", "torch==2.6.0+cu118"]),
        ("2.6.0+cu124", "", "x86_64", [f"{EXTRA}/cu124", "torch==2.6.0+cu124"]),
        ("2.6.0+cpu", "", "x86_64", [f"{EXTRA}/cpu", "torch==2.6.0+cpu"]),
        # On aarch64 the default was a CPU build until 2.11.
        ("2.9.0", "2.9.0+cpu", "aarch64", ["torch==2.9.0"]),
        ("2.9.0", "2.9.0+cu130", "aarch64", [f"{EXTRA}/cu130", "torch==2.9.0+cu130"]),
        ("1.9.1+cu111", "", "x86_64", [f"{FIND}/torch_stable.html", "torch==1.9.1+cu111"]),
        # A release that no table knows: what the metadata says, and no guess.
        ("9.9.9", "9.9.9+cu999", "x86_64", ["torch==9.9.9"]),
    ],
)  # fmt: skip
def test_the_build_of_torch(image, version, stated, arch, expected):
    torch(image, version, stated or version)
    assert body(write(image, arch)) == expected


def test_companions_come_from_the_index_of_torch(image):
    torch(image, "2.6.0+cu118", "2.6.0+cu118")
    torch(image, "0.21.0", "0.21.0+cu118", "torchvision")
    image.dist(SITE, "torch_scatter", "2.1.2+pt26cu118").dist(
        SITE, "jaxlib", "0.4.25+cuda12.cudnn89"
    )
    assert body(write(image)) == [
        f"{EXTRA}/cu118",
        "--find-links https://data.pyg.org/whl/torch-2.6.0+cu118.html",
        "--find-links https://storage.googleapis.com/jax-releases/jax_cuda_releases.html",
        "jaxlib==0.4.25+cuda12.cudnn89",
        "torch==2.6.0+cu118",
        "torch-scatter==2.1.2+pt26cu118",
        "torchvision==0.21.0+cu118",
    ]


def test_companions_of_the_default_build_need_nothing(image):
    torch(image, "2.6.0", "2.6.0+cu124")
    torch(image, "0.21.0", "0.21.0+cu124", "torchvision")
    assert body(write(image)) == ["torch==2.6.0", "torchvision==0.21.0"]


def test_a_build_of_its_own_is_a_comment_with_the_reason(image):
    image.dist(SITE, "torch", "2.9.0a0+145a3a7bda.nv25.10").dist(SITE, "fine", "1")
    text = write(image)
    assert body(text) == ["fine==1"]
    assert "# torch==2.9.0a0+145a3a7bda.nv25.10: a version with a local part" in text


def test_direct_urls(image):
    digest = "b" * 64
    hashes = {"hashes": {"sha256": digest}}
    image.write("/w/a.whl")
    origin(image, "a", "1", url="file:///w/a.whl", archive_info=hashes)
    origin(image, "b", "1", url="https://u:p@e.org/b.tar.gz", archive_info=hashes, subdirectory="x")
    git = {"vcs": "git", "commit_id": "c" * 40}
    origin(image, "c", "1", url="ssh://git@host/c.git", vcs_info=git, subdirectory="py")
    origin(image, "d", "1", url="file:///w/gone.whl", archive_info={})
    text = write(image)
    assert body(text) == [
        f"a @ file:///w/a.whl#sha256={digest}",
        f"b @ https://e.org/b.tar.gz#sha256={digest}&subdirectory=x",
        f"c @ git+ssh://git@host/c.git@{'c' * 40}#subdirectory=py",
    ]
    assert "# d @ file:///w/gone.whl: it was installed from there, and is gone" in text


@pytest.mark.parametrize(
    "remote, written",
    [
        ("https://token@host/o/r.git", "git+https://host/o/r.git"),
        ("git@host:o/r.git", "git+ssh://git@host/o/r.git"),
        ("/some/where", ""),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_editable_checkout(image, remote, written, packed):
    commit = "d" * 40
    image.write("/src/r/.git/HEAD", "ref: refs/heads/main\n")
    config = (
        f'[core]\n\turl = no\n[remote "fork"]\n\turl = no\n[remote "origin"]\n\turl = {remote}\n'
    )
    image.write("/src/r/.git/config", config)
    where, line = "refs/heads/main", f"{commit}\n"
    if packed:
        where, line = "packed-refs", f"# pack-refs\n{commit} refs/heads/main\n"
    image.write(f"/src/r/.git/{where}", line).folders("/src/r/py")
    origin(image, "thing", "1", url="file:///src/r/py", dir_info={"editable": True})
    (one,) = body(write(image))
    expected = f"-e {written}@{commit}#egg=thing&subdirectory=py"
    assert one == (expected if written else "-e file:///src/r/py#egg=thing")


def test_an_editable_install_whose_source_is_gone(image):
    origin(image, "thing", "1", url="file:///src/x", dir_info={"editable": True})
    text = write(image)
    assert body(text) == [] and "# -e file:///src/x: an editable install" in text


def test_installers_only_where_something_requires_them(image):
    for name in ("pip", "setuptools", "wheel"):
        image.dist(SITE, name, "1")
    assert body(write(image)) == []
    metadata = "Name: torch\nVersion: 9\nRequires-Dist: setuptools>=1\n\n"
    image.dist(SITE, "torch", "9", metadata)
    assert body(write(image)) == ["setuptools==1", "torch==9"]


def test_packages_of_conda_and_of_the_system(image):
    image.dist(SITE, "numpy", "1.26.4").write(f"{SITE}/numpy-1.26.4.dist-info/INSTALLER", "conda")
    image.dist(SITE, "apt", "2.4").write(f"{SITE}/apt-2.4.dist-info/INSTALLER", "debian")
    conda = known({"numpy": "1.26.4", "cuda-cudart": "12.4.127", "python": "3.11.7"}, "conda-meta")
    text = write(image, packages_conda=conda, builds_conda=known({"python": "h1_0"}, "conda-meta"))
    assert body(text) == ["numpy==1.26.4"]
    assert "# apt==2.4: a package of the operating system\n" in text
    tail = text.split("# Installed by conda alone")[1].splitlines()[1:]
    assert tail == ["# cuda-cudart=12.4.127", "# python=3.11.7=h1_0"]


def test_names_and_versions_that_pip_does_not_take(image):
    image.dist(SITE, "line", "1\n").dist(SITE, "od\nd", "1").dist(SITE, "legacy", "1.0.x!y").dist(
        SITE, "a b", "1"
    )
    text = write(image)
    assert body(text) == []
    assert text.count("pip takes no such name or version") == 4


def test_no_environment_no_lock():
    with pytest.raises(lockwrite.NothingToLock, match="no interpreter"):
        python = PythonEnv(packages=unknown("no interpreter"))
        lockwrite.lines(Root(), python, "x86_64", matrix.load())
    python = PythonEnv(packages=known({"a": "1"}, "x"), origins=unknown("no answer within 15 s"))
    with pytest.raises(lockwrite.NothingToLock, match="come from is not known: no answer"):
        lockwrite.lines(Root(), python, "x86_64", matrix.load())


# -- pip itself -------------------------------------------------------------------------------

PIP = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))


def wheel(folder, name, version, requires=""):
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    tag = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "x = 1\n")
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", tag)
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    return path


@pytest.fixture
def unpacked(tmp_path):
    """Where pip lies unpacked: from its wheel it starts three times as slowly."""
    with zipfile.ZipFile(PIP[0]) as file:
        file.extractall(str(tmp_path / "pip"))
    return str(tmp_path / "pip")


def run_pip(place, venv, *arguments):
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": place, "PIP_CONFIG_FILE": os.devnull, "HOME": "/"}
    line = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    run = subprocess.run(line, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def fresh(folder):
    base = os.path.realpath(sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.mark.skipif(not PIP, reason="this Python brings no pip")
def test_it_installs_into_an_equal_environment(tmp_path, unpacked):
    pip = partial(run_pip, unpacked)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel(shelf, "one", "1.0", "two>=1")
    wheel(shelf, "two", "1.5")
    wheel(shelf, "two", "2.0")
    (tmp_path / "elsewhere").mkdir()
    direct = wheel(tmp_path / "elsewhere", "three", "3.0")
    first, second = fresh(tmp_path / "first"), fresh(tmp_path / "second")
    offline = ("--no-index", "--find-links", str(shelf))
    pip(first, "install", *offline, "one", "two==1.5", f"three @ file://{direct}")
    python = environment(Root(), str(first / "bin/python"), os.uname().machine)
    text = lockwrite.lines(Root(), python, os.uname().machine, matrix.load())
    lock = tmp_path / "lock.txt"
    lock.write_text(text)
    assert "two==1.5\n" in text and f"three @ file://{direct}" in text

    again = pip(first, "install", *offline, "-r", str(lock))
    assert "Successfully installed" not in again
    pip(second, "install", *offline, "-r", str(lock))
    assert pip(second, "freeze") == pip(first, "freeze")
    python = environment(Root(), str(second / "bin/python"), os.uname().machine)
    assert lockwrite.lines(Root(), python, os.uname().machine, matrix.load()) == text
