"""The interpreter is found and its sys.path and packages rebuilt as the interpreter has them.

Where an interpreter is at hand, it is asked itself; the other layouts are built from files.
"""

import glob
import json
import os
import subprocess
import sys
import time

import pytest

from preflight.probes.distributions import normalize
from preflight.probes.interpreter import find_interpreter
from preflight.probes.python_env import read_environment
from preflight.roots import Root
from tests.probes.fake_root import Image

LIVE = Root()
BASE = os.path.realpath(sys.executable)
TAG = ".".join(map(str, sys.version_info[:2]))

ASK = """
import json, sys, sysconfig
stdlib = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
parts = "/lib-dynload", ".zip", "/lib-old", "/lib-tk", "/plat-linux2"
path = [one for one in sys.path if one and one not in stdlib and not one.endswith(parts)]
version = "%d.%d.%d" % sys.version_info[:3]
print(json.dumps({"version": version, "prefix": sys.prefix, "path": path}))
"""

ASK_PACKAGES = """
import importlib.metadata as metadata, json, re
found = {}
for one in metadata.distributions():
    name = one.metadata["Name"]
    if name and one.version:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), one.version)
print(json.dumps(found))
"""


def ask(python, code, env, cwd="/"):
    """What the interpreter itself answers."""
    run = subprocess.run(
        [python, "-c", code], env=env, cwd=cwd, stdout=subprocess.PIPE, check=True, timeout=30
    )
    return json.loads(run.stdout.decode())


def minimal(**more):
    """An environment without anything that changes sys.path."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", **more}


def agree(python, env, cwd="/"):
    """Demand that what the files say is what the interpreter says; returns what was read."""
    truth = ask(python, ASK, env, cwd)
    read = read_environment(LIVE, python, env)
    assert read.path.get(()) == tuple(one for one in truth["path"] if os.path.isdir(one))
    assert read.prefix.value == truth["prefix"]
    assert truth["version"].startswith(read.version.get("?"))
    return read


def venv(folder, *options, python=BASE):
    subprocess.run([python, "-m", "venv", "--without-pip", *options, str(folder)], check=True)
    return str(folder / "bin" / "python")


def site_of(python, tag=TAG):
    folder = os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "python" + tag)
    return os.path.join(folder, "site-packages")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir("/")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A venv for tests that only read, or that take away what they add."""
    return venv(tmp_path_factory.mktemp("plain") / "venv")


@pytest.fixture(scope="module")
def open_one(tmp_path_factory):
    """A venv that sees the system's packages."""
    return venv(tmp_path_factory.mktemp("open") / "venv", "--system-site-packages")


# -- real interpreters ----------------------------------------------------------------------

INSTALLED = sorted(
    glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python"))
    + ["/usr/bin/python3", "/bin/python3", "/usr/local/bin/python3", BASE]
)


@pytest.mark.parametrize("python", filter(os.path.exists, INSTALLED))
def test_interpreters_at_hand(python):
    read = agree(python, minimal())
    assert read.executable.value == python
    if read.version.source.endswith("patchlevel.h"):
        assert read.version.get("").count(".") == 2


def test_the_interpreter_running_the_tests():
    read = agree(sys.executable, minimal())
    assert (read.kind.value == "venv") == (sys.prefix != sys.base_prefix)
    assert read.packages.get({})["pytest"] == pytest.__version__


def test_packages_of_the_interpreter_running_the_tests():
    read = read_environment(LIVE, sys.executable, minimal())
    assert read.packages.value == ask(sys.executable, ASK_PACKAGES, minimal())


def test_packages_of_the_system():
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("no system Python")
    read = read_environment(LIVE, "/usr/bin/python3", minimal())
    assert read.packages.value == ask("/usr/bin/python3", ASK_PACKAGES, minimal())


def test_a_venv(plain):
    read = agree(plain, minimal())
    assert read.kind.value == "venv" and read.kind.source.endswith("/pyvenv.cfg")
    assert read.path.value == (site_of(plain),)
    assert read.version.value == ".".join(map(str, sys.version_info[:3]))
    assert read.packages_conda.absent


def test_a_venv_that_sees_the_system(open_one):
    assert len(agree(open_one, minimal()).path.get(())) >= 1


def test_a_venv_of_the_system_python(tmp_path):
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("no system Python")
    for name, options in (("closed", ()), ("open", ("--system-site-packages",))):
        python = venv(tmp_path / name, *options, python="/usr/bin/python3")
        read = agree(python, minimal())
        assert read.kind.value == "venv"
        assert ("/usr/lib/python3/dist-packages" in read.path.get(())) == bool(
            options and os.path.isdir("/usr/lib/python3/dist-packages")
        )


