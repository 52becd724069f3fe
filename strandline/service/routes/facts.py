"""The facts of a user: listed, searched, corrected."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from strandline.pipelines.audit.appending import Act
from strandline.producers.facts.listing import FactFilter, FactPlace, PageRequest
from strandline.producers.facts.listing import list_facts as facts_of
from strandline.producers.owner_facts import OwnerFacts
from strandline.producers.writing.sources import FactChanges, named_source
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Moment
from strandline.schemas.wire.facts import (
    ChosenFactsOut,
    Cleared,
    FactChangesOut,
    FactChoice,
    FactFeedback,
    FactHistoryOut,
    FactIn,
    FactInstruction,
    FactOut,
    FactPatch,
    FactSearch,
    FactSettlement,
    FactsFrom,
    FactsOut,
    FoundFacts,
    OptimizationOut,
    OptimizeIn,
    SortOrder,
)
from strandline.service.answering import Routes
from strandline.service.forms import etag_of, fact_form, fact_response, is_known, json_response
from strandline.service.gate.problems import FORBIDDEN, NOT_FOUND, ProblemError
from strandline.service.params import Cursor, FactId, PageSize, SourceId, UserId, cursor_of, read_place_cursor
from strandline.service.route import Call

routes = Routes("facts")

_LIST = "facts"
TopicFilter = Annotated[list[str] | None, Field(max_length=20, description="Facts with one of these topics.")]
NameFilter = Annotated[str | None, Field(max_length=512)]


_NOT_CHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is as the ETag of If-None-Match says."}
}


@routes.answer(acts.LIST_FACTS, "read", "reads", ("facts", "names"), FactsOut)
async def list_facts(
    call: Call,
    user: UserId,
    limit: PageSize = 100,
    cursor: Cursor = None,
    sort: SortOrder = "newest",
    contains: Annotated[
        str | None, Field(max_length=1_000, description="Facts with this in their text.")
    ] = None,
    topic: TopicFilter = None,
    agent_id: NameFilter = None,
    team_id: NameFilter = None,
    with_invalidated: Annotated[bool, Field(description="Also facts that ended.")] = False,
    doubtful: Annotated[bool, Field(description="Only facts that may contradict another one.")] = False,
    since: Annotated[Moment | None, Field(description="Facts last said then or later.")] = None,
    until: Annotated[Moment | None, Field(description="Facts last said then or before.")] = None,
) -> Response:
    """A page of the live facts, and how many there are.

    A page begins behind the last fact of the page before: additions and deletions in between move no other
    fact, so none is left out and none comes twice.  Sorted by `updated`, a fact that changes moves.
    A page ends with the fact that fills 4 MB, if that comes before `limit`.
    """
    owner = call.caller.owner(user)
    after = read_place_cursor(f"{_LIST}/{sort}", cursor, FactPlace.read)
    page_request = replace(PageRequest.check(limit, 0, sort, contains), limit=limit + 1, after=after)
    filters = FactFilter.check(topic, agent_id, team_id, with_invalidated, doubtful, since, until)
    recorder = call.recorder(owner)
    listing = recorder.read(
        Act.here("facts.read"),
        facts_of(owner, page_request, filters),
        lambda act, page: replace(act, count=min(len(page), limit)),
    )
    fact_page = await call.run(listing)
    page = fact_page[:limit]
    more = fact_page.is_cut or len(fact_page) > limit
    following = cursor_of(f"{_LIST}/{sort}", str(FactPlace.of(page[-1], sort))) if more else None
    body: dict[str, Any] = {"items": [*map(fact_form, page)], "next_cursor": following}
    body |= {"total": fact_page.total, "waiting": fact_page.waiting}
    return await call.aside.run(lambda: json_response(body))


routes.pass_on(
    acts.ADD_FACT, "facts", "writes", ("facts", "names"), FactOut, to=OwnerFacts.add, body=FactIn, status=201,
    about="Add a fact by hand; the same statement is one fact, doubtful if it may contradict another.",
)  # fmt: skip
routes.pass_on(
    acts.CLEAR_FACTS, "facts", "writes", (), Cleared, to=OwnerFacts.clear,
    about="Delete all facts of the user for good; nothing said earlier comes back as a fact.",
)  # fmt: skip


@routes.answer(acts.GET_FACT, "read", "reads", ("facts", "names"), FactOut, responses=_NOT_CHANGED)
async def get_fact(request: Request, facts: OwnerFacts, fact_id: FactId) -> Response:
    """One fact, even if it ended; its ETag names it as it is."""
    fact = await facts.aget(fact_id)
    if fact is not None and is_known(request, fact):
        return Response(status_code=304, headers=etag_of(fact))
    return fact_response(fact)


routes.pass_on(
    acts.REPLACE_FACT, "facts", "writes", ("facts", "names"), FactOut, to=OwnerFacts.replace,
    about="Give a live fact other words; with `If-Match` only if it is still as that ETag says.",
    body=FactPatch, matches=True,
)  # fmt: skip


@routes.answer(acts.DELETE_FACT, "facts", "writes", status=204, matches=True)
async def delete_fact(
    call: Call,
    facts: OwnerFacts,
    fact_id: FactId,
    if_version: str | None,
    with_messages: Annotated[
        bool, Field(description="Also put `[deleted]` in place of the messages it came from.")
    ] = False,
) -> Response:
    """Delete a fact and its history for good; it does not come back from earlier messages.

    `with_messages` needs the scope `write` too.
    """
    if with_messages and "write" not in call.caller.scopes:
        raise ProblemError(
            FORBIDDEN, detail="To delete the messages as well, the key needs the scope `write`."
        )
    if not await facts.adelete(fact_id, if_version=if_version, with_messages=with_messages):
        raise ProblemError(NOT_FOUND)
    return Response(status_code=204)


routes.pass_on(
    acts.JUDGE_FACT, "facts", "writes", ("facts", "names"), FactOut, to=OwnerFacts.feedback,
    about="Record people's opinion of a fact; null removes it.",
    body=FactFeedback, matches=True,
)  # fmt: skip


routes.pass_on(
    acts.SETTLE_FACT, "facts", "writes", ("facts", "names"), FactOut, to=OwnerFacts.settle,
    about="Decide between a doubtful fact and the fact it may contradict; the kept one is the answer.",
    body=FactSettlement, matches=True,
)  # fmt: skip


@routes.answer(acts.FACT_HISTORY, "read", "reads", ("facts", "names", "operators"), FactHistoryOut)
async def fact_history(facts: OwnerFacts, fact_id: FactId) -> Response:
    """A fact with its revisions, each with the messages, flush and model, or the person, that made it."""
    fact = await facts.aget(fact_id)
    if fact is None:
        raise ProblemError(NOT_FOUND)
    return json_response({"fact": fact_form(fact), "revisions": fact.revisions}, headers=etag_of(fact))


@routes.answer(acts.SEARCH_FACTS, "read", "reads", ("facts", "names"), FoundFacts)
async def search_facts(call: Call, facts: OwnerFacts, body: FactSearch) -> Response:
    """The live facts that match best, best first; they end with the fact that fills 4 MB."""
    matches = await facts.asearch(**body.model_dump())
    items = [{"fact": fact_form(m.fact), "score": m.score, "similarity": m.similarity} for m in matches]
    return await call.aside.run(lambda: json_response({"items": items}))


@routes.answer(acts.CHOOSE_FACTS, "read", "others", ("facts", "names"), ChosenFactsOut)
async def choose_facts(facts: OwnerFacts, body: FactChoice) -> Response:
    """Let a model choose the facts that help with a question; the ledger counts its call."""
    chosen = await facts.achoose(**body.model_dump())
    return json_response({"items": [*map(fact_form, chosen)], **vars(chosen)})


@routes.answer(acts.FACTS_FROM_MESSAGES, "facts", "others", ("facts", "names"), FactChangesOut)
async def facts_from_messages(call: Call, facts: OwnerFacts, body: FactsFrom) -> Response:
    """Have facts made of messages that are in no chat; `Prefer: wait=5` waits for the workers so long."""
    changes = await facts.acreate_from(
        [message.openai_form() for message in body.messages],
        key=body.key or call.idempotency_key,
        wait=call.wait_seconds,
    )
    await call.check_key()
    return _changes_response(changes)


@routes.answer(acts.INSTRUCT_FACTS, "facts", "others", ("facts", "names"), FactChangesOut)
async def instruct_facts(call: Call, facts: OwnerFacts, body: FactInstruction) -> Response:
    """Have the facts changed as the user asks for; `Prefer: wait=5` waits for the workers so long."""
    changes = await facts.ainstruct(body.task, key=body.key or call.idempotency_key, wait=call.wait_seconds)
    await call.check_key()
    return _changes_response(changes)


@routes.answer(acts.OPTIMIZE_FACTS, "facts", "others", ("facts",))
async def optimize_facts(facts: OwnerFacts, body: OptimizeIn) -> OptimizationOut:
    """Propose to say the facts in fewer sentences, and carry it out if asked; a model is asked once.

    What people worded or judged stays as it is. A fact that was changed since is a conflict.
    """
    proposal = await facts.aoptimize()
    if body.apply:
        await facts.aapply_optimization(proposal)
    return OptimizationOut.of(proposal, applied=body.apply)


@routes.answer(acts.FORGET_SOURCE, "facts", "writes", status=204)
async def forget_source(call: Call, facts: OwnerFacts, user: UserId, source: SourceId) -> Response:
    """Delete the messages of a source, and the facts that only it supports."""
    await call.service.records.find(named_source(call.caller.owner(user), source))
    await facts.aforget_source(source)
    return Response(status_code=204)


def _changes_response(changes: FactChanges) -> Response:
    deleted: list[UUID] = [*changes.deleted]
    return json_response(
        {
            "source_id": changes.source_id,
            "is_complete": changes.is_complete,
            "added": [*map(fact_form, changes.added)],
            "updated": [*map(fact_form, changes.updated)],
            "deleted": deleted,
            "failure": changes.failure,
        }
    )
