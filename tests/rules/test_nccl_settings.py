"""NCCL's variables: read by what is there or not, their values, what they turn off, presets."""

from dataclasses import replace
from pathlib import Path

import pytest

from preflight import snapshot as s
from preflight.matrix import numbers
from preflight.rules.registry import Finding
from tests.rules.build import H100, M, finding, outcomes, say, snap, torch, word

UNKNOWN = "nccl/variable-unknown"
LISTS = {
    path.stem: path.read_text().split()
    for path in (Path(__file__).resolve().parents[1] / "data/nccl_names").glob("*.txt")
}


def with_library(release, env, **more):
    """A machine whose libnccl is the real one of a release, by the names found in it."""
    seen = snap(env=env, libraries=[{"name": "libnccl.so.2", "version": release}], **more)
    rows = (s.Reader("/x/libnccl.so.2", " ".join(LISTS[release])),)
    return replace(seen, network=replace(seen.network, readers=s.known(rows, "test")))


def words(snapshot, name=UNKNOWN):
    return [word(name, one) for one in outcomes(name, snapshot)]


def the_finding(snapshot, name=UNKNOWN):
    found = [one for one in outcomes(name, snapshot) if isinstance(one, Finding)]
    assert len(found) == 1, found
    return found[0]


# -- every release that was looked into -----------------------------------------------------------


def documented(release):
    """The variables that the guide has for a release."""
    have = numbers(release)
    return [
        name
        for name, row in M.nccl_variables().items()
        if row["kind"] != "none"
        and numbers(str(row.get("since", "0"))) <= have
        and not (row.get("until") and numbers(str(row["until"])) <= have)
    ]


def test_there_are_enough_releases():
    assert len(LISTS) >= 9 and {"2.18.1", "2.21.5", "2.27.5", "2.30.7"} <= set(LISTS)
    assert all(len(documented(one)) > 60 for one in LISTS)


@pytest.mark.parametrize("release", sorted(LISTS))
def test_every_documented_variable_is_accepted(release):
    env = dict.fromkeys(documented(release), "")
    assert words(with_library(release, env)) == ["pass"]
    # And without the library, by the guide alone.
    alone = snap(env=env, libraries=[{"name": "libnccl.so.2", "version": release}])
    assert words(alone) == ["pass"]


@pytest.mark.parametrize("release", sorted(LISTS))
def test_every_variable_of_the_library_is_accepted_without_it_too(release):
    env = dict.fromkeys(LISTS[release], "")
    assert words(with_library(release, env)) == ["pass"]
    alone = snap(env=env, libraries=[{"name": "libnccl.so.2", "version": release}])
    assert words(alone) == ["pass"]


@pytest.mark.parametrize("release", sorted(LISTS))
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_DISABLED", "NCCL_IB_DISABLE"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
        ("NCCL_IB_TIMOUT", "NCCL_IB_TIMEOUT"),
        ("NCCL_IBHCA", "NCCL_IB_HCA"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_SHM_DISABLED", "NCCL_SHM_DISABLE"),
        ("NCCL_DEBUGS", "NCCL_DEBUG"),
        ("NCCL_NETGDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_IB_QPS_PER_CONN", "NCCL_IB_QPS_PER_CONNECTION"),
        ("NCCL_MAKE_IT_FAST", ""),
        ("NCCL_TIMEOUT", ""),
    ],
)
def test_invented_names_are_caught_and_the_right_one_is_named(release, wrong, right):
    # In nccl.conf, where no other rule looks.
    seen = in_conf(with_library(release, {}), {wrong: "eth0", "NCCL_DEBUG": "INFO"})
    said = the_finding(seen)
    assert said.subject == wrong and wrong in said.summary
    suggested = [one for one in said.fix if one.startswith("export ")]
    assert suggested == ([f"export {right}=eth0"] if right else []), (release, suggested)


