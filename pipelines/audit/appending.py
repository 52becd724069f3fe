"""Appends acts to the audit trail, in the transaction that carries them out."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from strandline.schemas.errors import InvalidMessageError, StrandlineError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import AppendAct, NamesOfOwner
from strandline.schemas.values.acts.acting import current_acting
from strandline.schemas.values.acts.kinds import ACTS, MAX_DETAIL_BYTES
from strandline.schemas.values.identity import Owner, SessionIdentity, audit_chain_key

logger = logging.getLogger("strandline.audit")

Concerned = SessionIdentity | Owner | str
"""Whom an act concerns: a session, an owner, or a whole namespace by its name."""


@dataclass(frozen=True, slots=True)
class Act:
    """An act as the trail records it; made before the first attempt, so that retries repeat the same act.

    Attributes:
        kind: a name of ``ACTS``.
        actor, origin: who acts, and from where; default: from ``strandline.acting``.
        on_behalf_of: the party named by a proven actor, such as a key of the service.
        seq: the first message concerned.
        count: how many messages, facts or items are concerned.
        detail: further names and numbers; never content, and no name of a user.
        flags: of a compliance hook; an act with flags is recorded at level ``changes`` as well.
    """

    kind: str
    entry_id: UUID
    actor: str | None
    origin: str | None
    seq: int | None = None
    count: int | None = None
    detail: Mapping[str, Any] | None = None
    flags: tuple[str, ...] = ()
    on_behalf_of: str | None = None

    @classmethod
    def here(
        cls,
        kind: str,
        *,
        actor: str | None = None,
        seq: int | None = None,
        count: int | None = None,
        detail: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
    ) -> Act:
        """An act of the present actor (``strandline.acting``), unless ``actor`` is given.

        A proven actor acts for the given one.

        Raises:
            InvalidMessageError: the actor is not a name.
        """
        around = current_acting()
        recorded, on_behalf_of = around.record_of(actor)
        return cls(
            kind,
            uuid4(),
            recorded,
            around.origin,
            seq=seq,
            count=count,
            detail=detail,
            flags=tuple(flags),
            on_behalf_of=on_behalf_of,
        )

    @property
    def named_actor(self) -> str | None:
        """The actor's name for people, in records outside the trail."""
        return self.on_behalf_of or self.actor

    @property
    def level(self) -> str:
        """From which level on it is recorded."""
        return "changes" if self.flags else ACTS[self.kind].level

    def as_json(self) -> str:
        """As ``append_act_v1`` reads it."""
        record = {
            "entry_id": str(self.entry_id),
            "act": self.kind,
            "level": self.level,
            "actor": self.actor,
            "origin": self.origin,
            "seq": self.seq,
            "count": self.count,
            "detail": self.detail,
            "on_behalf_of": self.on_behalf_of,
            "flags": list(self.flags),
        }
        return json.dumps({name: value for name, value in record.items() if value is not None})


def append_act(whom: Concerned, act: Act, *, lazily: bool = False) -> Operation[None]:
    """Append an act to the trail of the namespace; in the transaction around it, if there is one.

    Nothing is appended where the namespace's level does not have it recorded.

    Args:
        whom: the session, the owner or the namespace concerned.
        lazily: its commit does not wait for the disk; for acts that change nothing.

    Raises:
        InvalidMessageError: ``detail`` is too large.
    """
    if act.detail is not None and len(json.dumps(act.detail)) > MAX_DETAIL_BYTES:
        raise InvalidMessageError("detail", f"is longer than {MAX_DETAIL_BYTES:,} bytes")
    yield from fetch(append_query(whom, act, lazily=lazily))


def append_owners_act(shard_key: UUID, act: Act) -> Operation[None]:
    """As ``append_act`` for an owner known by the key alone; without a session, nothing is appended."""
    for row in (yield from fetch(NamesOfOwner(shard_key=shard_key))):
        yield from append_act(Owner(row.namespace, row.user_id, shard_key), act)


def append_inspection(database: Fetcher, whom: Concerned, kind: str) -> None:
    """Append that an operator was shown something; if that fails, the operator is shown it all the same."""
    try:
        database.fetch(append_query(whom, Act.here(kind), lazily=True))
    except StrandlineError as error:
        logger.error(
            "an inspection was not recorded in the audit trail",
            extra={"action": "audit_read_lost", "act": kind, "reason": str(error)},
        )


def append_query(whom: Concerned, act: Act, *, lazily: bool = False) -> AppendAct:
    """The statement of ``append_act``, for callers that run statements themselves."""
    session_key = whom.session_key if isinstance(whom, SessionIdentity) else None
    has_owner = not isinstance(whom, str)
    if isinstance(whom, str):
        whom = Owner(whom, None, audit_chain_key(whom))
    return AppendAct.of(whom, session_key=session_key, has_owner=has_owner, act=act.as_json(), lazily=lazily)
