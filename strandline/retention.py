"""Retention from Python: ``strandline retention`` as functions; a session's own is ``memory.set_retention``.

Each takes a ``Database`` (``connect``).  Workers carry retention out by themselves; ``run`` does it now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.inspect.directory import find_session
from strandline.pipelines.replay.arguments import checked
from strandline.pipelines.upkeep import archived, passes, policies
from strandline.pipelines.upkeep.archive import Archive
from strandline.pipelines.upkeep.archived import RESTORED_TTL_SECONDS, ArchivedRange, Restored
from strandline.pipelines.upkeep.handler_archive import LeavingMessages
from strandline.pipelines.upkeep.passes import forget_aged
from strandline.pipelines.upkeep.policies import RetentionAct, RetentionLevel
from strandline.pipelines.upkeep.removal import REST, Removal, Remover
from strandline.replay import connect
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.conversation.retention import (
    ArchivesWithObjects,
    DatabaseMark,
    OpenSteps,
    OpenStepsRow,
    PastMessages,
    RetentionRuns,
    RetentionRunsRow,
    RetentionTotals,
    RetentionTotalsRow,
)
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name, identify_session
from strandline.schemas.values.message import Message
from strandline.wiring.archives import open_archive

__all__ = [
    "Archive",
    "ArchivedRange",
    "LeavingMessages",
    "Past",
    "Removal",
    "Restored",
    "Retention",
    "RetentionAct",
    "RetentionStatus",
    "adopt",
    "archived_ranges",
    "connect",
    "get_retention",
    "plan",
    "provide_input",
    "read_archived",
    "restore",
    "retention_acts",
    "run",
    "set_retention",
    "status",
]


@dataclass(frozen=True, slots=True)
class Past:
    """The expired messages of a session, which the next run removes, except waiting ones.

    Attributes:
        expired: of sessions without puts for too long.
        aged: older than allowed.
        surplus: beyond the kept number; shown until they are removed, in whole flushes.
        waiting: how many of these wait until their whole flush has expired, since flushes leave whole.
        important: expired, and kept because they are marked.
    """

    namespace: str
    session_id: str
    expired: int
    aged: int
    surplus: int
    waiting: int
    important: int

    @property
    def free(self) -> int:
        """How many messages can leave now, or once workers have derived them."""
        return self.expired + self.aged + self.surplus - self.waiting


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """How far retention is: totals, the steps that are under way or fail, and the last passes."""

    totals: RetentionTotalsRow
    steps: tuple[OpenStepsRow, ...]
    runs: tuple[RetentionRunsRow, ...]


@checked
def get_retention(
    database: Database, *, namespace: str = DEFAULT_NAMESPACE, session_id: str | None = None
) -> Retention:
    """The rules that apply to a namespace, or to a session in it.

    Raises:
        NotFoundError: the session does not exist.
    """
    return database.run(policies.read_retention(_level(database, namespace, session_id)))


@checked
def set_retention(
    database: Database,
    retention: Retention,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    session_id: str | None = None,
    actor: str | None = None,
) -> int:
    """Record the retention of a namespace or a session; returns the act's number.

    It applies at once: reads hide expired data even before it is removed.

    Raises:
        NotFoundError: the session does not exist.
        InvalidMessageError: a field cannot be used.
        ConflictError: other callers kept recording acts.
    """
    act = Act.here("retention", actor=actor)
    return database.run(policies.record_retention(_level(database, namespace, session_id), retention, act))


@checked
def retention_acts(
    database: Database,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    session_id: str | None = None,
    limit: int = 100,
) -> list[RetentionAct]:
    return database.run(policies.list_acts(_level(database, namespace, session_id), limit))


@checked
def plan(
    database: Database, *, namespace: str | None = None, session_id: str | None = None
) -> Iterator[Past]:
    """Expired data, session by session; nothing is changed."""
    for session in passes.concerned_sessions(database, _which(database, namespace, session_id)):
        for row in database.fetch(PastMessages(**session)):
            past = Past(*row)
            if past.expired or past.aged or past.surplus:
                yield past


@checked
def run(
    database: Database,
    *,
    namespace: str | None = None,
    session_id: str | None = None,
    on_progress: Callable[[Removal], None] = lambda _removal: None,
    stop: threading.Event | None = None,
    at_once: bool = False,
    open_archive: Callable[[str], Archive] = open_archive,
) -> Removal:
    """Archive and remove expired data; may be stopped at any time, and started again.

    Messages that workers still derive from stay until they are done, and refused ones until an archive takes
    them. ``at_once``: without a rest after each step, which leaves the machine to puts.
    """
    remover = Remover(
        database,
        open_archive,
        busy_seconds=0.0,
        rest=0.0 if at_once else REST,
        wait=time.sleep if stop is None else stop.wait,
    )
    which = _which(database, namespace, session_id)
    done = passes.run_once(database, remover, which, on_progress=on_progress, stop=stop)
    if session_id is None and not (stop and stop.is_set()):
        forget_aged(database, namespace=namespace)
    return done


@checked
def status(database: Database, *, namespace: str | None = None, limit: int = 20) -> RetentionStatus:
    """Removals so far, runs under way or failing, and the workers' recent passes."""
    (totals,) = database.fetch(RetentionTotals(namespace=namespace))
    steps = database.fetch(OpenSteps(namespace=namespace, limit=limit))
    return RetentionStatus(totals, tuple(steps), tuple(database.fetch(RetentionRuns(limit=limit))))


