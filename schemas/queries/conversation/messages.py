"""The statements of ``schemas/sql/messages.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class PutOneRow(NamedTuple):
    seq: int


class PutOne(Query[PutOneRow]):
    """Accept one message in the simple case: the session exists, the message is not part of its head, crosses
    none of its marks, ends no turn that is to be delivered, no watch has to be planned, and the audit
    trail does not record puts. Without a row nothing was done, and put_v1 decides. It also decides if the
    id was used before: the unique index refuses it then, which undoes all of this.
    """

    __slots__ = ()
    name = "put_one"
    repeatable = True
    row = PutOneRow

    def __init__(
        self,
        *,
        tokens: int,
        bytes: int,
        role: str,
        shard_key: UUID,
        session_key: UUID,
        calls: str | None,
        data_key: int,
        id: str,
        digest: bytes,
        envelope: str,
        metadata: str | None,
        answers: str | None,
        created_at: datetime | None,
        labels: list[int] | None,
    ) -> None:
        self.values = (
            tokens,
            bytes,
            role,
            shard_key,
            session_key,
            calls,
            data_key,
            id,
            digest,
            envelope,
            metadata,
            answers,
            created_at,
            labels,
        )


class PutManyRow(NamedTuple):
    session_key: str
    seq: int


class PutMany(Query[PutManyRow]):
    """The same for one message into each of several sessions, all different, in one commit; returns the
    sessions whose message was stored. A message whose id was used before is left out, and one whose
    session is locked: so it keeps no other waiting, and two such statements never wait for each other.
    (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
    another: their sizes are unknown to the planner, which would compare all with all.)
    """

    __slots__ = ()
    name = "put_many"
    repeatable = True
    row = PutManyRow

    def __init__(self, *, messages: str) -> None:
        self.values = (messages,)


class PutRow(NamedTuple):
    status: str
    detail: str | None
    seqs: list[int | None] | None
    to_flush: str | None
    is_recorded: bool | None


class Put(Query[PutRow]):
    """Accept messages: one round trip."""

    __slots__ = ()
    name = "put"
    repeatable = True
    row = PutRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        claimed: bool,
        session: str,
        ids: list[str],
        roles: list[str],
        tokens: list[int],
        bytes: list[int],
        digests: list[bytes],
        envelopes: list[str],
        metadata: list[str | None],
        created_at: list[datetime | None],
        calls: list[str | None],
        answers: list[str | None],
        labels: list[str | None],
        data_key: int,
        act: str | None,
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            claimed,
            session,
            ids,
            roles,
            tokens,
            bytes,
            digests,
            envelopes,
            metadata,
            created_at,
            calls,
            answers,
            labels,
            data_key,
            act,
        )


class HistoryRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class History(Query[HistoryRow]):
    """A page of the whole log, in order, cut off by count and bytes; one message at least."""

    __slots__ = ()
    name = "history"
    repeatable = True
    row = HistoryRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, after_seq: int, page_size: int, page_bytes: int
    ) -> None:
        self.values = (shard_key, session_key, after_seq, page_size, page_bytes)


class MessagesWithIdsRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class MessagesWithIds(Query[MessagesWithIdsRow]):
    """Messages of an owner's sessions, or of one of them, by their ids: those that reads may show."""

    __slots__ = ()
    name = "messages_with_ids"
    repeatable = True
    row = MessagesWithIdsRow
    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, ids: list[str], shard_key: UUID, scope_key: UUID | None) -> None:
        self.values = (ids, shard_key, scope_key)


class LogStateRow(NamedTuple):
    incarnation: UUID
    corrections: int


class LogState(Query[LogStateRow]):
    """By which it is known that nothing of a log was taken back, replaced or reset."""

    __slots__ = ()
    name = "log_state"
    repeatable = True
    row = LogStateRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class NewestSeqsRow(NamedTuple):
    seq: int


class NewestSeqs(Query[NewestSeqsRow]):
    """The numbers of the newest messages of a log, the newest first; without a filter, so the primary key has
    all of it.
    """

    __slots__ = ()
    name = "newest_seqs"
    repeatable = True
    row = NewestSeqsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, limit: int, offset: int) -> None:
        self.values = (shard_key, session_key, limit, offset)


class RecentMatchesRow(NamedTuple):
    scanned: int
    seq: int | None


