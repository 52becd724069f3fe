"""The statements of ``schemas/sql/runs.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import KnownRow, MeasuredMessageRow, MessageRow, NumberRow, SeqRow
from strandline.schemas.sealing.marks import Mark, Marks


class RunIsKnown(Query[KnownRow], name="run_is_known", repeatable=True):
    """Whether there is a run of this id."""

    shard_key: UUID
    session_key: UUID
    run_id: str


class LockFirstRun(Query[NumberRow], name="lock_first_run", repeatable=True):
    """Hold the first run of a session: whoever changes one takes this first, and may then lead others to new
    numbers.
    """

    shard_key: UUID
    session_key: UUID


class LockRunRow(NamedTuple):
    number: int
    seqs: list[int]
    digests: list[bytes]


class LockRun(Query[LockRunRow], name="lock_run", repeatable=True):
    """A run by its id, held until the transaction ends."""

    shard_key: UUID
    session_key: UUID
    run_id: str


class AddRun(Query[NumberRow], name="add_run", repeatable=True):
    """Write a new run, behind those there are. No row: another caller has just added one with this id."""

    shard_key: UUID
    session_key: UUID
    run_id: str
    status: str
    agent_id: str | None
    team_id: str | None
    seqs: list[int]
    digests: list[bytes]


class ChangeRun(Query[Never], name="change_run", repeatable=True):
    """Give a run other messages and another status. If it comes again after all of its messages were taken
    back (is_behind), it is the newest.
    """

    status: str
    agent_id: str | None
    team_id: str | None
    seqs: list[int]
    digests: list[bytes]
    is_behind: bool
    shard_key: UUID
    session_key: UUID
    run_id: str


class LogMarksRow(NamedTuple):
    newest: int | None
    corrections: int


class LogMarks(Query[LogMarksRow], name="log_marks", repeatable=True):
    """By which it is known that a session's log is as it was: its newest message, and how often it was
    corrected.
    """

    shard_key: UUID
    session_key: UUID


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


class RunRows(Query[RunRowsRow], name="run_rows", repeatable=True):
    """Messages of a session by their numbers, with what tells whether two are equal, and whether another run
    has them too.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID
    run_id: str
    seqs: list[int]


class ReplacedMessages(Query[MessageRow], name="replaced_messages", repeatable=True):
    """Messages of a session whose ids were given with other content."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID
    ids: list[str]


class MessagesBehind(Query[MessageRow], name="messages_behind", repeatable=True):
    """The messages from a number on, without some, as many as are asked for."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID
    from_seq: int
    without: list[int]
    limit: int


class RenumberRuns(Query[Never], name="renumber_runs", repeatable=True):
    """Lead runs to messages that were put again, under other numbers."""

    seqs: list[int]
    new_seqs: list[int]
    shard_key: UUID
    session_key: UUID


class MessagesOfRuns(Query[MeasuredMessageRow], name="messages_of_runs", repeatable=True):
    """The messages of the last runs that have any and are none of some statuses, in the order of the runs; or
    as many as take page_bytes, of which the last row tells.
    """

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    session_key: UUID
    shard_key: UUID
    skip_statuses: list[str]
    agent_id: str | None
    team_id: str | None
    last_n: int
    page_bytes: int


class SeqsOfRuns(Query[SeqRow], name="seqs_of_runs", repeatable=True):
    """The numbers of the messages of these runs, in their order, without some roles."""

    session_key: UUID
    shard_key: UUID
    skip_statuses: list[str]
    agent_id: str | None
    team_id: str | None
    last_n: int
    skip_roles: list[str]
