"""Figures of an owner: facts, sessions, messages and tokens by number and age, and topics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import OwnerFigures as OwnerFiguresQuery
from strandline.schemas.queries.conversation.sessions import UsersPage
from strandline.schemas.queries.derived.facts_edit import OwnerTopics
from strandline.schemas.values.identity import Owner, identify_user

MAX_TOPICS_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class TopicCount:
    """A topic, and the number of live facts that have it."""

    topic: str
    facts: int


@dataclass(frozen=True, slots=True)
class OwnerFigures:
    """How much there is of one owner.

    Attributes:
        facts: live facts; ``oldest_fact_at`` and ``newest_fact_at`` are when they were last said.
        sessions: sessions that were put to; ``messages`` and ``tokens`` are those of their logs as they are.
        first_session_at: when the first session began; ``last_put_at``: when one was last put to.
    """

    facts: int
    oldest_fact_at: datetime | None
    newest_fact_at: datetime | None
    sessions: int
    messages: int
    tokens: int
    first_session_at: datetime | None
    last_put_at: datetime | None


@dataclass(frozen=True, slots=True)
class UserFigures:
    """The figures of one user of a namespace."""

    user_id: str
    figures: OwnerFigures


class UserPage(list[UserFigures]):
    """Users of a namespace by name; the next page begins after ``after``, None on the last one."""

    def __init__(self, users: list[UserFigures], after: str | None) -> None:
        super().__init__(users)
        self.after = after


def owner_topics(owner: Owner, limit: int) -> Operation[list[TopicCount]]:
    """The topics of an owner's live facts, the most frequent first."""
    rows = yield from fetch(OwnerTopics(shard_key=owner.shard_key, limit=limit))
    return [TopicCount(row.topic, row.facts) for row in rows]


def owner_figures(owner: Owner) -> Operation[OwnerFigures]:
    (row,) = yield from fetch(OwnerFiguresQuery(shard_key=owner.shard_key))
    return OwnerFigures(*row)


def users_page(namespace: str, limit: int, after: str | None) -> Operation[UserPage]:
    """The next users with a session, or with facts from people, each with their figures."""
    rows = yield from fetch(UsersPage(namespace=namespace, after=after or "", limit=limit))
    users = []
    for row in rows:
        figures = yield from owner_figures(identify_user(namespace, row.user_id))
        users.append(UserFigures(row.user_id, figures))
    return UserPage(users, rows[-1].user_id if len(rows) == limit else None)