def test_a_variable_of_another_release_says_which():
    old = the_finding(with_library("2.18.1", {"NCCL_RAS_ENABLE": "0"}))
    assert "came with NCCL 2.24" in old.observed
    gone = the_finding(with_library("2.21.5", {"NCCL_TREE_THRESHOLD": "0"}))
    assert "until 2.5" in gone.observed
    renamed = the_finding(with_library("2.27.5", {"NCCL_WORK_FIFO_DEPTH": "1024"}))
    assert "export NCCL_WORK_FIFO_BYTES=1024" in renamed.fix
    gdr = the_finding(with_library("2.27.5", {"NCCL_IB_CUDA_SUPPORT": "1"}))
    assert gdr.fix[0].startswith("export NCCL_NET_GDR_LEVEL=")


def test_a_slip_of_the_library_itself_is_found():
    """2.14.3 reads NCCL_NCCL_ALLOC_P2P_NET_LL_BUFFERS: the guide's name has no effect there."""
    assert words(with_library("2.14.3", {"NCCL_ALLOC_P2P_NET_LL_BUFFERS": "1"})) == ["warn"]
    assert words(with_library("2.18.1", {"NCCL_ALLOC_P2P_NET_LL_BUFFERS": "1"})) == ["pass"]


def test_what_others_read():
    quiet = {"NCCL_VERSION": "2.17.1-1", "NCCL_HOME": "/opt/nccl", "NCCL_INCLUDE_DIR": "/x",
             "NCCL_FASTRAK_NUM_FLOWS": "2", "NCCL_SHARP_DISABLE": "1"}  # fmt: skip
    assert words(with_library("2.27.5", quiet)) == ["pass"]
    plugin = with_library("2.27.5", {"NCCL_MY_PLUGINS_OWN": "1"})
    assert words(plugin) == ["warn"]
    rows = (*plugin.network.readers.value, s.Reader("/x/libnccl-net.so", "NCCL_MY_PLUGINS_OWN"))
    plugin = replace(plugin, network=replace(plugin.network, readers=s.known(rows, "test")))
    assert words(plugin) == ["pass"]


RENAMED = "platform/variable-renamed"


@pytest.mark.parametrize("name", ["NCCL_ASYNC_ERROR_HANDLING", "NCCL_TIMEOUT",
                                  "NCCL_SOCKET_IF_NAME"])  # fmt: skip
def test_a_variable_is_spoken_of_once(name):
    """What the table of renamed variables has is said by its own rule, and there alone."""
    seen = with_library("2.27.5", {name: "1"}, torch=torch("12.6", version="2.6.0"))
    assert words(seen) == ["n/a"]
    (one,) = outcomes(RENAMED, seen)
    assert isinstance(one, Finding) and one.subject == name
    # nccl.conf is read by NCCL only, and by no other rule.
    conf = in_conf(with_library("2.27.5", {}, torch=torch("12.6", version="2.6.0")), {name: "1"})
    assert isinstance(outcomes(UNKNOWN, conf)[0], Finding)
    assert words(conf, RENAMED) == ["n/a"]


def in_conf(seen, variables):
    conf = s.known(variables, "/etc/nccl.conf")
    return replace(seen, network=replace(seen.network, conf=conf))


def test_torchs_own_changed_their_names():
    env = {"NCCL_ASYNC_ERROR_HANDLING": "1"}
    new = in_conf(with_library("2.27.5", {}, torch=torch("12.6", version="2.6.0")), env)
    said = the_finding(new)
    assert said.severity == "info"
    assert said.fix[0] == "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1"
    old = with_library("2.18.1", {}, torch=torch("12.1", version="2.1.0"))
    assert words(in_conf(old, env)) == ["pass"]
    assert words(in_conf(with_library("2.18.1", {}), env)) == ["unknown"]


