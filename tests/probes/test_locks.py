"""Lock files are found where jobs have them, with what they take in, inside the root."""

import os

import pytest

from preflight.lockfiles.applying import Target
from preflight.probes import locks, pip_config
from preflight.roots import Root

TARGET = Target("3.11.7")


@pytest.fixture
def place(tmp_path):
    """A root with a job's directory, and what reads it."""

    class Place:
        root = Root(str(tmp_path))

        def write(self, path, text=""):
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

        def read(self, named=(), binding=(), cwd="/job", **env):
            found = locks.read(self.root, env, TARGET, cwd, named, binding)
            return {one.path.value: one for one in found.value}

    made = Place()
    made.write("/job/train.py")
    return made


def names(lock):
    return [one.name for one in lock.entries.value]


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements.lock",
        "requirements.lock.txt",
        "requirements-lock.txt",
        "requirements_lock.txt",
        "pylock.toml",
        "pylock.gpu.toml",
        "uv.lock",
        "poetry.lock",
        "pdm.lock",
        "Pipfile.lock",
        "pixi.lock",
        "conda-lock.yml",
        "environment.yml",
        "environment.yaml",
        "constraints.txt",
        "explicit.txt",
        "conda-linux-64.lock",
    ],
)
def test_names_that_are_found(place, name):
    place.write(f"/job/{name}", "dependencies:\n" if name.startswith("environment") else "")
    assert list(place.read()) == [f"/job/{name}"]


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "my-requirements.txt.bak", "yarn.lock", "docker-compose.yml", "Cargo.lock"],
)
def test_names_that_are_not(place, name):
    place.write(f"/job/{name}", "x")
    assert place.read() == {}


def test_a_file_of_the_name_that_is_something_else(place):
    place.write("/job/environment.yml", "services:\n  web: {}\n")
    assert place.read() == {}
    asked = place.read(named=["environment.yml"])["/job/environment.yml"]
    assert "no conda environment" in asked.problem.value


def test_nothing_to_find_is_known(place):
    found = locks.read(place.root, {}, TARGET, "/job")
    assert found.known and found.value == ()


def test_where_the_platform_puts_them(place):
    place.write("/ml/input/config/requirements.txt", "numpy==1.0\n")
    place.write("/code/uv.lock", "")
    assert list(place.read()) == ["/ml/input/config/requirements.txt"]
    assert "/code/uv.lock" in place.read(PAI_WORKING_DIR="/code")


def test_files_that_are_taken_in(place):
    place.write("/job/requirements.txt", "-r more/base.txt\n-c limits.txt\ntorch==2.6.0\n")
    place.write("/job/more/base.txt", "-r ../requirements.txt\nnumpy==1.26.4\n")
    place.write("/job/limits.txt", "numpy<2\n")
    found = place.read()
    assert {path: (names(one), one.role.value) for path, one in found.items()} == {
        "/job/requirements.txt": (["torch"], "requirements"),
        "/job/more/base.txt": (["numpy"], "requirements"),
        "/job/limits.txt": (["numpy"], "constraints"),
    }


def test_what_is_taken_in_and_not_there_says_who_asks(place):
    place.write("/job/requirements.txt", "numpy==1\n-r gone.txt\n")
    gone = place.read()["/job/gone.txt"]
    assert gone.problem.value == "No such file or directory (/job/requirements.txt, line 2)"


def test_no_path_leaves_the_root(place, tmp_path):
    (tmp_path.parent / "secret.txt").write_text("secret==1\n", encoding="utf-8")
    place.write("/job/requirements.txt", "-r ../../../secret.txt\n-r /etc/passwd\n")
    os.symlink("../../secret.txt", str(tmp_path / "job/uv.lock"))
    found = place.read()
    assert all(one.entries.value is None for path, one in found.items() if "req" not in path)
    assert not any("secret" in names(one) for one in found.values() if one.entries.known)


def test_what_is_on_the_network_is_not_fetched(place):
    place.write("/job/requirements.txt", "-r https://host/r.txt\nnumpy==1\n")
    assert list(place.read()) == ["/job/requirements.txt"]


def test_named_files_are_marked(place):
    place.write("/job/requirements.txt", "numpy==1\n")
    place.write("/job/deps/own.txt", "numpy==1\n")
    found = place.read(named=["deps/own.txt"])
    assert {path: one.named.value for path, one in found.items()} == {
        "/job/deps/own.txt": True,
        "/job/requirements.txt": False,
    }
    assert place.read(named=["gone.txt"])["/job/gone.txt"].problem.known


def test_a_local_wheel_that_is_gone(place):
    place.write("/job/wheels/x-1-py3-none-any.whl")
    place.write(
        "/job/requirements.txt",
        "./wheels/x-1-py3-none-any.whl\n./wheels/y-1-py3-none-any.whl\n"
        "z @ file:///tmp/z-1-py3-none-any.whl\nw @ https://host/w-1-py3-none-any.whl\n",
    )
    found = place.read()["/job/requirements.txt"].entries.value
    assert [(one.name, one.gone) for one in found] == [
        ("x", ""), ("y", "yes"), ("z", "yes"), ("w", ""),
    ]  # fmt: skip


def test_very_many_files_are_bounded(place):
    for number in range(3 * locks.FILES):
        place.write(f"/job/{number}.txt", f"-r {number + 1}.txt\nx{number}==1\n")
    place.write("/job/requirements.txt", "-r 0.txt\n")
    assert len(place.read()) <= locks.DEPTH + 1
    place.write("/job/requirements.txt", "".join(f"-r {n}.txt\n" for n in range(100)))
    assert len(place.read()) <= locks.FILES


# -- what pip is told -------------------------------------------------------------------------


def test_indexes_of_variables_and_configuration(place):
    place.write("/etc/pip.conf", "[global]\nindex-url = https://user:secret@a/simple\n")
    place.write(
        "/root/.config/pip/pip.conf", "[install]\nextra-index-url =\n  https://b\n  https://c\n"
    )
    place.write("/venv/pip.conf", "[global]\nconstraint = /etc/limits.txt\n")
    told = pip_config.read(place.root, {"UV_TORCH_BACKEND": "cu124", "HOME": "/root"}, "/venv")
    assert told.indexes == (
        "--index-url https://a/simple", "--extra-index-url https://b",
        "--extra-index-url https://c", "--torch-backend cu124",
    )  # fmt: skip
    assert told.constraints == ("/etc/limits.txt",)


def test_a_broken_configuration_tells_nothing(place):
    place.write("/etc/pip.conf", "index-url without a section\n")
    assert pip_config.read(place.root, {}) == pip_config.Told((), ())


def test_pip_told_to_read_none(place):
    place.write("/etc/pip.conf", "[global]\nindex-url = https://a\n")
    assert pip_config.read(place.root, {"PIP_CONFIG_FILE": "/dev/null"}).indexes == ()


def test_constraints_that_bind_are_read(place):
    place.write("/etc/limits.txt", "numpy<2\n")
    found = place.read(binding=["/etc/limits.txt", "https://host/limits.txt", "/etc/gone.txt"])
    assert {path: one.role.value for path, one in found.items()} == {
        "/etc/limits.txt": "constraints"
    }
