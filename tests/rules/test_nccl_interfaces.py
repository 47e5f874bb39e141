"""Interfaces named, excluded, missing and unroutable: what is said, and how hard."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import H100, finding, outcomes, say, snap, word

TWO = {"nodes": 2}
HERE = {"interfaces": ["lo", "eth0", "eth1"]}
MISSING, LOOP = "nccl/interface-missing", "nccl/interface-loopback"
SYNTAX, ROUTE, NONE = "nccl/interface-syntax", "nccl/interface-unroutable", "nccl/no-interface"
ALL = (MISSING, LOOP, SYNTAX, ROUTE, NONE)


def ifname(text, **more):
    return {"env": {"NCCL_SOCKET_IFNAME": text}, "job": TWO, "host": HERE, **more}


def with_rows(snapshot, *rows):
    known = s.known(tuple(s.Interface(*row) for row in rows), "test")
    return replace(snapshot, network=replace(snapshot.network, interfaces=known))


def words(name, snapshot):
    return [word(name, one) for one in outcomes(name, snapshot)]


# -- a name that is not there -------------------------------------------------------------------


def test_a_missing_interface_stops_a_job_of_several():
    assert say(MISSING, **ifname("eth2")) == ["fail"]
    assert say(MISSING, **ifname("eth1")) == ["pass"]
    assert say(MISSING, **ifname("eth")) == ["pass"]
    assert say(MISSING, **ifname("=eth")) == ["fail"]
    assert say(MISSING, **ifname("eth7,eth0")) == ["pass"]  # NCCL takes the one that is there
    said = finding(MISSING, **ifname("eth2"))
    assert "eth2" in said.summary and "eth0, eth1" in said.observed
    assert said.fix[-1] == "unset NCCL_SOCKET_IFNAME"


def test_the_fix_names_the_way_to_the_master():
    host = {**HERE, "routes_to_master": ["eth1"]}
    assert finding(MISSING, **ifname("ens3", host=host)).fix[0] == (
        "export NCCL_SOCKET_IFNAME==eth1"
    )


def test_one_process_never_looks():
    """An image's own NCCL_SOCKET_IFNAME stops no notebook."""
    alone = {"env": {"NCCL_SOCKET_IFNAME": "eth2"}, "host": HERE}
    assert say(MISSING, "live", **alone) == ["warn"]
    assert say(MISSING, "live", **{**alone, "job": {"command": "torchrun train.py"}}) == ["fail"]
    assert say(MISSING, "live", **{**alone, "job": {"nodes": 1}}) == ["warn"]
    # DLC names a master for a job of one process as well.
    dlc = {"NCCL_SOCKET_IFNAME": "eth2", "DLC_JOB_ID": "dlc1", "MASTER_ADDR": "dlc1-master-0"}
    one = {**alone, "env": {**dlc, "WORLD_SIZE": "1", "RANK": "0"}}
    assert say(MISSING, "live", **one) == ["warn"]
    assert say(MISSING, "live", **{**one, "env": {**dlc, "WORLD_SIZE": "2"}}) == ["fail"]
    assert say(MISSING, "live", **{**one, "job": {"command": "torchrun x.py"}}) == ["fail"]


def test_gloo_needs_every_name_whole():
    def gloo(text):
        return {"env": {"GLOO_SOCKET_IFNAME": text}, "job": TWO, "host": HERE}

    assert say(MISSING, **gloo("eth0,eth1")) == ["pass"]
    assert say(MISSING, **gloo("eth0,eth2")) == ["fail"]
    assert say(MISSING, **gloo("eth")) == ["fail"]
    assert finding(MISSING, **gloo("eth")).fix[0] == "export GLOO_SOCKET_IFNAME=eth0"


def test_a_job_on_gpus_may_never_ask_gloo():
    """init_process_group("nccl") creates no Gloo group: its list stops only who uses it."""

    def gloo(text, gpus=(H100,), **env):
        own = {"GLOO_SOCKET_IFNAME": text, **env}
        return {"env": own, "job": TWO, "host": HERE, "gpus": list(gpus)}

    assert say(MISSING, **gloo("eth2")) == ["warn"]
    assert say(MISSING, **gloo("eth2", CUDA_VISIBLE_DEVICES="")) == ["fail"]
    assert say(MISSING, **gloo("eth2", gpus=())) == ["fail"]
    assert say(LOOP, **gloo("lo")) == ["warn"]
    assert say(LOOP, **gloo("lo", gpus=())) == ["fail"]
    assert say(SYNTAX, **gloo("eth0, eth1")) == ["warn"]


