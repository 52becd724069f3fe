"""The facts of a whole namespace: capture, counts, and clearing, owner by owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.edits import open_fact_lanes
from strandline.pipelines.facts.recording import clear_facts
from strandline.producers.arguments import check_count
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.execution import Closing, OperationRunner, Resources, methods
from strandline.producers.facts.capturing import CaptureLevel
from strandline.producers.facts.figures import UserPage, users_page
from strandline.producers.owner_facts import CaptureFace
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.derived.facts_edit import OwnersWithFacts
from strandline.schemas.values.identity import Owner, check_name

# How many owners one statement looks at.
OWNERS_PER_PAGE = 200

_BEFORE_ALL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Clearing:
    """The extent of a clearing, done or planned: the number of ``owners``, and of their live ``facts``."""

    owners: int = 0
    facts: int = 0

    def __add__(self, other: Clearing) -> Clearing:
        return Clearing(self.owners + other.owners, self.facts + other.facts)


@dataclass(frozen=True, slots=True)
class _Page:
    last: UUID | None
    to_clear: tuple[tuple[UUID, int], ...]


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tenant by its name, and the resources of the process."""

    resources: Resources
    name: str

    @property
    def capture_level(self) -> CaptureLevel:
        return CaptureLevel(self.name)

    @property
    def recorder(self) -> Recorder:
        """Runs operations on the namespace with the compliance hook and the audit trail."""
        return Recorder(self.name, self.resources.compliance, self.resources.audit_levels)


def list_users(namespace: Namespace, *, limit: int = 50, after: str | None = None) -> Operation[UserPage]:
    """A page of the users with sessions or given facts, by name, each with their figures.

    ``limit`` is at most 200; ``after`` is the previous page's.
    """
    place = None if after is None else check_name("after", after)
    number = check_count("limit", limit, least=1, most=OWNERS_PER_PAGE)
    page = users_page(namespace.name, number, place)
    return namespace.recorder.read(Act.here("directory.read"), page)


def count_clearable(namespace: Namespace) -> Operation[Clearing]:
    """Count the owners and facts that ``clear`` would delete now; changes nothing."""
    total = Clearing()
    after: UUID | None = _BEFORE_ALL
    while after is not None:
        page = yield from _page(namespace.name, after)
        live = sum(live for _owner, live in page.to_clear)
        total, after = total + Clearing(len(page.to_clear), live), page.last
    return total


class NamespaceFacts(CaptureFace, Closing):
    """The facts of all owners of a namespace; get it from ``Facts.of_namespace``.

    Clearing records one event per owner, as ``Facts.clear`` does, each in its own transaction; so it may be
    stopped at any time, and continues where it stopped when it is called again: an owner without new messages
    since the last clearing is skipped. Owners whose first session begins during it may be left out.

    All methods raise DatabaseUnavailableError when Postgres cannot be reached; clearing raises
    UnknownPipelineError before any worker has ever run.
    """

    _subject: Namespace

    def __init__(self, resources: Resources, namespace: str) -> None:
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._subject = Namespace(resources, check_name("namespace", namespace))

    @property
    def namespace(self) -> str:
        return self._subject.name

    users, ausers = methods(list_users)
    to_clear, ato_clear = methods(count_clearable)

    def clear(self, *, actor: str | None = None) -> Clearing:
        """Delete all facts of all owners for good; earlier messages do not bring them back.

        ``actor`` names the person, and is kept with the events.
        """
        return sum(self.clear_each(actor=actor), Clearing())

    async def aclear(self, *, actor: str | None = None) -> Clearing:
        """Async twin of ``clear``."""
        total = Clearing()
        async for cleared in self.aclear_each(actor=actor):
            total += cleared
        return total

    def clear_each(self, *, actor: str | None = None) -> Iterator[Clearing]:
        """``clear`` one owner after the other; yields the extent for each, once it is committed."""
        after: UUID | None = _BEFORE_ALL
        while after is not None:
            page = self._runner.run(_page(self._subject.name, after))
            for owner, _live in page.to_clear:
                yield Clearing(1, self._runner.run(_clear_owner(self._subject, owner, actor)))
            after = page.last

    async def aclear_each(self, *, actor: str | None = None) -> AsyncIterator[Clearing]:
        """Async twin of ``clear_each``."""
        after: UUID | None = _BEFORE_ALL
        while after is not None:
            page = await self._runner.arun(_page(self._subject.name, after))
            for owner, _live in page.to_clear:
                yield Clearing(1, await self._runner.arun(_clear_owner(self._subject, owner, actor)))
            after = page.last


def _clear_owner(namespace: Namespace, owner: UUID, actor: str | None) -> Operation[int]:
    recorder = replace(namespace.recorder, whom=Owner(namespace.name, None, owner))
    act = Act.here("facts.clear", actor=actor)
    yield from open_fact_lanes(owner)
    clearing = partial(clear_facts, owner, actor)
    return (yield from recorder.change(act, clearing, lambda act, cleared: replace(act, count=cleared)))


def _page(namespace: str, after: UUID) -> Operation[_Page]:
    rows = yield from fetch(OwnersWithFacts(namespace=namespace, after=after, limit=OWNERS_PER_PAGE))
    to_clear = tuple((row.shard_key, row.live) for row in rows if row.is_new)
    return _Page(rows[-1].shard_key if len(rows) == OWNERS_PER_PAGE else None, to_clear)
