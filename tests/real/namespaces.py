"""Network namespaces with interfaces of our own making, and what the real NCCL makes of them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Link(NamedTuple):
    """One interface: `carrier` False leaves its other end down, `up` False itself."""

    name: str
    addresses: str = ""  # "10.1.0.1/24 fd01::1/64"
    up: bool = True
    carrier: bool = True
    kind: str = "veth"


def problem() -> str:
    """Why there can be no namespaces here; empty when there can."""
    if os.geteuid() != 0:
        return "not root: no network namespace of our own"
    if not shutil.which("ip"):
        return "no ip (iproute2)"
    name = f"pf{os.getpid()}probe"
    made = _run("ip", "netns", "add", name)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    try:
        pair = _run("ip", "-n", name, "link", "add", "name", "x0", "type", "veth",
                    "peer", "name", "x1")  # fmt: skip
        return f"no veth pairs here: {pair.stderr.strip()}" if pair.returncode else ""
    finally:
        _run("ip", "netns", "del", name)


def _run(*command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True,
        timeout=60, env={**os.environ, **env},
    )  # fmt: skip


class Namespace:
    """A namespace with these interfaces, in this order; deleted at the end of the `with`."""

    def __init__(self, links: List[Link], routes: Optional[List[str]] = None) -> None:
        self.name = f"pf{os.getpid()}n{id(self) % 100000}"
        self.links, self.routes = links, routes or []

    def __enter__(self) -> "Namespace":
        self._must("ip", "netns", "add", self.name)
        self._ip("link", "set", "lo", "up")
        for number, link in enumerate(self.links):
            self._add(number, link)
        for route in self.routes:
            self._ip("route", "add", *route.split())
        return self

    def __exit__(self, *_error: object) -> None:
        _run("ip", "netns", "del", self.name)

    def _add(self, number: int, link: Link) -> None:
        peer = f"p{number}"
        more = ("peer", "name", peer) if link.kind == "veth" else ()
        self._ip("link", "add", "name", link.name, "type", link.kind, *more)
        for name in (link.name, peer)[: 2 if more else 1]:
            # Link-local addresses would come when they are ready, and NCCL takes them, too.
            self._ip("link", "set", name, "addrgenmode", "none")
        for address in link.addresses.split():
            # Without duplicate address detection it is there at once.
            self._ip("addr", "add", address, "dev", link.name,
                     *(("nodad",) if ":" in address else ()))  # fmt: skip
        if link.kind == "veth" and link.carrier:
            self._ip("link", "set", peer, "up")
        if link.up:
            self._ip("link", "set", link.name, "up")

    def _ip(self, *words: str) -> None:
        self._must("ip", "-n", self.name, *words)

    def _must(self, *command: str) -> None:
        done = _run(*command)
        assert done.returncode == 0, (command, done.stderr)

    def python(self, script: str, *arguments: str, by: str = sys.executable, **env: str) -> str:
        """What a script prints in this namespace."""
        done = _run("ip", "netns", "exec", self.name, by, "-c", script, *arguments,
                    PYTHONPATH=str(SOURCE), **env)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def look(self, **env: str) -> Dict[str, object]:
        """The snapshot of the network probe in this namespace, as JSON."""
        found: Dict[str, object] = json.loads(self.python(_LOOK, json.dumps(env)))
        return found

    def nccl(self, library: str, text: Optional[str], **env: str) -> str:
        """The interface that a real libnccl takes; "" where it says that there is none."""
        env = {**env, "NCCL_DEBUG": "INFO", "HOME": "/nowhere"}
        if text is not None:
            env["NCCL_SOCKET_IFNAME"] = text
        said = self.python(_NCCL, library, **env)
        used = re.search(r"Bootstrap ?: Using ([^:\s]+):", said)
        assert used or "no socket interface found" in said, said
        return used.group(1) if used else ""


_LOOK = """
import json, sys
from preflight import snapshot_json
from preflight.probes import network
from preflight.roots import Root
seen = network.read(Root("/"), json.loads(sys.argv[1]), "x86_64")
print(json.dumps(snapshot_json.to_json(seen)))
"""
#: ncclGetUniqueId begins the bootstrap: it needs no GPU and no driver.
_NCCL = """
import ctypes, os, sys
os.dup2(1, 2)
library = ctypes.CDLL(sys.argv[1])
library.ncclGetUniqueId(ctypes.create_string_buffer(128))
ctypes.CDLL(None).fflush(None)  # what NCCL printed, before nothing more is
os._exit(0)
"""


def libraries() -> Iterator[str]:
    """The real libnccl.so.2 at hand: PREFLIGHT_LIBNCCL (several, by colons), the real torch's."""
    from tests.real import stack

    given = [one for one in os.environ.get("PREFLIGHT_LIBNCCL", "").split(":") if one]
    venv, _problem = stack.torch_venv()
    if venv:
        given += map(
            str, Path(venv).glob("lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")
        )
    yield from (one for one in given if os.path.isfile(one))
