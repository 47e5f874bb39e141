"""Where the nodes of a job meet: the address and port of the node that leads, and who says so."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

from . import counts, shell
from .command import ADDRESS, BACKEND, ENDPOINT, NNODES, PORT, Launch

#: Loopback by name or number: every node would mean itself.
LOOPBACK = ("localhost", "127.0.0.1", "::1", "ip6-localhost", "localhost.localdomain")


class Meeting(NamedTuple):
    """An address and a port as they are written, and the words or variable that give them."""

    address: str
    port: str
    source: str


def option(launch: Launch, name: str, env: Mapping[str, str]) -> Tuple[str, str]:
    """(value, who says so) of an option, torchrun's defaults by PET_ variables; else ("", "")."""
    spelled = "--" + name
    if name in launch.options:
        return launch.options[name], spelled
    variable = "PET_" + name.upper().replace("-", "_")
    if launch.launcher == "torchrun" and env.get(variable):
        return env[variable], variable
    return "", ""


def asked_nodes(launch: Optional[Launch], env: Mapping[str, str]) -> Optional[Tuple[int, int]]:
    """The fewest and most nodes that a launch line asks for; None where it does not say."""
    last = launch.last if launch else None
    if last is None or last.launcher not in ("torchrun", "accelerate", "deepspeed"):
        return None
    text, _source = option(last, NNODES, env)
    if text:
        return counts.span(text)
    return (1, 1) if last.launcher == "torchrun" else None


def meeting(launch: Optional[Launch], env: Mapping[str, str]) -> Optional[Meeting]:
    """Where the nodes of this job meet; None where they do not, or nothing says where."""
    last = launch.last if launch else None
    own = dict(env, **last.variables) if last else env
    if last is None or last.launcher not in ("torchrun", "accelerate", "deepspeed"):
        return _of_variables(own)
    if last.launcher == "torchrun":
        return _of_torchrun(last, own)
    address, source = option(last, ADDRESS, own)
    return _known(address, option(last, PORT, own)[0], source)


def _of_variables(env: Mapping[str, str]) -> Optional[Meeting]:
    return _known(env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""), "MASTER_ADDR")


def _of_torchrun(launch: Launch, env: Mapping[str, str]) -> Optional[Meeting]:
    nodes = asked_nodes(launch, env)
    if "standalone" in launch.flags or nodes is None or nodes[1] < 2:
        return None
    backend = option(launch, BACKEND, env)[0] or "static"
    endpoint, source = option(launch, ENDPOINT, env)
    if backend not in ("static", "c10d"):
        return None  # etcd and others have a server of their own
    if endpoint:
        host, port = _split(endpoint)
        return _known(host, port or "29400", source)
    if backend == "c10d":
        return None
    address, source = option(launch, ADDRESS, env)
    port = option(launch, PORT, env)[0] or "29500"
    return _known(address or "127.0.0.1", port, source or "torchrun without --master-addr")


def _split(endpoint: str) -> Tuple[str, str]:
    if endpoint.startswith("["):
        host, _, rest = endpoint[1:].partition("]")
        return host, rest.lstrip(":")
    if endpoint.count(":") > 1:
        return endpoint, ""
    host, _, port = endpoint.partition(":")
    return host, port


def _known(address: str, port: str, source: str) -> Optional[Meeting]:
    if not address or shell.HIDDEN in address + port:
        return None
    return Meeting(address.strip("[]"), port, source)


def is_loopback(address: str) -> bool:
    """Whether an address means this very node on every node."""
    return address.lower() in LOOPBACK or address.startswith("127.")


def port_number(text: str) -> Optional[int]:
    """A port to connect to; None for what is none."""
    value = counts.whole(text)
    return value if value is not None and 0 < value < 65536 else None
