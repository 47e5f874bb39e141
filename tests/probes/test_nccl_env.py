"""What reads NCCL's variables, and what its configuration files set."""

import subprocess

import pytest

from preflight import snapshot as s
from preflight.probes import nccl_env
from tests import fakes
from tests.probes.fake_root import Image

needs_gcc = pytest.mark.skipif(fakes.compiler() is None, reason="no C compiler")


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


def test_nothing_is_asked_where_nothing_is_set():
    assert not nccl_env.asked({"PATH": "/bin", "NCCL_VERSION": "2.17.1-1"})
    assert nccl_env.asked({"NCCL_DEBUG": "INFO"})


def test_configuration_files(image):
    image.write(
        "/etc/nccl.conf", "# x\nNCCL_DEBUG=WARN\nNCCL_IB_HCA==mlx5_1\nPATH=/x\nNCCL_PSK=k\n"
    )
    image.write("/root/.nccl.conf", "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n")
    env = {"HOME": "/root", "NCCL_ALGO": "Tree"}
    # The user's before the system's, the environment before both; secrets stay secret.
    found = nccl_env.conf(image.root, env)
    assert found.value == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "=mlx5_1", "NCCL_PSK": "(masked)"}
    image.write("/my.conf", "NCCL_NET=IB\n")
    named = nccl_env.conf(image.root, {**env, "NCCL_CONF_FILE": "/my.conf"})
    assert named.value["NCCL_NET"] == "IB" and named.value["NCCL_DEBUG"] == "WARN"
    assert nccl_env.conf(Image(image.folder / "none").root, {}).value == {}


def library(image, path, *names):
    words = "".join(f'const char *f{i}(void) {{ return "{n}"; }}\n' for i, n in enumerate(names))
    target = image.folder / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    source = image.folder / "source.c"
    source.write_text(words)
    command = [fakes.compiler(), "-shared", "-fPIC", "-o", str(target), str(source)]
    subprocess.run(command, check=True)


def seen(path):
    one = s.Library(name=s.known("libnccl.so.2", path), path=s.known(path, path))
    return s.Snapshot(libraries=s.known((one,), "test"))


@needs_gcc
def test_the_library_that_would_be_loaded_and_its_plugins(image):
    library(image, "/x/libnccl.so.2", "NCCL_DEBUG", "NCCL_ALGO")
    library(image, "/opt/libnccl-net.so", "NCCL_OWN")
    library(image, "/opt/libnccl-net-foo.so", "NCCL_FOO")
    env = {"LD_LIBRARY_PATH": "/opt"}

    def read(**more):
        found = nccl_env.readers(
            image.root, {**env, **more}, seen("/x/libnccl.so.2"), s.Framework(), "x86_64"
        )
        return [(one.file, one.names) for one in found.value]

    own = ("/x/libnccl.so.2", "NCCL_ALGO NCCL_DEBUG")
    assert read() == [own, ("/opt/libnccl-net.so", "NCCL_OWN")]
    assert read(NCCL_NET_PLUGIN="foo") == [own, ("/opt/libnccl-net-foo.so", "NCCL_FOO")]
    assert read(NCCL_NET_PLUGIN="none") == [own]
    assert read(NCCL_NET_PLUGIN="/opt/libnccl-net.so")[1][1] == "NCCL_OWN"
    assert read(NCCL_NET_PLUGIN="/nowhere.so") == [own]


@needs_gcc
def test_nccl_inside_torch(image):
    library(image, "/site/torch/lib/libtorch_cuda.so", "NCCL_DEBUG")
    inside = s.Snapshot(
        frameworks=s.known((s.Framework(nccl=s.known("2.10.3", "x")),), "test"),
        libraries=s.known((), "test"),
    )
    torch = s.Framework(path=s.known("/site/torch", "x"))
    found = nccl_env.readers(image.root, {}, inside, torch, "x86_64")
    assert [one.names for one in found.value] == ["NCCL_DEBUG"]


@needs_gcc
def test_what_cannot_be_told_is_not_known(image):
    library(image, "/x/libnccl.so.2")
    found = nccl_env.readers(image.root, {}, seen("/x/libnccl.so.2"), s.Framework(), "x86_64")
    assert found.unknown and found.looked
    gone = nccl_env.readers(image.root, {}, seen("/x/gone.so"), s.Framework(), "x86_64")
    assert gone.unknown and gone.looked
    assert not nccl_env.readers(image.root, {}, s.Snapshot(), s.Framework(), "x86_64").looked
