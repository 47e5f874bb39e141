"""What a team decides: `preflight.toml`, or `[tool.preflight]` of a pyproject.toml.

fail-on = "fail"            # fail, warn or unknown: what makes the exit code non-zero
mode = "enforce"            # of exec: enforce, warn or off
fail-closed = false         # of exec: whether preflight's own fault stops the job
timeout = 30                # seconds, of the whole check
retry-exit-code = 75        # what a failure that another node may cure exits with
assume = ["gpu=NVIDIA A100-SXM4-80GB"]
locks = ["requirements.lock.txt"]      # lock files to verify, besides those that are found

[severity]
"driver/too-old-for-ptx" = "warn"      # fail, warn, info or off

[[waiver]]
rule = "gpu/no-kernels-for-architecture"
reason = "the P100 queue is being retired"
until = "2027-03-31"

[[data]]                    # or [data] where there is one; host/path-unusable judges it
path = "${DATA_DIR}/train"  # ${NAME} of the job's environment; relative: to where the job runs
kind = "webdataset"         # auto (by the names), tar, tfrecord, parquet, jsonl, zip, image,
                            # safetensors, npy, any (not looked into)
glob = "*.tar"              # which files count; recursive = false leaves out those below
files-min = 100             # also files-max, bytes-max; files-min = 0: may be empty
bytes-min = "80GB"          # k, M, G, T of 1000, Ki, Mi, Gi, Ti of 1024
sample = 8                  # files that are opened, spread over the listing
throughput-min = "200MB/s"  # of reading the sample; below it warns

[[output]]
path = "/mnt/output"        # one file of a new name is made there and removed
free = "500GB"              # space asked for; also inodes
create = true               # the job makes it: enough that it can
checkpoint = "/mnt/output/step-*"      # directory or pattern: the newest is named and looked at
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from .files import LIMIT, read_named
from .records import record
from .rules.registry import FAIL, INFO, OFF, WARN, rule

if TYPE_CHECKING:
    from .declared import Declared

SEVERITIES = (FAIL, WARN, INFO, OFF)
FAIL_ON = ("fail", "warn", "unknown")
MODES = ("enforce", "warn", "off")
RESERVED_CODES = (137, 143, 245, 255)  # platforms read these as something else


class BadPolicy(ValueError):
    """A policy that cannot be used: the message names the file and the place."""


@record(frozen=True)
class Waiver:
    """A rule that does not count for now: why, and up to which day (ISO date)."""

    rule: str
    reason: str
    until: str


@record(frozen=True)
class Policy:
    """A policy; unset choices are None so that flags and variables can come before them."""

    severity: Mapping[str, str] = field(default_factory=dict)
    waivers: Tuple[Waiver, ...] = ()
    fail_on: Optional[str] = None
    mode: Optional[str] = None
    fail_closed: Optional[bool] = None
    timeout: Optional[float] = None
    retry_exit_code: int = 75
    assume: Tuple[str, ...] = ()
    compat: Tuple[str, ...] = ()
    locks: Tuple[str, ...] = ()
    paths: Tuple[Declared, ...] = ()


def read(path: str) -> Policy:
    """The policy in a TOML file; raises :class:`BadPolicy` naming the file and the place."""
    try:
        import tomllib as toml
    except ImportError:
        import tomli as toml
    try:
        text = read_named(path)
        if len(text) > LIMIT:
            raise BadPolicy(f"{path}: larger than {LIMIT} bytes")
        document = toml.loads(text.decode())
    except OSError as error:
        raise BadPolicy(f"{path}: {error.strerror or error}") from None
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPolicy(f"{path}: {error}") from None
    except RecursionError:
        raise BadPolicy(f"{path}: nested too deeply") from None
    if path.endswith("pyproject.toml"):
        for table in ("tool", "preflight"):
            document = document.get(table, {}) if isinstance(document, dict) else document
        if not isinstance(document, dict):
            raise BadPolicy(f"{path}: tool.preflight: expected a table")
    try:
        return parse(document)
    except BadPolicy as error:
        raise BadPolicy(f"{path}: {error}") from None


def parse(document: Mapping[str, Any]) -> Policy:
    """The policy of a parsed document; raises :class:`BadPolicy` naming the place."""
    known = {
        "fail-on", "mode", "fail-closed", "timeout", "retry-exit-code", "assume", "severity",
        "waiver", "compat", "locks", "data", "output",
    }  # fmt: skip
    for key in document:
        if key not in known:
            raise BadPolicy(f"{key}: unknown key (known: {', '.join(sorted(known))})")
    return Policy(
        severity=_severities(document.get("severity", {})),
        waivers=_waivers(document.get("waiver", [])),
        fail_on=_choice(document, "fail-on", FAIL_ON),
        mode=_choice(document, "mode", MODES),
        fail_closed=_flag(document, "fail-closed"),
        timeout=_timeout(document),
        retry_exit_code=_exit_code(document),
        assume=_texts(document, "assume"),
        compat=_texts(document, "compat"),
        locks=_texts(document, "locks"),
        paths=_paths(document),
    )


def _paths(document: Mapping[str, Any]) -> Tuple[Declared, ...]:
    if "data" not in document and "output" not in document:
        return ()
    from . import declared  # by the jobs alone that have some

    try:
        return declared.read(document)
    except declared.BadDeclaration as error:
        raise BadPolicy(str(error)) from None


def _severities(table: Any) -> Dict[str, str]:
    if not isinstance(table, dict):
        raise BadPolicy("severity: expected a table")
    for name, value in table.items():
        _known_rule(name, "severity")
        if value not in SEVERITIES:
            raise BadPolicy(f"severity.{name}: {value!r} is none of {', '.join(SEVERITIES)}")
    return dict(table)


def _waivers(rows: Any) -> Tuple[Waiver, ...]:
    if not isinstance(rows, list):
        raise BadPolicy("waiver: expected [[waiver]] tables")
    found = []
    for number, row in enumerate(rows):
        place = f"waiver[{number}]"
        if not isinstance(row, dict) or set(row) != {"rule", "reason", "until"}:
            raise BadPolicy(f"{place}: needs exactly rule, reason and until")
        values = {key: str(value) for key, value in row.items()}
        _known_rule(values["rule"], place)
        if not values["reason"].strip():
            raise BadPolicy(f"{place}.reason: is empty")
        values["until"] = _date(values["until"], place)
        found.append(Waiver(**values))
    return tuple(found)


def _date(text: str, place: str) -> str:
    from datetime import date

    try:
        return date(*(int(part) for part in text.split("-"))).isoformat()
    except (ValueError, TypeError):
        raise BadPolicy(f"{place}.until: {text!r} is no date (YYYY-MM-DD)") from None


def _known_rule(name: str, place: str) -> None:
    if rule(name) is None:
        raise BadPolicy(f"{place}: no rule is called {name!r} (see `preflight rules`)")


def _choice(document: Mapping[str, Any], key: str, choices: Tuple[str, ...]) -> Optional[str]:
    value = document.get(key)
    if value is not None and value not in choices:
        raise BadPolicy(f"{key}: {value!r} is none of {', '.join(choices)}")
    return value


def _flag(document: Mapping[str, Any], key: str) -> Optional[bool]:
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadPolicy(f"{key}: expected true or false")
    return value


def _timeout(document: Mapping[str, Any]) -> Optional[float]:
    value = document.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 3600:
        raise BadPolicy("timeout: expected seconds, above 0 and at most 3600")
    return float(value)


def _exit_code(document: Mapping[str, Any]) -> int:
    value: Any = document.get("retry-exit-code", 75)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 254:
        raise BadPolicy("retry-exit-code: expected a whole number from 1 to 254")
    if value in RESERVED_CODES:
        raise BadPolicy(f"retry-exit-code: {value} means something else to platforms")
    return int(value)


def _texts(document: Mapping[str, Any], key: str) -> Tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadPolicy(f"{key}: expected a list of strings")
    return tuple(value)
