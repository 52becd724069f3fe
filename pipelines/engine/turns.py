"""Turns: the order in which workers drain lanes, so that no tenant's backlog blocks another's work.

A hint only wakes a thread up.  Postgres chooses the lane (``take_turn_v1``): round robin over namespaces, and
over the owners of each; live work comes before imported work. A worker only remembers whom it last served.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypedDict
from uuid import UUID

# Of so many namespaces a worker remembers the owner served last; in the others the round begins anywhere.
MAX_REMEMBERED_NAMESPACES = 64

# Of so many turns one looks for imported work first, so that it gets on however much live work there is.
TURNS_TO_AN_IMPORT = 8

_LIVE, _IMPORTED = 0, 1


class RoundParams(TypedDict):
    """The position of a round, as parameters of ``take_turn``."""

    after: str
    namespaces: list[str]
    owners: list[UUID]
    precedences: list[int]


class _Round:
    def __init__(self) -> None:
        self.turns = 0
        self.namespace = ""
        self.owners: OrderedDict[str, UUID] = OrderedDict()

    def params(self) -> RoundParams:
        imported_first = self.turns % TURNS_TO_AN_IMPORT == TURNS_TO_AN_IMPORT - 1
        return {
            "after": self.namespace,
            "namespaces": list(self.owners),
            "owners": list(self.owners.values()),
            "precedences": [_IMPORTED, _LIVE] if imported_first else [_LIVE, _IMPORTED],
        }

    def note(self, namespace: str, owner: UUID) -> None:
        self.namespace = namespace
        self.owners[namespace] = owner
        self.owners.move_to_end(namespace)
        if len(self.owners) > MAX_REMEMBERED_NAMESPACES:
            self.owners.popitem(last=False)


class Turns:
    """The owners that this process served last, by stage, and the generations it has met; safe to share.

    Threads that look for a turn at the same moment start from the same position: each gets another lane, and
    the round continues from the last of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rounds: dict[str, _Round] = {}
        self._met: dict[str, tuple[int, ...]] = {}

    def params(self, stage: str) -> RoundParams:
        """The position of a stage's round, for ``take_turn``."""
        with self._lock:
            return self._round(stage).params()

    def note(self, stage: str, served: Iterable[tuple[str, UUID]]) -> None:
        """Note that the round has come to these namespaces and owners, one after the other."""
        with self._lock:
            at = self._round(stage)
            at.turns += 1
            for namespace, owner in served:
                at.note(namespace, owner)

    def meet(self, stage: str, generation_id: int) -> None:
        """Note that this process has met work of a generation in a stage."""
        with self._lock:
            if generation_id not in self._met.setdefault(stage, ()):
                self._met[stage] = (*self._met[stage], generation_id)

    def generations_met(self, stage: str) -> tuple[int, ...]:
        """The generations whose work this process has met in a stage."""
        return self._met.get(stage, ())

    def _round(self, stage: str) -> _Round:
        if stage not in self._rounds:
            self._rounds[stage] = _Round()
        return self._rounds[stage]
