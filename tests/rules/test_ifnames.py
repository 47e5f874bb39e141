"""Lists of interfaces as NCCL reads them. What real libraries make of them: tests/real."""

import pytest

from preflight.rules import ifnames
from preflight.snapshot import Interface


def row(name, addresses="10.1.0.7/24", state="running"):
    return Interface(name=name, addresses=addresses, state=state)


LO = Interface("lo", "running", "loopback", "127.0.0.1/8 ::1/128")
ROWS = [LO, row("eth0"), row("eth1", "10.2.0.7/24"), row("eth10"), row("ib0"), row("docker0")]


def names(text, rows=ROWS, **ways):
    return [one.name for one in ifnames.chosen(text, rows, ifnames.Ways(**ways))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("eth1,eth0", ["eth0", "eth1", "eth10"]),  # the kernel's order, not the list's
        ("^lo,docker", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["lo", "eth0", "eth10", "ib0", "docker0"]),
        ("^docker", ["lo", "eth0", "eth1", "eth10", "ib0"]),
        ("=eth", []),
        ("eth0, eth1", ["eth0"]),
        ("^lo,^docker", ["eth0", "eth1", "eth10", "ib0", "docker0"]),
        ("eth0:1", ["eth0"]),
    ],
)
def test_a_list(text, found):
    assert names(text) == found


def test_an_hca_and_its_port():
    wanted = ifnames.parse("=mlx5_0:1,mlx5_1")
    assert wanted.matches("mlx5_0", 1) and not wanted.matches("mlx5_0", 2)
    assert wanted.matches("mlx5_1", 2) and not wanted.matches("mlx5_10", 1)
    assert ifnames.parse("mlx5").matches("mlx5_3", 1)
    assert not ifnames.parse("^mlx5_0:1").matches("mlx5_0", 1)
    assert ifnames.parse("^mlx5_0:1").matches("mlx5_0", 2)


def test_what_nccl_takes_by_itself():
    def first(*rows, **ways):
        return [one.name for one in ifnames.automatic([LO, *rows], ifnames.Ways(**ways))]

    assert first(row("eth0"), row("ib0"), row("ib1")) == ["ib0", "ib1"]
    assert first(row("docker0"), row("eth0")) == ["eth0"]
    assert first(row("docker0")) == ["docker0"]
    assert first(row("docker0"), row("virbr0")) == ["docker0"]
    assert first(row("docker0"), row("virbr0"), before=True) == ["virbr0"]
    assert first() == ["lo"]
    assert first(row("eth0", state="down"), row("eth1")) == ["eth1"]
    assert first(row("eth0", state="down"), row("eth1"), before=True) == ["eth0", "eth1"]
    assert first(row("eth0", ""), row("eth1")) == ["eth1"]
    # IPv6 alone comes after every IPv4 address.
    assert first(row("eth0", "fd01::7/64"), row("eth1")) == ["eth1", "eth0"]
    assert first(row("eth0"), row("eth1", "fd01::7/64"), family="AF_INET6") == ["eth1"]


@pytest.mark.parametrize(
    ("text", "is_set"), [(None, False), ("", False), ("e", False), ("e0", True)]
)
def test_what_counts_as_set(text, is_set):
    assert ifnames.is_set(text) == is_set


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("eth0, eth1", "eth0,eth1"),
        (" eth0", "eth0"),
        ("'eth0'", "eth0"),
        ('"eth0,eth1"', "eth0,eth1"),
        ("eth*", "eth"),
        ("eth0;eth1", "eth0,eth1"),
        ("eth0 eth1", "eth0,eth1"),
        ("^lo,^docker0", "^lo,docker0"),
        ("!lo,docker", "^lo,docker"),
        ("=eth0,=eth1", "=eth0,eth1"),
        ("eth0|eth1", "eth0,eth1"),
    ],
)
def test_mistakes_and_what_was_meant(text, meant):
    assert ifnames.mistakes(text)
    assert ifnames.meant(text) == meant
    assert not ifnames.mistakes(meant), "what is suggested has no mistake itself"


@pytest.mark.parametrize(
    "text", ["eth0", "eth", "=eth0,eth1", "^lo,docker", "^=docker0", "bond0.100", "enp90s0f0np0",
             "mlx5_0:1,mlx5_1:1", "br-lan", "mlx5_0::0:0", "eth0,", "usb0@if3"],
)  # fmt: skip
def test_what_is_no_mistake(text):
    assert ifnames.mistakes(text) == []


def test_gloo_knows_no_signs():
    assert ifnames.mistakes("=eth0", of_gloo=True) and ifnames.mistakes("^lo", of_gloo=True)
    assert ifnames.mistakes("eth0,eth1", of_gloo=True) == []
    assert ifnames.meant("=eth0", of_gloo=True) == "eth0"
