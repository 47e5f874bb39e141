"""Which libraries read NCCL_* variables, and what nccl.conf sets besides the environment.

Only looked at where such a variable is set: a job without any pays nothing.
"""

from __future__ import annotations

import posixpath
from typing import Dict, Iterator, List, Mapping, Tuple

from .. import snapshot as s
from ..binary import loader, names
from ..binary.elf import BadElf
from ..roots import Root
from . import system
from .place import home_directory, place

#: The administrator's file; what the environment or the user's file sets comes before it.
SYSTEM_CONF = "/etc/nccl.conf"
#: Plugins that NCCL opens: the variable that names one, and what its file's name begins with.
PLUGINS = (
    ("NCCL_NET_PLUGIN", "libnccl-net"), ("NCCL_TUNER_PLUGIN", "libnccl-tuner"),
    ("NCCL_PROFILER_PLUGIN", "libnccl-profiler"), ("NCCL_ENV_PLUGIN", "libnccl-env"),
    ("NCCL_GIN_PLUGIN", "libnccl-gin"), ("NCCL_RMA_PLUGIN", "libnccl-rma"),
)  # fmt: skip
#: More lines than this are no configuration.
LINES = 10_000


def asked(env: Mapping[str, str]) -> bool:
    """Whether any NCCL_* variable is set but the base image's NCCL_VERSION."""
    return any(name.startswith("NCCL_") and name != "NCCL_VERSION" for name in env)


def conf(root: Root, env: Mapping[str, str]) -> s.Fact[Mapping[str, str]]:
    """What NCCL's configuration files set; the environment's own values are not in it."""
    own = env.get("NCCL_CONF_FILE") or posixpath.join(
        home_directory(place(root, env)), ".nccl.conf"
    )
    found: Dict[str, str] = {}
    read = []
    for path in (own, SYSTEM_CONF):
        text = root.first_text((path,)) if path.startswith("/") else None
        if text:
            read.append(path)
            for name, value in _settings(text[1]):
                found.setdefault(name, value)
    left = {name: value for name, value in found.items() if name not in env}
    return s.known(system.kept(left), ", ".join(read) or f"{own}, {SYSTEM_CONF}")


def _settings(text: str) -> Iterator[List[str]]:
    for line in text.splitlines()[:LINES]:
        name, equals, value = line.partition("=")
        if equals and name.startswith("NCCL_"):
            yield [name, value]


def readers(
    root: Root, env: Mapping[str, str], seen: s.Snapshot, torch: s.Framework, arch: str
) -> s.Fact[Tuple[s.Reader, ...]]:
    """Each library that reads such variables with their names: NCCL's own, then plugins.

    NCCL is the libnccl that the loader picks, or inside torch's own library.
    """
    library = _nccl(seen, torch)
    if not library:
        return s.UNKNOWN
    try:
        first = s.Reader(library, " ".join(sorted(names.nccl_variables(root.on_host(library)))))
    except (OSError, BadElf) as error:
        return s.unknown(f"{library} cannot be read: {error}", library)
    if not first.names:
        return s.unknown(f"{library} names no NCCL_* variable", library)
    return s.known((first, *_plugins(root, env, arch)), f"names in {library}")


def _nccl(seen: s.Snapshot, torch: s.Framework) -> str:
    for one in seen.libraries.get(()):
        if one.name.get("").startswith("libnccl.so") and one.path.known and not one.missing.value:
            return one.path.get("")
    inside = any(one.nccl.known for one in seen.frameworks.get(()))
    return posixpath.join(torch.path.get(""), "lib/libtorch_cuda.so") if inside else ""


def _plugins(root: Root, env: Mapping[str, str], arch: str) -> Iterator[s.Reader]:
    """The plugins that NCCL would find, as it looks for them."""
    for variable, stem in PLUGINS:
        value = env.get(variable, "")
        if value.lower() == "none":
            continue
        for name in [value, f"{stem}-{value}.so"] if value else [stem + ".so"]:
            try:
                path = name if "/" in name else _found(root, env, name, arch)
                if path:
                    found = names.nccl_variables(root.on_host(path))
                    yield s.Reader(path, " ".join(sorted(found)))
                    break
            except (OSError, BadElf):
                continue


def _found(root: Root, env: Mapping[str, str], name: str, arch: str) -> str:
    hit = loader.find(root, env, name, arch)
    return hit.path if hit else ""
