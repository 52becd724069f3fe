"""The operations of a user's facts, by the names of ``OwnerFacts``' methods; each describes its requests."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID, uuid4

from strandline.client.operations import (
    LOST,
    NOT_FOUND,
    Call,
    Operation,
    Reply,
    UserFace,
    following,
    path,
    set_fields,
)
from strandline.client.retrying import Repeat
from strandline.client.session_operations import namespace_of
from strandline.client.values import changes_from, fact_from, message_bodies
from strandline.producers.arguments import check_count, check_timeout
from strandline.producers.facts.edit_operations import Wording, checked_feedback
from strandline.producers.facts.figures import OwnerFigures, TopicCount
from strandline.producers.facts.importing import FactsImported
from strandline.producers.facts.listing import Fact, FactPage, PageRequest, Sort, as_fact_id, checked_limit
from strandline.producers.search.choice import ChosenFacts
from strandline.producers.search.facts import FoundFact
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.errors import InvalidMessageError, OutcomeUnknownError
from strandline.schemas.values.acts.capture import Capture
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


def get(facts: UserFace, fact_id: UUID | str) -> Operation[Fact | None]:
    """One fact of this user with its revisions, even if it ended; None if no fact has this id."""
    place = _place(facts, fact_id)
    if place is None:
        return None
    reply = yield Call("GET", f"{place}/history", accepts=NOT_FOUND)
    if reply.is_missing:
        return None
    out = reply.read(FactHistoryOut)
    return fact_from(out.fact, (yield from namespace_of(facts.service)), out.revisions)


def list(
    facts: UserFace,
    *,
    limit: int = 100,
    offset: int = 0,
    sort: Sort = "newest",
    contains: str | None = None,
    topics: Sequence[str] | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    with_invalidated: bool = False,
    first_n: int | None = None,
    last_n: int | None = None,
) -> Operation[FactPage]:
    """A page of the live facts, without their revisions; ``.total`` is the number of all of them.

    Arguments are those of ``OwnerFacts.list``; a large ``offset`` takes a request for each 1,000 facts.
    """
    page = PageRequest.check(limit, offset, sort, contains, first_n, last_n)
    filters = set_fields(
        sort=page.sort,
        contains=page.contains,
        topic=None if topics is None else [*topics],
        agent_id=agent_id,
        team_id=team_id,
        with_invalidated="true" if with_invalidated else None,
    )
    namespace = yield from namespace_of(facts.service)
    facts_read: builtins.list[Fact] = []
    skip, left, cursor = page.offset, page.limit, None
    while True:
        number = min(MAX_PAGE, skip or max(left, 1))
        reply = yield _read(facts, "facts", query={**filters, "limit": number, "cursor": cursor})
        out = reply.read(FactsOut)
        if skip:
            skip -= min(skip, len(out.items)) if out.items else skip
        else:
            facts_read += [fact_from(one, namespace) for one in out.items[:left]]
            left -= len(out.items)
        cursor = following(out.next_cursor, cursor)
        if left <= 0 or cursor is None:
            return FactPage(facts_read[::-1] if page.is_turned else facts_read, out.total)


def search(
    facts: UserFace,
    query: str,
    *,
    limit: int = 10,
    topics: Sequence[str] | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
) -> Operation[Sequence[FoundFact]]:
    """The live facts that match ``query`` best, best first, by their words and their sources."""
    body = {"query": query, "limit": checked_limit(limit), **_filters(topics, agent_id, team_id)}
    reply = yield _read(facts, "facts", "search", body=body)
    items = reply.read(FoundFacts).items
    namespace = yield from namespace_of(facts.service)
    return [FoundFact(fact_from(one.fact, namespace), one.score, one.similarity) for one in items]


def add(
    facts: UserFace,
    text: str,
    *,
    topics: Sequence[str] | None = None,
    about_date: date | None = None,
    input: str | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    actor: str | None = None,
) -> Operation[Fact]:
    """Add a fact by hand and return it; if a live fact has the same words, return that one."""
    wording = Wording.check(
        text, topics=topics, about_date=about_date, input=input, agent_id=agent_id, team_id=team_id
    )
    body = {"text": wording.text, **_filters(wording.topics, agent_id, team_id)}
    body |= set_fields(about_date=_day(wording.about_date), input=wording.input, actor=actor)
    reply = yield _change(facts, "POST", "facts", body=body)
    return fact_from(reply.read(FactOut), (yield from namespace_of(facts.service)))


def replace(
    facts: UserFace,
    fact_id: UUID | str,
    text: str,
    *,
    topics: Sequence[str] | None = None,
    about_date: date | None = None,
    actor: str | None = None,
    if_version: str | None = None,
) -> Operation[Fact | None]:
    """Give a live fact other words and return it; None if this user has no such live fact."""
    wording = Wording.check(text, topics=topics, about_date=about_date)
    body = {"text": wording.text, **_filters(wording.topics)}
    body |= set_fields(about_date=_day(wording.about_date), actor=actor)
    return (yield from _edit(facts, "PATCH", fact_id, "", body, if_version))


def feedback(
    facts: UserFace,
    fact_id: UUID | str,
    feedback: str | None,
    *,
    actor: str | None = None,
    if_version: str | None = None,
) -> Operation[Fact | None]:
    """Record people's opinion of a fact (None removes it); return None if this user has no such fact."""
    body = {"feedback": checked_feedback(feedback), **set_fields(actor=actor)}
    return (yield from _edit(facts, "PUT", fact_id, "/feedback", body, if_version))


