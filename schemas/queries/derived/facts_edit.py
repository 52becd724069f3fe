"""The statements of ``schemas/sql/facts_edit.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class OpenFactLanesRow(NamedTuple):
    erasure: int | None
    first_data_key: int


class OpenFactLanes(Query[OpenFactLanesRow]):
    """Insert the rows of the owner's merge lanes, for every derivation that is kept, so that they can be
    locked (open_fact_lanes_v1); returns the erasure that keeps the owner away, and the first data key of
    the owner's present life.
    """

    __slots__ = ()
    name = "open_fact_lanes"
    repeatable = True
    row = OpenFactLanesRow

    def __init__(self, *, shard_key: UUID, stage: str) -> None:
        self.values = (shard_key, stage)


class LockFactLanesRow(NamedTuple):
    generation_id: int


class LockFactLanes(Query[LockFactLanesRow]):
    """Keep merges of this owner, and other edits, from writing until this transaction ends: in the order of
    the derivations, and so only where all of them have their row.  What this transaction does to them is
    noted. No other derivation begins to serve meanwhile (lock_pipeline): an edit gives back what it did
    where it did it.
    """

    __slots__ = ()
    name = "lock_fact_lanes"
    repeatable = True
    row = LockFactLanesRow

    def __init__(self, *, shard_key: UUID, stage: str) -> None:
        self.values = (shard_key, stage)


class FactDerivationsRow(NamedTuple):
    generation_id: int
    serving: bool


class FactDerivations(Query[FactDerivationsRow]):
    """The derivations of facts that are kept, and which of them serves the owner."""

    __slots__ = ()
    name = "fact_derivations"
    repeatable = True
    row = FactDerivationsRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class RecordFactEventRow(NamedTuple):
    number: int
    created_at: datetime


class RecordFactEvent(Query[RecordFactEventRow]):
    """Record a person's change as the owner's next event. instruction: the event of the instruction that asks
    for it, if one does.
    """

    __slots__ = ()
    name = "record_fact_event"
    row = RecordFactEventRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
            Mark(4, "traces"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        kind: str,
        fact_id: UUID | None,
        payload: str | None,
        traces: str | None,
        actor: str | None,
        instruction: UUID | None,
    ) -> None:
        self.values = (shard_key, kind, fact_id, payload, traces, actor, instruction)


class FactWasDeletedRow(NamedTuple):
    was_deleted: bool


class FactWasDeleted(Query[FactWasDeletedRow]):
    """Whether a person or an agent deleted the owner's fact of this id."""

    __slots__ = ()
    name = "fact_was_deleted"
    repeatable = True
    row = FactWasDeletedRow

    def __init__(self, *, shard_key: UUID, fact_id: UUID) -> None:
        self.values = (shard_key, fact_id)


class AddedFactsRow(NamedTuple):
    fact_id: UUID


class AddedFacts(Query[AddedFactsRow]):
    """Which of these ids people's events have added facts under, whatever became of the facts."""

    __slots__ = ()
    name = "added_facts"
    repeatable = True
    row = AddedFactsRow

    def __init__(self, *, shard_key: UUID, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, fact_ids)


class NameFactOwner(Query[Never]):
    """Record the namespace of an owner whom people give facts; there may be no session that names it."""

    __slots__ = ()
    name = "name_fact_owner"
    repeatable = True

    def __init__(self, *, shard_key: UUID, namespace: str, user_id: str | None) -> None:
        self.values = (shard_key, namespace, user_id)


class OwnersWithFactsRow(NamedTuple):
    shard_key: UUID
    live: int
    is_new: bool


class OwnersWithFacts(Query[OwnersWithFactsRow]):
    """The next owners of a namespace who have facts, or may come to: each with how many are live, and whether
    there is anything new since they were last cleared.
    """

    __slots__ = ()
    name = "owners_with_facts"
    repeatable = True
    row = OwnersWithFactsRow

    def __init__(self, *, namespace: str, after: UUID, limit: int) -> None:
        self.values = (namespace, after, limit)


