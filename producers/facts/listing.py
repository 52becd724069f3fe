"""Facts to show to people: one, or a page of them, each with its provenance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from strandline.producers.arguments import check_count, check_flag, check_moment
from strandline.producers.facts.edit_operations import checked_topics
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.places import place_text, read_place
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.derived.facts_edit import FactTexts, ListFacts, ListFactsRow
from strandline.schemas.queries.inspection.status import WaitingMessages
from strandline.schemas.values.doubts import doubt_sentence
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.identity import Owner, check_name
from strandline.schemas.values.normal_form import folded
from strandline.schemas.values.policy import MAX_INTEGER
from strandline.schemas.values.same_named import make_from
from strandline.schemas.values.stored_text import check_text
from strandline.schemas.values.undelivered import Undelivered

Sort = Literal["newest", "oldest", "updated"]

MAX_LIMIT = 1_000
# A page ends with the fact that fills it, however few it has.
FACTS_PAGE_BYTES = 4_000_000
# A substring is looked for in this many facts of an owner at most, a page at a time.
MAX_SCANNED_FACTS = 10_000


@dataclass(frozen=True, slots=True)
class FactRevision:
    """One change of a fact, and its provenance.

    ``operation`` is ``add``, ``update``, ``invalidate``, ``duplicate`` (said again), ``replace`` (corrected
    by a person) or ``condense``.  A derived change names its messages (``message_ids``, ``seqs``), the flush
    that delivered them (``event_id``), model and prompt; a person's change, its event (``fact_event``) and
    the ``actor``, if one was given.
    """

    operation: str
    text: str
    event_id: UUID | None
    message_ids: tuple[str, ...]
    seqs: tuple[int, ...]
    model: str | None
    prompt_hash: str | None
    fact_event: int | None
    actor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FactDoubt:
    """Why a fact is doubtful: it may contradict a known fact, and no person has settled which is true.

    Attributes:
        operation: the refused operation on the known fact: ``update`` (other words), ``invalidate`` (end it)
            or ``duplicate`` (leave it, and add nothing).
        fact_id: the known fact.
        reason: a sentence; "it" is the doubtful fact.
    """

    operation: str
    fact_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about an owner.

    Attributes:
        said_by: who said it: a name, or a role.
        about_date: the day that the fact is about, if it is one day.
        said_at: when it was last said; ``valid_from`` when first.
        valid_until: when a statement ended it; ``invalidated_by`` is the fact of that statement, and
            ``invalidated_at`` when a worker found it.
        condensed_into: the fact that replaced this one and says more.
        input, agent_id, team_id: as given by the person who added it.
        feedback: people's opinion of it.
        created_at: when it was first written; an edit changes only ``updated_at``.
        revisions: its history, of which the newest are shown, as many as 4 MB hold.
        doubt: set while it is doubtful; ``facts.settle`` ends that.
    """

    fact_id: UUID
    text: str
    topics: tuple[str, ...]
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
    namespace: str
    user_id: str | None
    revisions: tuple[FactRevision, ...]
    doubt: FactDoubt | None = None

    @property
    def id(self) -> UUID:
        """Its ``fact_id``, by the name that messages and citations have."""
        return self.fact_id

    @property
    def is_live(self) -> bool:
        return self.invalidated_at is None and self.condensed_into is None

    @property
    def is_doubtful(self) -> bool:
        """Whether it may contradict a live fact; ``doubt`` names that fact."""
        return self.doubt is not None

    @property
    def version(self) -> str:
        """Names the fact as it is: another after each change, for ``if_version``."""
        return f"{len(self.revisions)}-{int(self.updated_at.timestamp() * 1_000_000):x}"

    @property
    def message_ids(self) -> tuple[str, ...]:
        """All messages that this fact comes from, in the order in which they were processed."""
        return tuple(dict.fromkeys(i for revision in self.revisions for i in revision.message_ids))


class FactPage(list[Fact]):
    """A page of facts in order; ``total`` counts all of them.

    A page ends with the fact that fills 4 MB, which ``is_cut`` says if more were asked for.
    ``waiting``: if there are no facts, the owner's undelivered messages.
    """

    def __init__(
        self, facts: Sequence[Fact], total: int, *, is_cut: bool = False, waiting: Undelivered | None = None
    ) -> None:
        super().__init__(facts)
        self.total = total
        self.is_cut = is_cut
        self.waiting = waiting