def test_a_venv_of_copies(tmp_path):
    agree(venv(tmp_path / "copies", "--copies"), minimal())


def test_a_venv_of_a_venv(plain, tmp_path):
    agree(venv(tmp_path / "second", python=plain), minimal())


def test_a_link_from_outside_is_not_the_venv(plain, tmp_path):
    link = tmp_path / "elsewhere" / "python"
    link.parent.mkdir()
    link.symlink_to(plain)
    read = agree(str(link), minimal())
    assert read.kind.value != "venv"


def test_a_path_through_a_linked_directory(plain, tmp_path):
    (tmp_path / "alias").symlink_to(os.path.dirname(os.path.dirname(plain)))
    assert agree(str(tmp_path / "alias" / "bin" / "python"), minimal()).kind.value == "venv"


def test_pythonpath(plain, tmp_path, monkeypatch):
    for name in ("a", "b", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path / "work")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    wanted = [
        f"{b}:{a}",
        f"{a}/:{a}/../b:{a}",
        f"{a}:/no/such:{tmp_path}/file",
        f"../a:{b}",
        "::",
        a,
    ]
    for value in wanted:
        agree(plain, minimal(PYTHONPATH=value), cwd=str(tmp_path / "work"))
    agree(plain, minimal(PYTHONPATH=""), cwd=str(tmp_path / "work"))
    agree(plain, minimal(PYTHONPATH=site_of(plain)), cwd=str(tmp_path / "work"))
    agree(plain, minimal(PYTHONPATH=os.path.dirname(os.__file__)), cwd=str(tmp_path / "work"))


def test_the_user_site(open_one, plain, tmp_path):
    user = tmp_path / ".local" / "lib" / ("python" + TAG) / "site-packages"
    env = minimal(HOME=str(tmp_path))
    assert str(user) not in agree(BASE, env).path.get(())
    user.mkdir(parents=True)
    (user / "pkg-1.0.dist-info").mkdir()
    (user / "pkg-1.0.dist-info" / "METADATA").write_text("Name: pkg\nVersion: 1.0\n")
    for python in (BASE, open_one):
        assert str(user) in agree(python, env).path.get(())
        assert read_environment(LIVE, python, env).packages.get({})["pkg"] == "1.0"
    assert str(user) not in agree(plain, env).path.get(())
    assert str(user) not in agree(BASE, {**env, "PYTHONNOUSERSITE": "1"}).path.get(())
    agree(BASE, {**env, "PYTHONNOUSERSITE": ""})
    other = tmp_path / "base" / "lib" / ("python" + TAG) / "site-packages"
    other.mkdir(parents=True)
    assert str(other) in agree(BASE, {**env, "PYTHONUSERBASE": str(tmp_path / "base")}).path.get(())


def test_the_user_site_when_home_is_not_set(tmp_path):
    env = minimal()
    del env["HOME"]
    agree(BASE, env)


PTH = {
    "plain.pth": "/usr/share\n",
    "relative.pth": "inner\n../up\n",
    "comments.pth": "# /usr/bin\n\n   \n/usr/lib  \n",
    "imports.pth": "import sys\nimport\tos\nimportant\n/usr/include\n",
    "missing.pth": "/no/such/place\n/etc/hostname\n",
    "again.pth": "/usr/share/\n/usr/./share\n.\n",
    "dos.pth": "/usr/sbin\r\n",
    "wide.pth": "/usr/sh\u00e4re\n",
    "not-a-pth.txt": "/usr/games\n",
    "dir.pth/x": "",
}


def test_pth_files(tmp_path):
    python = venv(tmp_path / "venv")
    site = site_of(python)
    for folder in ("inner", "../up", "important", "dir.pth"):
        os.makedirs(os.path.join(site, folder))
    for name, text in PTH.items():
        with open(os.path.join(site, name), "w", encoding="utf-8", newline="") as file:
            file.write(text)
    read = agree(python, minimal(LC_ALL="C.UTF-8"))
    wanted = ["/usr/lib", "important", "/usr/include", "/usr/share", "/usr/sbin", "inner", "../up"]
    for one in wanted:
        assert os.path.normpath(os.path.join(site, one)) in read.path.get(())
    agree(python, minimal(LC_ALL="C.UTF-8", PYTHONPATH="/usr/share:" + site))


