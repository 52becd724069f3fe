"""Runs a call of a tool: written once, run sync or async.

A model's faults become results; only failures that it cannot mend, such as a database that is away, are
raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.recording import was_taken_away
from strandline.pipelines.models.answer_forms import is_placeholder
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.facts.edit_operations import Wording
from strandline.producers.facts.edits import FactEdits
from strandline.producers.facts.listing import Fact, as_fact_id, get_fact
from strandline.producers.reading.context import Source, sources_of_places
from strandline.producers.reading.read import read
from strandline.producers.reading.request import ReadRequest
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import HitKind
from strandline.producers.search.ranking import EmbedQuery
from strandline.producers.search.search import FoundMessage, SearchRequest, SearchResult, search_history
from strandline.producers.tools.context_text import context_result
from strandline.producers.tools.definitions import (
    ADD,
    CONTEXT,
    DELETE,
    SEARCH,
    TOOLS,
    UPDATE,
    Argument,
    NumberArgument,
    TextArgument,
    TextsArgument,
    ToolDefinition,
    offered_tools,
)
from strandline.producers.tools.results import (
    DeletedMemory,
    KnownMemory,
    MemoryResult,
    ScoredMemory,
    SearchedMemories,
    StoredMemory,
    ToolProblem,
    ToolResult,
    memory_fields,
    scored_message,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.conversation.read import FactSources
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.queries.derived.facts_edit import FactWasDeleted
from strandline.schemas.queries.work.limits import AgentsMayWrite
from strandline.schemas.values.foreign_values import plain_list, plain_number, plain_text, unreadable
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.stored_text import check_text

# Who acts, in the events of an owner's facts.
AGENT = "agent"

Arguments = Mapping[str, Any]
T = TypeVar("T")
_DELETED = ToolProblem(
    error="deleted",
    message="Nothing was stored: the user has deleted this memory. Their later words count by themselves.",
)
# Ten times the longest arguments, with every character escaped.
MAX_JSON_CHARACTERS = 200_000
# So many of the unknown arguments are named.
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class ToolScope:
    """The memory that the calls work on, with its reads, its recorder, and the hook for new texts."""

    identity: SessionIdentity
    embed_query: EmbedQuery
    read_request: Callable[[str, int], ReadRequest]
    recorder: Recorder
    redaction: Redaction | None = None

    @property
    def edits(self) -> FactEdits:
        return FactEdits(self.identity.owner, AGENT, self.recorder, self.redaction)


def call_tool(scope: ToolScope, name: object, arguments: object, *, read_only: bool) -> Operation[ToolResult]:
    """Run one call; a ``ToolProblem`` explains its fault.

    Args:
        arguments: a mapping, or the JSON of an object.
        read_only: refuse the tools that change something, as a namespace can do for all its memories.

    Raises:
        OwnerError: the memory's session belongs to another owner.
        RedactionError: a redaction hook failed; nothing was stored.
        UnknownPipelineError: no worker has ever run, so there is nowhere to keep facts.
        StrandlineError: the database failed.
    """
    tool = TOOLS.get(plain_text(name)) if isinstance(name, str) else None
    if tool is None:
        return _unknown(name, read_only=read_only)
    try:
        checked = read_arguments(tool, arguments)
    except InvalidMessageError as error:
        return ToolProblem(error="invalid_arguments", message=str(error))
    if not tool.is_read_only and (read_only or not (yield from _may_write(scope))):
        return _refusal(tool)
    try:
        return (yield from _CALLS[tool.name](scope, checked))
    except InvalidMessageError as error:  # such as a refusal of a redaction hook
        return ToolProblem(error="invalid_arguments", message=str(error))


def _unknown(name: object, *, read_only: bool) -> ToolProblem:
    names = ", ".join(tool.name for tool in offered_tools(read_only=read_only))
    return ToolProblem(
        error="unknown_tool", message=f"No tool is named {quote(name)}; the tools are {names}."
    )


def _may_write(scope: ToolScope) -> Operation[bool]:
    rows = yield from fetch(AgentsMayWrite(namespace=scope.identity.namespace))
    return rows[0].may_write


def _refusal(tool: ToolDefinition) -> ToolProblem:
    names = " and ".join(one.name for one in offered_tools(read_only=True))
    return ToolProblem(
        error="read_only",
        message=f"{tool.name} did nothing: agents may only read this memory. {names} can be used.",
    )


def _not_found(fact_id: str) -> ToolProblem:
    return ToolProblem(
        error="not_found",
        message=f"No remembered fact has the id {quote(fact_id)}; search_memories gives the ids of facts.",
    )


def _search(scope: ToolScope, arguments: Arguments) -> Operation[ToolResult]:
    scope = replace(scope, embed_query=_embed_once(scope.embed_query))
    facts, messages = yield from scope.recorder.read(
        Act.here("search", actor=AGENT),
        _search_both(scope, arguments),
        lambda act, hits: replace(act, count=len(hits[0]) + len(hits[1])),
    )
    sources = yield from _sources(scope, [hit.fact.fact_id for hit in facts])
    return SearchedMemories(
        memories=[
            ScoredMemory(**memory_fields(hit.fact, sources.get(hit.fact.fact_id, ())), score=hit.score)
            for hit in facts
        ],
        messages=[scored_message(hit) for hit in messages],
    )


def _search_both(
    scope: ToolScope, arguments: Arguments
) -> Operation[tuple[Sequence[FoundFact], Sequence[FoundMessage]]]:
    facts = cast("Sequence[FoundFact]", (yield from _hits(scope, arguments, "fact")))
    messages = cast("Sequence[FoundMessage]", (yield from _hits(scope, arguments, "message")))
    return facts, messages


def _hits(scope: ToolScope, arguments: Arguments, kind: HitKind) -> Operation[list[SearchResult]]:
    return search_history(
        SearchRequest(
            identity=scope.identity,
            query=arguments["query"],
            limit=arguments["limit"],
            scope="owner",
            embed_query=scope.embed_query,
            kinds=(kind,),
        )
    )


def _embed_once(embed_query: EmbedQuery) -> EmbedQuery:
    """``embed_query``, called once for two searches with the same text."""
    answers: list[tuple[str, Mapping[str, Any], str | None]] = []

    def embed(text: str, config: Mapping[str, Any]) -> str | None:
        for asked, of_config, vector in answers:
            if (asked, of_config) == (text, config):
                return vector
        answers.append((text, config, embed_query(text, config)))
        return answers[-1][2]

    return embed


def _add(scope: ToolScope, arguments: Arguments) -> Operation[ToolResult]:
    wording = Wording.check(arguments["text"], topics=arguments["topics"])
    if (yield from was_taken_away(scope.identity.shard_key, wording.text, AGENT)):
        return _DELETED
    return (yield from _show_fact(scope, (yield from scope.edits.add(wording))))


def _update(scope: ToolScope, arguments: Arguments) -> Operation[ToolResult]:
    wording = Wording.check(arguments["text"])
    if (yield from was_taken_away(scope.identity.shard_key, wording.text, AGENT)):
        return _DELETED
    fact = yield from scope.edits.replace(arguments["id"], wording)
    return _not_found(arguments["id"]) if fact is None else (yield from _show_fact(scope, fact))


def _delete(scope: ToolScope, arguments: Arguments) -> Operation[ToolResult]:
    fact_id = as_fact_id(arguments["id"])
    if fact_id is None:
        return _not_found(arguments["id"])
    is_gone = yield from scope.edits.delete(fact_id)
    if not is_gone:
        is_gone = yield from _was_deleted(scope.identity.shard_key, fact_id)
    return DeletedMemory(id=str(fact_id), deleted=True) if is_gone else _not_found(arguments["id"])


def _was_deleted(shard_key: UUID, fact_id: UUID) -> Operation[bool]:
    """Whether a fact was deleted before; False if this owner never had it."""
    rows = yield from fetch(FactWasDeleted(shard_key=shard_key, fact_id=fact_id))
    return rows[0].was_deleted


def _context(scope: ToolScope, arguments: Arguments) -> Operation[ToolResult]:
    request = scope.read_request(arguments["question"], arguments["token_limit"])
    context = yield from scope.recorder.read(Act.here("read", actor=AGENT), read(request))
    # Off the event loop: all that is given is counted.
    result: ToolResult = yield Run(partial(context_result, context, request.token_limit, request.count_text))
    return result


def _show_fact(scope: ToolScope, fact: Fact) -> Operation[ToolResult]:
    sources = yield from _sources(scope, [fact.fact_id])
    memory = MemoryResult(**memory_fields(fact, sources.get(fact.fact_id, ())))
    other = None if fact.doubt is None else (yield from get_fact(scope.identity.owner, fact.doubt.fact_id))
    known = None if other is None else KnownMemory(id=str(other.fact_id), text=other.text)
    return StoredMemory(memory=memory, may_contradict=known)


def _sources(scope: ToolScope, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Source, ...]]]:
    if not fact_ids:
        return {}
    shard_key = scope.identity.shard_key
    rows = yield from fetch(FactSources(shard_key=shard_key, generation_id=None, fact_ids=list(fact_ids)))
    keys = sorted({row.session_key for row in rows if row.session_key is not None})
    names = yield from fetch(SessionNames(shard_key=shard_key, session_keys=keys))
    session_ids = {row.session_key: row.session_id for row in names}
    places: dict[UUID, set[tuple[str, int]]] = {}
    for row in rows:
        if row.session_key in session_ids:
            session_id = session_ids[row.session_key]
            places.setdefault(row.fact_id, set()).update((session_id, seq) for seq in row.seqs or ())
    return {fact_id: sources_of_places(sorted(of_fact)) for fact_id, of_fact in places.items()}


_CALLS: Mapping[str, Callable[[ToolScope, Arguments], Operation[ToolResult]]] = {
    SEARCH.name: _search,
    ADD.name: _add,
    UPDATE.name: _update,
    DELETE.name: _delete,
    CONTEXT.name: _context,
}


def read_arguments(tool: ToolDefinition, arguments: object) -> dict[str, Any]:
    """The arguments by name, checked; a missing or null one has its default, or None.

    Args:
        arguments: a mapping, or the JSON of an object as models send it; None and "" hold none.

    Raises:
        InvalidMessageError: naming the argument and its form.
    """
    values = _as_object(arguments)
    known = {argument.name for argument in tool.arguments}
    unknown = [quote(name) for name in values if name not in known]
    if unknown:
        named = ", ".join(unknown[:_MAX_NAMED]) + (" …" if len(unknown) > _MAX_NAMED else "")
        raise InvalidMessageError(
            "arguments",
            f"{tool.name} has no argument {named}; it takes {', '.join(sorted(known))}",
            for_clients=InvalidMessageError.UNTOLD,
        )
    checked = {one.name: _checked_value(one, values.get(one.name)) for one in tool.arguments}
    if "text" in checked and is_placeholder(checked["text"]):
        raise InvalidMessageError("text", "says nothing; give a whole sentence")
    return checked


def _as_object(arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str):
        arguments = _from_json(plain_text(arguments))
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise InvalidMessageError(
            "arguments", f"must be a JSON object of arguments by name, not {type(arguments).__name__}"
        )
    try:
        return {name if type(name) is str else quote(name): value for name, value in arguments.items()}
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("arguments", error) from error


def _from_json(text: str) -> object:
    if not text.strip():
        return None
    if len(text) > MAX_JSON_CHARACTERS:
        raise InvalidMessageError(
            "arguments", f"have more than {MAX_JSON_CHARACTERS:,} characters; make them shorter"
        )
    try:
        value: object = read_json(text)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidMessageError(
            "arguments", f"cannot be read as JSON{where}; send an object such as {{}}"
        ) from None
    return value


def _checked_value(argument: Argument, value: object) -> Any:
    if isinstance(value, str) and not isinstance(argument, TextArgument):
        value = _from_text(argument, plain_text(value).strip())
    if value is None and not argument.is_required:
        return argument.default if isinstance(argument, NumberArgument) else None
    if value is None:
        raise InvalidMessageError(argument.name, "is missing")
    if isinstance(argument, TextArgument):
        return _checked_text(argument.name, value, argument.max_characters)
    if isinstance(argument, NumberArgument):
        return _checked_number(argument, value)
    return _checked_texts(argument, value)


def _from_text(argument: Argument, text: str) -> object:
    """The number or list that a client wrote as text, as many do; one text alone is a list of it."""
    if not text:
        return None
    try:
        value: object = read_json(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(argument, NumberArgument) or value is None or isinstance(value, list):
        return value
    return [value if isinstance(value, str) else text]


def _checked_text(name: str, value: object, max_characters: int) -> str:
    check_text(name, value)
    assert isinstance(value, str), "check_text refuses others"  # noqa: S101
    text = plain_text(value).strip()
    if not text:
        raise InvalidMessageError(name, "is empty")
    if len(text) > max_characters:
        raise InvalidMessageError(
            name, f"has {len(text):,} characters; at most {max_characters:,} are possible"
        )
    return text


def _checked_number(argument: NumberArgument, value: object) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = plain_number(value)
        # 5.0 is an integer in JSON Schema; a comparison with NaN is false.
        if argument.least <= number <= argument.most and number == int(number):
            return int(number)
    raise InvalidMessageError(
        argument.name,
        f"is {quote(value)}; it must be a whole number from {argument.least:,} to {argument.most:,}",
        for_clients=InvalidMessageError.UNTOLD,
    )


def _checked_texts(argument: TextsArgument, value: object) -> list[str]:
    items = plain_list(value) if isinstance(value, (list, tuple)) else None
    if items is None or len(items) > argument.max_items:
        raise InvalidMessageError(argument.name, f"must be a list of at most {argument.max_items} texts")
    return [_checked_text(argument.name, item, argument.max_characters) for item in items]
