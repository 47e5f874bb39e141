"""Runs the probes over a root, each in a child with its deadline, into one snapshot."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from . import isolate, snapshot_json, tables
from . import snapshot as s
from .probes import (
    driver,
    frameworks,
    installed,
    interpreter,
    kernels,
    linkage,
    master,
    nccl_env,
    others,
    platform,
    python_env,
    system,
    toolkit,
)
from .probes.place import place
from .roots import Root

if TYPE_CHECKING:
    from .declared import Declared
    from .probes.paths import Paths

#: What a directory cannot show, and how to say it instead.
NOT_LIVE = "a directory shows no live driver; say --assume driver=VERSION and --assume gpu=NAME"
#: Of the GPU code in a build that is none of the public wheels.
NOT_READ = "the code inside this build is not read, and no table lists it"
#: PATH of a directory whose environment is not given: Docker's default, and conda's usual place.
DEFAULT_PATH = "/opt/conda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Look(NamedTuple):
    """What to look at: the root, the job's environment, and what is known of its command."""

    root: Root
    env: Mapping[str, str]
    env_source: str = "environment"
    python: str = ""
    command: Sequence[str] = ()
    timeout: float = 30.0
    locks: Sequence[str] = ()  # lock files asked for by name, besides those that are found
    only: Sequence[str] = ()  # the probes to run; none: all
    thorough: bool = False  # every installed file is hashed
    declared: Sequence[Declared] = ()  # paths of the policy
    progress: Optional[Callable[[int, int], None]] = None  # told of that: bytes done, in all
    offline: bool = False  # nothing is asked of the network
    overlays: Sequence[str] = ()  # directories of tables on top of the built-in ones


class Seen(NamedTuple):
    """The snapshot, and how long each probe took."""

    snapshot: s.Snapshot
    milliseconds: Dict[str, float]


class Probe(NamedTuple):
    """A probe: its call, its own deadline in seconds, and what is unknown when it fails."""

    call: Callable[[Look], s.Snapshot]
    seconds: float
    lost: Callable[[s.Fact[Any]], s.Snapshot]
    live_only: bool = False
    wanted: Callable[[Look], bool] = lambda _what: True


def look(what: Look, meanwhile: Callable[[], None] = lambda: None) -> Seen:
    """All facts of one look; never raises, never waits past `what.timeout`.

    `meanwhile` is called while the probes run; what it raises is lost.
    """
    started = time.monotonic()
    deadline = started + what.timeout
    env = what.env if what.env.get("PATH") or what.root.live else {**what.env, "PATH": DEFAULT_PATH}
    what = what._replace(env=env)
    wanted = {
        name: one
        for name, one in PROBES.items()
        if (what.root.live or not one.live_only)
        and (not what.only or name in what.only)
        and one.wanted(what)
    }
    started_first = sorted(wanted, key=lambda name: name not in LONGEST)
    tasks = {name: _task(wanted[name], what) for name in started_first}
    paths = _declared(what)
    tasks.update(paths.tasks if paths else {})
    tasks["meanwhile"] = isolate.Task(meanwhile, 0, here=True)
    answers = isolate.run(tasks, deadline)
    parts = {name: _part(wanted[name], answers[name]) for name in wanted}
    seen = replace(combine(_inline(what), *parts.values()), gpus=_gpus(parts))
    seen = replace(seen, frameworks=_frameworks(seen, parts.get("linkage", s.Snapshot())))
    seen = replace(seen, storage=paths.gather(answers)) if paths else seen
    looked = [*wanted, *(paths.tasks if paths else ())]
    times = {f"probe.{name}": round(answers[name].milliseconds, 1) for name in looked}
    times["probes"] = round((time.monotonic() - started) * 1000, 1)
    return Seen(_conclude(seen, what.root), times)


def _task(probe: Probe, what: Look) -> isolate.Task:
    # Hashing every file takes as long as the disk does: only the deadline of the whole counts.
    seconds = what.timeout if what.thorough and probe.call is _installed else probe.seconds
    seconds = master.seconds(what.timeout) if probe.call is _master else seconds
    return isolate.Task(lambda: snapshot_json.to_json(probe.call(what)), seconds)