class FactEventsRow(NamedTuple):
    number: int
    kind: str
    fact_id: UUID | None
    payload: str | None
    traces: str
    created_at: datetime


class FactEvents(Query[FactEventsRow]):
    """All events of people on an owner's facts, in order."""

    __slots__ = ()
    name = "fact_events"
    repeatable = True
    row = FactEventsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
            Mark(4, "traces"),
        ),
    )

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class DecidingFactEventsRow(NamedTuple):
    number: int
    kind: str
    fact_id: UUID | None
    traces: str
    created_at: datetime


class DecidingFactEvents(Query[DecidingFactEventsRow]):
    """The deletions, corrections and clearings that may concern some candidates: by words or by session."""

    __slots__ = ()
    name = "deciding_fact_events"
    repeatable = True
    row = DecidingFactEventsRow
    marks = Marks(owner=0, seals=(Mark(2, "hex"),), opens=(Mark(3, "traces"),))

    def __init__(
        self, *, shard_key: UUID, fact_ids: list[UUID], fingerprints: list[str], session_keys: list[UUID]
    ) -> None:
        self.values = (shard_key, fact_ids, fingerprints, session_keys)


class BlankFactEvents(Query[Never]):
    """Remove the text from earlier events of deleted facts (NULL: of all): by their ids, or by the numbers of
    the events that worded them.
    """

    __slots__ = ()
    name = "blank_fact_events"
    repeatable = True

    def __init__(
        self, *, fact_ids: list[UUID] | None, shard_key: UUID, number: int, numbers: list[int]
    ) -> None:
        self.values = (fact_ids, shard_key, number, numbers)


class FactTracesRow(NamedTuple):
    root: UUID
    traces: str


class FactTraces(Query[FactTracesRow]):
    """The traces of facts: each wording with its messages, including those of facts condensed into them."""

    __slots__ = ()
    name = "fact_traces"
    repeatable = True
    row = FactTracesRow
    marks = Marks(owner=1, opens=(Mark(1, "traces"),))

    def __init__(self, *, fact_ids: list[UUID], shard_key: UUID, generation_id: int) -> None:
        self.values = (fact_ids, shard_key, generation_id)


class OwnFactTracesRow(NamedTuple):
    fact_id: UUID
    traces: str


class OwnFactTraces(Query[OwnFactTracesRow]):
    """The traces of facts: each wording with its messages; a condensed one by its words, because its messages
    are those of its parts.
    """

    __slots__ = ()
    name = "own_fact_traces"
    repeatable = True
    row = OwnFactTracesRow
    marks = Marks(owner=0, opens=(Mark(1, "traces"),))

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, generation_id, fact_ids)


class UncondenseRow(NamedTuple):
    fact_id: UUID


class Uncondense(Query[UncondenseRow]):
    """Take apart the condensed facts that hold these; return the facts that are live again, or separate now."""

    __slots__ = ()
    name = "uncondense"
    repeatable = True
    row = UncondenseRow

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, generation_id, fact_ids)


class FactsThatHoldRow(NamedTuple):
    fact_id: UUID


class FactsThatHold(Query[FactsThatHoldRow]):
    """For each of some facts the one that it was condensed into in the end, or the fact itself."""

    __slots__ = ()
    name = "facts_that_hold"
    repeatable = True
    row = FactsThatHoldRow

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, generation_id, fact_ids)


class FactsOfTracesRow(NamedTuple):
    fact_id: UUID
    text: str
    live: bool


class FactsOfTraces(Query[FactsOfTracesRow]):
    """Facts of one derivation that once had these words, or come from these sessions, even if they were
    condensed; except those that were said again, or worded by a person, since then.
    """

    __slots__ = ()
    name = "facts_of_traces"
    repeatable = True
    row = FactsOfTracesRow
    marks = Marks(owner=0, seals=(Mark(2, "hex"),), opens=(Mark(1, "text", "fact"),))

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        fingerprints: list[str],
        session_keys: list[UUID],
        number: int,
        at: datetime,
    ) -> None:
        self.values = (shard_key, generation_id, fingerprints, session_keys, number, at)


class LiveFactLikeRow(NamedTuple):
    fact_id: UUID


