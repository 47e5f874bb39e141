"""Several hosts on one machine: does the master probe tell apart what keeps nodes from meeting?

Network namespaces are the hosts, each with a resolver's files of its own; veth pairs are the
cables or, where the kernel has none, TAP devices with a process between that carries the frames.
Needs root and iproute2; no torch.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import pytest

import preflight

HOME = str(Path(preflight.__file__).parent.parent)
MASTER, WORKER = "10.77.1.1", "10.77.1.2"
#: A second network that only the master's host is on.
STORAGE = "10.77.2.1"
NAME = "job-master-0"
#: Of the whole look: the search for the master has a third of it, 5 s at most.
TIMEOUT = 9.0
PATIENT = ("--timeout", "15")


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def problem() -> str:
    """Why this machine cannot have hosts of its own; empty when it can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if shutil.which("ip") is None:
        return "no iproute2"
    name = f"pf{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    if made.returncode:
        return "no network namespace can be made: " + made.stderr.decode(errors="replace").strip()
    wired = veth(name, name, "a", "b") or os.path.exists("/dev/net/tun")
    ip("netns", "del", name, check=False)
    return "" if wired else "neither a veth pair nor a TAP device can be made"


def veth(first: str, second: str, name: str, other: str) -> bool:
    """A veth pair between two namespaces; false where the kernel has none."""
    words = ["ip", "-n", first, "link", "add", name, "type", "veth",
             "peer", "name", other, "netns", second]  # fmt: skip
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


#: A TAP device in each of two namespaces, and what is written to one comes out of the other.
CABLE = """
import ctypes, fcntl, os, select, struct, sys
name, spaces = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
ends = []
for space in spaces:
    with open("/var/run/netns/" + space) as here:
        if libc.setns(here.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))  # TAP, no header
    ends.append(end)
print("on", flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        try:
            frame = os.read(end, 65536)
            os.write(ends[1 - ends.index(end)], frame)
        except OSError:  # one end is down
            pass
"""


class Host:
    """One namespace, with files of its own for name resolution."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.etc = Path("/etc/netns") / name
        self.processes: List[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        ip("netns", "add", self.name)
        self.etc.mkdir(parents=True, exist_ok=True)
        (self.etc / "hosts").write_text("127.0.0.1 localhost\n")
        (self.etc / "resolv.conf").write_text("")
        (self.etc / "nsswitch.conf").write_text("hosts: files\n")
        ip("-n", self.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()
        ip("netns", "del", self.name, check=False)
        shutil.rmtree(str(self.etc), ignore_errors=True)

    def knows(self, name: str, address: str) -> None:
        """Another line of /etc/hosts, in place: the file is mounted over the real one."""
        with open(str(self.etc / "hosts"), "a") as stream:
            stream.write(f"{address} {name}\n")

    def run(self, *words: str) -> List[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def start(self, code: str) -> None:
        """A Python program that runs on this host until the test ends."""
        words = self.run(sys.executable, "-c", code)
        self.processes.append(subprocess.Popen(words, stdout=subprocess.PIPE))

    def listens(self, port: int = 23456) -> None:
        self.start(
            f"import socket,time\ns=socket.socket()\n"
            f"s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
            f"s.bind(('0.0.0.0',{port}))\ns.listen()\nprint('on',flush=True)\ntime.sleep(60)"
        )
        pipe = self.processes[-1].stdout
        assert pipe is not None and pipe.readline() == b"on\n"


class Net:
    """Two hosts on one network, made anew for each test."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.master, self.worker = Host(f"pfm{mark}"), Host(f"pfw{mark}")

    def make(self) -> None:
        self.master.make()
        self.worker.make()
        self._wire("eth0", MASTER, WORKER)

    def _wire(self, name: str, first: str, second: Optional[str]) -> None:
        """A veth pair between the hosts; without `second` the other end stays down."""
        m, w = self.master.name, self.worker.name
        if not veth(m, w, name, name):
            words = [sys.executable, "-c", CABLE, name, m, w]
            cable = subprocess.Popen(words, stdout=subprocess.PIPE)
            self.master.processes.append(cable)
            assert cable.stdout is not None and cable.stdout.readline() == b"on\n"
        ip("-n", m, "addr", "add", first + "/24", "dev", name)
        ip("-n", m, "link", "set", name, "up")
        if second:
            ip("-n", w, "addr", "add", second + "/24", "dev", name)
            ip("-n", w, "link", "set", name, "up")

    def remove(self) -> None:
        self.master.remove()
        self.worker.remove()


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    why = problem()
    if why:
        pytest.skip(why)


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Seen:
    """What preflight said on a host, and how long it took."""

    def __init__(self, document: Dict[str, object], seconds: float, code: int) -> None:
        self.document = document
        self.seconds = seconds
        self.code = code

    def fact(self, *path: str) -> object:
        here: object = self.document["snapshot"]
        for one in path:
            here = here.get(one) if isinstance(here, dict) else None
        return here.get("value") if isinstance(here, dict) else None

    def findings(self) -> Dict[str, str]:
        """{rule: severity} of the rules about the master."""
        listed = self.document["findings"]
        assert isinstance(listed, list)
        return {
            one["rule"]: one["severity"]
            for one in listed
            if one["rule"].startswith("platform/master")
        }