def _declared(what: Look) -> Optional[Paths]:
    """The paths that the policy declares, each in a process of its own."""
    if not what.declared or (what.only and "storage" not in what.only):
        return None
    from .probes import paths

    return paths.Paths(what.root, what.env, what.declared, what.timeout, what.thorough)


def _part(probe: Probe, answer: isolate.Answer) -> s.Snapshot:
    if answer.problem:
        return probe.lost(s.unknown(answer.problem))
    try:
        return snapshot_json.from_json(answer.value)
    except snapshot_json.BadSnapshot as error:
        return probe.lost(s.unknown(f"the probe's answer cannot be read: {error}"))


def _gpus(parts: Mapping[str, s.Snapshot]) -> s.Fact[Any]:
    """NVML's GPUs: those of this container. Without them the kernel's, which are the node's."""
    facts = [parts[name].gpus for name in ("nvml", "kernel") if name in parts]
    return next((one for one in facts if one.known), facts[0] if facts else s.UNKNOWN)


def _inline(what: Look) -> s.Snapshot:
    """What needs no child: variables and a few small files of the system."""
    return s.Snapshot(
        origin="live" if what.root.live else "directory",
        root=what.root.path,
        env=system.environment(what.env, what.env_source),
        image=replace(
            system.image_variables(what.env, what.env_source), shell=system.shell(what.root)
        ),
    )


# -- the probes -----------------------------------------------------------------------------


def _system(what: Look) -> s.Snapshot:
    """The system and the platform: a few small files and variables, in one child for both."""
    job = _platform(what).job
    return s.Snapshot(os=system.read(what.root, what.env), job=job)


def _kernel(what: Look) -> s.Snapshot:
    seen = driver.kernel_files(what.root)
    # In a container the Fabric Manager is the host's, out of sight.
    inside = seen.host.nvswitches.get(0) and system.read(what.root, what.env).container.value
    if not seen.host.nvswitches.get(0) or inside:
        return seen
    from .probes import fabric

    return replace(seen, driver=replace(seen.driver, fabric_manager=fabric.manager(what.root)))


def _host(what: Look) -> s.Snapshot:
    from .probes import entry, host

    seen = host.read(what.root, what.env, what.command)
    found = entry.problem(place(what.root, what.env), what.command) if what.command else None
    if found and found.starts:  # what the kernel refuses, exec itself says with 126 or 127
        problem = s.known(found.words, what.command[0])
        return replace(seen, image=s.Image(entrypoint_problem=problem))
    return seen


def _disks(what: Look) -> s.Snapshot:
    from .probes import disks

    return disks.read(place(what.root, what.env))


def _libcuda_files(what: Look) -> s.Snapshot:
    arch = system.read(what.root, what.env).arch.get("x86_64")
    return driver.libcuda_files(what.root, what.env, arch)


def _toolkit(what: Look) -> s.Snapshot:
    return s.Snapshot(toolkit=toolkit.read_toolkit(what.root, what.env))


def _python(what: Look) -> s.Snapshot:
    found = interpreter.find_interpreter(what.root, what.env, what.python, what.command)
    if not found.known:
        python = s.PythonEnv(executable=found)
        none: s.Fact[Any] = s.Fact(source=found.source, unknown=found.unknown)
        return s.Snapshot(python=python, frameworks=none)
    python = python_env.read_environment(what.root, found.get(""), what.env)
    if not python.executable.known:
        python = replace(python, executable=found)
    arch = system.read(what.root, what.env).arch.get("")
    seen = [
        replace(one, arch_list=s.unknown(NOT_READ)) if one.cuda.known else one
        for one in frameworks.read_frameworks(what.root, python, what.env, arch)
    ]
    return s.Snapshot(
        python=python, frameworks=s.known(tuple(seen), ", ".join(python.path.get(())))
    )


def _installed(what: Look) -> s.Snapshot:

    python = _python(what).python
    arch = system.read(what.root, what.env).arch.get("")
    return s.Snapshot(python=installed.read(what.root, python, arch, what.thorough, what.progress))