class LiveFactLike(Query[LiveFactLikeRow]):
    """The live fact that says the same words."""

    __slots__ = ()
    name = "live_fact_like"
    repeatable = True
    row = LiveFactLikeRow
    marks = Marks(owner=0, seals=(Mark(2, "digest"),))

    def __init__(self, *, shard_key: UUID, generation_id: int, fingerprint: bytes) -> None:
        self.values = (shard_key, generation_id, fingerprint)


class FindFactRow(NamedTuple):
    fact_id: UUID
    text: str
    live: bool
    created_at: datetime
    valid_from: datetime
    topics: list[str]
    about_date: date | None
    worded_by: int | None


class FindFact(Query[FindFactRow]):
    """One fact of one derivation, and by which event people last worded it."""

    __slots__ = ()
    name = "find_fact"
    repeatable = True
    row = FindFactRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(5, "name", "topic"),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID) -> None:
        self.values = (shard_key, generation_id, fact_id)


class FactsUntilRow(NamedTuple):
    fact_id: UUID


class FactsUntil(Query[FactsUntilRow]):
    """All facts that were there, or were said, up to a moment; except those that a person's event since then
    worded, such as an imported one, which is older than its event.
    """

    __slots__ = ()
    name = "facts_until"
    repeatable = True
    row = FactsUntilRow

    def __init__(self, *, shard_key: UUID, generation_id: int, until: datetime, number: int) -> None:
        self.values = (shard_key, generation_id, until, number)


class WriteFactRow(NamedTuple):
    fact_id: UUID


class WriteFact(Query[WriteFactRow]):
    """Insert a fact as a person worded it; no row if it exists already, or if another fact has these words."""

    __slots__ = ()
    name = "write_fact"
    repeatable = True
    row = WriteFactRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(3, "text", "fact"),
            Mark(4, "digest"),
            Mark(5, "word"),
            Mark(6, "name", "topic"),
            Mark(11, "text", "input"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        topics: list[str],
        about_date: date | None,
        at: datetime,
        valid_from: datetime,
        created_at: datetime,
        input: str | None,
        agent_id: str | None,
        team_id: str | None,
        number: int,
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            fact_id,
            text,
            fingerprint,
            lexemes,
            topics,
            about_date,
            at,
            valid_from,
            created_at,
            input,
            agent_id,
            team_id,
            number,
        )


class RewordFactRow(NamedTuple):
    fact_id: UUID


class RewordFact(Query[RewordFactRow]):
    """Give a fact a person's words; valid_from and created_at stay. If it had ended in this derivation, it is
    live again: the person says so.
    """

    __slots__ = ()
    name = "reword_fact"
    repeatable = True
    row = RewordFactRow
    marks = Marks(
        owner=6,
        seals=(
            Mark(0, "text", "fact"),
            Mark(1, "digest"),
            Mark(2, "word"),
            Mark(3, "name", "topic"),
        ),
    )

    def __init__(
        self,
        *,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        topics: list[str],
        about_date: date | None,
        at: datetime,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
    ) -> None:
        self.values = (text, fingerprint, lexemes, topics, about_date, at, shard_key, generation_id, fact_id)


class RepeatFact(Query[Never]):
    """A person adds a fact that is known already: it gets the person's other values."""

    __slots__ = ()
    name = "repeat_fact"
    repeatable = True
    marks = Marks(
        owner=6,
        seals=(
            Mark(1, "name", "topic"),
            Mark(3, "text", "input"),
        ),
    )

    def __init__(
        self,
        *,
        at: datetime,
        topics: list[str],
        about_date: date | None,
        input: str | None,
        agent_id: str | None,
        team_id: str | None,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
    ) -> None:
        self.values = (at, topics, about_date, input, agent_id, team_id, shard_key, generation_id, fact_id)


