"""The facts of a user: listed, searched, corrected."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from starlette.responses import Response

from strandline.pipelines.audit.appending import Act
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.facts.listing import Fact, FactFilter, FactPlace, PageRequest
from strandline.producers.facts.listing import list_facts as facts_of
from strandline.producers.owner_facts import OwnerFacts
from strandline.producers.writing.sources import FactChanges, named_source
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
    FactsFrom,
    FactsOut,
    FoundFacts,
    MergedOut,
    OptimizationOut,
    OptimizeIn,
    SortOrder,
)
from strandline.service.access import Access
from strandline.service.forms import etag_of, fact_form, json_response
from strandline.service.gate.cursors import cursor_of, read_place_cursor
from strandline.service.gate.problems import NOT_FOUND, ProblemError, invalid
from strandline.service.params import Cursor, FactId, PageSize, SourceId, UserId, make_router
from strandline.service.route import call_of

router = make_router()

_LIST = "facts"
TopicFilter = Annotated[list[str] | None, Query(max_length=20, description="Facts with one of these topics.")]
NameFilter = Annotated[str | None, Query(max_length=512)]


_NOT_CHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is as the ETag of If-None-Match says."}
}


@router.get("/v1/users/{user}/facts", tags=["facts"], response_model=FactsOut)
@Access("read", "reads", ("facts", "names"))
async def list_facts(
    request: Request,
    user: UserId,
    limit: PageSize = 100,
    cursor: Cursor = None,
    sort: SortOrder = "newest",
    contains: Annotated[
        str | None, Query(max_length=1_000, description="Facts with this in their text.")
    ] = None,
    topic: TopicFilter = None,
    agent_id: NameFilter = None,
    team_id: NameFilter = None,
    with_invalidated: Annotated[bool, Query(description="Also facts that ended.")] = False,
) -> Response:
    """A page of the live facts, and how many there are.

    A page goes on behind the last fact of the one before: what is added or deleted meanwhile moves no other
    fact, so none is left out and none comes twice.  Sorted by `updated`, a fact that changes moves.
    A page ends with the fact that fills 4 MB, if that comes before `limit`.
    """
    call = call_of(request)
    owner = call.caller.owner(user)
    after = read_place_cursor(f"{_LIST}/{sort}", cursor, FactPlace.read)
    page_request = replace(PageRequest.check(limit, 0, sort, contains), limit=limit + 1, after=after)
    filters = FactFilter.check(topic, agent_id, team_id, with_invalidated)
    recorder = Recorder(owner, call.service.resources.compliance, call.service.resources.audit_levels)
    listing = recorder.read(
        Act.here("facts.read"),
        facts_of(owner, page_request, filters),
        lambda act, page: replace(act, count=min(len(page), limit)),
    )
    fact_page = await call.service.runner.arun(listing)
    page = fact_page[:limit]
    more = fact_page.is_cut or len(fact_page) > limit
    following = cursor_of(f"{_LIST}/{sort}", str(FactPlace.of(page[-1], sort))) if more else None
    body = {"items": [*map(fact_form, page)], "next_cursor": following, "total": fact_page.total}
    return await call.aside.run(lambda: json_response(body))


@router.post("/v1/users/{user}/facts", status_code=201, tags=["facts"], response_model=FactOut)
@Access("facts", "writes", ("facts", "names"), idempotent="same")
async def add_fact(request: Request, user: UserId, body: FactIn) -> Response:
    """Add a fact by hand; a live fact in the same words is given instead."""
    fact = await owner_facts(request, user).aadd(**body.model_dump())
    return _fact_response(fact, status=201)


@router.delete("/v1/users/{user}/facts", tags=["facts"])
@Access("facts", "writes", (), idempotent="refused")
async def clear_facts(request: Request, user: UserId) -> Cleared:
    """Delete all facts of the user for good; nothing said earlier comes back as a fact."""
    return Cleared(facts=await owner_facts(request, user).aclear())


@router.get(
    "/v1/users/{user}/facts/{fact_id:uuid}", tags=["facts"], response_model=FactOut, responses=_NOT_CHANGED
)
@Access("read", "reads", ("facts", "names"))
async def get_fact(request: Request, user: UserId, fact_id: FactId) -> Response:
    """One fact, even if it ended; its ETag names it as it is."""
    fact = await owner_facts(request, user).aget(fact_id)
    if fact is not None and _is_known(request, etag_of(fact)["ETag"]):
        return Response(status_code=304, headers=etag_of(fact))
    return _fact_response(fact)


@router.patch("/v1/users/{user}/facts/{fact_id:uuid}", tags=["facts"], response_model=FactOut)
@Access("facts", "writes", ("facts", "names"), matches=True, idempotent="refused")
async def replace_fact(request: Request, user: UserId, fact_id: FactId, body: FactPatch) -> Response:
    """Give a live fact other words; with `If-Match` only if it is still as that ETag says."""
    fact = await owner_facts(request, user).areplace(
        fact_id, **body.model_dump(), if_version=_if_match(request)
    )
    return _fact_response(fact)


@router.delete("/v1/users/{user}/facts/{fact_id:uuid}", status_code=204, tags=["facts"])
@Access("facts", "writes", (), matches=True, idempotent="same")
async def delete_fact(request: Request, user: UserId, fact_id: FactId) -> Response:
    """Delete a fact and its history for good; it does not come back from earlier messages."""
    facts = owner_facts(request, user)
    if not await facts.adelete(fact_id, if_version=_if_match(request)):
        raise ProblemError(NOT_FOUND)
    return Response(status_code=204)


@router.put("/v1/users/{user}/facts/{fact_id:uuid}/feedback", tags=["facts"], response_model=FactOut)
@Access("facts", "writes", ("facts", "names"), matches=True, idempotent="same")
async def judge_fact(request: Request, user: UserId, fact_id: FactId, body: FactFeedback) -> Response:
    """Record people's opinion of a fact; null removes it."""
    fact = await owner_facts(request, user).afeedback(
        fact_id, **body.model_dump(), if_version=_if_match(request)
    )
    return _fact_response(fact)


