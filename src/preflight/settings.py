"""What was asked for: a flag wins over its PREFLIGHT_ variable, that over the policy file."""

from __future__ import annotations

import argparse
import os
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from . import assume, policy
from .files import read_named

FORMATS = ("text", "json")
#: Where a policy is looked for when none is named: the job's directory, then the image's own.
POLICY_PLACES = ("preflight.toml", "/etc/preflight.toml")
ENV_FILE_LIMIT = 4 << 20

T = TypeVar("T")


class BadUsage(ValueError):
    """A request that cannot be carried out: the message names what is wrong with it."""


class Output(NamedTuple):
    """A file for a report, and in which format."""

    format: str
    path: str


class Settings(NamedTuple):
    """Everything a judging command needs to know."""

    format: str
    outputs: Tuple[Output, ...]
    policy: policy.Policy
    timeout: float
    root: str
    python: str
    env: Mapping[str, str]
    env_source: str
    assume: Tuple[str, ...]
    overlays: Tuple[str, ...]
    fail_on: str
    mode: str
    fail_closed: bool
    locks: Tuple[str, ...] = ()
    thorough: bool = False
    offline: bool = False


def gather(args: argparse.Namespace, env: Mapping[str, str]) -> Settings:
    """The settings of parsed arguments; raises BadUsage or policy.BadPolicy naming the fault."""
    decided = _policy(args.policy or env.get("PREFLIGHT_POLICY", ""))
    fmt = _pick(args.format, env, "FORMAT", None, "text", _one_of("format", FORMATS))
    outputs = args.output or list(filter(None, [env.get("PREFLIGHT_OUTPUT", "")]))
    root = _root(args.root or env.get("PREFLIGHT_ROOT", "") or "/")
    env_file = args.env_file or env.get("PREFLIGHT_ENV_FILE", "")
    return Settings(
        format=fmt,
        outputs=tuple(_output(text, fmt) for text in outputs),
        policy=decided,
        timeout=_pick(args.timeout, env, "TIMEOUT", decided.timeout, 30.0, _seconds),
        root=root,
        python=_python(args.python or env.get("PREFLIGHT_PYTHON", ""), root),
        env=_environment(env_file, root, env),
        env_source=env_file or "environment",
        assume=(*_assumptions(args.assume or [], env), *_policy_assumptions(decided, args, env)),
        overlays=_overlays(decided, env),
        fail_on=_pick(
            args.fail_on, env, "FAIL_ON", decided.fail_on, "fail",
            _one_of("fail-on", policy.FAIL_ON),
        ),
        mode=_pick(
            getattr(args, "mode", None), env, "MODE", decided.mode, "enforce",
            _one_of("mode", policy.MODES),
        ),
        fail_closed=_pick(
            getattr(args, "fail_closed", None) or None, env, "FAIL_CLOSED", decided.fail_closed,
            False, _flag,
        ),
        locks=_locks(args, env, decided),
        thorough=_pick(
            getattr(args, "thorough", None) or None, env, "THOROUGH", None, False, _flag
        ),
        offline=_pick(getattr(args, "offline", None) or None, env, "OFFLINE", None, False, _flag),
    )  # fmt: skip


def _locks(
    args: argparse.Namespace, env: Mapping[str, str], decided: policy.Policy
) -> Tuple[str, ...]:
    """The lock files asked for: by flags, else the variable, else the policy."""
    given = getattr(args, "lock", None) or []
    variable = [one for one in env.get("PREFLIGHT_LOCK", "").split(os.pathsep) if one]
    return tuple(given or variable or decided.locks)


def _root(path: str) -> str:
    try:
        found = os.path.abspath(path)
    except OSError:  # a relative one, and the working directory is gone
        found = ""
    if not os.path.isdir(found):
        raise BadUsage(f"--root {path}: no such directory")
    return "/" + found.lstrip("/")


