"""What a job may use of its machine: asked of the real kernel, in namespaces made by the test."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight import snapshot as s
from preflight import snapshot_json
from preflight.probes import devices, disks, fabric, host, mps, pci, processes
from preflight.probes.place import Place
from preflight.roots import Root
from tests.probes.fake_root import Image
from tests.rules.build import outcomes, word

SOURCE = str(Path(host.__file__).resolve().parents[2])
ASK = """
import json, os
from preflight import isolate, snapshot_json
from preflight.probes import host
from preflight.roots import Root
task = isolate.Task(lambda: snapshot_json.to_json(host.read(Root(), dict(os.environ))), 20)
answer = isolate.run({"host": task})["host"]
print(json.dumps(answer.value) if answer.value else answer.problem, flush=True)
"""


def python(script, **variables):
    return {"args": [sys.executable, "-c", script],
            "env": {**os.environ, "PYTHONPATH": SOURCE, **variables}}  # fmt: skip


def facts(output):
    return snapshot_json.from_json(json.loads(output.decode().splitlines()[-1]))


def namespaces(*flags):
    """`unshare` with these namespaces, or the test is skipped."""
    words = ["unshare", *flags]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    done = subprocess.run([*words, "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no namespaces can be made here: " + done.stderr.decode())
    return words


def run(words, script=ASK, **variables):
    how = python(script, **variables)
    ran = subprocess.run(
        [*words, *how["args"]], env=how["env"], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


# -- /dev/shm, limits, CPUs --------------------------------------------------------------------


@pytest.mark.parametrize("mib", [64, 1024])
def test_shm_of_a_size(mib):
    words = namespaces("--mount")
    shell = f'mount -t tmpfs -o size={mib}m shm /dev/shm && exec "$@"'
    seen = facts(run([*words, "sh", "-c", shell, "sh"])).host
    assert seen.shm_bytes.value == mib << 20 and seen.shm_free_bytes.value == mib << 20


def test_shm_that_is_nearly_full_is_found():
    words = namespaces("--mount")
    fill = "head -c 58000000 /dev/zero > /dev/shm/left"
    shell = f'mount -t tmpfs -o size=64m shm /dev/shm && {fill} && exec "$@"'
    seen = facts(run([*words, "sh", "-c", shell, "sh"]))
    assert seen.host.shm_free_bytes.value < 10 << 20
    found = outcomes("container/shm-too-small", seen)
    assert [word("container/shm-too-small", one) for one in found] == ["warn"]


def test_limits_are_those_of_the_process():
    shell = 'ulimit -Sn 512; ulimit -l 64; ulimit -c 0; exec "$@"'
    seen = facts(run(["bash", "-c", shell, "bash"])).host
    rows = {one.name: one for one in seen.limits.value}
    assert rows["nofile"].soft == 512 and rows["nofile"].hard >= 512
    assert rows["memlock"].soft == 64 << 10 and seen.memlock_kib.value == 64
    assert rows["core"].soft == 0


def test_no_limit_compares_as_the_largest():
    row = s.Limit("memlock", -1, -1)
    assert host._memlock([row]).value > 1 << 50


def test_cpus_are_those_that_the_process_may_run_on():
    one = min(os.sched_getaffinity(0))
    seen = facts(run(["taskset", "-c", str(one)])).host
    assert (seen.cpus.value, seen.cpu_set.value) == (1.0, 1)


def test_what_the_kernel_says_of_memory():
    seen = facts(run([])).host
    text = Path("/proc/meminfo").read_text()
    total = int(text.split("MemTotal:")[1].split()[0]) * 1024
    assert 0 < seen.memory_free_bytes.value < total
    nodes = [one for one in os.listdir("/sys/devices/system/node") if one[4:].isdigit()]
    assert seen.numa_nodes.value == len([one for one in nodes if one.startswith("node")])


# -- PID 1 -----------------------------------------------------------------------------------

PID_1 = ("--pid", "--fork", "--mount-proc")
ORPHAN = """
import os, subprocess, time
# A child that ends before its own child, which thereby becomes PID 1's, and then ends too.
subprocess.run(["sh", "-c", "(sleep 0.2) & exit 0"])
time.sleep(0.8)
states = []
for name in os.listdir("/proc"):
    if name.isdigit():
        fields = open("/proc/%s/stat" % name).read().rpartition(")")[2].split()
        states += [fields[0]] if fields[1] == "1" else []