def describe(site, name, metadata=None, file="METADATA"):
    """A distribution's metadata, written as installers do."""
    folder = os.path.join(str(site), name)
    os.makedirs(folder)
    if metadata is not None:
        with open(os.path.join(folder, file), "w") as written:
            written.write(metadata)


def test_packages_are_what_importlib_metadata_says(tmp_path):
    python = venv(tmp_path / "venv")
    site = site_of(python)
    full = "Metadata-Version: 2.1\nName: {}\nVersion: {}\nSummary: x\n\nName: not\nVersion: 0\n"
    describe(site, "plain-1.2.3.dist-info", full.format("plain", "1.2.3"))
    describe(site, "Under_Score.Dot-1.0+cu1.dist-info", full.format("Under-Score.Dot", "1.0+cu1"))
    ngc = "2.9.0a0+145a3a7bda.nv25.10"
    describe(site, f"torch-{ngc}.dist-info", full.format("torch", ngc))
    describe(site, "old_name-1.0_1.dist-info", full.format("old-name", "1.0-1"))
    describe(site, "unescaped-name-3.0.dist-info", full.format("unescaped-name", "3.0"))
    describe(site, "develop.egg-info", full.format("develop", "0.1.dev0"), "PKG-INFO")
    describe(site, "egg-4.0-py3.8.egg-info", full.format("egg", "4.0"), "PKG-INFO")
    named = "platform-4.1-py3.8-linux-x86_64.egg-info"
    describe(site, named, full.format("platform", "4.1"), "PKG-INFO")
    describe(site, "leftover-1.0.dist-info")
    describe(site, "zipped-5.0-py3.8.egg/EGG-INFO", full.format("zipped", "5.0"), "PKG-INFO")
    with open(os.path.join(site, "flat-2.0.egg-info"), "w") as file:
        file.write(full.format("flat", "2.0"))
    os.makedirs(str(tmp_path / "src"))
    describe(tmp_path / "src", "linked.egg-info", full.format("linked", "9.9"), "PKG-INFO")
    with open(os.path.join(site, "easy-install.pth"), "w") as file:
        file.write(f"./zipped-5.0-py3.8.egg\n{tmp_path}/src\n")
    read = agree(python, minimal())
    assert read.packages.value == ask(python, ASK_PACKAGES, minimal())
    assert read.packages.get({})["under-score-dot"] == "1.0+cu1"
    assert len(read.packages.get({})) == 11 and read.packages.differs == ()


def test_the_first_on_the_path_wins_and_the_others_are_told(tmp_path):
    python = venv(tmp_path / "venv")
    describe(tmp_path / "first", "torch-2.0.1.dist-info", "Name: torch\nVersion: 2.0.1\n")
    describe(site_of(python), "torch-2.14.1.dist-info", "Name: torch\nVersion: 2.14.1\n")
    describe(site_of(python), "numpy-2.0.0.dist-info", "Name: numpy\nVersion: 2.0.0\n")
    env = minimal(PYTHONPATH=str(tmp_path / "first"))
    read = agree(python, env)
    assert read.packages.value == ask(python, ASK_PACKAGES, env)
    other = read.packages.differs
    assert [one.value for one in other] == [{"torch": "2.14.1"}]
    assert other[0].source.endswith("/site-packages/torch-2.14.1.dist-info")


def test_a_broken_off_uninstall_is_not_installed(tmp_path):
    python = venv(tmp_path / "venv")
    describe(site_of(python), "~orch-2.0.dist-info", "Name: torch\nVersion: 2.0\n")
    assert read_environment(LIVE, python, minimal()).packages.value == {}


def test_a_real_torch_is_read_in_a_moment():
    python = os.environ.get("PREFLIGHT_TEST_TORCH_PYTHON", "")
    if not os.path.exists(python):
        pytest.skip("no environment with a real torch")
    env = minimal()
    read = agree(python, env)
    assert read.packages.value == ask(python, ASK_PACKAGES, env)
    best = min(timed(python, env) for _ in range(5))
    assert best < 0.05


def timed(python, env):
    started = time.perf_counter()
    read_environment(LIVE, python, env)
    return time.perf_counter() - started


# -- layouts of other systems, as files -----------------------------------------------------


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "image").folders("/")


DEBIAN_SITE = 'sitepackages.append(os.path.join(prefix, "local/lib", "dist-packages"))'


