"""The statements of ``schemas/sql/messages.sql``.  Written by `make queries`."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    BytesRow,
    MeasuredMessageRow,
    MessageRow,
    PutRow,
    SeqRow,
    StatusRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class PutOne(Query[SeqRow], name="put_one", repeatable=True):
    """Accept one message in the simple case: the session exists, the message is not part of its head, crosses
    none of its marks, ends no turn that is to be delivered, no watch has to be planned, its data key is of
    the owner's present life, and no rule of the namespace concerns it: a bound of bytes, a time to live,
    or a trail that records puts. Without a row nothing was done, and put_v1 decides. It also decides if
    the id was used before: the unique index refuses it then, which undoes all of this.
    """

    tokens: int
    bytes: int
    role: str
    shard_key: UUID
    session_key: UUID
    calls: str | None
    data_key: int
    id: str
    digest: builtins.bytes
    envelope: str
    metadata: str | None
    answers: str | None
    created_at: datetime | None
    labels: list[int] | None


class PutManyRow(NamedTuple):
    session_key: str
    seq: int


class PutMany(Query[PutManyRow], name="put_many", repeatable=True):
    """The same for one message into each of several sessions, all different, in one commit; returns the
    sessions whose message was stored. A message whose id was used before is left out, and one whose
    session is locked: so it keeps no other waiting, and two such statements never wait for each other.
    (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
    another: their sizes are unknown to the planner, which would compare all with all.)
    """

    messages: str


class Put(Query[PutRow], name="put", repeatable=True):
    """Accept messages: one round trip."""

    shard_key: UUID
    session_key: UUID
    claimed: bool
    session: str
    ids: list[str]
    roles: list[str]
    tokens: list[int]
    bytes: list[int]
    digests: list[builtins.bytes]
    envelopes: list[str]
    metadata: list[str | None]
    created_at: list[datetime | None]
    calls: list[str | None]
    answers: list[str | None]
    labels: list[str | None]
    data_key: int
    act: str | None


class History(Query[MessageRow], name="history", repeatable=True):
    """A page of the whole log, in order, cut off by count and bytes; one message at least."""

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    session_key: UUID
    shard_key: UUID
    after_seq: int
    page_size: int
    page_bytes: int


class MessagesWithIds(Query[MessageRow], name="messages_with_ids", repeatable=True):
    """Messages of an owner's sessions, or of one of them, by their ids, if reads may show them."""

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    ids: list[str]
    shard_key: UUID
    scope_key: UUID | None


class LogStateRow(NamedTuple):
    incarnation: UUID
    corrections: int


class LogState(Query[LogStateRow], name="log_state", repeatable=True):
    """By which it is known that nothing of a log was taken back, replaced or reset."""

    shard_key: UUID
    session_key: UUID


class NewestSeqs(Query[SeqRow], name="newest_seqs", repeatable=True):
    """The numbers of the newest messages of a log, the newest first; without a filter, so the primary key has
    all of it.
    """

    session_key: UUID
    shard_key: UUID
    limit: int
    offset: int


class RecentMatchesRow(NamedTuple):
    scanned: int
    seq: int | None


class RecentMatches(Query[RecentMatchesRow], name="recent_matches", repeatable=True):
    """Of the newest messages, as many as are looked at, the numbers of those that a filter lets pass, the
    newest first. One row at least, which says how many there were to look at: fewer than asked for are the
    whole log.
    """

    marks = Marks(
        owner=1,
        seals=(
            Mark(6, "label", "", 0),
            Mark(7, "transition"),
        ),
    )
    session_key: UUID
    shard_key: UUID
    scan: int
    roles: list[str]
    since: datetime | None
    until: datetime | None
    labels: list[int] | None
    clear_labels: list[int] | None
    limit: int
    offset: int


class MatchesByRole(Query[SeqRow], name="matches_by_role", repeatable=True):
    """The numbers of the newest messages of some roles and a time, the newest first. The index over roles and
    times leads to what matches alone; in the order of the log all of it might have to be read. Here and
    below, the keys are compared in a form that no other index serves: the planner cannot know how many
    messages a session has, and with the usual number in mind it would read all of a long one's.
    """

    session_key: UUID
    shard_key: UUID
    roles: list[str]
    since: datetime | None
    until: datetime | None
    limit: int
    offset: int


class MatchesByLabel(Query[SeqRow], name="matches_by_label", repeatable=True):
    """The same of messages whose metadata has all of some labels, whose numbers differ from session to
    session. While some of the owner's messages may not be sealed yet, their labels are looked for as well.
    """

    marks = Marks(
        owner=1,
        seals=(
            Mark(2, "label", "", 0),
            Mark(3, "transition"),
        ),
    )
    session_key: UUID
    shard_key: UUID
    labels: list[int]
    clear_labels: list[int] | None
    roles: list[str]
    since: datetime | None
    until: datetime | None
    limit: int
    offset: int


class MessagesBySeq(Query[MessageRow], name="messages_by_seq", repeatable=True):
    """Some messages of a session by their numbers, in order."""

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    session_key: UUID
    shard_key: UUID
    seqs: list[int]