def look(host: Host, rank: int, *options: str, address: str = NAME, **env: str) -> Seen:
    """`preflight check` on a host, as the node of that rank of a DLC job of two."""
    variables = {
        "PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8", "DLC_JOB_ID": "dlc1",
        "WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": address, "MASTER_PORT": "23456", **env,
    }  # fmt: skip
    words = [sys.executable, "-m", "preflight", "check", "--format", "json",
             "--timeout", str(TIMEOUT), *options]  # fmt: skip
    started = time.monotonic()
    done = subprocess.run(
        host.run(*words), env=variables, capture_output=True, check=False, timeout=60
    )
    seconds = time.monotonic() - started
    assert done.stdout, done.stderr
    return Seen(json.loads(done.stdout.decode()), seconds, done.returncode)


def test_a_name_that_nobody_knows(net: Net) -> None:
    seen = look(net.worker, 1)
    assert seen.findings() == {"platform/master-unresolvable": "fail"}
    assert seen.fact("host", "master_resolves") is False
    assert seen.code == 75, "another try may find it"
    assert seen.seconds < TIMEOUT


def test_a_name_that_comes_late_is_waited_for(net: Net) -> None:
    code = (f"import time\ntime.sleep(2)\n"
            f"open('{net.worker.etc}/hosts','a').write('{MASTER} {NAME}\\n')")  # fmt: skip
    late = subprocess.Popen([sys.executable, "-c", code])
    try:
        seen = look(net.worker, 1, *PATIENT)
    finally:
        late.wait()
    assert seen.fact("master", "addresses") == [MASTER]
    assert seen.findings() == {"platform/master-unreachable": "info"}, "its port is not open"
    assert seen.code == 0 and seen.seconds < 15


def test_a_master_that_listens(net: Net) -> None:
    net.worker.knows(NAME, MASTER)
    net.master.listens()
    seen = look(net.worker, 1)
    assert seen.fact("master", "state") == "connected" and seen.findings() == {}
    assert seen.fact("master", "route") == WORKER
    assert seen.code == 0


def test_a_master_that_does_not_listen_yet_is_there_all_the_same(net: Net) -> None:
    """And is told apart from one that is gone: no warning, as the first node starts as late."""
    net.worker.knows(NAME, MASTER)
    seen = look(net.worker, 1)
    assert seen.fact("master", "state") == "refused"
    assert seen.findings() == {"platform/master-unreachable": "info"}
    net.master.listens()
    assert look(net.worker, 1).findings() == {}


def test_a_master_whose_packets_vanish(net: Net) -> None:
    """A firewall or a dead host: nothing comes back."""
    net.worker.knows(NAME, "10.77.1.9")
    ip("-n", net.worker.name, "neigh", "add", "10.77.1.9", "lladdr", "02:00:00:00:00:09", "dev",
       "eth0")  # fmt: skip
    seen = look(net.worker, 1)
    assert seen.fact("master", "state") == "timed out"
    assert seen.findings() == {"platform/master-unreachable": "warn"}
    assert 2 < seen.seconds < TIMEOUT, "as long as it may take, and no longer"


def test_a_blackhole_route(net: Net) -> None:
    net.worker.knows(NAME, MASTER)
    net.master.listens()
    ip("-n", net.worker.name, "route", "add", "blackhole", MASTER + "/32")
    seen = look(net.worker, 1)
    assert seen.fact("master", "state") == "unreachable"
    assert seen.findings() == {"platform/master-unreachable": "warn"}
    assert seen.fact("master", "route") is None and seen.seconds < TIMEOUT


