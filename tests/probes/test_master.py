"""The master probe on this machine's loopback; a real network is in tests/real/test_network.py."""

import socket
import time

import pytest

from preflight import tables
from preflight.probes import master
from preflight.roots import Root

MARKS = tables.built_in()["marks"]
ROOT = Root("/")


@pytest.fixture
def listener():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


@pytest.fixture
def closed():
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def look(rank="1", address="no-such-host.invalid", timeout=1.5, offline=False, command=(), **env):
    variables = {"DLC_JOB_ID": "dlc1", "WORLD_SIZE": "2", "RANK": rank, "MASTER_ADDR": address,
                 "MASTER_PORT": "23456", **env}  # fmt: skip
    return master.look(ROOT, variables, command, MARKS, timeout, offline)


def test_a_name_that_no_resolver_knows_is_waited_for_as_long_as_may_be():
    started = time.monotonic()
    seen = look(timeout=3)
    assert seen.host.master_resolves.value is False
    assert 0.3 < time.monotonic() - started < 3
    assert seen.master.address.value == "no-such-host.invalid" and not seen.master.state.known


def test_the_time_is_a_third_of_a_short_whole_and_five_seconds_of_a_long_one():
    assert master.seconds(3) == 1 and master.seconds(30) == 5 and master.seconds(3600) == 5


@pytest.mark.parametrize(
    "env",
    [
        {"WORLD_SIZE": "1"},
        {"TORCHELASTIC_RUN_ID": "x"},
        {"MASTER_ADDR": ""},
        {"DLC_JOB_ID": ""},  # then nobody says what WORLD_SIZE counts
    ],
)
def test_where_nothing_is_asked(env):
    started = time.monotonic()
    seen = look(**env)
    assert not seen.host.master_resolves.looked and not seen.master.address.looked
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_loopback_is_not_asked_for(address):
    seen = look(address=address)
    assert seen.master.address.value == address and not seen.host.master_resolves.looked


def test_offline_says_why_nothing_is_known():
    seen = look(offline=True)
    for fact in (seen.host.master_resolves, seen.master.state, seen.master.local):
        assert fact.unknown.startswith("--offline") and fact.looked
    assert seen.master.address.known


def test_the_command_decides_where(closed):
    line = ["torchrun", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=elsewhere.invalid:7"]
    seen = look(command=[*line, "t.py"])
    assert (seen.master.address.value, seen.master.port.value) == ("elsewhere.invalid", "7")
    assert not look(command=["torchrun", "--standalone", "t.py"]).master.address.looked


def test_states_of_a_port(listener, closed):
    loopback = [(socket.AF_INET, "127.0.0.1")]
    soon = time.monotonic() + 2
    assert master._connect(loopback, listener, soon) == "connected"
    assert master._connect(loopback, closed, soon) == "refused"
    # Several addresses: one that answers is enough.
    both = [(socket.AF_INET, "127.0.0.2"), *loopback]
    assert master._connect(both, listener, soon) == "connected"


def test_a_port_of_this_node():
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("0.0.0.0", 0))
        port = one.getsockname()[1]
        one.listen()
        assert master._port_state(port) == "taken"
    assert master._port_state(port) == "free"


def test_own_addresses():
    assert master._is_own((socket.AF_INET, "127.0.0.1"))
    assert not master._is_own((socket.AF_INET, "192.0.2.1"))


@pytest.mark.parametrize("name", ["", "x" * 300, "a..b", "é" * 80, "\0", "-", "a b"])
def test_names_that_are_none(name):
    addresses, problem = master._resolved(name, 23456, time.monotonic())
    assert addresses == [] or name == ""
    assert problem or name == ""


def test_when_a_child_is_worth_starting():
    assert master.wanted({"MASTER_ADDR": "h"}, []) and master.wanted({"PET_MASTER_ADDR": "h"}, [])
    assert master.wanted({}, ["bash", "-c", "torchrun --nnodes=2 t.py"])
    assert not master.wanted({"PATH": "/bin"}, ["python", "t.py"])
