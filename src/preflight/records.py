"""Frozen dataclasses, made quickly.

`dataclass` compiles six methods for every class, which for all of ours takes longer than anything
else that `preflight exec` imports. Here every class has the same ones, which ask for its fields.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Tuple, Type

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool) -> Callable[[Type[Any]], Type[Any]]:
        """What `dataclass(frozen=True)` makes of a class, without its order and its slots."""
        assert frozen
        return _made


def _made(cls: Type[Any]) -> Type[Any]:
    for method in (_init, _eq, _hash, _repr, _setattr, _delattr):
        setattr(cls, f"_{method.__name__}__", method)
    made = dataclass(init=False, repr=False, eq=False)(cls)
    made.__record_names__ = tuple(one.name for one in fields(made))
    made.__record_keys__ = frozenset(made.__record_names__)
    made.__record_defaults__ = {
        one.name: one.default for one in fields(made) if one.default is not MISSING
    }
    made.__record_factories__ = tuple(
        (one.name, one.default_factory)
        for one in fields(made)
        if one.default_factory is not MISSING
    )
    return made


def _init(self: Any, *values: Any, **named: Any) -> None:
    names = self.__record_names__
    state = self.__dict__
    state.update(self.__record_defaults__)
    for name, make in self.__record_factories__:
        if name not in named:
            state[name] = make()
    state.update(zip(names, values))
    state.update(named)
    taken_twice = values and not named.keys().isdisjoint(names[: len(values)])
    if state.keys() != self.__record_keys__ or len(values) > len(names) or taken_twice:
        raise TypeError(f"{type(self).__name__}() takes each once of: {', '.join(names)}")


def _state(self: Any) -> Tuple[Any, ...]:
    state = self.__dict__
    return tuple([state[name] for name in self.__record_names__])


def _eq(self: Any, other: Any) -> Any:
    return _state(self) == _state(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_state(self))


def _repr(self: Any) -> str:
    given = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__record_names__)
    return f"{type(self).__qualname__}({given})"


def _setattr(self: Any, name: str, value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