def delete(facts: UserFace, fact_id: UUID | str, *, if_version: str | None = None) -> Operation[bool]:
    """Delete a fact and its history for good; False if this user has no such fact."""
    place = _place(facts, fact_id)
    if place is None:
        return False
    reply = yield Call(
        "DELETE", place, headers=_if_match(if_version), repeat=_repeat(if_version), accepts=NOT_FOUND
    )
    if reply.is_missing and reply.was_lost:
        # The lost attempt deleted it, or came to nothing: what people did to the fact says which.
        explained = yield Call(
            "GET",
            path("explain", "facts", str(as_fact_id(fact_id))),
            user_id=facts.user_id,
            accepts=NOT_FOUND | {"forbidden"},
        )
        if explained.status == 403:
            raise OutcomeUnknownError(LOST)
        events = () if explained.is_missing else explained.read(AnyFactExplanation).root.events
        return any(event.kind == "delete" for event in events)
    return not reply.is_missing


def clear(facts: UserFace) -> Operation[int]:
    """Delete all facts of this user for good; return how many were live."""
    reply = yield _change(facts, "DELETE", "facts", repeat="if_not_done")
    return reply.read(Cleared).facts


def import_facts(of_user: UserFace, facts: Sequence[ImportedFactIn]) -> Operation[FactsImported]:
    """Add up to 200 facts of another system, each once, by the ids that they have there."""
    body = {"facts": [one.model_dump(mode="json", exclude_none=True) for one in facts]}
    reply = yield _change(of_user, "POST", "facts", "import", body=body)
    done = reply.read(ImportFactsOut)
    return FactsImported(done.known, done.added)


def create_from(
    facts: UserFace, messages: Sequence[object], *, key: str | None = None, wait: float | None = None
) -> Operation[FactChanges]:
    """Have facts made of messages that are in no chat; return what came of them."""
    body = {"messages": message_bodies(messages)}
    return (yield from _source(facts, "from-messages", body, key, wait))


def instruct(
    facts: UserFace, task: str, *, key: str | None = None, wait: float | None = None
) -> Operation[FactChanges]:
    """Have this user's facts changed as the user asks for ("forget my address"); return what changed."""
    return (yield from _source(facts, "instruct", {"task": task}, key, wait))


def forget_source(facts: UserFace, source_id: str) -> Operation[None]:
    """Delete a source's messages, and the facts that only it supports; unknown ids change nothing."""
    yield Call("DELETE", path("users", facts.user_id, "sources", source_id), accepts=NOT_FOUND)


def choose(
    facts: UserFace,
    question: str,
    *,
    limit: int = 10,
    among: int = 200,
    topics: Sequence[str] | None = None,
) -> Operation[ChosenFacts]:
    """Let a model choose the live facts that help with ``question``, the most helpful first."""
    body = {"question": question, "limit": limit, "among": among, **_filters(topics)}
    reply = yield _read(facts, "facts", "choose", body=body, repeat="if_not_done")
    out = reply.read(ChosenFactsOut)
    namespace = yield from namespace_of(facts.service)
    return ChosenFacts(
        [fact_from(one, namespace) for one in out.items],
        considered=out.considered,
        model=out.model,
        input_tokens=out.input_tokens,
        output_tokens=out.output_tokens,
    )