def test_without_the_library_only_what_is_close_is_judged():
    assert say(UNKNOWN, env={"NCCL_SOCKET_IFNAMEE": "eth0"}) == ["warn"]
    assert say(UNKNOWN, env={"NCCL_SOMETHING_ELSE_ALTOGETHER": "1"}) == ["unknown"]
    assert say(UNKNOWN, env={"NCCL_IB_TIMEOUT": "22"}) == ["pass"]
    assert say(UNKNOWN, env={}) == ["n/a"]
    assert say(UNKNOWN) == ["unknown"]
    assert say(UNKNOWN, env={"NCCL_VERSION": "2.15.5-1"}) == ["pass"]


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("NCCL_IB_TIMEOUT", "22", "pass"),
        ("NCCL_IB_TIMEOUT", "0x16", "pass"),
        ("NCCL_IB_TIMEOUT", "32", "warn"),
        ("NCCL_IB_TIMEOUT", "two", "warn"),
        ("NCCL_IB_RETRY_CNT", "8", "warn"),
        ("NCCL_P2P_DISABLE", "true", "warn"),  # strtoll makes 0 of it
        ("NCCL_P2P_DISABLE", "", "pass"),
        ("NCCL_SOCKET_NTHREADS", "32", "warn"),
        ("NCCL_CROSS_NIC", "2", "pass"),
        ("NCCL_CROSS_NIC", "3", "warn"),
        ("NCCL_P2P_LEVEL", "NVL", "pass"),
        ("NCCL_P2P_LEVEL", "NVLINK", "warn"),
        ("NCCL_P2P_LEVEL", "5", "pass"),
        ("NCCL_DEBUG", "info", "pass"),
        ("NCCL_DEBUG", "VERBOSE", "info"),
        ("NCCL_ALGO", "Ring", "pass"),
        ("NCCL_ALGO", "ring,collnetdirect;allreduce:tree;broadcast:^ring", "pass"),
        ("NCCL_ALGO", "^NVLS", "pass"),
        ("NCCL_ALGO", "Rings", "warn"),
        ("NCCL_PROTO", "simple,LL", "pass"),
        ("NCCL_PROTO", "LL64", "warn"),
        ("NCCL_SOCKET_FAMILY", "AF_INET", "pass"),
        ("NCCL_SOCKET_FAMILY", "ipv4", "warn"),
        ("NCCL_IB_GID_INDEX", "-1", "pass"),
        ("NCCL_TOPO_FILE", "/x.xml", "pass"),
    ],
)
def test_values(name, text, wanted):
    assert words(with_library("2.27.5", {name: text})) == [wanted]


def test_values_of_other_releases():
    assert words(with_library("2.21.5", {"NCCL_MAX_CTAS": "48"})) == ["warn"]
    assert words(with_library("2.27.5", {"NCCL_MAX_CTAS": "48"})) == ["pass"]
    assert words(with_library("2.21.5", {"NCCL_ALGO": "Rings"})) == ["pass"]  # goes on, then
    assert "read as 0" in the_finding(with_library("2.27.5", {"NCCL_P2P_DISABLE": "yes"})).summary


# -- what is turned off ----------------------------------------------------------------------------

P2P, CUMEM = "nccl/p2p-disabled", "nccl/cumem-disabled"
EIGHT = {"gpus": [{**H100, "count": 8}]}


def test_p2p_left_off():
    assert say(P2P, env={"NCCL_P2P_DISABLE": "1"}, **EIGHT) == ["warn"]
    assert say(P2P, env={"NCCL_SHM_DISABLE": "1"}, **EIGHT) == ["warn"]
    assert say(P2P, env={"NCCL_P2P_LEVEL": "LOC"}, **EIGHT) == ["warn"]
    assert say(P2P, env={"NCCL_P2P_LEVEL": "NVL"}, **EIGHT) == ["pass"]
    assert say(P2P, env={"NCCL_P2P_DISABLE": "0"}, **EIGHT) == ["pass"]
    assert say(P2P, env={"NCCL_P2P_DISABLE": "true"}, **EIGHT) == ["pass"]  # read as 0
    assert say(P2P, env={}, **EIGHT) == ["n/a"]
    assert say(P2P, env={"NCCL_P2P_DISABLE": "1"}, gpus=[H100]) == ["n/a"]
    assert say(P2P, env={"NCCL_P2P_DISABLE": "1"}) == ["unknown"]
    assert say(P2P, **EIGHT) == ["unknown"]


