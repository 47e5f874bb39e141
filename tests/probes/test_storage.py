"""The declared paths: what is seen of them, how long that takes, and what is left behind."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight import declared, inspect, isolate
from preflight import snapshot as s
from preflight.probes import mounts, paths, storage
from preflight.roots import Root
from tests.probes import hanging

SAMPLES = Path(__file__).parents[1] / "data" / "storage"
PARQUET = (SAMPLES / "groups.parquet").read_bytes()


def look(*tables, root="/", env=None, timeout=20.0, **more):
    """The storage section for tables of a policy: `("data", {…})`."""
    document = {}
    for role, table in tables:
        document.setdefault(role, []).append(table)
    every = paths.Paths(Root(str(root)), env or {}, declared.read(document), timeout, **more)
    return every.gather(isolate.run(every.tasks, time.monotonic() + timeout))


def data(path, root="/", env=None, timeout=20.0, **keys):
    """(row, damaged) of one data path."""
    table = {"path": str(path), **{key.replace("_", "-"): one for key, one in keys.items()}}
    seen = look(("data", table), root=root, env=env, timeout=timeout)
    return seen.paths.value[0], seen.damaged.value


def output(path, root="/", env=None, **keys):
    return look(("output", {"path": str(path), **keys}), root=root, env=env).paths.value[0]


@pytest.fixture
def folder(tmp_path):
    """Parquet files, one of them cut off, and what lies beside them."""
    for number in range(20):
        (tmp_path / "train" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / f"{number % 2}" / f"{number:03}.parquet").write_bytes(PARQUET)
    (tmp_path / "train" / "_SUCCESS").touch()
    (tmp_path / "train" / "README.md").write_text("words")
    return tmp_path / "train"


# -- data -----------------------------------------------------------------------------------


def test_a_healthy_directory(folder):
    row, damaged = data(folder)
    assert (row.state, row.problem, row.blank, row.note) == ("directory", "", "no", "")
    assert (row.files, row.listed, row.weighed) == (22, "all", "all")
    assert row.bytes == 20 * len(PARQUET) + 5
    assert row.names.split("\n")[0] == "0/000.parquet" and len(row.names.split("\n")) == 5
    assert row.sampled == 8 and row.read == 8 * len(PARQUET) and row.throughput > 0
    assert damaged == ()


def test_what_is_counted_is_what_the_shell_counts(folder):
    found = subprocess.run(["find", str(folder), "-type", "f", "-name", "*1*.parquet"],
                           stdout=subprocess.PIPE, check=True)  # fmt: skip
    row, _damaged = data(folder, glob="*1*.parquet")
    assert row.files == len(found.stdout.split()) > 1
    assert data(folder, glob="0/*.parquet")[0].files == 10
    assert data(folder, recursive=False)[0].files == 2


def test_the_sample_is_spread_and_truncation_is_found(folder):
    (folder / "1" / "019.parquet").write_bytes(PARQUET[:-9])
    _row, (bad,) = data(folder, sample=4)
    assert (bad.name, bad.problem) == (
        "1/019.parquet", "is cut off: it does not end with PAR1",
    )  # fmt: skip
    assert bad.bytes == len(PARQUET) - 9 and bad.kind == "parquet" and not bad.mild
    names = [f"{number}" for number in range(100)]
    assert storage.spread(names, 3) == ["0", "50", "99"]
    assert storage.spread(names, 1) == ["0"] and storage.spread(names, 0) == []
    assert storage.spread(names[:2], 8) == ["0", "1"]


def test_every_sample_is_found_whole_through_the_probe(tmp_path):
    for one in SAMPLES.iterdir():
        if one.suffix not in (".py", ".json") and one.is_file():
            shutil.copy(one, tmp_path)
    row, damaged = data(tmp_path, sample=100)
    assert damaged == () and row.sampled == len(list(tmp_path.iterdir()))


def test_empty_files_of_a_known_kind_are_found(folder):
    (folder / "0" / "005.parquet").touch()
    (folder / "0" / "labels.txt").touch()
    row, damaged = data(folder, sample=2)
    assert [one.name for one in damaged] == ["0/005.parquet"] and row.empties == 1
    assert data(folder, kind="any")[1] == ()


def test_a_kind_that_is_asked_for_chooses_the_files(folder):
    (folder / "notes").write_text("no parquet file")
    assert data(folder, kind="parquet", sample=30)[1] == ()
    alone = folder.parent / "alone"
    alone.mkdir()
    (alone / "part-0").write_text("no parquet file at all")
    assert data(alone, kind="parquet")[1][0].problem.startswith("is no Parquet file")


def test_one_file(folder):
    row, damaged = data(folder / "0" / "000.parquet")
    assert (row.state, row.files, row.bytes, row.sampled) == ("file", 1, len(PARQUET), 1)
    (folder / "0" / "000.parquet").write_bytes(PARQUET[:100])
    assert data(folder / "0" / "000.parquet")[1][0].name == "000.parquet"


def test_what_is_not_there(tmp_path):
    row, _damaged = data(tmp_path / "a" / "b")
    assert (row.state, row.parent) == ("missing", str(tmp_path))
    assert data(tmp_path / "a")[0].blank == ""
    (tmp_path / "empty").mkdir()
    assert data(tmp_path / "empty")[0].blank == "yes"
    (tmp_path / "file").write_text("x")
    assert "Not a directory" in data(tmp_path / "file" / "x")[0].problem


def test_a_pipe_and_a_device_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    started = time.monotonic()
    assert data(tmp_path / "pipe")[0].state == "other"
    assert data("/dev/zero")[0].state == "other"
    row, _damaged = data(tmp_path)
    assert row.files == 0 and row.blank == "no"
    assert time.monotonic() - started < 5


def test_symlinks_are_followed_once(folder):
    (folder / "again").symlink_to(folder)
    (folder / "blob.parquet").symlink_to(folder / "0" / "000.parquet")
    (folder / "dangling.parquet").symlink_to("nowhere")
    row, _damaged = data(folder, glob="*.parquet")
    assert row.files == 21 and row.listed == "at least" and "dangling.parquet" in row.note


def test_variables_and_relative_paths(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    row, _damaged = data("${WHERE}/0", env={"WHERE": "train"})
    assert (row.at, row.files, row.path) == (str(folder / "0"), 10, "${WHERE}/0")
    row, _damaged = data("${WHERE}/x/${ALSO}", env={"WHERE": ""})
    assert row.unset == "WHERE, ALSO" and not row.state
    row, _damaged = data("/${MY_TOKEN}/x", env={"MY_TOKEN": "hunter2"})
    assert row.at == "/(masked)/x" and "hunter2" not in repr(row)


def test_hostile_names_are_shown_as_escapes(tmp_path):
    name = b"a\x1b[31m\n\xff\xe2\x80\xae.parquet"
    (tmp_path / os.fsdecode(name)).write_bytes(PARQUET[:50])
    row, (bad,) = data(tmp_path)
    for text in (row.names, bad.name):
        assert text.isprintable() and "\\x1b" in text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["directory", "file", "output"])
def test_permissions_are_those_of_the_job(folder, what):
    """In a child that is nobody: root may read everything."""
    target = {"directory": folder, "file": folder / "0" / "000.parquet", "output": folder}[what]
    for one in [folder.parent, *folder.parents]:
        if one != Path("/tmp") and str(one).startswith("/tmp"):
            one.chmod(0o755)
    target.chmod({"directory": 0o700, "file": 0o600, "output": 0o755}[what])

    def as_nobody():
        os.setgid(65534)
        os.setuid(65534)
        role = "output" if what == "output" else "data"
        (one,) = declared.read({role: {"path": str(target)}})
        told = storage.read(Root("/"), {}, one, 5, lambda _told: None)
        return [told.row.problem, told.row.writable, [one.problem for one in told.damaged]]

    problem, writable, damaged = isolate.run({"x": isolate.Task(as_nobody, 9)})["x"].value
    if what == "file":
        assert damaged == ["cannot be opened: Permission denied"]
    else:
        assert problem == "Permission denied"
    assert writable == ("no" if what == "output" else "")


# -- ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "first"),
    [
        ({}, True), ({"RANK": "0", "LOCAL_RANK": "0"}, True), ({"RANK": "x"}, True),
        ({"RANK": "3"}, False), ({"LOCAL_RANK": "1", "RANK": "0"}, False),
        ({"SLURM_PROCID": "2"}, False), ({"OMPI_COMM_WORLD_RANK": "1"}, False),
        ({"GROUP_RANK": "1"}, False), ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
    ],
)  # fmt: skip
def test_the_first_rank_lists_the_others_only_look(folder, env, first):
    (folder / "0" / "000.parquet").write_bytes(b"")
    row, damaged = data(folder, env=env)
    assert (row.files > 0, bool(damaged), row.sampled > 0) == (first, first, first)
    assert row.blank == "no" and row.state == "directory"
    assert output(folder, env=env).writable == "yes"


# -- output -----------------------------------------------------------------------------------


def test_an_output_is_written_to_and_left_as_it_was(tmp_path):
    (tmp_path / "kept").write_text("mine")
    before = sorted(os.listdir(tmp_path))
    row = output(tmp_path, free="1MB")
    assert row.writable == "yes" and row.problem == ""
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "kept").read_text() == "mine"
    there = os.statvfs(tmp_path)
    assert row.space == there.f_blocks * there.f_frsize and 0 < row.free <= row.space


def test_a_name_that_is_taken_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.os, "urandom", lambda size: b"\0" * size)
    monkeypatch.setattr(storage.os, "getpid", lambda: 7)
    taken = tmp_path / ".preflight-7-000000000000"
    taken.write_text("somebody's")
    row = output(tmp_path)
    assert row.writable == "no" and "exists" in row.problem
    assert taken.read_text() == "somebody's"


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_a_full_and_a_read_only_file_system(tmp_path):
    where = tmp_path / "small"
    where.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=4", "x", str(where)]
    ).returncode:
        pytest.skip("no mounting here")
    try:
        row = output(where, inodes=100)
        assert (row.inodes_all, row.inodes) == (4, 3) and row.writable == "yes"
        assert row.mount == str(where) and row.mount_words == "memory (tmpfs)"
        for number in range(3):
            (where / str(number)).touch()
        assert output(where).problem == "No space left on device"
        subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True)
        assert output(where).problem == "Read-only file system"
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_an_output_that_the_job_makes(tmp_path):
    row = output(tmp_path / "a" / "b", create=True, free="1MB")
    assert (row.state, row.writable, row.parent) == ("missing", "yes", str(tmp_path))
    assert row.space and not (tmp_path / "a").exists()
    assert output(tmp_path / "a").writable == ""


# -- checkpoints ------------------------------------------------------------------------------


def checkpoint(path, **more):
    return look(("output", {"checkpoint": str(path)}), **more)


def test_the_newest_checkpoint_is_named_and_looked_at(tmp_path):
    for number, step in enumerate((10, 20, 3)):
        one = tmp_path / f"step-{step}"
        one.mkdir()
        shutil.copy(SAMPLES / "model.safetensors", one)
        os.utime(one, (1000 + number, 1000 + number))
    (tmp_path / "log.txt").write_text("x")
    seen = checkpoint(tmp_path / "step-*")
    (row,) = seen.paths.value
    assert (row.role, row.newest, row.writable) == ("checkpoint", "step-3", "yes")
    assert row.newest_at == "1970-01-01T00:16:42Z" and not seen.damaged.value
    (tmp_path / "step-3" / "model.safetensors").write_bytes(b"\1\0\0")
    os.utime(tmp_path / "step-3", (2000, 2000))
    (bad,) = checkpoint(tmp_path / "step-*").damaged.value
    assert (bad.name, bad.mild) == ("step-3/model.safetensors", "yes")


def test_a_checkpoint_that_is_one_file(tmp_path):
    shutil.copy(SAMPLES / "checkpoint.pt", tmp_path / "last[1].pt")
    seen = checkpoint(tmp_path / "last[1].pt")
    assert seen.paths.value[0].state in ("missing", "directory")
    shutil.copy(SAMPLES / "checkpoint.pt", tmp_path / "last.pt")
    (tmp_path / "later.pt").touch()
    row = checkpoint(tmp_path / "last.pt").paths.value[0]
    assert (row.newest, row.writable) == ("last.pt", "yes")
    (tmp_path / "last.pt").write_bytes((SAMPLES / "checkpoint.pt").read_bytes()[:-30])
    assert checkpoint(tmp_path / "last.pt").damaged.value[0].name == "last.pt"


def test_no_checkpoint_yet(tmp_path):
    assert checkpoint(tmp_path).paths.value[0].blank == "yes"
    row = checkpoint(tmp_path / "not" / "yet").paths.value[0]
    assert (row.state, row.writable) == ("missing", "yes")
    assert storage.split("/a/b*/c") == ("/a", "b*/c") and storage.split("/a/b") == ("/a/b", "")
    assert storage.split("/*") == ("/", "*")


# -- what hangs, is huge, or is not ours ------------------------------------------------------


@pytest.fixture
def stuck(tmp_path):
    where = tmp_path / "mnt"
    where.mkdir()
    try:
        with hanging.mounted(where):
            yield where
    except OSError as error:
        pytest.skip(f"no FUSE mount here: {error}")


def test_a_mount_that_hangs_loses_only_itself(stuck, folder):
    started = time.monotonic()
    seen = look(("data", {"path": str(stuck / "x")}), ("data", {"path": str(folder)}),
                ("output", {"path": str(stuck)}), timeout=2.0)  # fmt: skip
    assert time.monotonic() - started < 10  # not for ever; a busy machine may take its time
    hung, fine, out = seen.paths.value
    assert (fine.files, fine.sampled, fine.hung) == (22, 8, "")
    for one in (hung, out):
        assert one.hung == "yes" and one.mount == str(stuck)
        assert one.note.startswith("no answer from an OSS mount by ossfs within")
    assert not seen.complete.known and "an OSS mount by ossfs" in seen.complete.unknown
    isolate.reap()
    assert isolate.children == set()


def test_a_mount_whose_daemon_died(tmp_path):
    where = tmp_path / "mnt"
    where.mkdir()
    try:
        with hanging.mounted(where, answers=True):
            row, _damaged = data(where)
    except OSError as error:
        pytest.skip(f"no FUSE mount here: {error}")
    assert row.problem == "Transport endpoint is not connected" and not row.hung


def test_what_was_seen_before_it_hung_is_kept(folder, monkeypatch):
    """The sample's second file stops the child, as a mount does that dies on the way."""
    opened = []
    really = Root.open

    def stops(self, path):
        opened.append(path)
        if len(opened) == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        return really(self, path)

    monkeypatch.setattr(Root, "open", stops)
    started = time.monotonic()
    row, _damaged = data(folder, timeout=2.0)
    assert time.monotonic() - started < 10
    assert (row.files, row.sampled, row.hung) == (22, 1, "yes")
    assert "no answer" in row.note


