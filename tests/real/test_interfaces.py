"""What NCCL takes of real interfaces is what the real library takes: namespaces and veth pairs.

The library is asked itself: ncclGetUniqueId begins the bootstrap, which chooses an interface and
says so, without a GPU. It is that of the real torch, or those that PREFLIGHT_LIBNCCL names.
"""

import json

import pytest

from preflight import snapshot_json
from preflight.binary import versions
from preflight.matrix import numbers
from preflight.probes import network
from preflight.rules import ifnames, interconnect
from tests.real import namespaces
from tests.real.namespaces import Link, Namespace
from tests.rules.build import outcomes, word

PROBLEM = namespaces.problem()
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
LIBRARIES = list(namespaces.libraries())

#: As jobs find them: a pod, a node with a storage network, one with InfiniBand, and odd ones.
LAYOUTS = {
    "pod": [Link("eth0", "10.1.0.7/24")],
    "node": [Link("docker0", "172.17.0.1/16", kind="bridge"), Link("eno1", "10.2.0.7/24"),
             Link("eno2", "10.3.0.7/24"), Link("virbr0", "192.168.122.1/24")],
    "fabric": [Link("eth0", "10.1.0.7/24"), Link("ib0", "10.9.0.7/16"), Link("ib1", "10.9.1.7/16"),
               Link("eth10", "10.4.0.7/24")],
    "down": [Link("eth0", "10.1.0.7/24", up=False), Link("eth1", "10.2.0.7/24", carrier=False),
             Link("eth2"), Link("eth3", "10.3.0.7/24")],
    "six": [Link("eth0", "fd01::7/64"), Link("eth1", "10.2.0.7/24 fd02::7/64")],
    "alone": [],
    "bridges": [Link("docker0", "172.17.0.1/16"), Link("virbr0", "192.168.122.1/24")],
}  # fmt: skip
TEXTS = [
    None, "", "e", "eth", "eth0", "=eth0", "=eth", "eth1,eth0", "=eth1,eth0", "eth9", "lo",
    "^lo", "^docker", "^docker0,lo", "^=docker0", "^=lo,eth0", "^eth,lo", "^", "=", "^=",
    "ib", "en", "eth0, eth1", " eth0", "'eth0'", "eth*", "eth0;eth1", "^lo,^docker", "^^lo",
    "==eth0", "eth0:1", "eth0:", ":eth0", ",eth3", "eno1,", "^ib,eth,docker,virbr,lo",
]  # fmt: skip


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def layout(request):
    with Namespace(LAYOUTS[request.param]) as made:
        yield made


def before(library):
    """Whether a library is of the time before 2.28, by what it says itself."""
    said = [one.version for one in versions.read(library) if one.library == "nccl"]
    return numbers(said[0]) < interconnect.RUNNING_ONLY


def seen(place, **env):
    return snapshot_json.from_json(place.look(**env))


@pytest.mark.parametrize("library", LIBRARIES or [None])
def test_the_choice_is_the_librarys_own(layout, library):
    if library is None:
        pytest.skip("no real libnccl: neither the real torch's nor PREFLIGHT_LIBNCCL")
    rows = seen(layout).network.interfaces.value
    ways = ifnames.Ways(before=before(library))
    for text in TEXTS:
        found = (
            ifnames.chosen(text, rows, ways) if ifnames.is_set(text)
            else ifnames.automatic(rows, ways)
        )  # fmt: skip
        mine = found[0].name if found else ""
        assert mine == layout.nccl(library, text), (text, mine, [row.name for row in rows])


@pytest.mark.parametrize("library", LIBRARIES or [None])
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_the_family_is_the_librarys_own(layout, library, family):
    if library is None:
        pytest.skip("no real libnccl: neither the real torch's nor PREFLIGHT_LIBNCCL")
    rows = seen(layout).network.interfaces.value
    found = ifnames.automatic(rows, ifnames.Ways(family, before(library)))
    real = layout.nccl(library, None, NCCL_SOCKET_FAMILY=family)
    assert (found[0].name if found else "") == real


def test_the_probe_sees_what_ip_shows(layout):
    shown = json.loads(layout.python(
        "import subprocess; print(subprocess.check_output(['ip', '-j', 'addr']).decode())"
    ))  # fmt: skip
    rows = {row.name: row for row in seen(layout).network.interfaces.value}
    assert set(rows) == {one["ifname"] for one in shown}
    for one in shown:
        row = rows[one["ifname"]]
        assert (row.kind == "loopback") == ("LOOPBACK" in one["flags"])
        assert (row.state != "down") == ("UP" in one["flags"])
        assert (row.state == "running") == ({"UP", "LOWER_UP"} <= set(one["flags"]))
        assert set(row.addresses.split()) == {
            f"{a['local']}/{a['prefixlen']}" for a in one["addr_info"]
        }
        assert (row.kind == "bridge") == (
            one["ifname"] in [link.name for link in layout.links if link.kind == "bridge"]
        )


# -- from the real interfaces to the verdict -----------------------------------------------------