def _linkage(what: Look) -> s.Snapshot:
    """What importing the frameworks would load. The environment is read anew here and in
    `_kernels`: it is soon done, and the probes run side by side."""
    here, torch = _with_torch(what)
    cwd = place(what.root, what.env).cwd
    found = s.Snapshot()
    if torch is not None:
        found = linkage.read(what.root, what.env, here.python, torch, cwd)
        if nccl_env.asked(what.env):
            arch = system.read(what.root, what.env).arch.get("x86_64")
            readers = nccl_env.readers(what.root, what.env, found, torch, arch)
            found = replace(found, network=s.Network(readers=readers))
    return others.read(here._replace(cwd=cwd), found)


def _kernels(what: Look) -> s.Snapshot:
    here, torch = _with_torch(what)
    found = s.Snapshot() if torch is None else kernels.read(what.root, here.python, torch)
    more = tuple(others.kernels(here))
    return replace(found, code=s.known(found.code.get(()) + more, ".nv_fatbin")) if more else found


def _locks(what: Look) -> s.Snapshot:
    """The lock files, read for the job's Python. Without any, the environment is not read."""
    from .lockfiles import applying
    from .probes import locks, pip_config

    at = place(what.root, what.env)
    if not what.locks and not locks.found(what.root, what.env, at.cwd):
        return s.Snapshot(locks=s.known((), at.cwd))
    found = interpreter.find_interpreter(what.root, what.env, what.python, what.command)
    python = python_env.read_environment(what.root, found.get(""), what.env)
    arch = system.read(what.root, what.env).arch.get("x86_64")
    target = applying.Target(python.version.get(""), arch)
    told = pip_config.read(what.root, what.env, python.prefix.get(""))
    seen = locks.read(what.root, what.env, target, at.cwd, what.locks, told.constraints)
    return s.Snapshot(
        locks=seen,
        python=s.PythonEnv(
            indexes=s.known(told.indexes, "variables, pip.conf"),
            origins_conda=locks.of_conda(what.root, python.prefix.get(""), seen.get(())),
        ),
    )


def _platform(what: Look) -> s.Snapshot:
    marks = tables.built_in(what.overlays)["marks"]
    return platform.read(what.root, what.env, what.command, marks)


def _master(what: Look) -> s.Snapshot:
    marks = tables.built_in(what.overlays)["marks"]
    return master.look(what.root, what.env, what.command, marks, what.timeout, what.offline)


def _with_torch(what: Look) -> Tuple[others.Look, Optional[s.Framework]]:
    """The environment, and torch where there is one whose files can be read."""
    seen = _python(what)
    here = others.Look(what.root, what.env, seen.python, seen.frameworks.get(()))
    found = (f for f in here.frameworks if f.name.value == "torch" and f.path.known)
    return here, next(found, None)


def _network(what: Look) -> s.Snapshot:
    from .probes import network  # socket takes long to import, and only this child needs it

    arch = system.read(what.root, what.env).arch.get("x86_64")
    seen = network.read(what.root, what.env, arch)
    return replace(seen, network=replace(seen.network, conf=nccl_env.conf(what.root, what.env)))


def _lost_network(why: s.Fact[Any]) -> s.Snapshot:
    lost = dict.fromkeys(("interfaces", "ports", "rdma_nodes", "libraries", "providers"), why)
    host = s.Host(interfaces=why, infiniband=why, memlock_kib=why)
    return s.Snapshot(host=host, network=s.Network(**lost))


def _lost_host(*names: str) -> Callable[[s.Fact[Any]], s.Snapshot]:
    return lambda why: s.Snapshot(host=s.Host(**dict.fromkeys(names, why)))


def _lost_driver(*names: str) -> Callable[[s.Fact[Any]], s.Snapshot]:
    return lambda why: s.Snapshot(driver=s.Driver(**dict.fromkeys(names, why)))