@pytest.mark.parametrize("tag", ["3.8", "3.10", "3.12"])
def test_debian(image, tag):
    image.python("/usr", tag, site_text=DEBIAN_SITE)
    local, own = f"/usr/local/lib/python{tag}/dist-packages", f"/usr/lib/python{tag}/dist-packages"
    image.folders(local, "/usr/lib/python3/dist-packages", own)
    image.dist(local, "torch", "2.9.0a0+145a3a7bda.nv25.10")
    image.dist("/usr/lib/python3/dist-packages", "torch", "1.8.1")
    read = image.read("/usr/bin/python3")
    assert read.path.value == (local, "/usr/lib/python3/dist-packages", own)
    assert read.version.value == tag and read.kind.value == "system"
    assert read.packages.value == {"torch": "2.9.0a0+145a3a7bda.nv25.10"}
    assert read.packages.differs[0].value == {"torch": "1.8.1"}


def test_debian_with_python_2(image):
    image.program("/usr/bin/python2.7").link("/usr/bin/python", "python2.7")
    image.write("/usr/lib/python2.7/os.py").write("/usr/lib/python2.7/site.py", DEBIAN_SITE)
    image.folders("/usr/lib/python2.7/dist-packages", "/usr/lib/python3/dist-packages")
    read = image.read("/usr/bin/python")
    assert read.version.value == "2.7"
    assert read.path.value == ("/usr/lib/python2.7/dist-packages",)


def test_the_docker_python_image_beside_debians(image):
    image.python("/usr", "3.11", site_text=DEBIAN_SITE)
    image.python("/usr/local", "3.12").folders("/usr/local/lib/python3.11/dist-packages")
    read = image.read("/usr/local/bin/python3")
    assert read.prefix.value == "/usr/local"
    assert read.path.value == ("/usr/local/lib/python3.12/site-packages",)


def test_a_link_in_usr_local_bin(image):
    image.python("/usr", "3.11").link("/usr/local/bin/python", "/usr/bin/python3")
    assert image.read("/usr/local/bin/python").prefix.value == "/usr"


def test_red_hat_and_alibaba_cloud_linux(image):
    site = "if 'RPM_BUILD_ROOT' not in os.environ: ..."
    image.python("/usr", "3.9", lib="lib64", site_text=site)
    both = ["/usr/local/lib64/python3.9/site-packages", "/usr/local/lib/python3.9/site-packages"]
    own = ["/usr/lib64/python3.9/site-packages", "/usr/lib/python3.9/site-packages"]
    image.folders(*both, *own)
    assert image.read("/usr/bin/python3").path.value == tuple(both + own)


def test_conda(image):
    image.python("/opt/conda", "3.11").link("/opt/conda/bin/python", "python3.11")
    for name in ("python-3.11.9-hb806964_0_cpython", "pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0",
                 "cuda-version-12.4-h3060b56_3", "_libgcc_mutex-0.1-main", "odd"):  # fmt: skip
        image.write(f"/opt/conda/conda-meta/{name}.json", "not even JSON")
    image.write("/opt/conda/conda-meta/history")
    read = image.read("/opt/conda/bin/python")
    assert read.kind.value == "conda" and read.kind.source == "/opt/conda/conda-meta"
    assert read.version.value == "3.11.9"
    assert read.version.source.startswith("/opt/conda/conda-meta/python-3.11.9")
    assert read.packages_conda.value == {
        "python": "3.11.9", "pytorch": "2.5.1", "cuda-version": "12.4", "_libgcc_mutex": "0.1",
    }  # fmt: skip
    assert read.builds_conda.value == {
        "python": "hb806964_0_cpython", "pytorch": "py3.11_cuda12.4_cudnn9.1.0_0",
        "cuda-version": "h3060b56_3", "_libgcc_mutex": "main",
    }  # fmt: skip


def test_a_venv_in_conda(image):
    image.python("/opt/conda", "3.11").write("/opt/conda/conda-meta/cuda-version-12.4-h_3.json")
    image.link("/venv/bin/python", "/opt/conda/bin/python3")
    image.folders("/venv/lib/python3.11/site-packages")
    config = "home = /opt/conda/bin\nversion = 3.11.9\ninclude-system-site-packages = {}\n"
    image.write("/venv/pyvenv.cfg", config.format("false"))
    read = image.read("/venv/bin/python")
    assert (read.kind.value, read.version.value) == ("venv", "3.11.9")
    assert read.path.value == ("/venv/lib/python3.11/site-packages",)
    assert read.packages_conda.absent
    image.write("/venv/pyvenv.cfg", config.format("True"))
    read = image.read("/venv/bin/python")
    assert read.path.value[-1] == "/opt/conda/lib/python3.11/site-packages"
    assert read.packages_conda.value == {"cuda-version": "12.4"}