def judged(place, rule, nodes=2, **env):
    from dataclasses import replace

    from preflight import snapshot as s

    found = seen(place, **env)
    found = replace(found, origin="live", env=s.known(env, "environment"),
                    job=s.Job(nodes=s.known(nodes, "test")))  # fmt: skip
    return [word(rule, one) for one in outcomes(rule, found)]


def test_two_networks_and_the_way_to_the_master():
    links = [Link("eth0", "10.1.0.7/24"), Link("eth1", "10.2.0.7/24")]
    with Namespace(links, routes=["10.50.0.0/16 via 10.2.0.1"]) as place:
        # By address: the kernel is asked, nothing is sent.
        assert seen(place, MASTER_ADDR="10.2.0.9").host.routes_to_master.value == ("eth1",)
        assert seen(place, MASTER_ADDR="10.50.3.4").host.routes_to_master.value == ("eth1",)
        assert seen(place, MASTER_ADDR="10.99.0.1").host.routes_to_master.value == ()
        assert not seen(place, MASTER_ADDR="a-name").host.routes_to_master.known
        rule = "nccl/interface-unroutable"
        assert judged(place, rule, MASTER_ADDR="10.1.0.9") == ["pass"]
        assert judged(place, rule, MASTER_ADDR="10.2.0.9") == ["warn"]
        assert judged(place, rule, MASTER_ADDR="10.99.0.1") == ["warn"]
        named = {"MASTER_ADDR": "10.2.0.9", "NCCL_SOCKET_IFNAME": "=eth0"}
        assert judged(place, rule, **named) == ["info"]
        assert judged(place, rule, **{**named, "NCCL_SOCKET_IFNAME": "eth1"}) == ["pass"]
        assert judged(place, rule, **{**named, "NCCL_SOCKET_IFNAME": "^eth0,lo"}) == ["pass"]
        assert judged(place, rule, nodes=1, MASTER_ADDR="10.2.0.9") == ["n/a"]


def test_a_master_in_hosts_is_found_by_name(tmp_path):
    from preflight.roots import Root

    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n10.1.0.9 job-master-0 m # x\n")
    route = tmp_path / "proc/net/route"
    route.parent.mkdir(parents=True)
    route.write_text("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
                     "eth0\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\n"
                     "eth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n")  # fmt: skip
    found = network.master_routes(Root(str(tmp_path)), {"MASTER_ADDR": "job-master-0"}, ())
    assert found.value == ("eth1",)


def test_an_exclusion_that_leaves_the_loopback_first():
    """As the real library has it, too: 127.0.0.1 is told to the other nodes."""
    with Namespace([Link("docker0", "172.17.0.1/16"), Link("eth0", "10.1.0.7/24")]) as place:
        assert judged(place, "nccl/interface-loopback", NCCL_SOCKET_IFNAME="^docker0") == ["fail"]
        good = "^docker0,lo"
        assert judged(place, "nccl/interface-loopback", NCCL_SOCKET_IFNAME=good) == ["pass"]
        for library in LIBRARIES:
            assert place.nccl(library, "^docker0") == "lo"
            assert place.nccl(library, good) == "eth0"


def test_an_interface_without_a_carrier_or_address_is_missing():
    links = [Link("eth0", "10.1.0.7/24", carrier=False), Link("eth1"), Link("eth2", "10.3.0.7/24")]
    with Namespace(links) as place:
        for name, wanted in (("eth0", "fail"), ("eth1", "fail"), ("eth2", "pass")):
            assert judged(place, "nccl/interface-missing", NCCL_SOCKET_IFNAME=name) == [wanted]
        assert judged(place, "nccl/interface-missing", GLOO_SOCKET_IFNAME="eth2,eth1") == ["fail"]


def test_only_the_loopback_interface():
    with Namespace([]) as place:
        assert judged(place, "nccl/no-interface") == ["fail"]
        assert judged(place, "nccl/no-interface", nodes=1) == ["pass"]


# -- Gloo ---------------------------------------------------------------------------------------

_GLOO = """
import json, sys
from torch.distributed import ProcessGroupGloo
found = []
for name in json.loads(sys.argv[1]):
    try:
        ProcessGroupGloo.create_device(interface=name)
        found.append(name)
    except RuntimeError:
        pass
print(json.dumps(found))
"""


def test_gloos_names_are_whole_names():
    from tests.real import stack

    venv, problem = stack.torch_venv()
    if not venv:
        pytest.skip(problem)
    links = [Link("eth0", "10.1.0.7/24"), Link("eth1"), Link("eth2", "10.3.0.7/24", up=False),
             Link("six", "fd01::7/64")]  # fmt: skip
    with Namespace(links) as place:
        names = ["lo", "eth0", "eth", "=eth0", "^lo", " eth0", "eth0 ", "eth1", "six", "eth9"]
        real = json.loads(place.python(_GLOO, json.dumps(names), by=venv + "/bin/python"))
        assert real == ["lo", "eth0", "six"]
        rule = "nccl/interface-missing"
        for name in names:
            said = judged(place, rule, GLOO_SOCKET_IFNAME=name)
            syntax = judged(place, "nccl/interface-syntax", GLOO_SOCKET_IFNAME=name)
            assert (said == ["pass"]) == (name in real), name
            assert "fail" in said + syntax or name in real, name