class RecentMatches(Query[RecentMatchesRow]):
    """Of the newest messages, as many as are looked at, the numbers of those that a filter lets pass, the
    newest first. One row at least, which says how many there were to look at: fewer than asked for are the
    whole log.
    """

    __slots__ = ()
    name = "recent_matches"
    repeatable = True
    row = RecentMatchesRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(6, "label", "", 1),
            Mark(7, "transition"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        scan: int,
        roles: list[str],
        since: datetime | None,
        until: datetime | None,
        labels: list[int] | None,
        clear_labels: list[int] | None,
        limit: int,
        offset: int,
    ) -> None:
        self.values = (shard_key, session_key, scan, roles, since, until, labels, clear_labels, limit, offset)


class MatchesByRoleRow(NamedTuple):
    seq: int


class MatchesByRole(Query[MatchesByRoleRow]):
    """The numbers of the newest messages of some roles and a time, the newest first. The index over roles and
    times leads to what matches alone; in the order of the log all of it might have to be read. Here and
    below, the keys are compared in a form that no other index serves: the planner cannot know how many
    messages a session has, and with the usual number in mind it would read all of a long one's.
    """

    __slots__ = ()
    name = "matches_by_role"
    repeatable = True
    row = MatchesByRoleRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        roles: list[str],
        since: datetime | None,
        until: datetime | None,
        limit: int,
        offset: int,
    ) -> None:
        self.values = (shard_key, session_key, roles, since, until, limit, offset)


class MatchesByLabelRow(NamedTuple):
    seq: int


class MatchesByLabel(Query[MatchesByLabelRow]):
    """The same of messages whose metadata has all of some labels, whose numbers differ from session to
    session. While some of the owner's messages may not be sealed yet, their labels are looked for as well.
    """

    __slots__ = ()
    name = "matches_by_label"
    repeatable = True
    row = MatchesByLabelRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(2, "label", "", 1),
            Mark(3, "transition"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        labels: list[int],
        clear_labels: list[int] | None,
        roles: list[str],
        since: datetime | None,
        until: datetime | None,
        limit: int,
        offset: int,
    ) -> None:
        self.values = (shard_key, session_key, labels, clear_labels, roles, since, until, limit, offset)


class MessagesBySeqRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class MessagesBySeq(Query[MessagesBySeqRow]):
    """Some messages of a session by their numbers, in order."""

    __slots__ = ()
    name = "messages_by_seq"
    repeatable = True
    row = MessagesBySeqRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, seqs: list[int]) -> None:
        self.values = (shard_key, session_key, seqs)


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


class MessagesInOrder(Query[MessagesInOrderRow]):
    """Some messages of a session, in the order of the numbers given, up to the one that fills a page."""

    __slots__ = ()
    name = "messages_in_order"
    repeatable = True
    row = MessagesInOrderRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, seqs: list[int], page_bytes: int) -> None:
        self.values = (shard_key, session_key, seqs, page_bytes)


class BytesOfMessagesRow(NamedTuple):
    bytes: int


class BytesOfMessages(Query[BytesOfMessagesRow]):
    """How much some messages of a session have together."""

    __slots__ = ()
    name = "bytes_of_messages"
    repeatable = True
    row = BytesOfMessagesRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seqs: list[int]) -> None:
        self.values = (shard_key, session_key, seqs)


class NewestWithinRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    bytes_taken: int


class NewestWithin(Query[NewestWithinRow]):
    """A page of messages behind the prompt, the newest first, as far as they fit so many tokens together, up
    to the one that fills max_bytes; a message takes some beside its texts.
    """

    __slots__ = ()
    name = "newest_within"
    repeatable = True
    row = NewestWithinRow
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
        before_seq: int,
        page_size: int,
        tokens: int,
        max_bytes: int,
    ) -> None:
        self.values = (shard_key, session_key, before_seq, page_size, tokens, max_bytes)


class HeadMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class HeadMessages(Query[HeadMessagesRow]):
    """The pinned head of a session, in order, or what replaced it."""

    __slots__ = ()
    name = "head_messages"
    repeatable = True
    row = HeadMessagesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class NewestMessageRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class NewestMessage(Query[NewestMessageRow]):
    """The message that a pop would remove."""

    __slots__ = ()
    name = "newest_message"
    repeatable = True
    row = NewestMessageRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class PartedCallRow(NamedTuple):
    call_seq: int
    result_seq: int


class PartedCall(Query[PartedCallRow]):
    """The call and the last of its results that a cut before a number would part, if nobody spoke between; no
    row if none.
    """

    __slots__ = ()
    name = "parted_call"
    repeatable = True
    row = PartedCallRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


class PopRow(NamedTuple):
    status: str