def test_uv_and_virtualenv_write_other_keys(image):
    image.python("/opt/uv/cpython-3.12.4-linux", "3.12")
    image.link("/venv/bin/python", "/opt/uv/cpython-3.12.4-linux/bin/python3.12")
    image.folders("/venv/lib/python3.12/site-packages")
    for line in ("version_info = 3.12.4", "version_info = 3.12.4.final.0", "VERSION=3.12.4"):
        image.write("/venv/pyvenv.cfg", f"home = /opt/uv/cpython-3.12.4-linux/bin\n{line}\n")
        assert image.read("/venv/bin/python").version.value == "3.12.4"


def test_a_venv_whose_base_was_upgraded(image):
    image.python("/usr/local", "3.11").link("/venv/bin/python", "/usr/local/bin/python3")
    header = '/* x */\n#define PY_VERSION      \t"3.11.7+"\n'
    image.write("/usr/local/include/python3.11/patchlevel.h", header)
    image.folders("/venv/lib/python3.11/site-packages", "/venv/lib/python3.10/site-packages")
    image.write("/venv/pyvenv.cfg", "home = /usr/local/bin\nversion = 3.11.2\n")
    version = image.read("/venv/bin/python").version
    assert version.value == "3.11.7"
    assert [(one.value, one.source) for one in version.differs] == [("3.11.2", "/venv/pyvenv.cfg")]
    image.write("/venv/pyvenv.cfg", "home = /usr/local/bin\nversion = 3.10.1\n")
    read = image.read("/venv/bin/python")
    assert read.version.value == "3.11.7" and "3.11" in read.path.get(())[0]
    assert read.version.differs[0].value == "3.10.1"


def test_virtualenv_of_old(image):
    image.python("/usr/local", "3.6", site_text="# plain")
    image.python("/venv", "3.6", site_text="dist-packages of virtualenv's own site.py")
    image.write("/venv/lib/python3.6/orig-prefix.txt", "/usr/local")
    read = image.read("/venv/bin/python3")
    assert read.kind.value == "venv"
    assert read.path.value == (
        "/venv/lib/python3.6/site-packages",
        "/usr/local/lib/python3.6/site-packages",
    )
    image.write("/venv/lib/python3.6/no-global-site-packages.txt")
    assert image.read("/venv/bin/python3").path.value == ("/venv/lib/python3.6/site-packages",)


def test_free_threaded(image):
    image.python("/opt/py", "3.13t").folders("/root/.local/lib/python3.13t/site-packages")
    image.write("/opt/py/include/python3.13t/patchlevel.h", '#define PY_VERSION "3.13.0rc1"')
    read = image.read("/opt/py/bin/python3", HOME="/root")
    assert read.version.value == "3.13.0rc1"
    assert read.path.value == (
        "/root/.local/lib/python3.13t/site-packages",
        "/opt/py/lib/python3.13t/site-packages",
    )


def test_a_binary_without_a_number(image):
    image.program("/opt/py/bin/python").write("/opt/py/lib/python3.9/os.py")
    image.folders("/opt/py/lib/python3.9/site-packages", "/opt/py/lib/python3.7/site-packages")
    assert image.read("/opt/py/bin/python").version.value == "3.9"
    image.write("/opt/py/lib/python3.7/os.py")
    assert "os.py" in image.read("/opt/py/bin/python").version.unknown


def test_a_venv_without_its_base_library(image):
    image.program("/else/python3.9").link("/venv/bin/python", "/else/python3.9")
    image.folders("/venv/lib/python3.9/site-packages")
    image.write("/venv/pyvenv.cfg", "home = /gone/bin\nversion = 3.9.1\n")
    read = image.read("/venv/bin/python")
    assert read.path.value == ("/venv/lib/python3.9/site-packages",)
    assert read.version.value == "3.9.1" and read.packages_conda.absent


def test_pythonhome(image):
    image.program("/opt/bin/python3.9").write("/moved/lib/python3.9/os.py")
    image.folders("/moved/lib/python3.9/site-packages")
    read = image.read("/opt/bin/python3.9", PYTHONHOME="/moved")
    assert read.path.value == ("/moved/lib/python3.9/site-packages",)


def test_home_from_the_password_file(image):
    image.python("/usr", "3.9").write("/etc/passwd", "bad\nroot:x:0:0:r:/home/zero:/bin/sh\n")
    image.folders("/home/zero/.local/lib/python3.9/site-packages")
    assert image.read("/usr/bin/python3").path.get(())[0].startswith("/home/zero/.local")