class MessagesInOrderRow(NamedTuple):
    place: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    bytes_taken: int


class MessagesInOrder(Query[MessagesInOrderRow], name="messages_in_order", repeatable=True):
    """Some messages of a session, in the order of the numbers given, up to the one that fills a page."""

    marks = Marks(
        owner=1,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )
    session_key: UUID
    shard_key: UUID
    seqs: list[int]
    page_bytes: int


class BytesOfMessages(Query[BytesRow], name="bytes_of_messages", repeatable=True):
    """How much some messages of a session have together."""

    shard_key: UUID
    session_key: UUID
    seqs: list[int]


class NewestWithin(Query[MeasuredMessageRow], name="newest_within", repeatable=True):
    """A page of messages behind the prompt, the newest first, as far as they fit so many tokens together, up
    to the one that fills max_bytes; a message takes some next to its texts.
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
    before_seq: int
    page_size: int
    tokens: int
    max_bytes: int


class HeadMessages(Query[MessageRow], name="head_messages", repeatable=True):
    """The pinned head of a session, in order, or what replaced it."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID


class NewestMessage(Query[MessageRow], name="newest_message", repeatable=True):
    """The message that a pop would remove."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID


class PartedCallRow(NamedTuple):
    call_seq: int
    result_seq: int


class PartedCall(Query[PartedCallRow], name="parted_call", repeatable=True):
    """The call and the last of its results that a cut before a number would part, if nobody spoke between; no
    row if none.
    """

    shard_key: UUID
    session_key: UUID
    seq: int


class Pop(Query[StatusRow], name="pop", repeatable=True):
    """Remove it, if it is still the newest, and was not delivered."""

    shard_key: UUID
    session_key: UUID
    seq: int
    pop_id: UUID
    act: str | None


class MessageAtRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    digest: bytes


class MessageAt(Query[MessageAtRow], name="message_at", repeatable=True):
    """A message by its number, with all that a replacement keeps; and whether the session exists."""

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    seq: int
    shard_key: UUID
    session_key: UUID


class FindCorrectionRow(NamedTuple):
    session_key: UUID
    number: int
    kind: str
    from_seq: int
    through_seq: int
    is_of_content: bool
    seqs: list[int]
    created_at: datetime


class FindCorrection(Query[FindCorrectionRow], name="find_correction", repeatable=True):
    """A correction by its id, with the messages that it concerned."""

    marks = Marks(
        owner=2,
        seals=(
            Mark(0, "digest"),
            Mark(1, "transition"),
        ),
    )
    digest: bytes
    clear_digest: bytes | None
    shard_key: UUID
    correction_id: UUID


class CorrectRow(NamedTuple):
    status: str
    number: int
    from_seq: int
    through_seq: int
    seqs: list[int]
    created_at: datetime
    is_shared: bool
    touched: list[UUID]


class Correct(Query[CorrectRow], name="correct", repeatable=True):
    """Take back the messages from a number on, or give one other content (correct_v1)."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(7, "digest"),
            Mark(10, "digest"),
        ),
    )
    shard_key: UUID
    session_key: UUID
    correction_id: UUID
    kind: str
    from_seq: int
    newest: int | None
    corrections: int | None
    content: builtins.bytes | None
    actor: str | None
    expected: builtins.bytes | None
    digest: builtins.bytes | None
    envelope: str | None
    tokens: int | None
    bytes: int | None
    act: str | None


class KnownMessagesRow(NamedTuple):
    messages: int
    differing: list[str]


class KnownMessages(Query[KnownMessagesRow], name="known_messages", repeatable=True):
    """How many of these ids exist in the session's current incarnation, and which of them with another
    digest. keyed_digests: their form where the owner's content is sealed.
    """

    ids: list[str]
    digests: list[bytes]
    keyed_digests: list[bytes]
    shard_key: UUID
    session_key: UUID


class StoredDigestsRow(NamedTuple):
    id: str
    digest: bytes


class StoredDigests(Query[StoredDigestsRow], name="stored_digests", repeatable=True):
    """The digests of some messages of the session's current incarnation."""

    ids: list[str]
    shard_key: UUID
    session_key: UUID


class MakeImportTable(Query[Never], name="make_import_table"):
    """Where COPY writes to: a table of this connection alone, empty again when the transaction ends."""


class CopyImport(Query[Never], name="copy_import"):
    """Messages in their order."""


class PutImported(Query[PutRow], name="put_imported"):
    """Put the copied messages, as ``put`` does."""

    shard_key: UUID
    session_key: UUID
    claimed: bool
    session: str
    data_key: int
    act: str | None


class ResetRow(NamedTuple):
    messages: int
    ended: list[UUID] | None
    touched: list[UUID] | None


class Reset(Query[ResetRow], name="reset", repeatable=True):
    """Start the log over; with derived, forget the derived memory."""

    shard_key: UUID
    session_key: UUID
    derived: bool
    act: str | None