def overlays(path: str, env: Mapping[str, str]) -> Tuple[str, ...]:
    """The directories of tables that a policy and PREFLIGHT_COMPAT put on the built-in ones."""
    return _overlays(_policy(path or env.get("PREFLIGHT_POLICY", "")), env)


def _overlays(decided: policy.Policy, env: Mapping[str, str]) -> Tuple[str, ...]:
    nearer = [one for one in env.get("PREFLIGHT_COMPAT", "").split(os.pathsep) if one]
    return (*decided.compat, *nearer)


def _pick(
    flag: object,
    env: Mapping[str, str],
    name: str,
    decided: Optional[T],
    default: T,
    read: Callable[[str], T],
) -> T:
    variable = env.get("PREFLIGHT_" + name, "").strip()
    for place, value in (("--" + name.lower().replace("_", "-"), flag),
                         ("PREFLIGHT_" + name, variable)):  # fmt: skip
        if value not in (None, ""):
            try:
                return read(str(value))
            except ValueError as error:
                raise BadUsage(f"{place}: {error}") from None
    return default if decided is None else decided


def _one_of(_what: str, choices: Tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text.lower()

    return read


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise ValueError(f"{text!r} is no number of seconds above 0 and up to 3600")
    return value


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True,
             "0": False, "false": False, "no": False, "off": False}  # fmt: skip
    if text.lower() not in known:
        raise ValueError(f"{text!r} is neither true nor false")
    return known[text.lower()]


def _policy(path: str) -> policy.Policy:
    if path:
        return policy.read(path)
    for place in POLICY_PLACES:
        if os.path.isfile(place):  # not a FIFO of that name: reading it would wait for ever
            return policy.read(place)
    if _mentions_preflight("pyproject.toml"):
        return policy.read("pyproject.toml")
    return policy.Policy()


def _mentions_preflight(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as stream:
            return b"[tool.preflight" in stream.read(ENV_FILE_LIMIT)
    except OSError:
        return False


def _output(text: str, default: str) -> Output:
    fmt, equals, path = text.partition("=")
    if not equals or fmt not in FORMATS:
        fmt, path = default, text
    if not path:
        raise BadUsage(f"--output {text}: no file named")
    return Output(fmt, path)


def _python(path: str, root: str) -> str:
    if path and root == "/" and not os.path.exists(path):
        raise BadUsage(f"--python {path}: no such file or directory")
    return path


def _assumptions(given: List[str], env: Mapping[str, str]) -> List[str]:
    """Flags, and the variables of those facts that no flag gives."""
    facts = {one.partition("=")[0].strip().lower() for one in given}
    variables = assume.from_environment(env)
    return given + [one for one in variables if one.partition("=")[0] not in facts]


def _policy_assumptions(
    decided: policy.Policy, args: argparse.Namespace, env: Mapping[str, str]
) -> List[str]:
    nearer = _assumptions(args.assume or [], env)
    facts = {one.partition("=")[0].strip().lower() for one in nearer}
    return [one for one in decided.assume if one.partition("=")[0].strip().lower() not in facts]


def _environment(path: str, root: str, env: Mapping[str, str]) -> Mapping[str, str]:
    if path:
        return read_env_file(path)
    return env if os.path.abspath(root) == "/" else {}


def read_env_file(path: str) -> Mapping[str, str]:
    """NAME=VALUE lines (`docker run --env-file`): # comments, no quoting; raises BadUsage."""
    try:
        text = read_named(path, ENV_FILE_LIMIT)
    except OSError as error:
        raise BadUsage(f"--env-file {path}: {error.strerror}") from None
    if len(text) > ENV_FILE_LIMIT:
        raise BadUsage(f"--env-file {path}: larger than {ENV_FILE_LIMIT} bytes")
    found = {}
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip() or " " in name.strip():
            raise BadUsage(f"--env-file {path}: line {number} is no NAME=VALUE")
        found[name.strip()] = value
    return found