@router.get("/v1/users/{user}/facts/{fact_id:uuid}/history", tags=["facts"], response_model=FactHistoryOut)
@Access("read", "reads", ("facts", "names", "operators"))
async def fact_history(request: Request, user: UserId, fact_id: FactId) -> Response:
    """A fact with its revisions, each with the messages, flush and model, or the person, that made it."""
    fact = await owner_facts(request, user).aget(fact_id)
    if fact is None:
        raise ProblemError(NOT_FOUND)
    return json_response({"fact": fact_form(fact), "revisions": fact.revisions}, headers=etag_of(fact))


@router.post("/v1/users/{user}/facts/search", tags=["facts"], response_model=FoundFacts)
@Access("read", "reads", ("facts", "names"))
async def search_facts(request: Request, user: UserId, body: FactSearch) -> Response:
    """The live facts that match best, best first; they end with the fact that fills 4 MB."""
    matches = await owner_facts(request, user).asearch(**body.model_dump())
    items = [{"fact": fact_form(m.fact), "score": m.score, "similarity": m.similarity} for m in matches]
    return await call_of(request).aside.run(lambda: json_response({"items": items}))


@router.post("/v1/users/{user}/facts/choose", tags=["facts"], response_model=ChosenFactsOut)
@Access("read", "others", ("facts", "names"))
async def choose_facts(request: Request, user: UserId, body: FactChoice) -> Response:
    """Let a model choose the facts that help with a question; the ledger counts its call."""
    chosen = await owner_facts(request, user).achoose(**body.model_dump())
    return json_response(
        {
            "items": [*map(fact_form, chosen)],
            "considered": chosen.considered,
            "model": chosen.model,
            "input_tokens": chosen.input_tokens,
            "output_tokens": chosen.output_tokens,
        }
    )


@router.post("/v1/users/{user}/facts/from-messages", tags=["facts"], response_model=FactChangesOut)
@Access("facts", "others", ("facts", "names"), idempotent="own")
async def facts_from_messages(request: Request, user: UserId, body: FactsFrom) -> Response:
    """Have facts made of messages that are in no chat; `Prefer: wait=5` waits for the workers so long."""
    call = call_of(request)
    changes = await owner_facts(request, user).acreate_from(
        [message.openai_form() for message in body.messages],
        key=body.key or call.idempotency_key,
        wait=call.wait_seconds,
    )
    await call.check_key()
    return _changes_response(changes)


@router.post("/v1/users/{user}/facts/instruct", tags=["facts"], response_model=FactChangesOut)
@Access("facts", "others", ("facts", "names"), idempotent="own")
async def instruct_facts(request: Request, user: UserId, body: FactInstruction) -> Response:
    """Have the facts changed as the user asks for; `Prefer: wait=5` waits for the workers so long."""
    call = call_of(request)
    changes = await owner_facts(request, user).ainstruct(
        body.task, key=body.key or call.idempotency_key, wait=call.wait_seconds
    )
    await call.check_key()
    return _changes_response(changes)


@router.post("/v1/users/{user}/facts/optimize", tags=["facts"])
@Access("facts", "others", ("facts",), idempotent="refused")
async def optimize_facts(request: Request, user: UserId, body: OptimizeIn) -> OptimizationOut:
    """Propose to say the facts in fewer sentences, and carry it out if asked; a model is asked once.

    What people worded or judged stays as it is. A fact that was changed since is a conflict.
    """
    facts = owner_facts(request, user)
    proposal = await facts.aoptimize()
    if body.apply:
        await facts.aapply_optimization(proposal)
    return OptimizationOut(
        merged=[MergedOut.model_validate(one) for one in proposal.merged],
        facts_before=proposal.facts_before,
        facts_after=proposal.facts_after,
        tokens_before=proposal.tokens_before,
        tokens_after=proposal.tokens_after,
        model=proposal.model,
        applied=body.apply,
    )


@router.delete("/v1/users/{user}/sources/{source}", status_code=204, tags=["facts"])
@Access("facts", "writes", (), idempotent="same")
async def forget_source(request: Request, user: UserId, source: SourceId) -> Response:
    """Delete the messages of a source, and the facts that only it supports."""
    call = call_of(request)
    await call.service.records.find(named_source(call.caller.owner(user), source))
    await owner_facts(request, user).aforget_source(source)
    return Response(status_code=204)


def owner_facts(request: Request, user: str) -> OwnerFacts:
    """The facts of a user of the caller's."""
    call = call_of(request)
    return OwnerFacts(call.service.resources, call.caller.owner(user))


def _if_match(request: Request) -> str | None:
    """The version that If-Match names; None: any."""
    value = request.headers.get("if-match")
    if value is None or value.strip() == "*":
        return None
    tag = value.strip()
    if len(tag) < 2 or tag[0] != '"' or tag[-1] != '"':
        raise invalid("/header/If-Match", "It must be one strong ETag, as the service gave it.")
    return tag[1:-1]


def _is_known(request: Request, etag: str) -> bool:
    """Whether If-None-Match names this ETag."""
    known = request.headers.get("if-none-match", "").split(",")
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in known)


def _fact_response(fact: Fact | None, *, status: int = 200) -> Response:
    if fact is None:
        raise ProblemError(NOT_FOUND)
    return json_response(fact_form(fact), status, etag_of(fact))


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
