"""The statements of ``schemas/sql/facts_edit.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    FactIdRow,
    FactTextRow,
    GenerationIdRow,
    RecordedRow,
    WasDeletedRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class OpenFactLanesRow(NamedTuple):
    erasure: int | None
    first_data_key: int


class OpenFactLanes(Query[OpenFactLanesRow], name="open_fact_lanes", repeatable=True):
    """Insert the rows of the owner's merge lanes, for every derivation that is kept, so that they can be
    locked (open_fact_lanes_v1); returns the erasure that keeps the owner away, and the first data key of
    the owner's present life.
    """

    shard_key: UUID
    stage: str


class LockFactLanes(Query[GenerationIdRow], name="lock_fact_lanes", repeatable=True):
    """Keep merges of this owner, and other edits, from writing until this transaction ends: in the order of
    the derivations, and so only where all of them have their row.  What this transaction does to them is
    noted. No other derivation begins to serve in the meantime (lock_pipeline): an edit gives back what it
    did where it did it.
    """

    shard_key: UUID
    stage: str


class FactDerivationsRow(NamedTuple):
    generation_id: int
    serving: bool


class FactDerivations(Query[FactDerivationsRow], name="fact_derivations", repeatable=True):
    """The derivations of facts that are kept, and which of them serves the owner."""

    shard_key: UUID


class RecordFactEvent(Query[RecordedRow], name="record_fact_event"):
    """Record a person's change as the owner's next event, with what workers have not read by then: it was
    said before, also where a sender's clock is fast. instruction: the event of the instruction that asks
    for it, if one does.
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
            Mark(4, "traces"),
        ),
    )
    shard_key: UUID
    kind: str
    fact_id: UUID | None
    payload: str | None
    traces: str | None
    actor: str | None
    instruction: UUID | None


class FactWasDeleted(Query[WasDeletedRow], name="fact_was_deleted", repeatable=True):
    """Whether a person or an agent deleted the owner's fact of this id."""

    shard_key: UUID
    fact_id: UUID


class AddedFacts(Query[FactIdRow], name="added_facts", repeatable=True):
    """Which of these ids people's events have added facts under, whatever became of the facts."""

    shard_key: UUID
    fact_ids: list[UUID]


class NameFactOwner(Query[Never], name="name_fact_owner", repeatable=True):
    """Record the namespace of an owner whom people give facts; there may be no session that names it."""

    shard_key: UUID
    namespace: str
    user_id: str | None


class OwnersWithFactsRow(NamedTuple):
    shard_key: UUID
    live: int
    is_new: bool


class OwnersWithFacts(Query[OwnersWithFactsRow], name="owners_with_facts", repeatable=True):
    """The next owners of a namespace who have facts, or may come to: each with how many are live, and whether
    there is anything new since they were last cleared.
    """

    namespace: str
    after: UUID
    limit: int


class FactEventsRow(NamedTuple):
    number: int
    kind: str
    fact_id: UUID | None
    payload: str | None
    traces: str
    waiting: str
    created_at: datetime