def explain(facts: UserFace, fact_id: UUID | str) -> Operation[FactExplanation | RemovedFactExplanation]:
    """Where a fact comes from: its revisions with their messages, and what people did to it.

    Raises:
        NotFoundError: this user has no such fact, and never had one.
    """
    call = Call("GET", path("explain", "facts", str(as_fact_id(fact_id))), user_id=facts.user_id)
    return (yield call).read(AnyFactExplanation).root


def topics(facts: UserFace, *, limit: int = 100) -> Operation[Sequence[TopicCount]]:
    """The topics of the live facts, the most frequent first, each with its number of facts."""
    number = check_count("limit", limit, most=MAX_PAGE)
    reply = yield _read(facts, "topics", query={"limit": max(number, 1)})
    return [TopicCount(one.topic, one.facts) for one in reply.read(TopicsOut).items[:number]]


def figures(facts: UserFace) -> Operation[OwnerFigures]:
    """How many facts, sessions, messages and tokens there are of this user, and since when."""
    reply = yield _read(facts, "figures")
    return OwnerFigures(**reply.read(FiguresOut).model_dump())


def optimize(facts: UserFace, *, apply: bool = False) -> Operation[OptimizationOut]:
    """Propose to say the facts in fewer sentences; with ``apply`` carry it out in the same request."""
    reply = yield _change(facts, "POST", "facts", "optimize", body={"apply": apply}, repeat="if_not_done")
    return reply.read(OptimizationOut)


def get_capture(facts: UserFace) -> Operation[Capture]:
    """What is captured as facts of this user now."""
    reply = yield _read(facts, "capture")
    return Capture(**reply.read(CaptureOut).model_dump())


def set_capture(facts: UserFace, capture: Capture, *, actor: str | None = None) -> Operation[int]:
    """Set the capture from the next flush on; returns the act's number.  Takes a key of operators."""
    if not isinstance(capture, Capture):
        raise InvalidMessageError("capture", f"must be a Capture, not {type(capture).__name__}")
    fields = (
        "may_add", "may_update", "may_delete", "instructions", "more_instructions", "summary_instructions",
    )  # fmt: skip
    body = set_fields(**{name: getattr(capture, name) for name in fields}, actor=actor)
    reply = yield _change(facts, "PUT", "capture", body=body)
    return reply.read(CaptureSet).number


def _edit(
    facts: UserFace,
    method: Any,
    fact_id: UUID | str,
    below: str,
    body: Mapping[str, Any],
    version: str | None,
) -> Operation[Fact | None]:
    place = _place(facts, fact_id)
    if place is None:
        return None
    reply: Reply = yield Call(
        method,
        place + below,
        body=body,
        headers=_if_match(version),
        repeat=_repeat(version),
        accepts=NOT_FOUND,
    )
    if reply.is_missing:
        return None
    return fact_from(reply.read(FactOut), (yield from namespace_of(facts.service)))


def _source(
    facts: UserFace, route: str, body: Mapping[str, Any], key: str | None, wait: float | None
) -> Operation[FactChanges]:
    # The key makes it repeatable, so there is always one.
    sent = {**body, "key": uuid4().hex if key is None else key}
    seconds = None if wait is None else max(0.0, check_timeout(wait))
    reply = yield Call("POST", path("users", facts.user_id, "facts", route), body=sent, wait_seconds=seconds)
    return changes_from(reply.read(FactChangesOut), (yield from namespace_of(facts.service)))


def _read(
    facts: UserFace,
    *route: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    repeat: Repeat = "always",
) -> Call:
    return Call(
        "GET" if body is None else "POST",
        path("users", facts.user_id, *route),
        query=query or {},
        body=body,
        repeat=repeat,
        is_read=True,
    )


def _change(facts: UserFace, method: Any, *route: str, body: Any = None, repeat: Repeat = "always") -> Call:
    return Call(method, path("users", facts.user_id, *route), body=body, repeat=repeat)


def _place(facts: UserFace, fact_id: UUID | str) -> str | None:
    """The path of a fact; None for an impossible id."""
    id_ = as_fact_id(fact_id)
    return None if id_ is None else path("users", facts.user_id, "facts", str(id_))


def _if_match(version: str | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _repeat(version: str | None) -> Repeat:
    """Safe once done: a repeated change of a version finds another version."""
    return "always" if version is None else "if_not_done"


def _filters(
    topics: Sequence[str] | None, agent_id: str | None = None, team_id: str | None = None
) -> dict[str, Any]:
    return set_fields(topics=None if topics is None else [*topics], agent_id=agent_id, team_id=team_id)


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