print("Z" if "Z" in states else "reaped", flush=True)
"""


def test_which_first_process_reaps_is_as_the_rule_has_it():
    """The kernel's own word on it: bash as PID 1 reaps an orphan, Python as PID 1 does not."""
    words = namespaces(*PID_1)
    how = python(ORPHAN)
    shell = subprocess.run(
        [*words, "bash", "-c", '"$@"; true', "bash", *how["args"]],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    alone = subprocess.run([*words, *how["args"]], capture_output=True, timeout=60, check=False)
    assert (shell.stdout.strip(), alone.stdout.strip()) == (b"reaped", b"Z")
    for name, expected in (("bash", "pass"), ("python", "info")):
        snapshot = s.Snapshot(
            os=s.System(container=s.known(True, "test")),
            host=s.Host(first_process=s.known(name, "test")),
        )
        rule = "container/no-init"
        assert [word(rule, one) for one in outcomes(rule, snapshot)] == [expected]


def test_the_process_that_becomes_pid_1():
    seen = facts(run(namespaces(*PID_1))).host
    assert seen.first_process.value == "preflight" and seen.below_shell.value is False


@pytest.mark.parametrize(
    ("script", "name", "below"),
    [
        ('"$@"; true', "bash", True),
        ('exec "$@"', "preflight", False),
        # A shell that has a handler passes something on, or at least ends.
        ('trap "exit 143" TERM; "$@" & wait', "bash", False),
    ],
)
def test_a_shell_that_is_pid_1(script, name, below):
    words = namespaces(*PID_1)
    seen = facts(run([*words, "bash", "-c", script, "bash"])).host
    assert (seen.first_process.value, seen.below_shell.value) == (name, below)


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ("sleep 30; true", False),
        ("exec sleep 30", False),
        ("trap 'exit 143' TERM; sleep 30 & wait", True),
    ],
)
def test_the_kernel_drops_sigterm_to_a_pid_1_without_a_handler(script, ends):
    """What the rule says of shells and of programs without a handler, seen from outside."""
    words = namespaces("--pid", "--fork", "--kill-child")
    started = subprocess.Popen([*words, "bash", "-c", script])
    try:
        deadline, first = time.monotonic() + 10, []
        while not first and time.monotonic() < deadline:
            time.sleep(0.05)
            path = f"/proc/{started.pid}/task/{started.pid}/children"
            first = Path(path).read_text().split()
        time.sleep(0.3)
        os.kill(int(first[0]), signal.SIGTERM)
        time.sleep(0.5)
        assert (started.poll() is not None) == ends
    finally:
        started.kill()
        started.wait()


def test_first_process_by_its_files(tmp_path):
    image = Image(tmp_path).write("/proc/1/cmdline", "/sbin/tini\0--\0python\0")
    assert processes.first(image.root, 7, ()).value == "tini"
    image.write("/proc/1/cmdline", "").write("/proc/1/comm", "kthreadd\n")
    assert processes.first(image.root, 7, ()).value == "kthreadd"
    assert processes.first(Image(tmp_path / "x").root, 7, ()).unknown
    assert processes.first(image.root, 1, ("/opt/bin/torchrun", "x")).value == "torchrun"


# -- MPS -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_somebody_listens(tmp_path, kind):
    """The daemon is asked nothing: it never learns of the question."""
    daemon = socket.socket(socket.AF_UNIX, kind)
    daemon.bind(str(tmp_path / "control"))
    if kind != socket.SOCK_DGRAM:
        daemon.listen(1)
    daemon.setblocking(False)
    found = mps.read(Root(), {mps.VARIABLE: str(tmp_path)}).value
    assert found.reachable.value is True and found.pipe_directory.value == str(tmp_path)
    with pytest.raises(BlockingIOError):
        _ = daemon.recv(1) if kind == socket.SOCK_DGRAM else daemon.accept()
    daemon.close()
    gone = mps.read(Root(), {mps.VARIABLE: str(tmp_path)}).value
    assert gone.reachable.value is False and "refused" in gone.reachable.source


def test_no_socket(tmp_path):
    asked = mps.read(Root(), {mps.VARIABLE: str(tmp_path / "not-there")}).value
    assert asked.reachable.absent and asked.pipe_directory.known
    assert mps.read(Root(str(tmp_path)), {}).absent, "nothing points at one"


# -- device nodes ------------------------------------------------------------------------------


def test_no_device_nodes(tmp_path):
    assert devices.openable(str(tmp_path)).absent


def node(path, minor=3):
    """A node like /dev/null by another name."""
    try:
        os.mknod(str(path), 0o666 | 0o020000, os.makedev(1, minor))
    except OSError as error:
        pytest.skip(f"no device node can be made here: {error}")


def test_a_node_that_can_be_opened(tmp_path):
    node(tmp_path / "nvidiactl")
    node(tmp_path / "nvidia0")
    assert devices.openable(str(tmp_path)).value is True


@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup/devices"), reason="no devices cgroup of v1")
def test_a_device_cgroup_that_denies(tmp_path):
    """What systemd does to a container on daemon-reload, by the kernel's own means."""
    node(tmp_path / "nvidiactl", 7)  # /dev/full
    here = Path(f"/sys/fs/cgroup/devices/preflight-test-{os.getpid()}")
    try:
        here.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    ask = "from preflight.probes import devices; print(devices.openable({!r}).value)"
    enter = f"open({str(here / 'cgroup.procs')!r}, 'w').write('0')\n"
    try:
        script = ask.format(str(tmp_path))
        assert run([], enter + script).strip() == b"True"
        (here / "devices.deny").write_text("c 1:7 rwm")
        assert run([], enter + script).strip() == b"False"
    finally:
        here.rmdir()