class FilterParams(TypedDict):
    """A filter of facts, as parameters of statements."""

    topics: list[str] | None
    agent_id: str | None
    team_id: str | None


@dataclass(frozen=True, slots=True)
class FactFilter:
    """A filter of facts: live ones; with one of these topics, of this agent and team, doubtful, of a time."""

    topics: tuple[str, ...] | None = None
    agent_id: str | None = None
    team_id: str | None = None
    with_invalidated: bool = False
    doubtful: bool = False
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def check(
        cls,
        topics: Sequence[str] | None,
        agent_id: str | None,
        team_id: str | None,
        with_invalidated: bool = False,
        doubtful: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> FactFilter:
        """Check the arguments of a caller.

        Raises:
            InvalidMessageError, ConfigurationError: naming the argument.
        """
        return cls(
            topics=None if topics is None else checked_topics(topics),
            agent_id=None if agent_id is None else check_name("agent_id", agent_id),
            team_id=None if team_id is None else check_name("team_id", team_id),
            with_invalidated=check_flag("with_invalidated", with_invalidated),
            doubtful=check_flag("doubtful", doubtful),
            since=None if since is None else check_moment("since", since),
            until=None if until is None else check_moment("until", until),
        )

    @property
    def params(self) -> FilterParams:
        topics = None if self.topics is None else list(self.topics)
        return {"topics": topics, "agent_id": self.agent_id, "team_id": self.team_id}


@dataclass(frozen=True, slots=True)
class FactPlace:
    """The place of a fact in a list: its time by the order of the list, when it was made, and its id."""

    at: datetime
    created_at: datetime
    fact_id: UUID

    @classmethod
    def of(cls, fact: Fact, sort: Sort) -> FactPlace:
        """The place of a fact in a list of this order."""
        return cls(fact.updated_at if sort == "updated" else fact.said_at, fact.created_at, fact.fact_id)

    @classmethod
    def read(cls, text: str) -> FactPlace:
        """A place as ``str`` wrote it; raises ValueError for other texts."""
        return cls(*read_place(text, datetime, datetime, UUID))

    def __str__(self) -> str:
        return place_text(self.at, self.created_at, self.fact_id)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of facts to return: limit and offset, order, and a substring.

    ``is_turned``: the page in the opposite order, so that the newest few end with the newest.  ``after``: the
    page begins behind this place, even if it moved.  ``given``: in the order of the ids asked for.
    """

    limit: int
    offset: int = 0
    sort: Sort | Literal["given"] = "newest"
    contains: str | None = None
    is_turned: bool = False
    after: FactPlace | None = None

    @classmethod
    def check(
        cls,
        limit: int,
        offset: int = 0,
        sort: Sort = "newest",
        contains: str | None = None,
        first_n: int | None = None,
        last_n: int | None = None,
    ) -> PageRequest:
        """Check the arguments of a caller.

        Raises:
            ConfigurationError: a number is out of bounds.
            InvalidMessageError: another argument is wrong, which it names.
        """
        if not isinstance(sort, str) or plain_text(sort) not in ("newest", "oldest", "updated"):
            raise InvalidMessageError("sort", "must be 'newest', 'oldest' or 'updated'")
        if contains is not None:
            check_text("contains", contains)
            contains = plain_text(contains)
        # No owner has so many facts: none is missed.
        first = min(check_count("offset", offset, most=None), MAX_INTEGER)
        number = checked_limit(limit)
        if first_n is None and last_n is None:
            return cls(number, first, sort, contains)
        field = "last_n" if first_n is None else "first_n"
        if (first_n is not None and last_n is not None) or first or plain_text(sort) != "newest":
            raise InvalidMessageError(field, "excludes the other of first_n and last_n, offset and sort")
        if first_n is None:
            return cls(check_count(field, last_n, most=MAX_LIMIT), 0, "newest", contains, is_turned=True)
        return cls(check_count(field, first_n, most=MAX_LIMIT), 0, "oldest", contains)


def list_facts(
    owner: Owner, page: PageRequest, filters: FactFilter, fact_ids: Sequence[UUID] | None = None
) -> Operation[FactPage]:
    """A page of the matching facts, and their total number."""
    if page.contains:
        fact_ids = yield from _ids_containing(owner, page.contains, filters)
        page = replace(page, contains=None)
    rows = yield from fetch(
        ListFacts.of(
            filters,
            **filters.params,
            shard_key=owner.shard_key,
            fact_ids=None if fact_ids is None else list(fact_ids),
            limit=page.limit,
            offset=page.offset,
            sort=page.sort,
            page_bytes=FACTS_PAGE_BYTES,
            after_at=None if page.after is None else page.after.at,
            after_made=None if page.after is None else page.after.created_at,
            after_id=None if page.after is None else page.after.fact_id,
        )
    )
    facts, total = list(_facts(rows, owner)), rows[0].total
    waiting = None if total or fact_ids is not None else (yield from _find_waiting(owner))
    ordered = facts[::-1] if page.is_turned else facts
    return FactPage(ordered, total, is_cut=rows[0].is_cut, waiting=waiting)


def _find_waiting(owner: Owner) -> Operation[Undelivered | None]:
    (row,) = yield from fetch(WaitingMessages(shard_key=owner.shard_key))
    return Undelivered(*row) if row.messages else None


def get_fact(owner: Owner, fact_id: UUID | str) -> Operation[Fact | None]:
    """One fact of this owner, even if it ended; None if no fact has this id."""
    id_ = as_fact_id(fact_id)
    if id_ is None:
        return None
    page = yield from list_facts(owner, PageRequest(1), FactFilter(with_invalidated=True), [id_])
    return page[0] if page else None


def as_fact_id(fact_id: UUID | str) -> UUID | None:
    """An id as a UUID; None if it cannot be one."""
    if isinstance(fact_id, UUID):
        return fact_id
    if not isinstance(fact_id, str):
        return None
    try:
        return UUID(plain_text(fact_id))
    except ValueError:
        return None


def checked_limit(limit: int) -> int:
    """Check the maximum number of results, 0 to 1,000; raises ConfigurationError."""
    return check_count("limit", limit, most=MAX_LIMIT)


def _ids_containing(owner: Owner, contains: str, filters: FactFilter) -> Operation[list[UUID]]:
    """The ids of facts that contain a substring; filtered here, because SQL does not read content."""
    needle, after, ids = folded(contains), UUID(int=0), list[UUID]()
    for _ in range(0, MAX_SCANNED_FACTS, MAX_LIMIT):
        rows = yield from fetch(
            FactTexts(
                shard_key=owner.shard_key,
                with_invalidated=filters.with_invalidated,
                after=after,
                limit=MAX_LIMIT,
            )
        )
        ids += [row.fact_id for row in rows if needle in folded(row.text)]
        if len(rows) < MAX_LIMIT:
            break
        after = rows[-1].fact_id
    return ids


def _facts(rows: Iterable[ListFactsRow], owner: Owner) -> Iterator[Fact]:
    """The facts; if a page has no facts, its one row holds only the count."""
    for row in rows:
        if row.fact_id is not None:
            own = {
                "topics": tuple(row.topics),
                "namespace": owner.namespace,
                "user_id": owner.user_id,
                "revisions": tuple(_revision(item) for item in json.loads(row.revisions or "[]")),
                "doubt": _doubt(row) if row.is_doubtful else None,
            }
            yield make_from(Fact, row, **own)


def _doubt(row: ListFactsRow) -> FactDoubt:
    assert row.doubt_operation and row.doubt_fact_id and row.doubt_reason, "a check of the table"  # noqa: S101
    return FactDoubt(row.doubt_operation, row.doubt_fact_id, doubt_sentence(row.doubt_reason))


def _revision(item: Mapping[str, Any]) -> FactRevision:
    return FactRevision(
        operation=item["operation"],
        text=item["text"],
        event_id=None if item["event_id"] is None else UUID(item["event_id"]),
        message_ids=tuple(item["message_ids"] or ()),
        seqs=tuple(item["seqs"] or ()),
        model=item["model"],
        prompt_hash=item["prompt_hash"],
        fact_event=item["fact_event"],
        actor=item["actor"],
        created_at=datetime.fromisoformat(item["created_at"]),
    )