class ReviseByPerson(Query[Never]):
    """The person's event in the fact's history."""

    __slots__ = ()
    name = "revise_by_person"
    repeatable = True
    marks = Marks(
        owner=0,
        seals=(
            Mark(4, "text", "fact"),
            Mark(5, "digest"),
            Mark(6, "word"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        operation: str,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        number: int,
    ) -> None:
        self.values = (shard_key, generation_id, fact_id, operation, text, fingerprint, lexemes, number)


class SetFeedback(Query[Never]):
    """Record people's opinion of a fact."""

    __slots__ = ()
    name = "set_feedback"
    repeatable = True
    marks = Marks(owner=1, seals=(Mark(0, "text", "feedback"),))

    def __init__(
        self, *, feedback: str | None, shard_key: UUID, generation_id: int, fact_ids: list[UUID]
    ) -> None:
        self.values = (feedback, shard_key, generation_id, fact_ids)


class RemoveFactsRow(NamedTuple):
    fact_id: UUID
    live: bool
    worded_by: list[int]


class RemoveFacts(Query[RemoveFactsRow]):
    """Delete facts, each with those condensed into it; return which, whether they were live, and the events
    by which people had worded them.
    """

    __slots__ = ()
    name = "remove_facts"
    repeatable = True
    row = RemoveFactsRow

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID], number: int) -> None:
        self.values = (shard_key, generation_id, fact_ids, number)


class OwnerTopicsRow(NamedTuple):
    topic: str
    facts: int


class OwnerTopics(Query[OwnerTopicsRow]):
    """The topics of an owner's live facts, the most frequent first, each with the number of its facts."""

    __slots__ = ()
    name = "owner_topics"
    repeatable = True
    row = OwnerTopicsRow
    marks = Marks(owner=0, opens=(Mark(0, "name", "topic"),))

    def __init__(self, *, shard_key: UUID, limit: int) -> None:
        self.values = (shard_key, limit)


class ListFactsRow(NamedTuple):
    total: int
    is_cut: bool
    fact_id: UUID | None
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    condensed_into: UUID | None
    input: str | None
    agent_id: str | None
    team_id: str | None
    feedback: str | None
    created_at: datetime
    updated_at: datetime
    revisions: str | None


class ListFacts(Query[ListFactsRow]):
    """A page of an owner's facts with where each came from, up to the one that fills it, and how many there
    are in all; always one row.
    """

    __slots__ = ()
    name = "list_facts"
    repeatable = True
    row = ListFactsRow
    marks = Marks(
        owner=0,
        seals=(Mark(3, "name", "topic"),),
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "name", "topic"),
            Mark(5, "name", "said_by"),
            Mark(13, "text", "input"),
            Mark(16, "text", "feedback"),
            Mark(19, "within", "*.text=text:fact"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        with_invalidated: bool,
        fact_ids: list[UUID] | None,
        topics: list[str] | None,
        agent_id: str | None,
        team_id: str | None,
        sort: str,
        after_id: UUID | None,
        after_at: datetime | None,
        after_made: datetime | None,
        limit: int,
        offset: int,
        page_bytes: int,
    ) -> None:
        self.values = (
            shard_key,
            with_invalidated,
            fact_ids,
            topics,
            agent_id,
            team_id,
            sort,
            after_id,
            after_at,
            after_made,
            limit,
            offset,
            page_bytes,
        )


class FactTextsRow(NamedTuple):
    fact_id: UUID
    text: str


class FactTexts(Query[FactTextsRow]):
    """A page of the texts of an owner's facts, for a search by substring."""

    __slots__ = ()
    name = "fact_texts"
    repeatable = True
    row = FactTextsRow
    marks = Marks(owner=0, opens=(Mark(1, "text", "fact"),))

    def __init__(self, *, shard_key: UUID, with_invalidated: bool, after: UUID, limit: int) -> None:
        self.values = (shard_key, with_invalidated, after, limit)


class FactsAsTheyAreRow(NamedTuple):
    fact_id: UUID
    text: str
    fingerprint: bytes


class FactsAsTheyAre(Query[FactsAsTheyAreRow]):
    """The words of facts that a merge was planned with, as they are now."""

    __slots__ = ()
    name = "facts_as_they_are"
    row = FactsAsTheyAreRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(2, "fingerprint", "", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, generation_id, fact_ids)