# -- disks -----------------------------------------------------------------------------------


def test_disks_are_one_row_a_file_system(tmp_path):
    env = {"TMPDIR": str(tmp_path / "not" / "made"), "HOME": str(tmp_path)}
    seen = disks.read(Place(Root(), env, str(tmp_path))).host
    (row,) = seen.disks.value
    real = os.statvfs(str(tmp_path))
    assert row.purpose == "working directory, TMPDIR, HOME" and row.path == str(tmp_path)
    assert row.size == real.f_blocks * real.f_frsize and row.inodes == real.f_files
    assert abs(row.free - real.f_bavail * real.f_frsize) < 1 << 30
    assert seen.disk_free_bytes.value == row.free


def test_a_small_disk_without_inodes_is_found(tmp_path):
    """A tmpfs of 20 MiB with 40 inodes, half of them used, for TMPDIR."""
    words = namespaces("--mount")
    script = """
import json, os
from preflight import snapshot_json
from preflight.probes import disks, place
from preflight.roots import Root
print(json.dumps(snapshot_json.to_json(disks.read(place.place(Root(), dict(os.environ))))))
"""
    for option, said in (("size=20m", "MiB free"), ("size=2g,nr_inodes=40", "of 40 inodes free")):
        shell = f'mount -t tmpfs -o {option} x "$TMPDIR" && touch "$TMPDIR"/{{1..30}} && exec "$@"'
        out = run([*words, "bash", "-c", shell, "bash"], script, TMPDIR=str(tmp_path))
        seen = facts(out)
        row = next(one for one in seen.host.disks.value if one.kind == "tmpfs")
        only = replace(seen, host=replace(seen.host, disks=s.known((row,), "test")))
        (found,) = outcomes("host/disk-low", only)
        assert said in found.summary and str(tmp_path) in found.summary


def test_a_mount_of_another_machine_has_its_own_clock(tmp_path, monkeypatch):
    mounts = f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/x rw\n"
    root = Root()
    monkeypatch.setattr(Root, "first_text", lambda self, paths: (disks.MOUNTS, mounts))
    os.utime(str(tmp_path), (time.time() + 300, time.time() + 300))
    seen = disks.read(Place(root, {"HOME": str(tmp_path)}, str(tmp_path))).host
    assert 290 < seen.clock_behind_seconds.value <= 300
    os.utime(str(tmp_path))
    seen = disks.read(Place(root, {"HOME": str(tmp_path)}, str(tmp_path))).host
    assert seen.clock_behind_seconds.value < 5


# -- NVSwitch, Fabric Manager --------------------------------------------------------------------


def test_devices_on_the_bus(tmp_path):
    image = Image(tmp_path)
    for address, vendor, kind in (("0000:07:00.0", "0x10de", "0x030200"),
                                  ("0000:c4:00.0", "0x10de", "0x068000"),
                                  ("0000:00:01.0", "0x8086", "0x068000")):  # fmt: skip
        here = f"/sys/bus/pci/devices/{address}/"
        image.write(here + "vendor", vendor + "\n").write(here + "class", kind + "\n")
        image.write(here + "device", "0x2330\n")
    found = pci.nvidia(image.root)
    assert [one.kind for one in found] == ["0x030200", "0x068000"]
    assert pci.nvidia(Image(tmp_path / "none").root) is None


def test_fabric_manager_by_its_process_and_log(tmp_path):
    image = Image(tmp_path)
    assert fabric.manager(image.root).value.state.value == "not-running"
    assert fabric.manager(image.root).value.version.absent
    package = "Package: nvidia-fabricmanager-550\nStatus: installed\nVersion: 550.90.07-1\n\n"
    image.write("/var/lib/dpkg/status", "Package: bash\nVersion: 5.1\n\n" + package)
    assert fabric.manager(image.root).value.version.value == "550.90.07"
    image.write("/var/log/fabricmanager.log", "Fabric Manager version is : 535.1.1\n"
                "[tid 1] Fabric Manager version is : 550.127.05\n")  # fmt: skip
    image.write("/proc/77/comm", "nv-fabricmanage\n")
    found = fabric.manager(image.root).value
    assert (found.version.value, found.state.value) == ("550.127.05", "running")


def test_the_host_is_looked_at_within_some_milliseconds():
    env = {"HOME": "/root"}
    host.read(Root(), env)
    started = time.process_time()
    for _ in range(10):
        host.read(Root(), env)
    assert (time.process_time() - started) / 10 < 0.02  # of CPU; about 1 ms on a quiet machine
