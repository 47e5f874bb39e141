"""RDMA that is there and not used: turned off, without libraries, devices or locked memory."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import finding, outcomes, say, snap, word

OFF, LIBRARIES = "nccl/ib-disabled", "nccl/rdma-libraries-missing"
DEVICE, MEMLOCK = "container/rdma-device-missing", "container/memlock-too-low"
ALL = (OFF, LIBRARIES, DEVICE, MEMLOCK)


def node(env=None, nodes=2, devices=("mlx5_0",), memlock=-1, **more):
    host = {"infiniband": list(devices), "memlock_kib": memlock}
    job = {} if nodes is None else {"nodes": nodes}
    return {"env": env or {}, "job": job, "host": host, **more}


def with_network(document, **facts):
    seen = snap(**document)
    known = {name: s.known(value, "test") for name, value in facts.items()}
    return replace(seen, network=replace(seen.network, **known))


def port(device, state="ACTIVE", number=1, module="mlx5_core"):
    return s.RdmaPort(device, number, state, "Ethernet", "400 Gb/sec (4X NDR)", module)


def words(name, snapshot):
    return [word(name, one) for one in outcomes(name, snapshot)]


@pytest.mark.parametrize("name", ALL)
def test_without_rdma_or_other_nodes_none_has_a_say(name):
    assert say(name, **node({"NCCL_IB_DISABLE": "1"}, devices=(), memlock=64)) == ["n/a"]
    assert say(name, **node({"NCCL_IB_DISABLE": "1"}, nodes=1, memlock=64)) == ["n/a"]
    assert say(name, env={}, job={"nodes": 2}) == ["unknown"]
    hidden = {"CUDA_VISIBLE_DEVICES": "", "NCCL_IB_DISABLE": "1"}
    assert say(name, **node(hidden, memlock=64)) == ["n/a"]


@pytest.mark.parametrize("name", ALL)
def test_devices_whose_ports_are_down_are_none(name):
    seen = with_network(node(memlock=64), ports=(port("mlx5_0", "DOWN"),))
    assert words(name, seen) == ["n/a"]


# -- turned off ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "warn"),
        ({"NCCL_IB_DISABLE": "0"}, "pass"),
        ({"NCCL_IB_DISABLE": "true"}, "pass"),  # read as 0
        ({"NCCL_NET": "Socket"}, "warn"),
        ({"NCCL_NET": "socket"}, "warn"),
        ({"NCCL_NET": "IB"}, "pass"),
        ({}, "pass"),
        ({"NCCL_IB_HCA": "mlx5"}, "pass"),
        ({"NCCL_IB_HCA": "erdma"}, "warn"),
        ({"NCCL_IB_HCA": "^mlx5"}, "warn"),
        ({"NCCL_IB_HCA": "=mlx5"}, "warn"),
    ],
)
def test_turned_off(env, wanted):
    assert say(OFF, **node(env)) == [wanted]


def test_without_a_number_of_nodes_it_is_not_known():
    assert say(OFF, **node({"NCCL_IB_DISABLE": "1"}, nodes=None)) == ["unknown"]


def test_ports_count():
    ports = (port("mlx5_0", "DOWN"), port("mlx5_1"))
    both = {"devices": ("mlx5_0", "mlx5_1")}
    assert words(OFF, with_network(node({"NCCL_IB_HCA": "=mlx5_0"}, **both), ports=ports)) == [
        "warn"
    ]
    assert words(OFF, with_network(node({"NCCL_IB_HCA": "=mlx5_1:1"}, **both), ports=ports)) == [
        "pass"
    ]
    assert words(OFF, with_network(node({"NCCL_IB_HCA": "=mlx5_1:2"}, **both), ports=ports)) == [
        "warn"
    ]


def test_on_ppu_it_is_as_it_should_be():
    ppu = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "", "NCCL_IB_DISABLE": "1",
           "NCCL_DEBUG": "INFO"}  # fmt: skip
    assert say(OFF, **node(ppu)) == ["n/a"]
    unset = {name: one for name, one in ppu.items() if name != "NCCL_IB_HCA"}
    assert say(OFF, **node(unset)) == ["warn"]


# -- libraries ----------------------------------------------------------------------------------

VERBS = {"libibverbs.so.1": "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"}


def test_libraries():
    assert words(LIBRARIES, with_network(node(), libraries={})) == ["warn"]
    assert words(LIBRARIES, with_network(node(), libraries=VERBS)) == ["pass"]
    assert say(LIBRARIES, **node()) == ["unknown"]
    assert words(LIBRARIES, with_network(node(nodes=None), libraries={})) == ["unknown"]
    off = node({"NCCL_IB_DISABLE": "1"})
    assert words(LIBRARIES, with_network(off, libraries={})) == ["n/a"]


def test_providers():
    ports = (port("mlx5_0"),)
    have = with_network(node(), libraries=VERBS, ports=ports, providers=("mlx5", "efa"))
    assert words(LIBRARIES, have) == ["pass"]
    lack = with_network(node(), libraries=VERBS, ports=ports, providers=("mlx4",))
    assert words(LIBRARIES, lack) == ["warn"]
    erdma = with_network(
        node(devices=("erdma_0",)), libraries=VERBS, ports=(port("erdma_0", module="erdma"),),
        providers=("mlx5",),
    )  # fmt: skip
    assert words(LIBRARIES, erdma) == ["warn"]
    assert "eRDMA" in outcomes(LIBRARIES, erdma)[0].fix[0]
    # A card whose provider's name is not known says nothing of what is missing.
    other = with_network(node(), libraries=VERBS, ports=(port("x_0", module="x"),), providers=())
    assert words(LIBRARIES, other) == ["pass"]


def test_efa_needs_a_plugin_and_others_do_not():
    efa = {"devices": ("rdmap0",)}
    ports = (port("rdmap0", module="efa"),)
    lack = with_network(node(**efa), libraries=VERBS, ports=ports, providers=("efa",))
    assert words(LIBRARIES, lack) == ["warn"]
    plugin = {**VERBS, "libnccl-net.so": "/opt/amazon/lib/libnccl-net.so"}
    have = with_network(node(**efa), libraries=plugin, ports=ports, providers=("efa",))
    assert words(LIBRARIES, have) == ["pass"]


# -- devices ------------------------------------------------------------------------------------


def test_devices_in_a_container():
    inside = {"os": {"container": True}}
    assert words(DEVICE, with_network(node(**inside), rdma_nodes=())) == ["warn"]
    here = ("/dev/infiniband/uverbs0",)
    assert words(DEVICE, with_network(node(**inside), rdma_nodes=here)) == ["pass"]
    host = {"os": {"container": False}}
    assert words(DEVICE, with_network(node(**host), rdma_nodes=())) == ["n/a"]
    assert words(DEVICE, with_network(node(nodes=None, **inside), rdma_nodes=())) == ["unknown"]
    assert say(DEVICE, **node(**inside)) == ["unknown"]


# -- locked memory ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kib", "wanted"),
    [(64, "fail"), (1023, "fail"), (1024, "warn"), (8192, "warn"), (65536, "pass"), (-1, "pass"),
     (2**40, "pass"), (0, "fail")],
)  # fmt: skip
def test_locked_memory(kib, wanted):
    assert say(MEMLOCK, **node(memlock=kib)) == [wanted]


def test_locked_memory_where_rdma_is_not_used():
    assert say(MEMLOCK, **node({"NCCL_IB_DISABLE": "1"}, memlock=64)) == ["n/a"]
    assert words(MEMLOCK, with_network(node(memlock=64), rdma_nodes=())) == ["n/a"]
    unsure = node(nodes=None, memlock=64)
    assert say(MEMLOCK, **unsure) == ["fail"]  # a description says what matters
    assert say(MEMLOCK, "live", **unsure) == ["unknown"]
    for line, wanted in (("python train.py", "unknown"), ("torchrun train.py", "n/a"),
                         ("torchrun --standalone --nproc-per-node=8 train.py", "n/a"),
                         ("torchrun --nnodes=2 --node-rank=1 train.py", "fail")):  # fmt: skip
        told = {**unsure, "job": {"command": line}}
        assert say(MEMLOCK, **told) == [wanted], line
    assert "--ulimit memlock=-1" in finding(MEMLOCK, **node(memlock=64)).fix[0]
