"""What is missing, once: all that ask for it together, and what to install for it."""

from __future__ import annotations

from typing import Callable, Dict, Hashable, Iterable, Iterator, List, NamedTuple, Tuple

from .linked import Linked, asked_by

#: So many are named in a summary; what was observed names more, the evidence all.
SHOWN, LISTED = 3, 20


class Lack(NamedTuple):
    """One library that is missing, damaged, hollow or too old, with every record of it.

    Those that the job certainly needs come first.
    """

    records: Tuple[Linked, ...]

    @property
    def first(self) -> Linked:
        """The record that tells most of the library itself."""
        return self.records[0]

    @property
    def askers(self) -> List[str]:
        """Who asks for it, each once."""
        return list(dict.fromkeys(asked_by(one) for one in self.records))

    @property
    def symbols(self) -> List[str]:
        """All symbols that somebody misses in it, each once."""
        every = (name for one in self.records for name in one.library.missing_symbols.get(()))
        return list(dict.fromkeys(every))

    @property
    def who(self) -> str:
        """The askers in words, for a summary."""
        return few(self.askers)

    @property
    def all(self) -> str:
        """The askers in words, nearly all of them."""
        return few(self.askers, LISTED)

    @property
    def need(self) -> str:
        """ "needs", after one asker; "need" after several."""
        return "needs" if len(self.askers) == 1 else "need"

    @property
    def optional(self) -> bool:
        """Whether nothing asks for it but modules that may never be imported."""
        return all(one.library.required.value is False for one in self.records)

    @property
    def proof(self) -> Tuple[str, ...]:
        """The places of all that it rests on."""
        return tuple(place for one in self.records for place in one.proof)


def together(found: Iterable[Linked], *more: Callable[[Linked], Hashable]) -> Iterator[Lack]:
    """The records in groups of one library: by name and path, and by what `more` tells."""
    groups: Dict[Tuple[Hashable, ...], List[Linked]] = {}
    for one in found:
        key = (one.name, one.library.path.value, *(tell(one) for tell in more))
        groups.setdefault(key, []).append(one)
    for records in groups.values():
        records.sort(key=lambda one: one.library.required.value is False)
        yield Lack(tuple(records))


def few(names: List[str], limit: int = SHOWN) -> str:
    """ "a, b, c and 4 more"."""
    more = f" and {len(names) - limit} more" if names[limit:] else ""
    return ", ".join(names[:limit]) + more
