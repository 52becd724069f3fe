"""The statements of ``schemas/sql/runs.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class RunIsKnownRow(NamedTuple):
    known: bool


class RunIsKnown(Query[RunIsKnownRow]):
    """Whether there is a run of this id."""

    __slots__ = ()
    name = "run_is_known"
    repeatable = True
    row = RunIsKnownRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, run_id: str) -> None:
        self.values = (shard_key, session_key, run_id)


class LockFirstRunRow(NamedTuple):
    number: int


class LockFirstRun(Query[LockFirstRunRow]):
    """Hold the first run of a session: whoever changes one takes this first, and may then lead others to new
    numbers.
    """

    __slots__ = ()
    name = "lock_first_run"
    repeatable = True
    row = LockFirstRunRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class LockRunRow(NamedTuple):
    number: int
    seqs: list[int]
    digests: list[bytes]


class LockRun(Query[LockRunRow]):
    """A run by its id, held until the transaction ends."""

    __slots__ = ()
    name = "lock_run"
    repeatable = True
    row = LockRunRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, run_id: str) -> None:
        self.values = (shard_key, session_key, run_id)


class AddRunRow(NamedTuple):
    number: int


class AddRun(Query[AddRunRow]):
    """Write a new run, behind those there are. No row: another caller has just added one with this id."""

    __slots__ = ()
    name = "add_run"
    repeatable = True
    row = AddRunRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        run_id: str,
        status: str,
        agent_id: str | None,
        team_id: str | None,
        seqs: list[int],
        digests: list[bytes],
    ) -> None:
        self.values = (shard_key, session_key, run_id, status, agent_id, team_id, seqs, digests)


class ChangeRun(Query[Never]):
    """Give a run other messages and another status. If it comes again after all of its messages were taken
    back (is_behind), it is the newest.
    """

    __slots__ = ()
    name = "change_run"
    repeatable = True

    def __init__(
        self,
        *,
        status: str,
        agent_id: str | None,
        team_id: str | None,
        seqs: list[int],
        digests: list[bytes],
        is_behind: bool,
        shard_key: UUID,
        session_key: UUID,
        run_id: str,
    ) -> None:
        self.values = (status, agent_id, team_id, seqs, digests, is_behind, shard_key, session_key, run_id)


class LogMarksRow(NamedTuple):
    newest: int | None
    corrections: int


class LogMarks(Query[LogMarksRow]):
    """By which it is known that a session's log is as it was: its newest message, and how often it was
    corrected.
    """

    __slots__ = ()
    name = "log_marks"
    repeatable = True
    row = LogMarksRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class RunRowsRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    digest: bytes
    is_shared: bool


class RunRows(Query[RunRowsRow]):
    """Messages of a session by their numbers, with what tells whether two are equal, and whether another run
    has them too.
    """

    __slots__ = ()
    name = "run_rows"
    repeatable = True
    row = RunRowsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, run_id: str, seqs: list[int]) -> None:
        self.values = (shard_key, session_key, run_id, seqs)


class ReplacedMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class ReplacedMessages(Query[ReplacedMessagesRow]):
    """Messages of a session by their ids: those that were given other content."""

    __slots__ = ()
    name = "replaced_messages"
    repeatable = True
    row = ReplacedMessagesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, ids: list[str]) -> None:
        self.values = (shard_key, session_key, ids)


class MessagesBehindRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class MessagesBehind(Query[MessagesBehindRow]):
    """The messages from a number on, without some, as many as are asked for."""

    __slots__ = ()
    name = "messages_behind"
    repeatable = True
    row = MessagesBehindRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, from_seq: int, without: list[int], limit: int
    ) -> None:
        self.values = (shard_key, session_key, from_seq, without, limit)


class RenumberRuns(Query[Never]):
    """Lead runs to messages that were put again, under other numbers."""

    __slots__ = ()
    name = "renumber_runs"
    repeatable = True

    def __init__(self, *, seqs: list[int], new_seqs: list[int], shard_key: UUID, session_key: UUID) -> None:
        self.values = (seqs, new_seqs, shard_key, session_key)


class MessagesOfRunsRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    bytes_taken: int


class MessagesOfRuns(Query[MessagesOfRunsRow]):
    """The messages of the last runs that have any and are none of some statuses, in the order of the runs; or
    as many as take page_bytes, of which the last row tells.
    """

    __slots__ = ()
    name = "messages_of_runs"
    repeatable = True
    row = MessagesOfRunsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        skip_statuses: list[str],
        agent_id: str | None,
        team_id: str | None,
        last_n: int,
        page_bytes: int,
    ) -> None:
        self.values = (shard_key, session_key, skip_statuses, agent_id, team_id, last_n, page_bytes)


class SeqsOfRunsRow(NamedTuple):
    seq: int


class SeqsOfRuns(Query[SeqsOfRunsRow]):
    """The numbers of the messages of these runs, in their order, without some roles."""

    __slots__ = ()
    name = "seqs_of_runs"
    repeatable = True
    row = SeqsOfRunsRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        skip_statuses: list[str],
        agent_id: str | None,
        team_id: str | None,
        last_n: int,
        skip_roles: list[str],
    ) -> None:
        self.values = (shard_key, session_key, skip_statuses, agent_id, team_id, last_n, skip_roles)
