"""Interfaces, RDMA devices and locked memory, from the files of roots that are not at hand."""

import pytest

from preflight import snapshot as s
from preflight.probes import network
from tests.probes.fake_root import Image

UP, RUNNING, LOOPBACK = 0x1, 0x40, 0x8


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


def answers(**given):
    def ask(name):
        if name not in given:
            raise OSError(19, "No such device")
        return network.Answer(*given[name])

    return ask


def test_interfaces_and_their_kinds(image):
    sys = "/sys/class/net"
    image.folders(f"{sys}/lo", f"{sys}/eth0/device", f"{sys}/v3/device/physfn",
                  f"{sys}/docker0/bridge", f"{sys}/bond0/bonding", f"{sys}/veth1")  # fmt: skip
    image.write(f"{sys}/eth0/speed", "100000\n").write(f"{sys}/veth1/speed", "-1\n")
    image.write("/proc/net/if_inet6",
                "fd010000000000000000000000000007 02 40 00 80     eth0\n"
                "fe80000000000000fc00fffe00000001 02 40 20 80     eth0\n"
                "00000000000000000000000000000001 01 80 10 80       lo\n"
                "garbage\n")  # fmt: skip
    ask = answers(
        lo=(UP | RUNNING | LOOPBACK, "127.0.0.1", "255.0.0.0"),
        eth0=(UP | RUNNING, "10.1.0.7", "255.255.255.0"),
        v3=(UP | RUNNING, "", ""),
        docker0=(UP, "172.17.0.1", "255.255.0.0"),
        bond0=(0, "", ""),
        veth1=(RUNNING, "", ""),
    )
    names = ["lo", "eth0", "v3", "docker0", "bond0", "veth1", "gone"]
    assert network.interfaces(image.root, names, ask) == (
        s.Interface("lo", "running", "loopback", "127.0.0.1/8 ::1/128"),
        s.Interface(
            "eth0", "running", "physical", "10.1.0.7/24 fd01::7/64 fe80::fc00:fffe:0:1/64", 100000
        ),
        s.Interface("v3", "running", "vf"),
        s.Interface("docker0", "up", "bridge", "172.17.0.1/16"),
        s.Interface("bond0", "down", "bond"),
        s.Interface("veth1", "down", "virtual"),
        s.Interface("gone", "down", "virtual"),
    )


def test_rdma_ports(image):
    at = "/sys/class/infiniband/mlx5_0"
    image.write(f"{at}/ports/1/state", "4: ACTIVE\n").write(
        f"{at}/ports/1/link_layer", "Ethernet\n"
    )
    image.write(f"{at}/ports/1/rate", "400 Gb/sec (4X NDR)\n").folders("/sys/bus/drv/mlx5_core")
    image.write(f"{at}/ports/2/state", "1: DOWN\n")
    image.link(f"{at}/device/driver", "../../../../bus/drv/mlx5_core")
    assert list(network._ports(image.root, ["mlx5_0", "none"])) == [
        s.RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", "400 Gb/sec (4X NDR)", "mlx5_core"),
        s.RdmaPort("mlx5_0", 2, "DOWN", "", "", "mlx5_core"),
    ]


def test_providers_lie_where_distributions_put_them(image):
    image.write("/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so")
    image.write("/usr/lib64/libibverbs/libbnxt_re-rdmav25.so")
    image.write("/usr/lib64/libibverbs/libsomething.so")
    assert network.providers(image.root, {}).value == ("bnxt_re", "mlx5")
    image.write("/opt/conda/lib/libibverbs/liberdma-rdmav34.so")
    beside = {"libibverbs.so.1": "/opt/conda/lib/libibverbs.so.1"}
    assert network.providers(image.root, beside).value == ("bnxt_re", "erdma", "mlx5")


def test_a_provider_in_another_place_is_not_missing(image):
    image.write("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n")
    assert network.providers(image.root, {}).unknown
    image.write("/usr/lib64/libibverbs/libmlx5-rdmav34.so")
    assert network.providers(image.root, {}).value == ("mlx5",)
    assert network.providers(Image(image.folder / "empty").root, {}).value == ()


STATUS = "Name:\tpython\nCapEff:\t{:016x}\n"


@pytest.mark.parametrize(
    ("capabilities", "users", "bound"),
    [
        (1 << 14, "         0          0 4294967295\n", False),
        (0, "         0          0 4294967295\n", True),
        (1 << 14, "         0     100000      65536\n", True),  # of its own user namespace only
        (1 << 13, "         0          0 4294967295\n", True),
    ],
)
def test_who_is_bound_by_the_limit(image, monkeypatch, capabilities, users, bound):
    image.write("/proc/self/status", STATUS.format(capabilities))
    image.write("/proc/self/uid_map", users)
    monkeypatch.setattr(network.resource, "getrlimit", lambda _which: (64 << 10, 64 << 10))
    assert network.memlock(image.root).value == (64 if bound else -1)


def test_no_limit(image, monkeypatch):
    unlimited = network.resource.RLIM_INFINITY
    monkeypatch.setattr(network.resource, "getrlimit", lambda _which: (unlimited, unlimited))
    assert network.memlock(image.root).value == -1


TABLE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t0000020A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth2\t0000030A\t00000000\t0001\t0\t0\t10\t0000FFFF\t0\t0\t0
eth3\t0000030A\t00000000\t0001\t0\t0\t10\t0000FFFF\t0\t0\t0
eth4\t0000030A\t00000000\t0001\t0\t0\t20\t0000FFFF\t0\t0\t0
eth5\t0000040A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0
short
"""


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("10.9.9.9", ("eth0",)),
        ("10.2.0.9", ("eth1",)),
        ("10.3.0.9", ("eth2", "eth3")),  # equal ones; the dearer is not taken
        ("10.4.0.9", ("eth0",)),  # that route refuses
    ],
)
def test_routes_by_the_table(image, address, found):
    image.write("/proc/net/route", TABLE)
    assert network.master_routes(image.root, {"MASTER_ADDR": address}, ()).value == found


def test_names_of_hosts_and_none(image):
    image.write("/proc/net/route", TABLE).write("/etc/hosts", "10.2.0.9 m0 m0.svc\n# 1.2.3.4 m1\n")
    assert network.master_routes(image.root, {"MASTER_ADDR": "m0.svc"}, ()).value == ("eth1",)
    for other in ("m1", "", "10.2.0.9.9"):
        assert not network.master_routes(image.root, {"MASTER_ADDR": other}, ()).looked


def test_this_machine():
    """Whatever it has: the loopback interface, and a limit."""
    from preflight.roots import Root

    seen = network.read(Root("/"), {"MASTER_ADDR": "127.0.0.1"}, "x86_64")
    first = next(row for row in seen.network.interfaces.value if row.kind == "loopback")
    assert first.name in seen.host.interfaces.value and "127.0.0.1/8" in first.addresses
    assert seen.host.routes_to_master.value[0] == first.name
    assert seen.host.memlock_kib.known