def test_without_a_word_of_it_nothing_is_said():
    assert say(MISSING, env={}, host=HERE) == ["n/a"]
    assert say(MISSING, env={"NCCL_SOCKET_IFNAME": ""}, host=HERE) == ["n/a"]
    assert say(MISSING, env={"NCCL_SOCKET_IFNAME": "eth0"}) == ["unknown"]
    assert say(MISSING, host=HERE) == ["unknown"]
    hidden = {"NCCL_SOCKET_IFNAME": "eth9", "CUDA_VISIBLE_DEVICES": ""}
    assert say(MISSING, env=hidden, host=HERE, job=TWO) == ["n/a"]


def test_an_interface_that_is_down_is_as_good_as_missing():
    rows = [("lo", "running", "loopback", "127.0.0.1/8"), ("eth0", "running", "", "10.1.0.7/24"),
            ("eth1", "down", "", "10.2.0.7/24"), ("eth2", "running", "", "")]  # fmt: skip
    for name, wanted in (("eth0", "pass"), ("eth1", "fail"), ("eth2", "fail")):
        old = with_rows(snap(**ifname(name, libraries=[{"name": "libnccl.so.2",
                                                        "version": "2.21.5"}])), *rows)  # fmt: skip
        assert words(MISSING, old) == [wanted]
        assert words(MISSING, with_rows(snap(**ifname(name)), *rows)) == [wanted]
    said = outcomes(MISSING, with_rows(snap(**ifname("eth1")), *rows))[0]
    assert "eth1 (down)" in said.observed and "eth2 (no address)" in said.observed


def test_nccl_conf_counts_and_the_environment_wins():
    conf = s.known({"NCCL_SOCKET_IFNAME": "eth7"}, "/etc/nccl.conf")
    quiet = snap(env={}, job=TWO, host=HERE)
    quiet = replace(quiet, network=replace(quiet.network, conf=conf))
    assert words(MISSING, quiet) == ["fail"]
    said = outcomes(MISSING, quiet)[0]
    assert "network.conf" in [one.fact for one in said.evidence]
    own = snap(**ifname("eth0"))
    own = replace(own, network=replace(own.network, conf=conf))
    assert words(MISSING, own) == ["pass"]


# -- the loopback interface ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("lo", "fail"), ("lo,eth0", "fail"), ("^docker0", "fail"), ("^=docker0", "fail"),
     ("^lo,docker", "pass"), ("eth0", "pass"), ("l", "n/a")],
)  # fmt: skip
def test_loopback_between_nodes(text, wanted):
    assert say(LOOP, **ifname(text)) == [wanted]


def test_loopback_on_one_node_is_fine():
    assert say(LOOP, **ifname("lo", job={"nodes": 1})) == ["pass"]
    assert say(LOOP, **ifname("lo", job={})) == ["unknown"]
    dlc = {"DLC_JOB_ID": "dlc1", "WORLD_SIZE": "2", "NCCL_SOCKET_IFNAME": "lo"}
    assert say(LOOP, env=dlc, host=HERE) == ["fail"]
    # After torchrun WORLD_SIZE counts processes: eight on each of one node.
    started = {**dlc, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0"}
    assert say(LOOP, env=started, host=HERE) == ["pass"]


def test_the_fix_of_an_exclusion_excludes_lo_too():
    assert finding(LOOP, **ifname("^docker0,virbr")).fix[0] == (
        "export NCCL_SOCKET_IFNAME=^lo,docker0,virbr"
    )
    assert finding(LOOP, **ifname("^=docker0")).fix[0] == ("export NCCL_SOCKET_IFNAME=^=lo,docker0")


# -- spelling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("eth0, eth1", "warn"),  # eth0 is used, as meant
        ("'eth0'", "fail"),
        (" eth0", "fail"),
        ("eth*", "fail"),
        ("eth0;eth1", "fail"),
        ("^lo,^docker0", "warn"),
        ("eth0,eth1", "pass"),
        ("^lo,docker", "pass"),
    ],
)
def test_spelling(text, wanted):
    assert say(SYNTAX, **ifname(text)) == [wanted]
    if wanted == "fail":  # one rule speaks of one mistake
        assert say(MISSING, **ifname(text)) == ["n/a"]


