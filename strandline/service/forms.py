"""The form of values over HTTP: messages, contexts, facts and hits as the wire has them.

A context has hundreds of messages, so these become dicts at once, and JSON is made of them in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import MemoryContext
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.search import SearchResult
from strandline.schemas.values.message import Message, plain
from strandline.schemas.wire.base import CAUGHT_UP_HEADER, COVERED_HEADER, Page
from strandline.schemas.wire.contexts import MessagesForm
from strandline.schemas.wire.facts import FactOut
from strandline.service.gate.problems import NOT_FOUND, ProblemError, invalid
from strandline.service.params import cursor_of

A = TypeVar("A", bound=BaseModel)
R = TypeVar("R")


# Of a long list, written at once: one call for megabytes would keep the interpreter from all other requests.
ITEMS_AT_ONCE = 64


def json_response(
    body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An object of plain values as JSON."""
    content = b",".join(to_json(name) + b":" + _json(value) for name, value in body.items())
    return Response(b"{" + content + b"}", status, media_type="application/json", headers=dict(headers or {}))


def _json(value: Any) -> bytes:
    if not isinstance(value, list) or len(value) <= ITEMS_AT_ONCE:
        return to_json(value)
    parts = (value[first : first + ITEMS_AT_ONCE] for first in range(0, len(value), ITEMS_AT_ONCE))
    return b"[" + b",".join(to_json(part)[1:-1] for part in parts) + b"]"


def message_form(message: Message) -> dict[str, Any]:
    """A message as ``MessageOut`` has it."""
    form: dict[str, Any] = {
        "role": message.role,
        "content": message.content if isinstance(message.content, str) else plain(message.content),
        "id": message.id,
        "seq": message.seq,
        "tokens": message.tokens,
        "created_at": message.created_at,
    }
    if message.name is not None:
        form["name"] = message.name
    if message.tool_calls:
        form["tool_calls"] = plain(message.tool_calls)
    if message.tool_call_id is not None:
        form["tool_call_id"] = message.tool_call_id
    if message.metadata:
        form["metadata"] = dict(message.metadata)
    if message.extra:
        form["extra"] = dict(message.extra)
    return form


def message_forms(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [message_form(message) for message in messages]


def context_form(context: MemoryContext, messages: MessagesForm = "stored") -> dict[str, Any]:
    """A context as ``ContextOut`` has it, with its messages in the form that was asked for."""
    memory = context.memory
    return {
        "session_id": context.session_id,
        "messages": context.to_openai() if messages == "openai" else message_forms(context.messages),
        "tokens": context.tokens,
        "token_limit": context.token_limit,
        "over_budget": context.over_budget,
        "caught_up": context.caught_up,
        "covered_through": dict(context.covered_through),
        "omitted": context.omitted,
        "facts": memory.facts,
        "hits": [
            {
                "message": message_form(hit.message),
                "session_id": hit.session_id,
                "score": hit.score,
                "similarity": hit.similarity,
                "tokens": hit.tokens,
                "is_beside": hit.is_beside,
            }
            for hit in memory.hits
        ],
        "summary": memory.summary,
        "window_from": context.window_from,
        "pinned_through": context.pinned_through,
        "prompt_seq": context.prompt_seq,
        "time_zone": context.time_zone,
        "waiting": context.waiting,
    }


def freshness(context: MemoryContext) -> dict[str, str]:
    """How far derived memory is, as headers."""
    covered = ", ".join(f"{name}={seq}" for name, seq in sorted(context.covered_through.items()))
    return {
        COVERED_HEADER: covered if covered.isascii() else "",
        CAUGHT_UP_HEADER: "true" if context.caught_up else "false",
    }


_FACT_FIELDS = tuple(FactOut.model_fields)


def fact_form(fact: Fact) -> dict[str, Any]:
    """A fact as ``FactOut`` has it."""
    return {name: getattr(fact, name) for name in _FACT_FIELDS}


def etag_of(fact: Fact) -> dict[str, str]:
    return {"ETag": f'"{fact.version}"'}


def hit_form(hit: SearchResult) -> dict[str, Any]:
    """A hit as ``HitOut`` has it."""
    form = {"kind": hit.kind, "score": hit.score, "similarity": hit.similarity, "text": hit.text}
    if isinstance(hit, FoundFact):
        return {**form, "fact": fact_form(hit.fact)}
    return {**form, "session_id": hit.session_id, "message": message_form(hit.message)}


def fact_response(fact: Fact | None, status: int = 200) -> Response:
    """A fact with its present ETag; raises a problem if it does not exist."""
    if fact is None:
        raise ProblemError(NOT_FOUND)
    return json_response(fact_form(fact), status, etag_of(fact))


def version_in(if_match: str | None) -> str | None:
    """The version that If-Match names; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if len(tag) < 2 or tag[0] != '"' or tag[-1] != '"':
        raise invalid("/header/If-Match", "It must be one strong ETag, as the service gave it.")
    return tag[1:-1]


def is_known(request: Request, fact: Fact) -> bool:
    """Whether If-None-Match names the fact as it is."""
    known = request.headers.get("if-none-match", "").split(",")
    return any(one.strip().removeprefix("W/") in (etag_of(fact)["ETag"], "*") for one in known)


def response_of(result: Any, answer: type[BaseModel] | None, status: int) -> Any:
    """The result of an operation as the model of the answer; a model of one field holds it."""
    if answer is FactOut and not isinstance(result, Response):
        return fact_response(result, status)
    if answer is None or isinstance(result, (Response, BaseModel)):
        return result
    name, *others = answer.model_fields
    return answer.model_validate(result if others or hasattr(result, name) else {name: result})


def page_within(
    kind: type[A], rows: Sequence[R], limit: int, name: str, place: Callable[[R], int | str]
) -> Page[A]:
    """The first rows as a page of the list ``name``; the next begins behind the place of its last row."""
    page = rows[:limit]
    return page_of(kind, page, name, place(page[-1]) if len(rows) > limit else None)


def page_of(kind: type[A], rows: Iterable[object], name: str, after: int | str | None) -> Page[A]:
    """Rows as a page of the list ``name``; the next page begins behind ``after``, None: it is the last."""
    following = None if after is None else cursor_of(name, after)
    return Page[kind](  # type: ignore[valid-type]
        items=[kind.model_validate(row) for row in rows], next_cursor=following
    )
