"""NVIDIA's devices on the PCI bus, whether or not a driver is loaded."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from ..roots import Root

NVIDIA = "0x10de"
DIRECTORY = "/sys/bus/pci/devices"


class Device(NamedTuple):
    """A device of NVIDIA: its address, its number, its class ("0x030200": a 3D controller)."""

    address: str
    device: str
    kind: str


def nvidia(root: Root) -> Optional[List[Device]]:
    """All of them; None when the bus cannot be seen."""
    if not root.is_dir(DIRECTORY):
        return None
    found = []
    for address in root.names(DIRECTORY):
        here = f"{DIRECTORY}/{address}/"
        if _word(root, here + "vendor") == NVIDIA:
            found.append(Device(address, _word(root, here + "device"), _word(root, here + "class")))
    return found


def _word(root: Root, path: str) -> str:
    found = root.first_text((path,))
    return found[1].strip() if found else ""
