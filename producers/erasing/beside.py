"""Data outside the database: archives that retention filled, and places that the application names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

from strandline.pipelines.upkeep.archive import IS_FOREIGN, Archive, delete_own
from strandline.pipelines.upkeep.erasure.receipt import ReaderCheck
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.conversation.retention import DatabaseMark
from strandline.schemas.queries.upkeep.erasures import ErasedObjects, ErasedObjectsRow

logger = logging.getLogger("strandline.erasures")

# So many objects that could not be deleted are named in a receipt, by archive.
MAX_NAMED = 20

# The rows that name such objects go with the erasure, so nothing here deletes them later.
_STAY_FOREIGN = (
    " Another database put them there, and this one is a copy of it. If that one is still in use, erase there"
    " too. If this one replaces it, delete these objects and their manifests yourself, and run"
    " `strandline retention adopt` before other erasures, so that they delete theirs."
)

OpenArchive = Callable[[str], Archive]
Done = tuple[list[ReaderCheck], list[str]]
"""Erased objects by place, and the sentences for unreachable ones."""


class Outside(Protocol):
    """A place outside the database that holds users' words, and can erase them."""

    @property
    def name(self) -> str: ...

    def erase(self, owner_key: UUID, session_key: UUID | None) -> int:
        """Erase its data of an owner, or of one session; returns how many objects went.

        Raises:
            Exception: it could not be reached, or not all is erased; the receipt says so.
        """
        ...


@dataclass(frozen=True, slots=True)
class Beside:
    """Erases outside the database; ``open_archive`` opens the archives that retention filled."""

    outside: tuple[Outside, ...] = ()
    open_archive: OpenArchive | None = None


NOTHING_BESIDE = Beside()


class Archives:
    """The fate of the objects with messages of the target, each once.

    Named are objects of the application's handlers, objects that a fork of the session needs, and objects
    that could not be deleted.
    """

    def __init__(self, beside: Beside, target: ErasureTarget) -> None:
        self._beside = beside
        self._target = target
        self._deleted: set[tuple[str, str]] = set()
        self._stay: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._lost: dict[tuple[str, str], bool] = {}  # whether it is another database's
        self._opened: dict[str, Archive] = {}

    @property
    def checks(self) -> list[ReaderCheck]:
        """How many objects were deleted, by archive."""
        deleted = Counter(archive for archive, _name in self._deleted)
        return [ReaderCheck(f"archive {name}", objects, 0) for name, objects in deleted.items()]

    @property
    def omissions(self) -> list[str]:
        """Sentences for everything left unerased."""
        return [
            *(
                f"Archive {name}: {objects} ranges of messages were not erased there."
                for name, objects in self._taken.items()
            ),
            *map(self._say_lost, sorted({archive for archive, _name in self._lost})),
            *(
                f"Archive {name}: {objects} ranges of messages stay, since a session that was not erased has"
                " them as well: a fork, or what this one is a fork of. They go with the last session that has"
                " them."
                for name, objects in self._stay.items()
            ),
        ]

    def _say_lost(self, archive: str) -> str:
        lost = {name: foreign for (other, name), foreign in self._lost.items() if other == archive}
        advice = _STAY_FOREIGN if any(lost.values()) else ""
        return (
            f"Archive {archive}: {len(lost)} ranges of messages were not erased there: {_some(list(lost))}."
            f"{advice}"
        )

    def clear(self, erasure: int) -> Operation[Sequence[str]]:
        """Delete the objects that are named by rows that are there; returns the omissions."""
        target = self._target
        rows = yield from fetch(
            ErasedObjects(number=erasure, shard_key=target.owner_key, session_key=target.session_key)
        )
        (database,) = yield from fetch(DatabaseMark())
        yield Run(partial(self._delete, rows, database.mark))
        return self.omissions

    def _delete(self, rows: Sequence[ErasedObjectsRow], database_mark: str) -> None:
        for row in rows:
            if row.object_name is None:
                self._taken[row.archive] += 1  # a handler of the application has the messages
            elif row.is_shared:
                self._stay[row.archive] += 1
            elif (row.archive, row.object_name) not in self._deleted:
                self._delete_object(row.archive, row.object_name, database_mark)

    def _delete_object(self, archive: str, name: str, database_mark: str) -> None:
        try:
            if self._beside.open_archive is not None and archive not in self._opened:
                self._opened[archive] = self._beside.open_archive(archive)
            delete_own(self._opened[archive], name, database_mark)
        except (StrandlineError, KeyError) as error:
            self._lost[archive, name] = IS_FOREIGN in str(error)
            # The row that names it goes, so this and the receipt are what says where it is.
            extra = {"action": "erasure_archive_failed", "object": name, "error": type(error).__name__}
            logger.warning("an archived object was not erased", extra=extra)
        else:
            self._deleted.add((archive, name))
            self._lost.pop((archive, name), None)


def _some(objects: Sequence[str]) -> str:
    shown = ", ".join(objects[:MAX_NAMED])
    more = len(objects) - MAX_NAMED
    return shown if more <= 0 else f"{shown}, and {more} more, which the log names"


def erase_outside(beside: Beside, target: ErasureTarget) -> Operation[Done]:
    """Have each place erase; a failing place is named."""
    erased: list[ReaderCheck] = []
    missed: list[str] = []
    for place in beside.outside:
        objects: int | None = yield Run(partial(_erase_in, place, target))
        if objects is None:
            missed.append(f"{place.name}: it could not be reached, or not all in it was erased.")
        else:
            erased.append(ReaderCheck(place.name, objects, 0))
    return erased, missed


def _erase_in(place: Outside, target: ErasureTarget) -> int | None:
    try:
        return place.erase(target.owner_key, target.session_key)
    except Exception as error:  # noqa: BLE001  # the edge to what is not ours: the receipt names it
        extra = {"action": "erasure_outside_failed", "place": place.name, "error": type(error).__name__}
        logger.warning("erasure outside of the database failed", extra=extra)
        return None
