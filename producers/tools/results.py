"""Results of tools: values that ``json.dumps`` takes, with a JSON Schema for each tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import Source
from strandline.producers.search.search import FoundMessage
from strandline.producers.tools.definitions import ADD, CONTEXT, DELETE, SEARCH, UPDATE
from strandline.schemas.values.message import speaker_name

# Of a longer message, a search shows its beginning; get_context fits longer ones in.
MAX_SHOWN_CHARACTERS = 1_000

ProblemKind = Literal["unknown_tool", "invalid_arguments", "not_found", "read_only", "deleted"]


class ToolResult(BaseModel):
    """The result of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def as_json(self) -> dict[str, Any]:
        """The result as plain values: texts, numbers, lists and dicts."""
        return self.model_dump(mode="json")


class ToolProblem(ToolResult):
    """Why a call did nothing, in a sentence that a model can act on."""

    error: ProblemKind
    message: str


class SourceResult(ToolResult):
    """Messages of one session, by their numbers."""

    session_id: str
    seqs: list[int]


class MemoryResult(ToolResult):
    """A fact that is remembered; ``sources`` are the messages it comes from, empty if it was added."""

    id: str
    text: str
    topics: list[str]
    said_by: str | None
    said_at: datetime
    about_date: date | None
    sources: list[SourceResult]


class ScoredMemory(MemoryResult):
    """A fact that matches, and how well; scores compare only within one search."""

    score: float


class ScoredMessage(ToolResult):
    """A message that matches; ``is_cut`` if only the beginning of its text is shown."""

    id: str
    session_id: str
    seq: int
    said_by: str
    text: str
    is_cut: bool
    at: datetime | None
    score: float


class SearchedMemories(ToolResult):
    """Of ``search_memories``, each list best first."""

    memories: list[ScoredMemory]
    messages: list[ScoredMessage]


class KnownMemory(ToolResult):
    """A fact that was known before."""

    id: str
    text: str


class StoredMemory(ToolResult):
    """Of ``add_memory`` and ``update_memory``: the fact as it stands, and a known one it may contradict."""

    memory: MemoryResult
    may_contradict: KnownMemory | None = None


class DeletedMemory(ToolResult):
    """Of ``delete_memory``; the same if the fact was deleted before."""

    id: str
    deleted: Literal[True]


class CitationResult(ToolResult):
    """Where the piece with this number comes from; ``id`` is that of a fact or message."""

    number: int
    kind: Literal["fact", "message", "summary"]
    id: str
    sources: list[SourceResult]


class ContextResult(ToolResult):
    """Of ``get_context``: pieces that begin with ``[1]``, ``[2]`` …, and their sources."""

    text: str
    citations: list[CitationResult]


def short_schema(result: type[ToolResult]) -> dict[str, Any]:
    """The JSON Schema of a result as shown to clients: its fields without their insides.

    Many clients have their model read schemas with each request; whole ones take three times as much as the
    definitions of all tools.
    """
    schema = result.model_json_schema(mode="serialization")
    fields = schema["properties"].items()
    return {"type": "object", "properties": {name: {"type": _kind(field)} for name, field in fields}}


def _kind(field: Mapping[str, Any]) -> str | list[str]:
    """The type of a field; both types, if it may be null."""
    kinds = [one.get("type", "object") for one in field.get("anyOf", [field])]
    return kinds if len(kinds) > 1 else kinds[0]


RESULTS: Mapping[str, type[ToolResult]] = {
    SEARCH.name: SearchedMemories,
    ADD.name: StoredMemory,
    UPDATE.name: StoredMemory,
    DELETE.name: DeletedMemory,
    CONTEXT.name: ContextResult,
}


def source_results(sources: Sequence[Source]) -> list[SourceResult]:
    return [SourceResult(session_id=one.session_id, seqs=list(one.seqs)) for one in sources]


def memory_fields(fact: Fact, sources: Sequence[Source]) -> dict[str, Any]:
    return {
        "id": str(fact.fact_id),
        "text": fact.text,
        "topics": list(fact.topics),
        "said_by": fact.said_by,
        "said_at": fact.said_at,
        "about_date": fact.about_date,
        "sources": source_results(sources),
    }


def scored_message(hit: FoundMessage) -> ScoredMessage:
    message, text = hit.message, hit.text
    return ScoredMessage(
        id=message.id or "",
        session_id=hit.session_id,
        seq=message.seq or 0,
        said_by=speaker_name(message.name, message.role) if message.name else message.role,
        text=text[:MAX_SHOWN_CHARACTERS],
        is_cut=len(text) > MAX_SHOWN_CHARACTERS,
        at=message.created_at,
        score=hit.score,
    )
