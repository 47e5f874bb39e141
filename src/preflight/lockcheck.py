"""`preflight lock`: lock files against what is installed here, or against a machine elsewhere."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Mapping, NamedTuple, Sequence, Tuple

from . import assume, inspect, lockwrite, matrix, progress, verdict
from . import snapshot as s
from .lockfiles.applying import Target
from .probes import locks, pip_config
from .probes.place import place
from .roots import Root
from .rules.registry import RULES
from .settings import BadUsage, Settings

#: What a lock is compared with; the framework's libraries are for the whole check.
PROBES = ("kernel", "nvml", "libcuda", "libcuda-files", "python", "locks", "installed", "system")
LOCK_RULES = tuple(one for one in RULES if one.rung == verdict.LOCK)


def written(settings: Settings) -> str:
    """The text of an honest lock of what is installed here. Raises BadUsage where it is unknown."""
    root = Root(settings.root)
    seen = inspect.look(
        inspect.Look(
            root=root, env=settings.env, env_source=settings.env_source, python=settings.python,
            timeout=settings.timeout, only=("python", "installed", "system"),
        )
    ).snapshot  # fmt: skip
    try:
        return lockwrite.lines(
            root, seen.python, seen.os.arch.get(""), matrix.load(settings.overlays),
            time.strftime("%Y-%m-%d"),
        )  # fmt: skip
    except lockwrite.NothingToLock as error:
        raise BadUsage(f"lock --write: {error}") from None


class Elsewhere(NamedTuple):
    """A machine that is not here; empty: this one."""

    driver: str = ""
    gpus: Tuple[str, ...] = ()
    python: str = ""
    arch: str = ""

    def __bool__(self) -> bool:
        return any((self.driver, self.gpus, self.python, self.arch))


def check(
    settings: Settings, files: Sequence[str], elsewhere: Elsewhere, exact: bool = False
) -> verdict.Report:
    """The report on lock files: those named, else those found.

    Raises BadUsage when a file is not there, or none was named or found.
    """
    started = time.monotonic()
    table = matrix.load(settings.overlays)
    root = Root(settings.root)
    at = place(root, settings.env)
    if elsewhere.python and not re.fullmatch(r"\d+\.\d+(\.\d+)?", elsewhere.python):
        raise BadUsage(f"lock: --python-version {elsewhere.python}: no Python, as 3.11 or 3.11.7")
    for one in files:
        if not root.is_file(at.absolute(one)):
            raise BadUsage(f"lock: {one}: no such file")
    times: Mapping[str, float] = {}
    if elsewhere:
        snapshot = _described(root, settings, files, elsewhere, table)
    else:
        seen = inspect.look(
            inspect.Look(
                root=root, env=settings.env, env_source=settings.env_source,
                python=settings.python, timeout=settings.timeout, locks=files,
                only=PROBES, thorough=settings.thorough,
                progress=progress.on_terminal() if settings.thorough else None,
            )
        )  # fmt: skip
        times = seen.milliseconds
        snapshot = assume.apply(seen.snapshot, settings.assume, table)
    snapshot = _asked(snapshot, files, exact)
    if snapshot.locks.value == ():
        raise BadUsage(f"lock: no lock file in {at.cwd}; name one (preflight lock FILE)")
    today = time.strftime("%Y-%m-%d")
    report = verdict.judge(snapshot, table, settings.policy, today, rules=LOCK_RULES)
    return verdict.with_times(
        report, {**times, "total": round((time.monotonic() - started) * 1000, 1)}
    )


def _described(
    root: Root,
    settings: Settings,
    files: Sequence[str],
    elsewhere: Elsewhere,
    table: matrix.Matrix,
) -> s.Snapshot:
    """The locks on a machine that only its driver and GPUs are known of."""
    arch = elsewhere.arch or "x86_64"
    at = place(root, settings.env)
    told = pip_config.read(root, settings.env)
    target = Target(elsewhere.python, arch)
    found = locks.read(root, settings.env, target, at.cwd, files, told.constraints)
    source = "said in the command"
    snapshot = s.Snapshot(
        origin="described",
        os=s.System(arch=s.known(arch, source)),
        python=s.PythonEnv(
            version=s.known(elsewhere.python, source) if elsewhere.python else s.UNKNOWN,
            indexes=s.known(told.indexes, "variables, pip.conf"),
        ),
        locks=found,
    )
    given = [f"driver={elsewhere.driver}"] if elsewhere.driver else []
    given += [f"gpu={one}" for one in elsewhere.gpus]
    return assume.apply(snapshot, given, table)


def _asked(snapshot: s.Snapshot, files: Sequence[str], exact: bool) -> s.Snapshot:
    """Only what was named, where something was; its constraints besides."""
    kept = tuple(
        replace(one, named=s.known(True, "asked for"), exact=s.known(exact, "--exact"))
        for one in snapshot.locks.get(())
        if not files or one.named.value or one.role.value == "constraints"
    )
    if not snapshot.locks.known:
        return snapshot
    return replace(snapshot, locks=replace(snapshot.locks, value=kept))