def test_relative_entries_start_at_the_working_directory(image):
    image.python("/usr", "3.9").folders("/job/lib", "/lib2")
    for folder, entry, wanted in (("/job", "lib", "/job/lib"), ("odd", "lib2", "/lib2")):
        read = image.read("/usr/bin/python3", PYTHONPATH=entry, PWD=folder)
        assert read.path.get(())[0] == wanted


# -- what cannot be known -------------------------------------------------------------------


def all_unknown(read, words):
    for name in ("version", "executable", "prefix", "kind", "path", "packages", "packages_conda"):
        assert words in getattr(read, name).unknown, name


def test_no_interpreter(image):
    all_unknown(image.read(""), "no interpreter")
    all_unknown(image.read("/usr/bin/python"), "No such file")
    all_unknown(image.read("/usr\0"), "not a possible file name")
    all_unknown(image.folders("/bin/python").read("/bin/python"), "no Python interpreter")


def test_dangling_and_looping(image):
    image.link("/venv/bin/python", "/gone/python3.9").link("/loop", "/loop")
    image.write("/venv/pyvenv.cfg", "home = /gone\n")
    all_unknown(image.read("/venv/bin/python"), "No such file")
    all_unknown(image.read("/loop"), "symbolic links")


def test_a_wrapper_is_not_guessed(image):
    image.python("/usr", "3.9").program("/usr/bin/python", '#!/bin/sh\nexec /opt/python "$@"\n')
    all_unknown(image.read("/usr/bin/python"), "wrapper")


def test_an_interpreter_without_a_library(image):
    image.program("/opt/python3.9")
    all_unknown(image.read("/opt/python3.9"), "no lib/python3.9/os.py at or above /opt")