def test_a_child_that_crashes_keeps_what_it_saw(folder, monkeypatch):
    monkeypatch.setattr(Root, "open", lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    row, _damaged = data(folder)
    assert row.files == 22 and "crashed (SIGSEGV)" in row.note


def test_a_slow_listing_ends_in_time_and_says_at_least(folder, monkeypatch):
    from preflight.probes import listing

    monkeypatch.setattr(listing, "EVERY", 1)
    really = listing._one

    def slow(*args):
        time.sleep(0.1)
        return really(*args)

    monkeypatch.setattr(listing, "_one", slow)
    started = time.monotonic()
    row, _damaged = data(folder, timeout=2.0)
    assert time.monotonic() - started < 10
    assert row.listed == "at least" and 0 < row.files < 22 and "stopped after" in row.note
    assert row.weighed == "at least" and not row.hung and row.sampled > 0


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no memory to make many files in")
def test_a_huge_directory(tmp_path):
    where = Path("/dev/shm") / f"preflight-test-{os.getpid()}"
    where.mkdir()
    try:
        for number in range(100_000):
            os.close(os.open(where / f"{number:06}.jsonl", os.O_CREAT | os.O_WRONLY))
        (where / "000500.jsonl").write_text("{}\n")
        started = time.monotonic()
        row, damaged = data(where)
        spent = time.monotonic() - started
        assert (row.files, row.listed, row.empties, row.bytes) == (100_000, "all", 99_999, 3)
        assert len(damaged) <= 5 + 8 and spent < 20
        row, _damaged = data(where, timeout=0.2)
        assert row.listed == "at least" or row.files == 100_000
    finally:
        shutil.rmtree(where)


def test_names_are_kept_spread_in_bounded_memory():
    from preflight.probes import listing

    seen = listing.Listing()
    for number in range(100_000):
        seen.add(f"{number:06}")
    assert seen.files == 100_000 and listing.KEPT <= len(seen.names) < 2 * listing.KEPT
    gaps = {int(b) - int(a) for a, b in zip(seen.names, seen.names[1:])}
    assert len(gaps) == 1 and int(seen.names[-1]) > 99_000
    assert seen.first == [f"{number:06}" for number in range(5)]


# -- a directory as root ----------------------------------------------------------------------


def test_in_a_directory_nothing_escapes_and_nothing_is_written(tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "a.parquet").write_bytes(PARQUET)
    root = tmp_path / "root"
    (root / "data" / "in").mkdir(parents=True)
    (root / "data" / "in" / "b.parquet").write_bytes(PARQUET)
    (root / "data" / "out").symlink_to(secret)
    (root / "data" / "up").symlink_to("../../../../" + str(secret)[1:])
    (root / "data" / "inner").symlink_to("/data/in/b.parquet")
    row, damaged = data("/data", root=root, glob="*.parquet")
    assert row.names == "in/b.parquet" and row.files == 1 and not damaged
    assert row.mount == ""
    assert data("/data/out", root=root)[0].state == "missing"
    row = output("/data", root=root)
    assert row.state == "directory" and row.writable == "" and not row.space
    assert sorted(os.listdir(root / "data")) == ["in", "inner", "out", "up"]
    assert stat.S_IMODE(os.stat(secret).st_mode) & 0o700


# -- mounts -------------------------------------------------------------------------------------

MOUNTINFO = r"""
21 1 0:19 / / rw - overlay overlay rw,lowerdir=x
22 21 0:20 / /mnt/my\040data rw,nosuid - fuse.ossfs ossfs rw,user_id=0
23 21 0:21 / /mnt/jindo rw - fuse.jindo-fuse jindo-fuse rw
24 21 0:22 / /mnt/nas rw - nfs4 abc-1.cn-hangzhou.nas.aliyuncs.com:/ rw,vers=4.0
25 21 0:23 / /mnt/cpfs rw - nfs cpfs-123.cn-beijing.cpfs.aliyuncs.com:/share ro
26 21 0:24 / /mnt/efc rw - fuse.aliyun-alinas-efc bindroot-1:x.cn-shanghai.nas.aliyuncs.com:/ rw
27 21 0:25 / /mnt/lustre rw - lustre 10.0.0.1@tcp:/fs rw
28 24 0:26 / /mnt/nas/fast rw shared:4 master:1 - ext4 /dev/nvme0n1 rw
29 21 0:27 / /mnt/rclone rw - fuse https://user:pw@host/x rw
30 21 0:28 / /mnt/o2 rw - fuse.ossfs2 ossfs2 rw
31 21 0:29 / /dev/shm rw - tmpfs shm rw
32 21 0:30 / /mnt/new rw - nevernamed x rw
not a line
"""


@pytest.mark.parametrize(
    ("path", "point", "words"),
    [
        ("/mnt/my data/x", "/mnt/my data", "an OSS mount by ossfs"),
        ("/mnt/jindo", "/mnt/jindo", "an OSS mount by JindoFuse"),
        ("/mnt/nas/train", "/mnt/nas", "a NAS mount (NFS)"),
        ("/mnt/nas/fast/x", "/mnt/nas/fast", "a disk"),
        ("/mnt/nasty", "/", "the container's own disk (overlay)"),
        ("/mnt/cpfs/x", "/mnt/cpfs", "a CPFS mount"),
        ("/mnt/efc", "/mnt/efc", "a NAS or CPFS mount by the EFC client"),
        ("/mnt/lustre", "/mnt/lustre", "a Lustre mount"),
        ("/mnt/o2", "/mnt/o2", "an OSS mount by ossfs2"),
        ("/dev/shm/x", "/dev/shm", "memory (tmpfs)"),
        ("/mnt/new", "/mnt/new", "a nevernamed mount"),
    ],
)
def test_mounts_are_recognised(path, point, words):
    found = [one for one in map(mounts._mount, MOUNTINFO.splitlines()) if one]
    one = mounts.of(path, found)
    assert (one.point, one.words) == (point, words)
    assert not any("pw" in one.source for one in found)
    assert len(found) == 12


def test_the_mounts_of_this_machine_are_those_that_findmnt_names():
    every = mounts.mounts(Root("/"))
    for path in ("/", "/proc", "/dev/shm", "/usr/bin"):
        said = subprocess.run(["findmnt", "-n", "-o", "TARGET,FSTYPE", "-T", path],
                              stdout=subprocess.PIPE)  # fmt: skip
        if said.returncode == 0:
            one = mounts.of(path, every)
            assert [one.point, one.kind] == said.stdout.decode().split()[:2]


# -- the whole look -----------------------------------------------------------------------------


def test_the_look_has_a_section_and_times(folder):
    asked = declared.read({"data": {"path": str(folder)}})
    seen = inspect.look(inspect.Look(Root("/"), {"PATH": "/bin"}, declared=asked, timeout=20))
    assert seen.snapshot.storage.paths.value[0].files == 22
    assert seen.snapshot.storage.complete == s.known(True, "policy")
    assert "probe.storage data" in seen.milliseconds
    none = inspect.look(inspect.Look(Root("/"), {}, only=("system",), declared=asked))
    assert none.snapshot.storage == s.Storage()


def test_nothing_of_it_is_imported_where_nothing_is_declared(tmp_path):
    code = (
        "import sys; from preflight import cli; cli.main(['snapshot', '--output', 'out']); "
        "print([m for m in sys.modules if m.split('.')[-1] in ('datafiles', 'declared', 'listing')"
        " or m == 'preflight.probes.storage'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert found.stdout.splitlines()[-1] == b"[]"


def test_a_slate_keeps_the_last_whole_page():
    slate = paths.Slate(4096)
    assert slate.read() is None
    row = s.StoragePath(at="/x")
    for number in range(5):
        slate.write(storage.Told(replace(row, files=number)))
    slate.write(storage.Told(replace(row, note="x" * 5000)))  # too long: left out
    assert paths._read(slate.read()).row.files == 4
