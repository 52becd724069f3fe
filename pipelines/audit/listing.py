"""Lists the acts of a namespace's audit trail, newest first, page by page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.places import place_text, read_place
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import (
    AuditNamespaces,
    AuditNamespacesRow,
    ListActs,
    ListActsRow,
    SubjectOf,
)
from strandline.schemas.values.acts.kinds import ACTS
from strandline.schemas.values.identity import audit_chain_key, check_name, identify_user
from strandline.schemas.values.same_named import make_from

MAX_ACTS_PER_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class AuditedAct:
    """An act of the trail.

    Attributes:
        entry_id: its id.
        kind: as docs/architecture/audit.md lists.
        at: when.
        actor, origin: who acted, and from where; None if unnamed.
        subject: the pseudonym of the user concerned; None if the act concerns the namespace.
        user_id: the pseudonym's user; None: no user is concerned, or the pseudonym was forgotten.
        session: the pseudonym of the session.
        seq, count: the first message concerned, and how many messages, facts or items.
        detail: further names and numbers; never content.
        flags: of a compliance hook.
        seal, place: in the chain; None while no seal covers it.
    """

    entry_id: UUID
    kind: str
    at: datetime
    actor: str | None
    origin: str | None
    subject: UUID | None
    user_id: str | None
    session: UUID | None
    seq: int | None
    count: int | None
    detail: Mapping[str, Any]
    flags: tuple[str, ...]
    seal: int | None
    place: int | None


@dataclass(frozen=True, slots=True)
class ActFilter:
    """A filter of acts; None lets all pass.

    Attributes:
        since, until: the first and the last time, with a time zone.
        kind: one kind, or the common beginning of several (``facts``).
        actor: who acted.
        user_id: the user concerned.
        entry_id: one act.
    """

    since: datetime | None = None
    until: datetime | None = None
    kind: str | None = None
    actor: str | None = None
    user_id: str | None = None
    entry_id: UUID | None = None

    def check(self) -> ActFilter:
        """Return it if it can be used.

        Raises:
            ConfigurationError: a time has no zone, or there is no such kind.
            InvalidMessageError: a name is not valid.
        """
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise ConfigurationError(f"{name} has no time zone; write one, as in 2026-11-25T10:00+00:00.")
        if self.kind is not None and not any(f"{kind}.".startswith(f"{self.kind}.") for kind in ACTS):
            sentence = f"No act is of this kind; kinds are {', '.join(sorted(ACTS))}."
            raise ConfigurationError(sentence, for_clients=sentence)
        if self.actor is not None:
            check_name("actor", self.actor)
        return self


@dataclass(frozen=True, slots=True)
class ActPage:
    """A page of acts; ``next_before`` leads to the next one, and is None on the last."""

    acts: tuple[AuditedAct, ...]
    next_before: str | None


def list_acts(
    namespace: str, asked: ActFilter, *, limit: int = 100, before: str | None = None
) -> Operation[ActPage]:
    """A page of the acts that pass, newest first.

    Args:
        limit: at most so many, up to 1,000.
        before: ``next_before`` of the page before.

    Raises:
        InvalidMessageError: ``before`` or ``limit`` cannot be used.
    """
    if not 1 <= limit <= MAX_ACTS_PER_PAGE:
        raise InvalidMessageError("limit", f"must be from 1 to {MAX_ACTS_PER_PAGE:,}")
    place = _Place() if before is None else _read_place(before)
    subject = None
    if asked.user_id is not None:
        subject = yield from find_subject(namespace, asked.user_id)
        if subject is None:
            return ActPage((), None)
    rows = yield from fetch(
        ListActs.of(
            asked,
            shard_key=audit_chain_key(namespace),
            namespace=namespace,
            act=asked.kind,
            subject=subject,
            before_at=place.at,
            before_id=place.entry_id,
            before_seal=place.seal,
            before_place=place.number,
            limit=limit + 1,
        )
    )
    acts = tuple(_act(row) for row in rows[:limit])
    return ActPage(acts, _place(acts[-1]) if len(rows) > limit else None)


def find_subject(namespace: str, user_id: str) -> Operation[UUID | None]:
    """The pseudonym of a user; None if the trail has none: nothing was recorded, or the user was erased."""
    rows = yield from fetch(SubjectOf(shard_key=identify_user(namespace, user_id).shard_key))
    return rows[0].subject if rows else None


def audited_namespaces(namespace: str | None = None) -> Operation[list[AuditNamespacesRow]]:
    """Namespaces with a level of their own or a chain; of one namespace, that one."""
    return (yield from fetch(AuditNamespaces(namespace=namespace)))


def _act(row: ListActsRow) -> AuditedAct:
    own = {
        "kind": row.act,
        "at": row.created_at,
        "count": row.amount,
        "detail": {} if row.detail is None else json.loads(row.detail),
        "flags": tuple(row.flags),
    }
    return make_from(AuditedAct, row, **own)


@dataclass(frozen=True, slots=True)
class _Place:
    at: datetime | None = None
    entry_id: UUID | None = None
    seal: int | None = None
    number: int | None = None


def _place(act: AuditedAct) -> str:
    return place_text(act.at, act.entry_id) if act.seal is None else place_text(act.seal, act.place)


def _read_place(text: str) -> _Place:
    try:
        if text.partition("/")[0].isdecimal():
            seal, number = read_place(text, int, int)
            place = _Place(seal=seal, number=number)
            is_possible = seal > 0 and 0 < number < 2**31
        else:
            place = _Place(*read_place(text, datetime, UUID))
            is_possible = True
    except ValueError:
        is_possible = False
    if not is_possible:
        raise InvalidMessageError(
            "before",
            "is not what a page gave as next_before",
            for_clients="It is not a cursor that a page of this list gave; leave it out.",
        )
    return place