class Pop(Query[PopRow]):
    """Remove it, if it is still the newest, and was not delivered."""

    __slots__ = ()
    name = "pop"
    repeatable = True
    row = PopRow

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, seq: int, pop_id: UUID, act: str | None
    ) -> None:
        self.values = (shard_key, session_key, seq, pop_id, act)


class MessageAtRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    digest: bytes


class MessageAt(Query[MessageAtRow]):
    """A message by its number, with all that a replacement keeps; and whether the session exists."""

    __slots__ = ()
    name = "message_at"
    repeatable = True
    row = MessageAtRow
    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, seq: int, shard_key: UUID, session_key: UUID) -> None:
        self.values = (seq, shard_key, session_key)


class FindCorrectionRow(NamedTuple):
    session_key: UUID
    number: int
    kind: str
    from_seq: int
    through_seq: int
    is_of_content: bool
    seqs: list[int]
    created_at: datetime


class FindCorrection(Query[FindCorrectionRow]):
    """A correction by its id, with the messages that it concerned."""

    __slots__ = ()
    name = "find_correction"
    repeatable = True
    row = FindCorrectionRow
    marks = Marks(
        owner=2,
        seals=(
            Mark(0, "digest"),
            Mark(1, "transition"),
        ),
    )

    def __init__(
        self, *, digest: bytes, clear_digest: bytes | None, shard_key: UUID, correction_id: UUID
    ) -> None:
        self.values = (digest, clear_digest, shard_key, correction_id)


class CorrectRow(NamedTuple):
    status: str
    number: int
    from_seq: int
    through_seq: int
    seqs: list[int]
    created_at: datetime
    is_shared: bool
    touched: list[UUID]


class Correct(Query[CorrectRow]):
    """Take back the messages from a number on, or give one other content (correct_v1)."""

    __slots__ = ()
    name = "correct"
    repeatable = True
    row = CorrectRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(7, "digest"),
            Mark(10, "digest"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        correction_id: UUID,
        kind: str,
        from_seq: int,
        newest: int | None,
        corrections: int | None,
        content: bytes | None,
        actor: str | None,
        expected: bytes | None,
        digest: bytes | None,
        envelope: str | None,
        tokens: int | None,
        bytes: int | None,
        act: str | None,
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            correction_id,
            kind,
            from_seq,
            newest,
            corrections,
            content,
            actor,
            expected,
            digest,
            envelope,
            tokens,
            bytes,
            act,
        )


class KnownMessagesRow(NamedTuple):
    messages: int
    differing: list[str]


class KnownMessages(Query[KnownMessagesRow]):
    """How many of these ids exist in the session's current incarnation, and which of them with another
    digest. keyed_digests: their form where the owner's content is sealed.
    """

    __slots__ = ()
    name = "known_messages"
    repeatable = True
    row = KnownMessagesRow

    def __init__(
        self,
        *,
        ids: list[str],
        digests: list[bytes],
        keyed_digests: list[bytes],
        shard_key: UUID,
        session_key: UUID,
    ) -> None:
        self.values = (ids, digests, keyed_digests, shard_key, session_key)


class StoredDigestsRow(NamedTuple):
    id: str
    digest: bytes


class StoredDigests(Query[StoredDigestsRow]):
    """The digests of some messages of the session's current incarnation."""

    __slots__ = ()
    name = "stored_digests"
    repeatable = True
    row = StoredDigestsRow

    def __init__(self, *, ids: list[str], shard_key: UUID, session_key: UUID) -> None:
        self.values = (ids, shard_key, session_key)


class MakeImportTable(Query[Never]):
    """Where COPY writes to: a table of this connection alone, empty again when the transaction ends."""

    __slots__ = ()
    name = "make_import_table"


class CopyImport(Query[Never]):
    """Messages in their order."""

    __slots__ = ()
    name = "copy_import"


class PutImportedRow(NamedTuple):
    status: str
    detail: str | None
    seqs: list[int | None] | None
    to_flush: str | None
    is_recorded: bool | None


class PutImported(Query[PutImportedRow]):
    """Put what was copied, as ``put`` does."""

    __slots__ = ()
    name = "put_imported"
    row = PutImportedRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        claimed: bool,
        session: str,
        data_key: int,
        act: str | None,
    ) -> None:
        self.values = (shard_key, session_key, claimed, session, data_key, act)


class ResetRow(NamedTuple):
    messages: int
    ended: list[UUID] | None
    touched: list[UUID] | None


class Reset(Query[ResetRow]):
    """Start the log over; with derived, forget the derived memory."""

    __slots__ = ()
    name = "reset"
    repeatable = True
    row = ResetRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, derived: bool, act: str | None) -> None:
        self.values = (shard_key, session_key, derived, act)