def test_packages_that_cannot_be_listed(image, monkeypatch):
    image.python("/usr", "3.9")

    def listing(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(image.root, "listing", listing)
    read = image.read("/usr/bin/python3")
    assert "Permission denied" in read.packages.unknown
    assert read.packages.source == "/usr/lib/python3.9/site-packages"


@pytest.mark.timed
def test_hostile_files(image):
    """Noise wherever text is expected: nothing raises, nothing takes long."""
    image.python("/usr", "3.9", site_text="\0" * 100)
    site = "/usr/lib/python3.9/site-packages"
    noise = "\0\n/\n" + "/a" * 5000 + "\n" + "x" * 100000 + "\n../" * 5000
    image.write(f"{site}/noise.pth", noise).write(f"{site}/a-.dist-info/METADATA", "\n" * 100000)
    image.write(f"{site}/-.dist-info/METADATA", "Name:\nVersion:\n").write(f"{site}/.egg-info")
    image.write(f"{site}/b.dist-info", "a file").link(f"{site}/c-1.dist-info", "c-1.dist-info")
    (image.folder / site[1:] / os.fsdecode(b"\xff-1.0.dist-info")).mkdir()
    os.mkfifo(str(image.folder / site[1:] / "fifo.pth"))
    os.mkfifo(str(image.folder / site[1:] / "fifo.egg-info"))
    image.write("/usr/bin/pyvenv.cfg", "home = " + "/h" * 30000 + "\nversion_info = x.y\n=\n")
    started = time.monotonic()
    read = image.read("/usr/bin/python3", PYTHONPATH=":" * 5000 + "\0:/\ud800", HOME="\0")
    assert time.monotonic() - started < 2
    assert read.packages.known and read.version.value == "3.9"


@pytest.mark.timed
def test_a_deep_chain_of_directories_above_home(image):
    image.python("/usr", "3.9").link("/venv/bin/python", "/usr/bin/python3")
    image.folders("/d" * 150)
    image.write("/venv/pyvenv.cfg", "home = " + "/d" * 150 + "\n")
    started = time.monotonic()
    assert image.read("/venv/bin/python").version.value == "3.9"
    assert time.monotonic() - started < 1


# -- finding the interpreter ----------------------------------------------------------------


def find(image, given="", command=(), **env):
    return find_interpreter(image.root, {"PATH": "/usr/bin:/bin", **env}, given, command)


def test_python_on_path(image):
    image.python("/usr", "3.9").program("/opt/bin/python").program("/opt/bin/python3")
    assert find(image).value == "/usr/bin/python3"
    assert find(image).source == "python3 on PATH"
    assert find(image, PATH="/usr/bin:/opt/bin").value == "/opt/bin/python"
    assert find_interpreter(image.root, {}).value == "/usr/bin/python3"


def test_path_entries_that_are_odd(image):
    image.python("/usr", "3.9").program("/job/bin/python").write("/plain/python")
    image.folders("/dirs/python").link("/dangling/python", "/gone")
    env = {"PATH": ":/dirs:/dangling:/plain:/\0:bin:/usr/bin", "PWD": "/job"}
    assert find_interpreter(image.root, env).value == "/job/bin/python"


def test_nothing_found_says_what_was_searched(image):
    found = find(image)
    assert found.absent and "/usr/bin:/bin" in found.source and "VIRTUAL_ENV" in found.source


def test_an_active_environment_counts_where_path_has_none(image):
    image.program("/venv/bin/python").program("/conda/bin/python3")
    assert find(image, VIRTUAL_ENV="/venv", CONDA_PREFIX="/conda").value == "/venv/bin/python"
    assert find(image, VIRTUAL_ENV="/gone", CONDA_PREFIX="/conda").value == "/conda/bin/python3"
    image.python("/usr", "3.9")
    assert find(image, VIRTUAL_ENV="/venv").value == "/usr/bin/python3"


def test_given_decides_alone(image):
    image.python("/usr", "3.9").program("/venv/bin/python").program("/opt/py")
    for given, path in (("/venv", "/venv/bin/python"), ("/venv/bin/python", "/venv/bin/python"),
                        ("/opt/py", "/opt/py"), ("python3.9", "/usr/bin/python3.9")):  # fmt: skip
        assert find(image, given).value == path
    assert find(image, "venv", PWD="/").value == "/venv/bin/python"
    missing = find(image, "/no/such")
    assert missing.absent and missing.source == "given: /no/such"


COMMANDS = {
    ("python", "train.py"): "/opt/job/bin/python",
    ("python", "-m", "torch.distributed.run"): "/opt/job/bin/python",
    ("/opt/other/bin/python3", "x.py"): "/opt/other/bin/python3",
    ("torchrun", "train.py"): "/opt/other/bin/python3",
    ("accelerate", "launch"): "/opt/job/bin/python",
    ("deepspeed",): "/opt/other/bin/python3",
    ("options",): "/opt/other/bin/python3",
    ("long",): "/opt/other/bin/python3",
    ("quoted",): "/opt/other/bin/python3",
    ("beside",): "/opt/job/bin/python3",
    ("env", "-u", "X", "A=b", "torchrun"): "/opt/other/bin/python3",
    ("env", "PATH=/opt/other/bin", "python3"): "/opt/other/bin/python3",
    ("env", "-i", "-S", "/opt/other/bin/python3 -u"): "/opt/other/bin/python3",
    ("/usr/bin/env", "-S", "/opt/other/bin/python3 -u"): "/opt/other/bin/python3",
    # What is not guessed falls back to the first Python on PATH.
    ("bash", "-c", "/opt/other/bin/python3 x"): "/opt/job/bin/python",
    ("env",): "/opt/job/bin/python",
    ("env", "-u"): "/opt/job/bin/python",
    ("env", "env", "env", "env", "env", "env", "torchrun"): "/opt/job/bin/python",
    ("binary",): "/opt/job/bin/python",
    ("empty",): "/opt/job/bin/python",
    ("shell",): "/opt/job/bin/python",
    ("self",): "/opt/job/bin/python",
    ("gone",): "/opt/job/bin/python",
    ("no-such-command",): "/opt/job/bin/python",
    ("",): "/opt/job/bin/python",
    ("train.py",): "/opt/job/bin/python",
    ("./train.py",): "/opt/other/bin/python3",
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_a_command_starts(image, command):
    for path in ("job/bin/python", "job/bin/python3", "other/bin/python3"):
        image.program("/opt/" + path)
    scripts = {
        "torchrun": "#!/opt/other/bin/python3\nimport torch\n",
        "accelerate": "#!/usr/bin/env python\n",
        "deepspeed": "#! /opt/other/bin/python3 -E\n",
        "options": "#!/usr/bin/env -S /opt/other/bin/python3 -u\n",
        "long": "#!/bin/sh\n'''exec' /opt/other/bin/python3 \"$0\" \"$@\"\n' '''\n",
        "quoted": "#!/bin/sh\n'''exec' '/opt/other/bin/python3' \"$0\" \"$@\"\n' '''\n",
        "beside": "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' "
        '"$0" "$@"\n',
        "binary": "\x7fELF" + "\0" * 100, "empty": "", "shell": "#!/bin/bash\npython3 x\n",
        "self": "#!/opt/job/bin/self\n", "gone": "#!/opt/gone/bin/python\n",
    }  # fmt: skip
    for name, text in scripts.items():
        image.program("/opt/job/bin/" + name, text)
    image.program("/job/train.py", "#!/opt/other/bin/python3\n").program("/bin/bash")
    found = find(image, command=command, PATH="/opt/job/bin:/bin", PWD="/job")
    assert found.value == COMMANDS[command]
    assert found.source


# -- pyenv ----------------------------------------------------------------------------------

SHIM = """#!/usr/bin/env bash
set -e
program="${0##*/}"
export PYENV_ROOT="/root/.pyenv"
exec "/root/.pyenv/libexec/pyenv" exec "$program" "$@"
"""


@pytest.fixture
def pyenv(image):
    for name in ("python", "python3", "torchrun"):
        image.program("/root/.pyenv/shims/" + name, SHIM)
    for version in ("3.9.1", "3.10.2", "3.10.13", "mine"):
        image.program(f"/root/.pyenv/versions/{version}/bin/python")
    script = "#!/root/.pyenv/versions/3.10.2/bin/python\n"
    image.program("/root/.pyenv/versions/3.10.2/bin/torchrun", script)
    image.program("/usr/bin/python3.8").link("/usr/bin/python", "python3.8")
    image.write("/root/.pyenv/version", "# chosen\n3.9.1 # why\n")
    return image


def shimmed(image, **env):
    return find(image, PATH="/root/.pyenv/shims:/usr/bin", **env).value


def test_pyenv_global_version(pyenv):
    assert shimmed(pyenv) == "/root/.pyenv/versions/3.9.1/bin/python"


def test_pyenv_local_version(pyenv):
    pyenv.write("/job/.python-version", "3.10\n").folders("/job/deep/er")
    wanted = "/root/.pyenv/versions/3.10.13/bin/python"
    assert shimmed(pyenv, PWD="/job/deep/er") == wanted
    assert shimmed(pyenv, PWD="/", PYENV_DIR="/job") == wanted
    assert shimmed(pyenv, PWD="/") == "/root/.pyenv/versions/3.9.1/bin/python"


@pytest.mark.parametrize(
    "chosen, path",
    [
        ("3.10.2", "/root/.pyenv/versions/3.10.2/bin/python"),
        ("python-3.10.2", "/root/.pyenv/versions/3.10.2/bin/python"),
        ("mine", "/root/.pyenv/versions/mine/bin/python"),
        ("4.0:3.9.1", "/root/.pyenv/versions/3.9.1/bin/python"),
        ("system", "/usr/bin/python"),
        ("4.0", "/usr/bin/python"),
        ("../../../usr", "/usr/bin/python"),
        ("system:3.9.1", "/usr/bin/python"),
    ],
)
def test_pyenv_version_variable(pyenv, chosen, path):
    assert shimmed(pyenv, PYENV_VERSION=chosen) == path


def test_pyenv_without_any_choice(pyenv):
    pyenv.write("/root/.pyenv/version", "")
    assert shimmed(pyenv) == "/usr/bin/python"


def test_a_shimmed_script(pyenv):
    env = {"PATH": "/root/.pyenv/shims:/usr/bin", "PYENV_VERSION": "3.10.2"}
    found = find_interpreter(pyenv.root, env, command=["torchrun"])
    assert found.value == "/root/.pyenv/versions/3.10.2/bin/python"
    assert found.source == "#! of /root/.pyenv/versions/3.10.2/bin/torchrun"


def test_a_folder_called_shims_is_not_pyenv_by_that(image):
    image.program("/opt/shims/python")
    assert find(image, PATH="/opt/shims").value == "/opt/shims/python"


def test_the_real_pyenv_agrees():
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    if not os.path.exists(root + "/libexec/pyenv-which"):
        pytest.skip("no pyenv")
    names = [name for name in os.listdir(root + "/versions") if name.startswith("3.")][:3]
    for chosen in [*names, "3.11", "system", ":".join(["0.0", *names])]:
        env = minimal(PYENV_VERSION=chosen, PYENV_ROOT=root, HOME=os.path.expanduser("~"))
        env["PATH"] = f"{root}/shims:{root}/libexec:{env['PATH']}"
        run = subprocess.run(["pyenv-which", "python3"], env=env, stdout=subprocess.PIPE, cwd="/")
        found = find_interpreter(LIVE, env, "python3")
        assert found.get("") == run.stdout.decode().strip()


@pytest.mark.parametrize(
    "name, wanted", [("A__b.c", "a-b-c"), ("torch", "torch"), ("X-._Y", "x-y")]
)
def test_names_in_one_spelling(name, wanted):
    assert normalize(name) == wanted