class FactEvents(Query[FactEventsRow], name="fact_events", repeatable=True):
    """All events of people on an owner's facts, in order."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
            Mark(4, "traces"),
        ),
    )
    shard_key: UUID


class DecidingFactEventsRow(NamedTuple):
    number: int
    kind: str
    fact_id: UUID | None
    traces: str
    waiting: str
    actor: str | None
    created_at: datetime


class DecidingFactEvents(Query[DecidingFactEventsRow], name="deciding_fact_events", repeatable=True):
    """The deletions, corrections and clearings that may concern some candidates: by words or by session; of
    their traces only those that do.
    """

    marks = Marks(
        owner=3,
        seals=(
            Mark(0, "hex"),
            Mark(2, "query"),
        ),
        opens=(Mark(3, "traces"),),
    )
    fingerprints: list[str]
    session_keys: list[UUID]
    lexemes: list[str]
    shard_key: UUID
    fact_ids: list[UUID]


class BlankFactEvents(Query[Never], name="blank_fact_events", repeatable=True):
    """Remove the text from earlier events of deleted facts (NULL: of all): by their ids, or by the numbers of
    the events that worded them.
    """

    fact_ids: list[UUID] | None
    shard_key: UUID
    number: int
    numbers: list[int]


class FactTracesRow(NamedTuple):
    root: UUID
    traces: str


class FactTraces(Query[FactTracesRow], name="fact_traces", repeatable=True):
    """The traces of facts: each wording with its messages, including those of facts condensed into them."""

    marks = Marks(owner=1, opens=(Mark(1, "traces"),))
    fact_ids: list[UUID]
    shard_key: UUID
    generation_id: int


class TwinSessionsRow(NamedTuple):
    session_key: UUID
    twin_key: UUID
    through_seq: int


class TwinSessions(Query[TwinSessionsRow], name="twin_sessions", repeatable=True):
    """The sessions that hold copies of delivered messages of others by a fork, or what those are copies of:
    with the last one.
    """

    shard_key: UUID
    session_keys: list[UUID]


class LockSessionLanes(Query[GenerationIdRow], name="lock_session_lanes", repeatable=True):
    """Lock the lanes of an owner and of some sessions, in the order of all who lock several."""

    shard_key: UUID
    session_keys: list[UUID]


class LiveFacts(Query[FactIdRow], name="live_facts", repeatable=True):
    """The ids of an owner's live facts in one derivation."""

    shard_key: UUID
    generation_id: int


class OwnFactTracesRow(NamedTuple):
    fact_id: UUID
    traces: str


class OwnFactTraces(Query[OwnFactTracesRow], name="own_fact_traces", repeatable=True):
    """The traces of facts: each wording with its messages; a condensed one by its words, because its messages
    are those of its parts.
    """

    marks = Marks(owner=0, opens=(Mark(1, "traces"),))
    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]


class Uncondense(Query[FactIdRow], name="uncondense", repeatable=True):
    """Take apart the condensed facts that hold these; return the facts that are live again, or separate now."""

    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]


class FactsThatHold(Query[FactIdRow], name="facts_that_hold", repeatable=True):
    """For each of some facts the one that it was condensed into in the end, or the fact itself."""

    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]


class FactsOfTracesRow(NamedTuple):
    fact_id: UUID
    text: str
    live: bool


class FactsOfTraces(Query[FactsOfTracesRow], name="facts_of_traces", repeatable=True):
    """Facts of one derivation that once had these words, or come from these sessions, even if they were
    condensed; except those that were said again, or worded by a person, since then.
    """

    marks = Marks(owner=0, seals=(Mark(2, "hex"),), opens=(Mark(1, "text", "fact"),))
    shard_key: UUID
    generation_id: int
    fingerprints: list[str]
    session_keys: list[UUID]
    number: int
    at: datetime


class LiveFactLike(Query[FactIdRow], name="live_fact_like", repeatable=True):
    """The live fact that says the same words."""

    marks = Marks(owner=0, seals=(Mark(2, "digest"),))
    shard_key: UUID
    generation_id: int
    fingerprint: bytes


class NearFacts(Query[FactTextRow], name="near_facts", repeatable=True):
    """The live facts that share most words or kinds with a text, closest first."""

    marks = Marks(owner=1, seals=(Mark(0, "query"),), opens=(Mark(1, "text", "fact"),))
    lexemes: list[str]
    shard_key: UUID
    generation_id: int
    limit: int


class FindFactRow(NamedTuple):
    fact_id: UUID
    text: str
    live: bool
    created_at: datetime
    valid_from: datetime
    said_at: datetime
    topics: list[str]
    about_date: date | None
    doubts: UUID | None
    worded_by: int | None