def test_spelling_without_interfaces_is_a_warning():
    assert say(SYNTAX, env={"NCCL_SOCKET_IFNAME": "'eth0'"}, job=TWO) == ["warn"]
    assert say(SYNTAX, env={"NCCL_IB_HCA": "mlx5_0, mlx5_1"}, job=TWO) == ["warn"]
    assert say(SYNTAX, env={"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}) == ["pass"]
    assert say(SYNTAX, env={}) == ["n/a"]
    assert say(SYNTAX) == ["unknown"]
    fix = finding(SYNTAX, **ifname("eth0 eth1")).fix
    assert fix == ("export NCCL_SOCKET_IFNAME=eth0,eth1",)


# -- the way to the master ----------------------------------------------------------------------

TWO_NETS = [("lo", "running", "loopback", "127.0.0.1/8"),
            ("eth0", "running", "physical", "10.1.0.7/24"),
            ("eth1", "running", "physical", "10.2.0.7/24")]  # fmt: skip


def routed(text=None, routes=("eth1",), rows=TWO_NETS, nodes=2):
    env = {} if text is None else {"NCCL_SOCKET_IFNAME": text}
    host = {} if routes is None else {"routes_to_master": list(routes)}
    return with_rows(snap(env=env, host=host, job={"nodes": nodes}), *rows)


@pytest.mark.parametrize(
    ("text", "routes", "wanted"),
    [
        (None, ("eth1",), "warn"),  # chance takes eth0
        (None, ("eth0",), "pass"),
        ("^lo", ("eth1",), "warn"),
        ("^lo,eth0", ("eth1",), "pass"),
        ("eth1", ("eth1",), "pass"),
        ("=eth0", ("eth1",), "info"),  # a network of its own, taken outright
        (None, (), "warn"),
        (None, None, "unknown"),
        ("=eth0", None, "pass"),
    ],
)
def test_the_way_to_the_master(text, routes, wanted):
    assert words(ROUTE, routed(text, routes)) == [wanted]


def test_one_interface_is_no_choice_and_one_node_no_question():
    assert words(ROUTE, routed(None, None, TWO_NETS[:2])) == ["pass"]
    assert words(ROUTE, routed(None, ("eth1",), nodes=1)) == ["n/a"]


def test_a_bridge_named_outright_leads_nowhere():
    rows = [*TWO_NETS, ("docker0", "running", "bridge", "172.17.0.1/16")]
    assert words(ROUTE, routed("docker0", ("eth0",), rows)) == ["warn"]


# -- none at all --------------------------------------------------------------------------------


def test_nothing_to_use():
    lo = {"interfaces": ["lo"]}
    assert say(NONE, env={}, host=lo, job=TWO) == ["fail"]
    assert say(NONE, env={}, host=lo, job={"nodes": 1}) == ["pass"]
    assert say(NONE, env={}, host=lo) == ["unknown"]
    assert say(NONE, env={}, host=HERE, job=TWO) == ["pass"]
    assert say(NONE, **ifname("^eth,lo")) == ["fail"]
    assert say(NONE, **ifname("^eth0,lo")) == ["pass"]
    assert say(NONE, **ifname("eth9")) == ["n/a"]
    six = {"NCCL_SOCKET_FAMILY": "AF_INET6"}
    assert words(NONE, with_rows(snap(env=six, job=TWO), *TWO_NETS)) == ["fail"]


def test_a_healthy_pod_passes_all():
    """As DLC has it on Lingjun: the preset's prefix, one interface towards the master."""
    rows = [*TWO_NETS[:2], ("eth1", "running", "vf", "10.9.0.7/16")]
    env = {"NCCL_SOCKET_IFNAME": "eth", "DLC_JOB_ID": "dlc1", "WORLD_SIZE": "2", "RANK": "0",
           "MASTER_ADDR": "dlc1-master-0"}  # fmt: skip
    seen = with_rows(snap("live", env=env), *rows)
    for name in ALL:
        assert set(words(name, seen)) <= {"pass", "n/a"}, name
