"""Each declared path in a process of its own, and what is known when one of them hangs."""

from __future__ import annotations

import json
import mmap
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import isolate, snapshot_json
from .. import snapshot as s
from ..declared import Declared
from ..roots import Root
from . import storage

#: A path may take this long, unless less is left of the whole.
SECONDS = 30.0
#: Of its time a path keeps this share: what takes longer than that hangs.
KEPT = 0.9
POLICY = "policy"


class Slate:
    """Memory that a child writes on and its parent reads, when the child can no longer answer.

    Two pages in turn, and a byte that says which one is whole.
    """

    def __init__(self, page: int = 256 << 10) -> None:
        self._page = page
        self._memory = mmap.mmap(-1, 8 + 2 * page)

    def write(self, told: storage.Told) -> None:
        """Put down what is known; what is too long for a page is left out."""
        data = json.dumps(document(told)).encode()
        if len(data) > self._page - 8:
            return
        next_page = 2 if self._memory[0] == 1 else 1
        at = 8 + (next_page - 1) * self._page
        self._memory[at : at + 8] = len(data).to_bytes(8, "big")
        self._memory[at + 8 : at + 8 + len(data)] = data
        self._memory[0] = next_page

    def read(self) -> object:
        """What was put down last; None where nothing was."""
        if not self._memory[0]:
            return None
        at = 8 + (self._memory[0] - 1) * self._page
        size = int.from_bytes(self._memory[at : at + 8], "big")
        return json.loads(self._memory[at + 8 : at + 8 + size].decode())


def document(told: storage.Told) -> object:
    """What is known of one path, as a snapshot in JSON."""
    here: s.Fact[Tuple[s.StoragePath, ...]] = s.known((told.row,), POLICY)
    return snapshot_json.to_json(
        s.Snapshot(storage=s.Storage(paths=here, damaged=s.known(told.damaged, POLICY)))
    )


class Paths:
    """The declared paths of one look."""

    def __init__(
        self,
        root: Root,
        env: Mapping[str, str],
        declared: Sequence[Declared],
        timeout: float,
        thorough: bool = False,
    ) -> None:
        self._thorough = thorough
        seconds = min(SECONDS, timeout)
        self._declared = declared
        self._rows = [storage.asked_of(one, root, env) for one in declared]
        self._slates = [Slate() for _one in declared]
        self.tasks: Dict[str, isolate.Task] = {
            name: isolate.Task(self._look(number, root, env, seconds * KEPT), seconds)
            for number, name in enumerate(self._names())
        }

    def _names(self) -> List[str]:
        return [f"storage {one.place}" for one in self._declared]

    def _look(
        self, number: int, root: Root, env: Mapping[str, str], seconds: float
    ) -> Callable[[], object]:
        asked, slate = self._declared[number], self._slates[number]
        return lambda: document(
            storage.read(root, env, asked, seconds, slate.write, self._thorough)
        )

    def gather(self, answers: Mapping[str, isolate.Answer]) -> s.Storage:
        """All paths; of one that hung or crashed what was seen until then, and why."""
        rows: List[s.StoragePath] = []
        damaged: List[s.StorageFile] = []
        for number, name in enumerate(self._names()):
            told = self._told(number, answers[name])
            rows.append(told.row)
            damaged += [one for one in told.damaged if one not in damaged]
        unsure = "; ".join(f"{one.at or one.path}: {one.note}" for one in rows if one.note)
        return s.Storage(
            paths=s.known(tuple(rows), POLICY),
            damaged=s.known(tuple(damaged), "the files"),
            complete=s.unknown(unsure) if unsure else s.known(True, POLICY),
        )

    def _told(self, number: int, answer: isolate.Answer) -> storage.Told:
        if not answer.problem:
            told = _read(answer.value)
            if told is not None:
                return told
        told = _read(self._slates[number].read()) or storage.Told(self._rows[number])
        row = told.row
        where = f" from {row.mount_words}" if row.mount_words and not row.own_disk else ""
        why = (answer.problem or "an answer that cannot be read").replace(
            "answer", "answer" + where, 1
        )
        return told._replace(row=replace(storage.noted(row, why), hung="yes"))


def _read(value: object) -> Optional[storage.Told]:
    try:
        seen = snapshot_json.from_json(value).storage
    except snapshot_json.BadSnapshot:
        return None
    rows = seen.paths.get(())
    return storage.Told(rows[0], seen.damaged.get(())) if rows else None