def test_the_address_of_an_interface_that_the_workers_are_not_on(net: Net) -> None:
    """The host is there and listens, on a network that this node has no way to."""
    net._wire("eth1", STORAGE, None)
    net.worker.knows(NAME, STORAGE)
    net.master.listens()
    seen = look(net.worker, 1)
    assert seen.fact("master", "state") == "unreachable"
    assert seen.findings() == {"platform/master-unreachable": "warn"}
    assert look(net.worker, 1, address=MASTER).findings() == {}, "by the shared network it works"


def test_an_interface_that_comes_up_late(net: Net) -> None:
    net.worker.knows(NAME, MASTER)
    net.master.listens()
    ip("-n", net.worker.name, "link", "set", "eth0", "down")
    up = ["ip", "-n", net.worker.name, "link", "set", "eth0", "up"]
    late = subprocess.Popen(["sh", "-c", "sleep 2; exec " + " ".join(up)])
    try:
        seen = look(net.worker, 1, *PATIENT)
    finally:
        late.wait()
    assert seen.fact("master", "state") == "connected" and seen.findings() == {}


def test_a_name_that_means_each_node_itself(net: Net) -> None:
    net.worker.knows(NAME, "127.0.1.1")
    assert look(net.worker, 1).findings() == {"platform/master-unresolvable": "fail"}
    seen = look(net.worker, 1, address="localhost")
    assert seen.findings() == {"platform/master-unresolvable": "fail"} and seen.code == 75


def test_the_first_node(net: Net) -> None:
    net.master.knows(NAME, MASTER)
    seen = look(net.master, 0)
    assert seen.fact("master", "state") == "free" and seen.fact("master", "local") is True
    assert seen.findings() == {} and seen.code == 0
    net.master.listens()
    assert look(net.master, 0).findings() == {"platform/master-unreachable": "warn"}, "by hand"


def test_a_taken_port_stops_what_would_be_started(net: Net) -> None:
    net.master.knows(NAME, MASTER)
    line = ["exec", "--mode", "enforce", "--", "sh", "-c", "exec python train.py"]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "DLC_JOB_ID": "dlc1",
                 "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": NAME,
                 "MASTER_PORT": "23456"}  # fmt: skip
    net.master.listens()
    done = subprocess.run(
        net.master.run(sys.executable, "-m", "preflight", *line),
        env=variables, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 75, done.stderr
    assert b"FAIL platform/master-unreachable: port 23456" in done.stderr.splitlines()[-1]


def test_a_first_node_that_the_name_does_not_mean(net: Net) -> None:
    net.master.knows(NAME, WORKER)
    assert look(net.master, 0).findings() == {"platform/master-unreachable": "warn"}
    service = look(net.master, 0, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert service.findings() == {"platform/master-unreachable": "info"}


def test_a_node_that_names_itself(net: Net) -> None:
    net.worker.knows(NAME, WORKER)
    assert look(net.worker, 1).findings() == {"platform/master-unreachable": "warn"}
    assert look(net.worker, 0).findings() == {}, "the first node may"


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_offline_asks_nothing(net: Net, how: str) -> None:
    """Not even what would fail: the look is over at once, and says what it does not know."""
    options = ["--offline"] if how == "flag" else []
    env = {} if how == "flag" else {"PREFLIGHT_OFFLINE": "1"}
    seen = look(net.worker, 1, *options, **env)
    assert seen.findings() == {} and seen.code == 0
    unknowns = seen.document["unknowns"]
    assert isinstance(unknowns, list)
    asked = {one["fact"]: one["reason"] for one in unknowns}
    assert asked["host.master_resolves"].startswith("--offline")
    assert asked["master.state"].startswith("--offline")
    unhurried = look(net.worker, 1)
    assert unhurried.seconds > seen.seconds + 1.5, "and the name was waited for without it"


def test_a_short_timeout_is_kept(net: Net) -> None:
    seen = look(net.worker, 1, "--timeout", "3")
    assert seen.findings() == {"platform/master-unresolvable": "fail"}
    assert seen.seconds < 4


def test_one_node_asks_nothing(net: Net) -> None:
    seen = look(net.worker, 0, WORLD_SIZE="1")
    assert seen.findings() == {} and seen.fact("host", "master_resolves") is None
