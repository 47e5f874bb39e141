"""Where packages come from, which build they are, and the four facts together."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight import inspect, snapshot_json
from preflight.probes import installed
from preflight.probes.python_env import read_environment
from preflight.roots import Root
from preflight.snapshot import Origin, PythonEnv, absent, known, unknown
from tests.probes.fake_root import Image

SITE = "/env/lib/python3.11/site-packages"
ALONE = "include-system-site-packages = false\n"


@pytest.fixture
def image(tmp_path):
    image = Image(tmp_path)
    image.python("/usr", "3.11").folders(SITE)
    image.program("/env/bin/python").write(
        "/env/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.7\n" + ALONE
    )
    return image


def read(image, **more):
    python = read_environment(image.root, "/env/bin/python", {"HOME": "/nobody"})
    assert python.path.value == (SITE,)
    return installed.read(image.root, python, "x86_64", **more)


def origin(image, name="thing", version="1", by="pip", **document):
    image.dist(SITE, name, version)
    folder = f"{SITE}/{name}-{version}.dist-info"
    image.write(f"{folder}/INSTALLER", by + "\n")
    if document:
        image.write(f"{folder}/direct_url.json", json.dumps(document))
    (one,) = read(image).origins.get(()) or [None]
    return one


# -- where from -------------------------------------------------------------------------------


def test_what_comes_from_an_index_has_no_origin(image):
    assert origin(image) is None
    assert read(image).origins.value == ()


def test_an_archive_with_its_hash(image):
    url = "https://user:secret@example.org/thing-1-py3-none-any.whl"
    digest = "a" * 64
    archive = {"hash": f"sha256={digest}", "hashes": {"sha256": digest}}
    assert origin(image, url=url, archive_info=archive, by="uv 0.4") == Origin(
        "thing", "1", "https://example.org/thing-1-py3-none-any.whl", f"sha256:{digest}",
        installer="uv",
    )  # fmt: skip


@pytest.mark.parametrize(
    "archive, expected",
    [
        ({"hash": "sha256=" + "B" * 64}, "sha256:" + "b" * 64),
        ({"hashes": {"sha512": "c" * 128, "md5": "d" * 32}}, "sha512:" + "c" * 128),
        ({"hash": "md5=" + "d" * 32}, ""),
        ({"hash": 5, "hashes": []}, ""),
        ({}, ""),
    ],
)
def test_hashes_of_an_archive(image, archive, expected):
    assert origin(image, url="file:///w/thing.whl", archive_info=archive).hash == expected


def test_a_repository_with_its_commit(image):
    vcs = {"vcs": "git", "commit_id": "f" * 40, "requested_revision": "main"}
    one = origin(image, url="https://t@host/r.git", vcs_info=vcs, subdirectory="python")
    assert one.url == "git+https://host/r.git#subdirectory=python"
    assert one.commit == "f" * 40 and one.editable == ""


def test_an_editable_install(image):
    one = origin(image, url="file:///src/thing", dir_info={"editable": True})
    assert (one.url, one.editable) == ("file:///src/thing", "yes")
    again = origin(image, url="file:///src/thing", dir_info={})
    assert again.editable == ""


def test_setup_py_develop(image):
    image.write("/src/thing/Thing.egg-info/PKG-INFO", "Name: Thing\nVersion: 3\n")
    image.write(f"{SITE}/Thing.egg-link", "/src/thing\n.")
    image.write(f"{SITE}/easy-install.pth", "/src/thing\n")
    python = read_environment(image.root, "/env/bin/python", {"HOME": "/nobody"})
    (one,) = installed.read(image.root, python, "x86_64").origins.get(())
    assert one == Origin("thing", "3", "file:///src/thing", editable="yes")


@pytest.mark.parametrize(
    "text, url", [("/src/a thing\n", "file:///src/a%20thing"), ("import __editable___x; y()", "")]
)
def test_an_editable_wheel_without_a_direct_url(image, text, url):
    image.write(f"{SITE}/__editable__.thing-1.pth", text)
    one = origin(image)
    assert (one.editable, one.url, one.installer) == ("yes", url, "pip")


def test_what_a_distributor_installed_is_said(image):
    assert origin(image, by="conda") == Origin("thing", "1", installer="conda")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"url": 5}', '{"url": ""}', "[" * 5000, '{"url'])
def test_a_direct_url_that_cannot_be_read_says_nothing(image, text):
    image.write(f"{SITE}/thing-1.dist-info/direct_url.json", text)
    assert origin(image) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=10) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hash", "hashes", "sha256", "vcs", "commit_id", "editable"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["url", "archive_info", "vcs_info", "dir_info", "subdirectory"]), JSON
    )
)
def test_no_direct_url_breaks_it(tmp_path_factory, document):
    image = Image(tmp_path_factory.mktemp("fuzz")).dist(SITE, "a", "1")
    image.write(f"{SITE}/a-1.dist-info/direct_url.json", json.dumps(document))
    dists = installed.first_of_each(image.root, [SITE])
    for one in installed.origins(image.root, dists, [SITE]):
        assert one.url and all(isinstance(text, str) for text in vars(one).values())


# -- the build --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        ("__version__ = '2.6.0+cu124'\ndebug = False\n", {"torch": "cu124"}),
        ('__version__: str = "2.6.0+cu124"\n', {"torch": "cu124"}),
        ('__version__ = version = "2.6.0+cu124.post.1"\n', {"torch": "cu124.post.1"}),
        ("__version__ = '2.6.0'\n", {}),
        ("__version__ = '2.5.0+cu121'\n", {}),  # of another release: no witness
        ("__version__ = '2.6.0+' + local\n", {}),
        ("__version__ = get()\n", {}),
        ("# __version__ = '2.6.0+cu124'\n", {}),
        ("", {}),
    ],
)
def test_what_version_py_adds_to_the_metadata(image, text, expected):
    image.dist(SITE, "torch", "2.6.0").write(f"{SITE}/torch/version.py", text)
    assert read(image).locals.value == expected


def test_metadata_that_has_a_local_part_lost_nothing(image):
    image.dist(SITE, "torch", "2.6.0+cu124")
    image.write(f"{SITE}/torch/version.py", "__version__ = '2.6.0+cu124'")
    assert read(image).locals.value == {}


def test_the_companions_and_extensions(image):
    for name, module, file in (
        ("torchvision", "torchvision", "version.py"),
        ("flash_attn", "flash_attn", "version.py"),
        ("vllm", "vllm", "_version.py"),
    ):
        image.dist(SITE, name, "0.9").write(f"{SITE}/{module}/{file}", "__version__ = '0.9+cu1'")
    expected = {"torchvision": "cu1", "flash-attn": "cu1", "vllm": "cu1"}
    assert read(image).locals.value == expected


# -- together ---------------------------------------------------------------------------------


def test_without_an_environment_all_is_unknown_with_the_reason():
    python = PythonEnv(path=unknown("no interpreter"))
    seen = installed.read(Root(), python, "x86_64")
    for fact in (seen.origins, seen.locals, seen.unmet, seen.altered):
        assert fact.unknown == "no interpreter"
    assert installed.read(Root(), PythonEnv(path=absent("x")), "").unmet.unknown


def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(image, monkeypatch):
    def fails(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(image.root, "listing", fails)
    seen = installed.read(image.root, PythonEnv(path=known((SITE,), "x")), "x86_64")
    assert seen.unmet.unknown == "cannot be listed: Permission denied"


def test_the_probe_fills_the_snapshot(image):
    image.dist(SITE, "torch", "2.6.0", "Name: torch\nVersion: 2.6.0\nRequires-Dist: gone>=1\n\n")
    image.write(f"{SITE}/torch/version.py", "__version__ = '2.6.0+cu124'")
    image.write(f"{SITE}/torch-2.6.0.dist-info/RECORD", "torch/lib/libc10.so,sha256=x,5\n")
    image.write(f"{SITE}/torch-2.6.0.dist-info/direct_url.json", '{"url": "file:///w.whl"}')
    look = inspect.Look(image.root, {"HOME": "/x"}, python="/env/bin/python", thorough=True)
    python = inspect.look(look).snapshot.python
    assert [one.needs for one in python.unmet.get(())] == ["gone>=1"]
    assert [one.problem for one in python.altered.get(())] == ["is missing"]
    assert python.locals.value == {"torch": "cu124"}
    assert [one.url for one in python.origins.get(())] == ["file:///w.whl"]
    assert python.packages.value["torch"] == "2.6.0"


def test_what_a_probe_that_failed_leaves(image):
    lost = inspect.PROBES["installed"].lost(unknown("no answer within 15 s"))
    again = snapshot_json.from_json(snapshot_json.to_json(lost)).python
    assert again.altered.unknown == again.unmet.unknown == "no answer within 15 s"


REAL = os.environ.get("PREFLIGHT_TORCH_VENV", "")


@pytest.mark.skipif(not REAL, reason="PREFLIGHT_TORCH_VENV names no environment")
def test_a_real_torch_is_whole():
    python = read_environment(Root(), os.path.join(REAL, "bin/python"), {"HOME": "/nobody"})
    seen = installed.read(Root(), python, os.uname().machine)
    assert seen.altered.value == () and seen.unmet.value == ()
    assert "torch" in seen.locals.get({})