def test_cards_without_p2p_lose_nothing():
    cards = [{"name": "NVIDIA GeForce RTX 4090", "count": 4, "compute_capability": "8.9"}]
    assert say(P2P, env={"NCCL_P2P_DISABLE": "1"}, gpus=cards) == ["info"]
    cards[0]["name"] = "NVIDIA GeForce RTX 3090"
    assert say(P2P, env={"NCCL_P2P_DISABLE": "1"}, gpus=cards) == ["warn"]


def test_cumem_off():
    gb200 = [{"name": "NVIDIA GB200", "count": 4, "compute_capability": "10.0"}]
    off = {"NCCL_CUMEM_ENABLE": "0"}
    assert say(CUMEM, env=off, gpus=gb200, job={"nodes": 2}) == ["warn"]
    assert say(CUMEM, env=off, gpus=gb200, job={"nodes": 1}) == ["info"]
    assert say(CUMEM, env=off, **EIGHT) == ["info"]
    assert say(CUMEM, env={"NCCL_CUMEM_ENABLE": "1"}, **EIGHT) == ["pass"]
    assert say(CUMEM, env={}, **EIGHT) == ["n/a"]
    assert finding(CUMEM, env=off, **EIGHT).fix == ("unset NCCL_CUMEM_ENABLE",)


# -- presets ---------------------------------------------------------------------------------------

PRESET = "nccl/preset-differs"
LINGJUN = {"NCCL_IB_TC": "136", "NCCL_IB_SL": "5", "NCCL_IB_GID_INDEX": "3",
           "NCCL_SOCKET_IFNAME": "eth", "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5",
           "NCCL_IB_TIMEOUT": "22", "NCCL_IB_QPS_PER_CONNECTION": "8",
           "NCCL_NET_PLUGIN": "none"}  # fmt: skip
ERDMA = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_GID_INDEX": "1", "NCCL_IB_HCA": "erdma",
         "NCCL_IB_QPS_PER_CONNECTION": "8", "NCCL_MIN_NCHANNELS": "16", "NCCL_NET_PLUGIN": "none",
         "NCCL_DEBUG": "INFO"}  # fmt: skip
DLC = {"platform": "pai-dlc", "nodes": 2}


def preset(env, devices=("mlx5_0",), job=DLC):
    return {"env": env, "host": {"infiniband": list(devices)}, "job": job}


def test_the_presets_go_by_the_devices():
    assert say(PRESET, **preset(LINGJUN)) == ["pass"]
    assert say(PRESET, **preset(ERDMA, ["erdma_0"])) == ["pass"]
    assert say(PRESET, **preset(LINGJUN, ["erdma_0"])) == ["info"]
    assert say(PRESET, **preset(ERDMA)) == ["info"]
    said = finding(PRESET, **preset({**LINGJUN, "NCCL_IB_GID_INDEX": "1"}))
    assert said.fix == ("export NCCL_IB_GID_INDEX=3",)
    # Other interfaces and devices are in use on other clusters: what exists is right.
    other = {**LINGJUN, "NCCL_SOCKET_IFNAME": "bond1", "NCCL_IB_HCA": "mlx5_bond"}
    assert say(PRESET, **preset(other)) == ["pass"]
    assert (
        "no effect"
        in finding(PRESET, **preset({**ERDMA, "NCCL_IB_TC": "136"}, ["erdma_0"])).observed
    )


def test_elsewhere_there_is_no_preset():
    assert say(PRESET, **preset(LINGJUN, job={"nodes": 2})) == ["n/a"]
    assert say(PRESET, **preset(LINGJUN, devices=())) == ["n/a"]
    assert say(PRESET, **preset({}, job={**DLC, "nodes": 1})) == ["n/a"]
