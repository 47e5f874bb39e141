"""A described environment (JSON) as a snapshot.

Every field may be left out: left out is unknown. An empty list or false is known to be absent.
A field this format does not have is an error that names it.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, Callable, Dict, List, Mapping, Tuple, Type

from .. import snapshot as s
from ..lockfiles import applying, document
from ..matrix import numbers
from ..snapshot_json import BadSnapshot, check

SOURCE = "described"
FRAMEWORKS = ("torch", "tensorflow", "jax", "paddle", "mindspore", "mxnet", "cupy")
LIBCUDA = ("host", "compat", "stub", "missing")


class BadDescription(ValueError):
    """A description that cannot be read: the message names the field and what is wrong."""


def read(document: Any) -> s.Snapshot:
    """The snapshot of a description (or of the `description` in a case document).

    Raises :class:`BadDescription` naming the field.
    """
    if not isinstance(document, dict):
        raise BadDescription(f"expected an object, got {type(document).__name__}")
    if "description" in document:
        document = document["description"]
    try:
        return _snapshot(_object(document, "description"))
    except BadSnapshot as error:
        raise BadDescription(str(error)) from None


def _snapshot(document: Mapping[str, Any]) -> s.Snapshot:
    known = {**_SECTIONS, **dict.fromkeys(FRAMEWORKS, _nothing), "packages": _nothing,
             "packages_conda": _nothing, "python": _nothing}  # fmt: skip
    values: Dict[str, Any] = {}
    for key, value in document.items():
        if key not in known:
            raise BadDescription(f"{key}: unknown field")
        values.update(known[key](value))
    values["python"] = _python(document)
    found = tuple(_framework(name, document[name]) for name in FRAMEWORKS if name in document)
    if "locks" in values:
        values["locks"] = _locks(values["locks"], values)
    values["driver"] = _driver_in_use(values.get("driver", s.Driver()), values)
    if found:
        values["frameworks"] = s.known(found, SOURCE)
    return s.Snapshot(origin="described", **values)


def _driver_in_use(driver: s.Driver, values: Mapping[str, Any]) -> s.Driver:
    """A compat library that the loader picks is the libcuda in use, also when only that is said."""
    compats = values.get("compats", s.UNKNOWN).get(())
    if driver.libcuda.looked or not any(one.resolved.value for one in compats):
        return driver
    return replace(driver, libcuda=s.known("compat", "described: compat.resolved"))


def _locks(given: s.Fact[Any], values: Mapping[str, Any]) -> s.Fact[Any]:
    """The lock files with their entries: read from the text, or as the pins say."""
    python, system = values["python"], values.get("os", s.System())
    target = applying.Target(python.version.get(""), system.arch.get("x86_64"))
    return replace(given, value=tuple(document.described(one, target) for one in given.get(())))


def _nothing(_value: Any) -> Dict[str, Any]:
    return {}


def _python(document: Mapping[str, Any]) -> s.PythonEnv:
    given = {"version": document.get("python"), "packages": document.get("packages"),
             "packages_conda": document.get("packages_conda")}  # fmt: skip
    python: s.PythonEnv = _record(
        s.PythonEnv, {k: v for k, v in given.items() if v is not None}, "python"
    )
    return python


def _framework(name: str, document: Any) -> s.Framework:
    given = dict(_object(document, name))
    given["name"] = name
    framework: s.Framework = _record(s.Framework, given, name)
    return framework


def _section(name: str, kind: Type[Any]) -> Callable[[Any], Dict[str, Any]]:
    return lambda value: {name: _record(kind, value, name)}


def _list_of(name: str, kind: Type[Any]) -> Callable[[Any], Dict[str, Any]]:
    return lambda value: {name: s.known(_records(kind, value, name), SOURCE)}


def _driver(value: Any) -> Dict[str, Any]:
    driver = _record(s.Driver, value, "driver")
    if driver.version.known and not numbers(driver.version.get("")):
        raise BadDescription(
            f"driver.version: {driver.version.value!r} is no version (as in 535.104.05)"
        )
    if driver.libcuda.known and driver.libcuda.value not in LIBCUDA:
        raise BadDescription(f"driver.libcuda: {driver.libcuda.value!r} is none of {LIBCUDA}")
    return {"driver": driver}


def _compat(value: Any) -> Dict[str, Any]:
    compat = _record(s.Compat, value, "compat")
    return {"compats": s.known((compat,), SOURCE)}


def _env(value: Any) -> Dict[str, Any]:
    return {"env": s.known(check(value, s.NAMES, "env"), SOURCE)}


def _logs(value: Any) -> Dict[str, Any]:
    return {"logs": s.known(check(value, s.TEXTS, "logs"), SOURCE)}


_SECTIONS: Dict[str, Callable[[Any], Dict[str, Any]]] = {
    "driver": _driver,
    "compat": _compat,
    "gpus": _list_of("gpus", s.Gpu),
    "os": _section("os", s.System),
    "extensions": _list_of("extensions", s.Extension),
    "libraries": _list_of("libraries", s.Library),
    "cuda_toolkit": lambda value: {"toolkit": _record(s.Toolkit, value, "cuda_toolkit")},
    "env": _env,
    "job": _section("job", s.Job),
    "master": _section("master", s.Master),
    "host": _section("host", s.Host),
    "image": _section("image", s.Image),
    "locks": _list_of("locks", s.Lock),
    "logs": _logs,
}


def _record(kind: Type[Any], document: Any, where: str) -> Any:
    """One section: each given field a known fact, null a fact known to be absent."""
    known = {one.name: one.metadata for one in fields(kind)}
    values: Dict[str, Any] = {}
    for key, value in _object(document, where).items():
        place = f"{where}.{key}"
        if key not in known:
            raise BadDescription(f"{place}: unknown field")
        kind_of, item = known[key]["kind"], known[key]["item"]
        if value is None:
            values[key] = s.absent(SOURCE)
        elif kind_of == s.RECORD:
            values[key] = s.known(_record(item, value, place), SOURCE)
        elif kind_of == s.RECORDS:
            values[key] = s.known(_records(item, value, place), SOURCE)
        else:
            values[key] = s.known(check(value, kind_of, place), SOURCE)
            _spelled(key, values[key].value, place)
    return kind(**values)


def _spelled(key: str, value: Any, place: str) -> None:
    """What cannot be read is an error: a rule would take it for a GPU that nothing serves."""
    if key == "count" and not 0 <= value <= 100_000:
        raise BadDescription(f"{place}: {value} is no number of GPUs")
    if key == "compute_capability" and not re.match(r"\d{1,2}\.\d$", value):
        raise BadDescription(f"{place}: {value!r} is no compute capability (as in 8.0)")
    if key == "arch_list":
        for one in value:
            if not re.match(r"(sm|compute)_\d{2,3}[af]?$", one):
                raise BadDescription(f"{place}: {one!r} is no target (as in sm_80, compute_90)")


def _records(kind: Type[Any], value: Any, where: str) -> Tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadDescription(f"{where}: expected a list, got {type(value).__name__}")
    found: List[Any] = [_record(kind, one, f"{where}[{i}]") for i, one in enumerate(value)]
    return tuple(found)


def _object(document: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise BadDescription(f"{where}: expected an object, got {type(document).__name__}")
    return document
