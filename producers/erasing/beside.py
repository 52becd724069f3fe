"""What lies beside the database: archives that retention filled, and places that the application names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

from strandline.pipelines.upkeep.archive import Archive
from strandline.pipelines.upkeep.erasure.receipt import ReaderCheck
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.upkeep.erasures import ErasedObjects, ErasedObjectsRow

logger = logging.getLogger("strandline.erasures")

OpenArchive = Callable[[str], Archive]
Done = tuple[list[ReaderCheck], list[str]]
"""What was erased where, and the sentences for what could not be reached."""


class Outside(Protocol):
    """Something beside the database that holds what users said, and can erase in it."""

    @property
    def name(self) -> str: ...

    def erase(self, owner_key: UUID, session_key: UUID | None) -> int:
        """Erase what it holds of an owner, or of one session; returns how many objects went.

        Raises:
            Exception: it could not be reached, or not all is erased; the receipt says so.
        """
        ...


@dataclass(frozen=True, slots=True)
class Beside:
    """What is erased beside the database; ``open_archive`` opens the archives that retention filled."""

    outside: tuple[Outside, ...] = ()
    open_archive: OpenArchive | None = None


NOTHING_BESIDE = Beside()


def erase_archives(beside: Beside, target: ErasureTarget) -> Operation[Done]:
    """Delete the objects that hold messages of the target.

    Those of handlers of the application are named, and so are those that a fork of the session needs.
    """
    rows = yield from fetch(ErasedObjects(shard_key=target.owner_key, session_key=target.session_key))
    done: Done = yield Run(partial(_delete_objects, beside, rows))
    return done


def erase_outside(beside: Beside, target: ErasureTarget) -> Operation[Done]:
    """Have each place erase; one that fails is named."""
    erased: list[ReaderCheck] = []
    missed: list[str] = []
    for place in beside.outside:
        objects: int | None = yield Run(partial(_erase_in, place, target))
        if objects is None:
            missed.append(f"{place.name}: it could not be reached, or not all in it was erased.")
        else:
            erased.append(ReaderCheck(place.name, objects, 0))
    return erased, missed


def _delete_objects(beside: Beside, rows: Sequence[ErasedObjectsRow]) -> Done:
    deleted: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    archives: dict[str, Archive] = {}
    for row in rows:
        if row.object_name is None:
            lost[row.archive] += 1  # a handler of the application has the messages
            continue
        if row.is_shared:
            shared[row.archive] += 1
            continue
        try:
            if beside.open_archive is not None and row.archive not in archives:
                archives[row.archive] = beside.open_archive(row.archive)
            archives[row.archive].delete(row.object_name)
        except (StrandlineError, KeyError) as error:
            lost[row.archive] += 1
            extra = {"action": "erasure_archive_failed", "error": type(error).__name__}
            logger.warning("an archived object was not erased", extra=extra)
        else:
            deleted[row.archive] += 1
    erased = [ReaderCheck(f"archive {name}", objects, 0) for name, objects in deleted.items()]
    missed = [
        f"Archive {name}: {objects} ranges of messages were not erased there."
        for name, objects in lost.items()
    ]
    stayed = [
        f"Archive {name}: {objects} ranges of messages stay, since a session that was not erased has them as"
        " well: a fork, or what this one is a fork of. They go with the last session that has them."
        for name, objects in shared.items()
    ]
    return erased, [*missed, *stayed]


def _erase_in(place: Outside, target: ErasureTarget) -> int | None:
    """How many objects went; None if it failed."""
    try:
        return place.erase(target.owner_key, target.session_key)
    except Exception as error:  # noqa: BLE001  # the edge to what is not ours: the receipt names it
        extra = {"action": "erasure_outside_failed", "place": place.name, "error": type(error).__name__}
        logger.warning("erasure outside of the database failed", extra=extra)
        return None