@checked
def adopt(database: Database) -> list[str]:
    """Let this database, which replaces its original, delete what that archived; returns the archives.

    Raises:
        ArchiveError: an archive cannot be reached.
    """
    archives = [row.archive for row in database.fetch(ArchivesWithObjects())]
    for archive in archives:
        open_archive(archive).adopt(database.fetch(DatabaseMark())[0].mark)
    return archives


@checked
def archived_ranges(
    database: Database, session_id: str, *, namespace: str = DEFAULT_NAMESPACE
) -> list[ArchivedRange]:
    """A session's archived ranges, in order.

    Raises:
        NotFoundError: the session does not exist.
    """
    identity = find_session(database, session_id, namespace=namespace)
    return database.run(archived.archived_ranges(identity.shard_key, identity.session_key))


@checked
def read_archived(
    database: Database, session_id: str, *, namespace: str = DEFAULT_NAMESPACE
) -> Iterator[Message]:
    """A session's archived messages, in order, from their archives; each object is checked by its digest.

    Raises:
        NotFoundError: the session does not exist.
        ArchiveError: an object cannot be read, or went to a handler.
    """
    identity = find_session(database, session_id, namespace=namespace)
    yield from archived.read_archived(database, open_archive, identity)


@checked
def restore(
    database: Database,
    session_id: str,
    to: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    ttl_seconds: int = RESTORED_TTL_SECONDS,
) -> Restored:
    """Bring a session's archived messages back, into the session ``to`` of the same user.

    Raises:
        NotFoundError: the session does not exist, or has nothing in an archive.
        ConflictError: ``to`` is in use; nothing was changed.
        ArchiveError: an object cannot be read.
    """
    identity = find_session(database, session_id, namespace=namespace)
    new = identify_session(namespace, to, identity.user_id)
    return archived.restore(database, open_archive, identity, new, ttl_seconds)


def provide_input(tx: Fetcher, shard_key: UUID, generation_id: int) -> int:
    """Give a generation an owner's archived messages: for ``replay.derive_generation(provide_input=…)``.

    Raises:
        ArchiveError: an object cannot be read, or messages were removed without an archive.
    """
    return archived.provide_input(tx, open_archive, shard_key, generation_id)


def _level(database: Database, namespace: str, session_id: str | None) -> RetentionLevel:
    if session_id is None:
        return RetentionLevel(check_name("namespace", namespace))
    identity = find_session(database, session_id, namespace=namespace)
    return RetentionLevel(identity.namespace, identity)


def _which(database: Database, namespace: str | None, session_id: str | None) -> passes.Which:
    key: UUID | None = None
    if session_id is not None:
        key = find_session(database, session_id, namespace=namespace).session_key
    return passes.Which(namespace=namespace, session_key=key)
