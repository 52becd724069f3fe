"""The audit trail of a namespace, for its operators: each operation offered sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.listing import ActFilter, ActPage, AuditedAct, audited_namespaces, list_acts
from strandline.pipelines.audit.upkeep import Pruning, plan_pruning, prune_trail, set_level
from strandline.pipelines.audit.verifying import TrailVerification, anchor_trails, verify_trail
from strandline.producers.execution import Closing, OperationRunner, Resources, methods
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.kinds import DEFAULT_LEVEL, AuditLevel
from strandline.schemas.values.identity import check_name


@dataclass(frozen=True, slots=True)
class Trail:
    """The audit trail of a namespace: its operations."""

    resources: Resources
    namespace: str

    def acts(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        kind: str | None = None,
        actor: str | None = None,
        user_id: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Operation[ActPage]:
        """A page of acts, newest first; those of the last second have no seal yet.

        Args:
            since, until: the first and the last time, with a time zone.
            kind: one kind, or what several begin with (``facts``).
            actor: only what this actor did.
            user_id: only what concerns this user; none after the user was erased.
            limit: maximum number of acts, up to 1,000.
            before: ``next_before`` of the page before.

        Raises:
            ConfigurationError: a time has no zone, or there is no such kind.
            InvalidMessageError: another argument cannot be used.
        """
        asked = ActFilter(since, until, kind, actor, user_id)
        return self._acts(asked, limit, before)

    def act(self, entry_id: UUID | str) -> Operation[AuditedAct | None]:
        """One act by its id; None if the trail has no such act."""
        page = yield from self._acts(ActFilter(entry_id=_entry_id(entry_id)), 1, None)
        return page.acts[0] if page.acts else None

    def level(self) -> Operation[AuditLevel]:
        """The recorded level: ``off``, ``changes`` (the default) or ``all``."""
        rows = yield from audited_namespaces(self.namespace)
        level: Any = rows[0].level if rows else DEFAULT_LEVEL
        return level  # type: ignore[no-any-return]

    def set_level(self, level: AuditLevel, *, actor: str | None = None) -> Operation[bool]:
        """Set the recorded level; False if it was set already.

        It holds for puts and changes at once, and for reads of running processes within five seconds.  The
        act is recorded, also when it switches the trail off.

        Raises:
            ConfigurationError: there is no such level.
        """
        return set_level(self.namespace, level, Act.here("audit.level", actor=actor))

    def verify(self, *, anchors: Sequence[Anchor] = ()) -> Operation[TrailVerification]:
        """Verify the chain; ``.findings`` names changed, removed, inserted or moved acts.

        Args:
            anchors: anchors that were kept outside of the database; those of other namespaces are ignored.

        Raises:
            ConfigurationError: the keys of the settings cannot be used.
        """
        mine = [anchor for anchor in anchors if anchor.namespace == self.namespace]
        return verify_trail(self.namespace, keys_of(self.resources.settings), mine)

    def anchor(self) -> Operation[Anchor | None]:
        """The present end of the chain, to be kept outside of the database; None if nothing is sealed yet."""
        anchors = yield from anchor_trails([self.namespace])
        return anchors[0] if anchors else None

    def plan_pruning(self, before: datetime) -> Operation[Pruning]:
        """Count what ``prune`` would delete now; changes nothing."""
        return plan_pruning(self.namespace, before)

    def prune(self, before: datetime, *, actor: str | None = None) -> Operation[Pruning]:
        """Delete acts sealed before a time, in whole seals; the rest can still be verified.

        Raises:
            ConfigurationError: the time has no zone.
        """
        return prune_trail(self.namespace, before, Act.here("audit.prune", actor=actor))

    def _acts(self, asked: ActFilter, limit: int, before: str | None) -> Operation[ActPage]:
        page = yield from list_acts(self.namespace, asked.check(), limit=limit, before=before)
        yield from append_act(self.namespace, Act.here("audit.read", count=len(page.acts)))
        return page


class NamespaceAudit(Closing):
    """Who did what in a namespace, and when; make it by ``Audit.of_namespace``.

    Reading the trail is an act as well, and recorded.  All methods raise DatabaseUnavailableError when
    Postgres cannot be reached.
    """

    def __init__(self, resources: Resources, namespace: str) -> None:
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._subject = Trail(resources, check_name("namespace", namespace))

    @property
    def namespace(self) -> str:
        return self._subject.namespace

    acts, aacts = methods(Trail.acts)
    act, aact = methods(Trail.act)
    level, alevel = methods(Trail.level)
    set_level, aset_level = methods(Trail.set_level)
    verify, averify = methods(Trail.verify)
    anchor, aanchor = methods(Trail.anchor)
    plan_pruning, aplan_pruning = methods(Trail.plan_pruning)
    prune, aprune = methods(Trail.prune)

    def each(self, *, page_size: int = 1_000, **filters: Any) -> Iterator[AuditedAct]:
        """All acts that pass, newest first, read page by page; ``filters`` as for ``acts``."""
        before, is_last = None, False
        while not is_last:
            page = self.acts(limit=page_size, before=before, **filters)
            yield from page.acts
            before, is_last = page.next_before, page.next_before is None

    async def aeach(self, *, page_size: int = 1_000, **filters: Any) -> AsyncIterator[AuditedAct]:
        """Async twin of ``each``."""
        before, is_last = None, False
        while not is_last:
            page = await self.aacts(limit=page_size, before=before, **filters)
            for act in page.acts:
                yield act
            before, is_last = page.next_before, page.next_before is None


def _entry_id(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidMessageError(
            "entry_id", f"{quote(value)} is not the id of an act", for_clients=InvalidMessageError.UNTOLD
        ) from None
