"""Nothing escapes a root, and nothing in it can hang, crash or flood the reader."""

import contextlib
import errno
import json
import os
import random
import socket
import time

import pytest

from preflight import roots
from preflight.roots import Root


@pytest.fixture
def tree(tmp_path):
    """A root directory, with a secret beside it that nothing may reach."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "name").write_text("inside")
    return root


def refused(call, *codes):
    """The call raises OSError with one of these codes."""
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno in codes, caught.value


# -- inside ---------------------------------------------------------------------------------


def test_reads_what_is_there(tree):
    root = Root(str(tree))
    assert root.text("/etc/name") == "inside"
    assert root.text("etc/./name") == root.text("//etc//name") == "inside"
    assert root.names("/") == ["etc"]
    assert root.is_dir("/etc") and root.is_dir("/") and root.is_file("/etc/name")
    assert root.stat("/etc/name").st_size == 6
    assert root.on_host("/etc/name") == str(tree / "etc" / "name")
    assert not root.exists("/nothing") and not root.is_file("/etc") and not root.is_dir("/etc/name")


def test_an_absolute_symlink_is_absolute_in_the_root(tree):
    (tree / "etc" / "link").symlink_to("/etc/name")
    root = Root(str(tree))
    assert root.resolve("/etc/link") == "/etc/name"
    assert root.text("/etc/link") == "inside"
    (tree / "etc" / "passwd").symlink_to("/etc/passwd-of-the-image")
    refused(lambda: root.read("/etc/passwd"), errno.ENOENT)


@pytest.mark.parametrize("way", ["../secret", "../../secret", "/../secret", "etc/../../secret"])
def test_dots_do_not_climb_out(tree, way):
    (tree / "etc" / "up").symlink_to(way)
    (tree / "secret").write_text("the root's own")
    root = Root(str(tree))
    assert root.text("/../../secret") == "the root's own"
    if not way.startswith("etc"):
        assert root.text("/etc/up") == "the root's own"


def test_a_symlinked_directory_does_not_lead_out(tree, tmp_path):
    (tree / "out").symlink_to(str(tmp_path))
    (tree / "climb").symlink_to("../..")
    root = Root(str(tree))
    assert not root.exists("/out/secret")
    assert not root.exists("/climb/secret")
    assert root.names("/climb") == root.names("/")


def test_dots_after_a_link_start_where_the_link_leads(tree):
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "name").write_text("above b")
    (tree / "link").symlink_to("a/b")
    assert Root(str(tree)).text("/link/../name") == "above b"


def test_the_root_itself_may_be_a_symlink(tree, tmp_path):
    (tmp_path / "alias").symlink_to(tree)
    assert Root(str(tmp_path / "alias")).text("/etc/name") == "inside"


def test_the_live_root_is_the_machine(tree):
    root = Root()
    assert root.live and not Root(str(tree)).live
    assert root.text(str(tree / "etc" / "name")) == "inside"
    assert root.stat("/").st_ino == os.stat("/").st_ino
    assert root.names("/") == sorted(os.listdir("/"))
    assert root.on_host("/") == "/"
    link = tree / "link"
    link.symlink_to("etc/name")
    assert root.text(str(link)) == "inside"
    assert root.resolve(str(link)) == os.path.realpath(str(link))


# -- loops, chains, depth -------------------------------------------------------------------


def test_loops_are_refused(tree):
    (tree / "self").symlink_to("self")
    (tree / "one").symlink_to("/two")
    (tree / "two").symlink_to("one/x")
    root = Root(str(tree))
    for path in ("/self", "/one", "/one/deeper"):
        refused(lambda path=path: root.resolve(path), errno.ELOOP)
        assert not root.exists(path) and root.names(path) == []


def test_as_many_links_as_the_kernel_follows(tree):
    (tree / "link0").symlink_to("etc/name")
    for number in range(1, 60):
        (tree / f"link{number}").symlink_to(f"link{number - 1}")
    root, kernel = Root(str(tree)), Root()
    for number in (0, 20, 39, 40, 59):
        expected = kernel.exists(str(tree / f"link{number}"))
        assert root.exists(f"/link{number}") == expected, number
    assert root.exists("/link39") and not root.exists("/link40")


@pytest.mark.timed
def test_links_that_double_at_each_step_end(tree):
    (tree / "d").mkdir()
    (tree / "d" / "l0").symlink_to(".")
    for number in range(1, 40):
        (tree / "d" / f"l{number}").symlink_to(f"l{number - 1}/l{number - 1}")
    started = time.monotonic()
    refused(lambda: Root(str(tree)).resolve("/d/l39"), errno.ELOOP)
    assert time.monotonic() - started < 1


def test_deep_directories(tree):
    path = str(tree)
    for _ in range(200):
        path += "/d"
        os.mkdir(path)
    root = Root(str(tree))
    assert root.is_dir("/d" * 200)
    refused(lambda: root.resolve("/d" * 3000), errno.ENAMETOOLONG)
    refused(lambda: root.read("/" + "n" * 300), errno.ENAMETOOLONG)


def test_dangling(tree):
    (tree / "dangling").symlink_to("/nowhere/at/all")
    root = Root(str(tree))
    refused(lambda: root.resolve("/dangling"), errno.ENOENT)
    assert not root.exists("/dangling") and root.names("/dangling") == []
    assert root.first_text(["/dangling", "/etc/name"]) == ("/etc/name", "inside")
    assert root.first_text(["/dangling"]) is None


def test_a_file_is_no_directory(tree):
    root = Root(str(tree))
    for path in ("/etc/name/x", "/etc/name/../name"):
        refused(lambda path=path: root.resolve(path), errno.ENOTDIR)
    refused(lambda: root.listing("/etc/name"), errno.ENOTDIR)
    refused(lambda: root.read("/etc"), errno.EINVAL)


def test_a_directory_replaced_by_a_file_while_looking(tree):
    root = Root(str(tree))
    resolved = root.resolve("/etc/name")
    os.remove(tree / "etc" / "name")
    os.rmdir(tree / "etc")
    (tree / "etc").write_text("now a file")
    refused(lambda: root.read(resolved), errno.ENOTDIR)
    assert root.names("/etc") == []


def test_a_file_replaced_by_a_link_between_resolving_and_opening(tree, tmp_path, monkeypatch):
    root = Root(str(tree))
    os.remove(tree / "etc" / "name")
    (tree / "etc" / "name").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(root, "resolve", lambda path: path)
    refused(lambda: root.read("/etc/name"), errno.EINVAL, errno.ELOOP)
    assert not root.is_file("/etc/name")


# -- what is no plain file ------------------------------------------------------------------


@pytest.mark.timed
def test_a_fifo_does_not_block_and_is_not_opened(tree):
    os.mkfifo(tree / "fifo")
    started = time.monotonic()
    for root, path in ((Root(str(tree)), "/fifo"), (Root(), str(tree / "fifo"))):
        refused(lambda root=root, path=path: root.read(path), errno.EINVAL)
        assert root.exists(path) and not root.is_file(path)
    assert time.monotonic() - started < 1
    with pytest.raises(OSError):  # ENXIO: nobody reads
        os.open(tree / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_a_socket_is_not_read(tree, monkeypatch):
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        refused(lambda: Root(str(tree)).read("/socket"), errno.EINVAL)


def test_a_device_is_not_opened(tree, monkeypatch):
    opened = []
    monkeypatch.setattr(roots.os, "open", lambda *given: opened.append(given))
    refused(lambda: Root().read("/dev/null"), errno.EINVAL)
    refused(lambda: Root().head("/dev/zero", 10), errno.EINVAL)
    assert opened == []


def test_a_device_node_in_a_directory(tree):
    try:
        os.mknod(tree / "zero", 0o20666, os.makedev(1, 5))
    except OSError:
        pytest.skip("device nodes cannot be made here")
    refused(lambda: Root(str(tree)).read("/zero"), errno.EINVAL)


@contextlib.contextmanager
def as_nobody():
    """Be a user who may not read everything."""
    if os.getuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(os.getuid())


def test_unreadable(tree):
    (tree / "etc" / "name").chmod(0)
    (tree / "etc").chmod(0)
    root = Root(str(tree))
    with as_nobody():
        refused(lambda: root.read("/etc/name"), errno.EACCES)
        refused(lambda: root.listing("/etc"), errno.EACCES)
        assert root.names("/etc") == [] and not root.exists("/etc/name")
    (tree / "etc").chmod(0o755)


@pytest.mark.timed
def test_a_huge_sparse_file_is_refused(tree):
    with open(tree / "huge", "wb") as file:
        file.truncate(1 << 40)
    root = Root(str(tree))
    started = time.monotonic()
    refused(lambda: root.read("/huge"), errno.EFBIG)
    assert root.head("/huge", 10) == bytes(10)
    assert root.first_text(["/huge"]) is None
    assert time.monotonic() - started < 2


def test_the_limit_is_exact(tree):
    root = Root(str(tree))
    assert root.read("/etc/name", 6) == b"inside"
    refused(lambda: root.read("/etc/name", 5), errno.EFBIG)
    assert root.head("/etc/name", 2) == b"in"
    assert root.head("/etc/name", 99) == b"inside"
    assert root.head("/etc/name", 0) == b""


def test_files_that_do_not_tell_their_size():
    assert b"Name:" in Root().read("/proc/self/status")


# -- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/na\0me", "\0", "/\ud800"])
@pytest.mark.parametrize("live", [True, False])
def test_names_that_no_file_can_have(tree, path, live):
    root = Root() if live else Root(str(tree))
    for call in (root.resolve, root.read, root.stat, root.on_host, root.listing):
        refused(lambda call=call: call(path), errno.EINVAL)
    assert not root.exists(path) and root.names(path) == [] and root.first_text([path]) is None


def test_names_that_are_no_utf8(tree):
    name = os.fsdecode(b"\xff\xfe")
    try:
        (tree / name).write_bytes(b"\xff text")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    root = Root(str(tree))
    assert name in root.names("/")
    assert root.text("/" + name) == "\ufffd text"


def test_odd_names(tree):
    for name in ("new\nline", " ", "...", "a\\b", "-rf", "~"):
        (tree / name).write_text(name)
    root = Root(str(tree))
    for name in ("new\nline", " ", "...", "a\\b", "-rf", "~"):
        assert root.text("/" + name) == name


def test_a_directory_with_too_many_names(tree, monkeypatch):
    monkeypatch.setattr(roots, "LIST_LIMIT", 10)
    for number in range(11):
        (tree / "etc" / str(number)).touch()
    root = Root(str(tree))
    refused(lambda: root.listing("/etc"), errno.EFBIG)
    assert root.names("/etc") == []


# -- the kernel's own opinion ---------------------------------------------------------------


def random_tree(folder, dice):
    """Directories, files and links that point anywhere, some out, some in circles."""
    folders = [folder]
    for number in range(12):
        place = os.path.join(dice.choice(folders), "abcd"[number % 4])
        if os.path.lexists(place):
            continue
        kind = dice.random()
        if kind < 0.4:
            os.mkdir(place)
            folders.append(place)
        elif kind < 0.55:
            open(place, "w").close()
        else:
            os.symlink(random_path(dice), place)


def random_path(dice):
    parts = [dice.choice(["a", "b", "c", "d", ".", "..", "..", ""]) for _ in range(4)]
    return dice.choice(["/", ""]) + "/".join(parts) + dice.choice("abcd")


def seen(stat, path):
    """(device, inode) of `path`, or the error's number."""
    try:
        found = stat(path)
        return [found.st_dev, found.st_ino]
    except OSError as error:
        return error.errno


def in_chroot(folder, paths):
    """What the kernel itself says of `paths` to a process confined to `folder`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chroot(folder)
            os.chdir("/")
            os.write(write, json.dumps([seen(os.stat, path) for path in paths]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text.decode()) if text else None


@pytest.mark.parametrize("seed", range(40))
def test_as_a_confined_process_would_see_it(tmp_path, seed):
    dice = random.Random(seed)
    random_tree(str(tmp_path), dice)
    paths = ["/" + random_path(dice) for _ in range(60)]
    expected = in_chroot(str(tmp_path), paths)
    if expected is None:
        pytest.skip("chroot is not allowed here")
    root = Root(str(tmp_path))
    assert [seen(root.stat, path) for path in paths] == expected
