"""A user's facts behind the HTTP service, with the methods of ``memory.facts``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.client.operations import (
    LOST,
    NOT_FOUND,
    Awaiting,
    Call,
    Method,
    Operation,
    Waiting,
    following,
    path,
    set_fields,
)
from strandline.client.remote import as_in_library, remote
from strandline.client.retrying import Repeat
from strandline.client.service import RemoteService
from strandline.client.values import fact_from, namespace_of, value_of
from strandline.producers.arguments import check_count
from strandline.producers.facts.edit_operations import Wording, checked_feedback, checked_settlement
from strandline.producers.facts.figures import TopicCount
from strandline.producers.facts.importing import FactsImported
from strandline.producers.facts.listing import (
    Fact,
    FactFilter,
    FactPage,
    PageRequest,
    Sort,
    as_fact_id,
    checked_limit,
)
from strandline.producers.operations import capturing, fact_sources
from strandline.producers.operations import facts as library
from strandline.producers.search.choice import ChosenFacts
from strandline.producers.search.facts import FoundFact
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, OutcomeUnknownError
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.identity import NO_USER, check_user_id
from strandline.schemas.values.undelivered import Undelivered
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import MAX_PAGE
from strandline.schemas.wire.explanations import AnyFactExplanation, FactExplanation, RemovedFactExplanation
from strandline.schemas.wire.facts import (
    CaptureOut,
    CaptureSet,
    ChosenFactsOut,
    Cleared,
    FactChangesOut,
    FactHistoryOut,
    FactOut,
    FactsOut,
    FiguresOut,
    FoundFacts,
    OptimizationOut,
    TopicsOut,
)
from strandline.schemas.wire.operations import ImportedFactIn, ImportFactsOut


def _check_wording(sent: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(Wording)}
    wording = Wording.check(**{"text": None} | {name: sent[name] for name in sent if name in names})
    others = {name: value for name, value in sent.items() if name not in names}
    return others | set_fields(**{name: getattr(wording, name) for name in names})


def _check_field(name: str, check: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda sent: sent | {name: check(sent[name])} if name in sent else sent


def _capture_fields(sent: dict[str, Any]) -> dict[str, Any]:
    capture = sent.pop("capture")
    if not isinstance(capture, Capture):
        raise InvalidMessageError("capture", f"must be a Capture, not {type(capture).__name__}")
    return sent | set_fields(**{one.name: getattr(capture, one.name) for one in fields(Capture)})


class FactMethods:
    """The methods of the two faces; those with ``a`` are awaited on both."""

    def __init__(self, service: RemoteService, user_id: str | None) -> None:
        if user_id in (None, NO_USER):
            raise ConfigurationError(
                "Facts over HTTP are those of a user; give user_id= to from_defaults or for_owner."
            )
        self._service = service
        self._user_id = check_user_id(user_id)

    @property
    def service(self) -> RemoteService:
        return self._service

    @property
    def user_id(self) -> str:
        return self._user_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(user_id={self._user_id!r}, {self._service!r})"

    @Method
    def get(self, fact_id: UUID | str) -> Operation[Fact | None]:
        """One fact of this user with its revisions, even if it ended; None if no fact has this id."""
        place = self._place(fact_id)
        if place is None:
            return None
        reply = yield Call("GET", f"{place}/history", accepts=NOT_FOUND)
        if reply.is_missing:
            return None
        out = reply.read(FactHistoryOut)
        return fact_from(out.fact, (yield from namespace_of(self.service)), out.revisions)

    @remote(acts.SEARCH_FACTS, FoundFacts, check=_check_field("limit", checked_limit))
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        topics: Sequence[str] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
    ) -> Sequence[FoundFact]:
        """The live facts that match ``query`` best, best first, by their words and their sources."""

    add, aadd = as_in_library(acts.ADD_FACT, library.add, FactOut, check=_check_wording)
    replace, areplace = as_in_library(
        acts.REPLACE_FACT, library.replace, FactOut, check=_check_wording, missing=None, repeat="always"
    )
    settle, asettle = as_in_library(
        acts.SETTLE_FACT,
        library.settle,
        FactOut,
        check=_check_field("keep", checked_settlement),
        missing=None,
    )
    feedback, afeedback = as_in_library(
        acts.JUDGE_FACT,
        library.feedback,
        FactOut,
        check=_check_field("feedback", checked_feedback),
        missing=None,
    )

    @Method
    def delete(
        self, fact_id: UUID | str, *, if_version: str | None = None, with_messages: bool = False
    ) -> Operation[bool]:
        """Delete a fact and its history for good; False if this user has no such fact.

        ``with_messages``: also put ``[deleted]`` in place of the messages it came from.
        """
        place = self._place(fact_id)
        if place is None:
            return False
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        # A repeated deletion of a version finds another version.
        repeat: Repeat = "always" if if_version is None else "if_not_done"
        query = {"with_messages": "true"} if with_messages else {}
        reply = yield Call("DELETE", place, query=query, headers=headers, repeat=repeat, accepts=NOT_FOUND)
        if reply.is_missing and reply.was_lost:
            # The lost attempt deleted it, or came to nothing: what people did to the fact says which.
            explained = yield Call(
                "GET",
                path("explain", "facts", str(as_fact_id(fact_id))),
                user_id=self.user_id,
                accepts=NOT_FOUND | {"forbidden"},
            )
            if explained.status == 403:
                raise OutcomeUnknownError(LOST)
            events = () if explained.is_missing else explained.read(AnyFactExplanation).root.events
            return any(event.kind == "delete" for event in events)
        return not reply.is_missing

    @remote(acts.CLEAR_FACTS, Cleared)
    def clear(self) -> int:
        """Delete all facts of this user for good; return how many were live."""

    @remote(acts.IMPORT_FACTS, ImportFactsOut)
    def import_facts(self, facts: Sequence[ImportedFactIn]) -> FactsImported:
        """Add up to 200 facts of another system, each once, by the ids that they have there."""

    create_from, acreate_from = as_in_library(
        acts.FACTS_FROM_MESSAGES, fact_sources.create_from, FactChangesOut
    )
    instruct, ainstruct = as_in_library(acts.INSTRUCT_FACTS, fact_sources.instruct, FactChangesOut)
    forget_source, aforget_source = as_in_library(
        acts.FORGET_SOURCE, fact_sources.forget_source, missing=None
    )

    @Method
    def choose(
        self,
        question: str,
        *,
        limit: int = 10,
        among: int = 200,
        topics: Sequence[str] | None = None,
    ) -> Operation[ChosenFacts]:
        """Let a model choose the live facts that help with ``question``, the most helpful first."""
        body = {"question": question, "limit": limit, "among": among}
        if topics is not None:
            body["topics"] = [*topics]
        where = path("users", self.user_id, "facts", "choose")
        out = (yield Call("POST", where, body=body, repeat="if_not_done", is_read=True)).read(ChosenFactsOut)
        namespace = yield from namespace_of(self.service)
        costs = out.model_dump(exclude={"items"})
        return ChosenFacts([fact_from(one, namespace) for one in out.items], **costs)

    @remote(acts.EXPLAIN_FACT, AnyFactExplanation)
    def explain(self, fact_id: UUID | str) -> FactExplanation | RemovedFactExplanation:
        """Where a fact comes from: its revisions with their messages, and what people did to it.

        Raises:
            NotFoundError: this user has no such fact, and never had one.
        """

    @Method
    def topics(self, *, limit: int = 100) -> Operation[Sequence[TopicCount]]:
        """The topics of the live facts, the most frequent first, each with its number of facts."""
        number = check_count("limit", limit, most=MAX_PAGE)
        reply = yield Call("GET", path("users", self.user_id, "topics"), query={"limit": max(number, 1)})
        return [TopicCount(one.topic, one.facts) for one in reply.read(TopicsOut).items[:number]]

    figures, afigures = as_in_library(acts.USER_FIGURES, library.figures, FiguresOut)

    @remote(acts.OPTIMIZE_FACTS)
    def optimize(self, *, apply: bool = False) -> OptimizationOut:
        """Propose to say the facts in fewer sentences; with ``apply`` carry it out in the same request."""

    get_capture, aget_capture = as_in_library(acts.GET_CAPTURE, capturing.get_capture, CaptureOut)
    set_capture, aset_capture = as_in_library(
        acts.SET_CAPTURE, capturing.set_capture, CaptureSet, check=_capture_fields
    )

    @Method
    def list(
        self,
        *,
        limit: int = 100,
        offset: int = 0,
        sort: Sort = "newest",
        contains: str | None = None,
        topics: Sequence[str] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        with_invalidated: bool = False,
        doubtful: bool = False,
        first_n: int | None = None,
        last_n: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Operation[FactPage]:
        """A page of the live facts, without their revisions; ``.total`` is the number of all of them.

        Arguments are those of ``OwnerFacts.list``; a large ``offset`` takes a request for each 1,000 facts.
        """
        page = PageRequest.check(limit, offset, sort, contains, first_n, last_n)
        chosen = FactFilter.check(topics, agent_id, team_id, with_invalidated, doubtful, since, until)
        filters = set_fields(
            sort=page.sort,
            contains=page.contains,
            topic=None if topics is None else [*topics],
            agent_id=agent_id,
            team_id=team_id,
            with_invalidated="true" if with_invalidated else None,
            doubtful="true" if doubtful else None,
            since=None if chosen.since is None else chosen.since.isoformat(),
            until=None if chosen.until is None else chosen.until.isoformat(),
        )
        facts = yield from self._read_pages(page, filters)
        if page.is_turned:
            facts.reverse()
        return facts

    def _read_pages(self, page: PageRequest, filters: Mapping[str, Any]) -> Operation[FactPage]:
        namespace = yield from namespace_of(self.service)
        facts: builtins.list[Fact] = []
        skip, left, cursor = page.offset, page.limit, None
        while True:
            query = {**filters, "limit": min(MAX_PAGE, skip or max(left, 1)), "cursor": cursor}
            reply = yield Call("GET", path("users", self.user_id, "facts"), query=query)
            out = reply.read(FactsOut)
            if skip:
                skip -= min(skip, len(out.items)) if out.items else skip
            else:
                facts += [fact_from(one, namespace) for one in out.items[:left]]
                left -= len(out.items)
            cursor = following(out.next_cursor, cursor)
            if left <= 0 or cursor is None:
                return FactPage(facts, out.total, waiting=value_of(Undelivered, out.waiting))

    def _place(self, fact_id: UUID | str) -> str | None:
        """The path of a fact; None for an impossible id."""
        id_ = as_fact_id(fact_id)
        return None if id_ is None else path("users", self.user_id, "facts", str(id_))

    aget = get.asynchronous
    alist = list.asynchronous
    asearch = search.asynchronous
    adelete = delete.asynchronous
    aclear = clear.asynchronous
    aimport_facts = import_facts.asynchronous
    achoose = choose.asynchronous
    aexplain = explain.asynchronous
    atopics = topics.asynchronous
    aoptimize = optimize.asynchronous

    async def aclose(self) -> None:
        """Close the service's connections of the running event loop; the next call makes new ones."""
        await self._service.aclose()


class RemoteFacts(FactMethods, Waiting):
    """The facts of one user; see ``memory.facts`` for the methods, and docs/client.md for what differs."""

    @classmethod
    def for_owner(cls, *, user_id: str, service: RemoteService) -> RemoteFacts:
        """The facts of a user; does no I/O."""
        return cls(service, user_id)

    def close(self) -> None:
        """Close the service's connections of threads; the next call makes new ones."""
        self._service.close()


class AsyncRemoteFacts(FactMethods, Awaiting):
    """The same for asyncio alone: ``await facts.add(…)``; the names with ``a`` are there too."""

    @classmethod
    def for_owner(cls, *, user_id: str, service: RemoteService) -> AsyncRemoteFacts:
        """The facts of a user; does no I/O."""
        return cls(service, user_id)

    close = FactMethods.aclose