PROBES: Dict[str, Probe] = {
    "kernel": Probe(
        _kernel, 5, _lost_driver("version", "device_nodes", "uvm_device"), live_only=True
    ),
    "nvml": Probe(
        lambda _what: driver.nvml(),
        15,
        lambda why: s.Snapshot(driver=s.Driver(nvml=why, version=why), gpus=why),
        live_only=True,
    ),
    "libcuda": Probe(lambda _what: driver.libcuda(), 10, _lost_driver("cuda"), live_only=True),
    "libcuda-files": Probe(_libcuda_files, 5, _lost_driver("libcuda_path")),
    "python": Probe(
        _python,
        15,
        lambda why: s.Snapshot(python=s.PythonEnv(executable=why, path=why), frameworks=why),
    ),
    "installed": Probe(
        _installed,
        15,
        lambda why: s.Snapshot(python=s.PythonEnv(origins=why, locals=why, unmet=why, altered=why)),
    ),
    "linkage": Probe(
        _linkage,
        15,
        lambda why: s.Snapshot(libraries=why, extensions=why, network=s.Network(readers=why)),
    ),
    "kernels": Probe(_kernels, 15, lambda why: s.Snapshot(code=why)),
    "locks": Probe(_locks, 10, lambda why: s.Snapshot(locks=why)),
    "network": Probe(_network, 5, _lost_network, live_only=True),
    "host": Probe(_host, 5, _lost_host("shm_bytes", "memory_limit_bytes", "cpus"), live_only=True),
    "disks": Probe(_disks, 5, _lost_host("disks", "disk_free_bytes"), live_only=True),
    "toolkit": Probe(
        _toolkit, 5, lambda why: s.Snapshot(toolkit=s.Toolkit(version=why, home=why, nvcc=why))
    ),
    "master": Probe(
        _master,
        master.SECONDS,
        master.lost,
        live_only=True,
        wanted=lambda what: master.wanted(what.env, what.command),
    ),
    "system": Probe(
        _system,
        5,
        lambda why: s.Snapshot(
            os=s.System(arch=why, container=why), job=s.Job(platform=why, nodes=why)
        ),
    ),
}


#: Started first, since the others are done while these are not.
LONGEST = ("linkage", "kernels", "locks", "installed")


# -- putting the parts together ---------------------------------------------------------------


def combine(first: s.Snapshot, *others: s.Snapshot) -> s.Snapshot:
    """One snapshot of several parts: an earlier part is believed first, disagreement is kept."""
    for other in others:
        first = _merge_record(first, other)
    return first


def _frameworks(seen: s.Snapshot, files: s.Snapshot) -> s.Fact[Any]:
    """The frameworks, each with what its own files say besides."""
    more = {one.name.value: one for one in files.frameworks.get(())}
    merged = [
        _merge_record(one, more[one.name.value]) if one.name.value in more else one
        for one in seen.frameworks.get(())
    ]
    return replace(seen.frameworks, value=tuple(merged)) if merged else seen.frameworks


def _merge_record(first: Any, second: Any) -> Any:
    changed: Dict[str, Any] = {}
    for one in fields(first):
        mine, other = getattr(first, one.name), getattr(second, one.name)
        if "section" in one.metadata:
            changed[one.name] = _merge_record(mine, other)
        elif "kind" in one.metadata:
            lists = one.metadata["kind"] in (s.RECORDS, s.RECORD)
            changed[one.name] = mine if lists and mine.known else s.merge(mine, other)
    return replace(first, **changed)


def _conclude(seen: s.Snapshot, root: Root) -> s.Snapshot:
    if not root.live:
        lost: s.Fact[Any] = s.unknown(NOT_LIVE)
        blind = replace(seen.driver, version=lost, cuda=lost, visible=lost, libcuda=lost)
        return replace(seen, driver=_image_libcuda(seen, blind), gpus=lost)
    concluded = driver.conclude(seen)
    seen = replace(seen, driver=concluded, compats=driver.resolve_compats(seen))
    if concluded.visible.value is False:
        seen = replace(seen, gpus=s.known((), concluded.visible.source))
    return seen


def _image_libcuda(seen: s.Snapshot, blind: s.Driver) -> s.Driver:
    """In an image only a stub or compat libcuda says something: the driver's own comes later."""
    kind = driver.conclude(seen).libcuda
    return replace(blind, libcuda=kind) if kind.value in ("stub", "compat") else blind