class FindFact(Query[FindFactRow], name="find_fact", repeatable=True):
    """One fact of one derivation, the fact that its doubt concerns, and by which event people last worded it."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(6, "name", "topic"),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class FactsUntil(Query[FactIdRow], name="facts_until", repeatable=True):
    """All facts that were there, or were said, up to a moment; except those that a person's event since then
    worded, such as an imported one, which is older than its event.
    """

    shard_key: UUID
    generation_id: int
    until: datetime
    number: int


class WriteFact(Query[FactIdRow], name="write_fact", repeatable=True):
    """Insert a fact as a person worded it; no row if it exists already, or if another fact has these words."""

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
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    about_date: date | None
    at: datetime
    valid_from: datetime
    created_at: datetime
    input: str | None
    agent_id: str | None
    team_id: str | None
    number: int


class RewordFact(Query[FactIdRow], name="reword_fact", repeatable=True):
    """Give a fact a person's words; valid_from and created_at stay. If it had ended in this derivation, it is
    live again: the person says so.
    """

    marks = Marks(
        owner=6,
        seals=(
            Mark(0, "text", "fact"),
            Mark(1, "digest"),
            Mark(2, "word"),
            Mark(3, "name", "topic"),
        ),
    )
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    about_date: date | None
    at: datetime
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class RepeatFact(Query[Never], name="repeat_fact", repeatable=True):
    """A person adds a fact that is known already: it gets the person's other values, and is no longer
    doubtful.
    """

    marks = Marks(
        owner=6,
        seals=(
            Mark(1, "name", "topic"),
            Mark(3, "text", "input"),
        ),
    )
    at: datetime
    topics: list[str]
    about_date: date | None
    input: str | None
    agent_id: str | None
    team_id: str | None
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class MarkDoubt(Query[Never], name="mark_doubt", repeatable=True):
    """A person's or agent's fact may contradict another one; not if an event since then has worded it."""

    doubt_reason: str | None
    doubt_fact_id: UUID | None
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    number: int


class ReviseByPerson(Query[Never], name="revise_by_person", repeatable=True):
    """The person's event in the fact's history."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(4, "text", "fact"),
            Mark(5, "digest"),
            Mark(6, "word"),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    operation: str
    text: str
    fingerprint: bytes
    lexemes: list[str]
    number: int


class SetFeedback(Query[Never], name="set_feedback", repeatable=True):
    """Record people's opinion of a fact."""

    marks = Marks(owner=1, seals=(Mark(0, "text", "feedback"),))
    feedback: str | None
    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]


class RemoveFactsRow(NamedTuple):
    fact_id: UUID
    live: bool
    worded_by: list[int]


class RemoveFacts(Query[RemoveFactsRow], name="remove_facts", repeatable=True):
    """Delete facts, each with those condensed into it; return which, whether they were live, and the events
    by which people had worded them.
    """

    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]
    number: int


class OwnerTopicsRow(NamedTuple):
    topic: str
    facts: int


class OwnerTopics(Query[OwnerTopicsRow], name="owner_topics", repeatable=True):
    """The topics of an owner's live facts, the most frequent first, each with the number of its facts."""

    marks = Marks(owner=0, opens=(Mark(0, "name", "topic"),))
    shard_key: UUID
    limit: int


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
    is_doubtful: bool
    doubt_operation: str | None
    doubt_reason: str | None
    doubt_fact_id: UUID | None
    created_at: datetime
    updated_at: datetime
    revisions: str | None


class ListFacts(Query[ListFactsRow], name="list_facts", repeatable=True):
    """A page of an owner's facts with where each came from, up to the one that fills it, and how many there
    are in all; always one row.
    """

    marks = Marks(
        owner=0,
        seals=(Mark(3, "name", "topic"),),
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "name", "topic"),
            Mark(5, "name", "said_by"),
            Mark(13, "text", "input"),
            Mark(16, "text", "feedback"),
            Mark(23, "within", "*.text=text:fact"),
        ),
    )
    shard_key: UUID
    with_invalidated: bool
    fact_ids: list[UUID] | None
    topics: list[str] | None
    agent_id: str | None
    team_id: str | None
    doubtful: bool
    since: datetime | None
    until: datetime | None
    sort: str
    after_id: UUID | None
    after_at: datetime | None
    after_made: datetime | None
    limit: int
    offset: int
    page_bytes: int


class FactTexts(Query[FactTextRow], name="fact_texts", repeatable=True):
    """A page of the texts of an owner's facts, for a search by substring."""

    marks = Marks(owner=0, opens=(Mark(1, "text", "fact"),))
    shard_key: UUID
    with_invalidated: bool
    after: UUID
    limit: int


class FactsAsTheyAreRow(NamedTuple):
    fact_id: UUID
    text: str
    fingerprint: bytes


class FactsAsTheyAre(Query[FactsAsTheyAreRow], name="facts_as_they_are", repeatable=True):
    """The words of facts that a merge was planned with, as they are now."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(2, "fingerprint", "", 1),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]
