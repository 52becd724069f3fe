"""Bodies of the wire as the values that ``Memory`` takes and gives, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel

from strandline.producers.arguments import listed_messages
from strandline.producers.facts.listing import Fact, FactRevision
from strandline.producers.reading.context import (
    Given,
    GivenFact,
    GivenMessage,
    GivenSummary,
    MemoryContext,
    Omission,
    Source,
)
from strandline.producers.reading.summary import Summary
from strandline.producers.runs.latest_summary import LatestSummary
from strandline.producers.runs.run import SessionRun
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.search import FoundMessage, SearchResult
from strandline.producers.writing.correcting.correct import Correction
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.message import NOTHING, Message, ReadOnlyDict, Role, plain
from strandline.schemas.wire.contexts import ContextOut, HitOut, LatestSummaryText, SummaryText
from strandline.schemas.wire.facts import FactChangesOut, FactOut, RevisionOut
from strandline.schemas.wire.messages import CorrectionOut, MessageOut, RunOut


@dataclass(frozen=True, slots=True)
class RemoteFact(Fact):
    """A fact as the service gave it; ``revisions`` are there where it was got by its id."""

    stored_version: str = ""

    @property
    def version(self) -> str:
        """Names the fact as it is: another after each change, for ``if_version``."""
        return self.stored_version


def message_body(source: object, where: str) -> dict[str, Any]:
    """A message, or an OpenAI dict, as ``MessageIn`` has it.

    Raises:
        InvalidMessageError: it cannot be read as a message.
    """
    message = Message.from_openai(source, where=where)
    try:
        content, calls = plain(message.content), plain(message.tool_calls)
        metadata, extra = plain(message.metadata), plain(message.extra)
    except TypeError as error:
        raise InvalidMessageError(where, str(error), for_clients=InvalidMessageError.UNTOLD) from None
    created_at = message.created_at
    fields: dict[str, Any] = {
        "id": message.id,
        "name": message.name,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "metadata": metadata or None,
        "created_at": None if created_at is None else created_at.isoformat(),
        "extra": extra or None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return {"role": message.role, "content": content, **present}


def message_bodies(sources: object) -> list[dict[str, Any]]:
    """Messages as the wire has them; raises InvalidMessageError if they are not a list of messages."""
    return [
        message_body(source, f"messages[{index}]") for index, source in enumerate(listed_messages(sources))
    ]


def message_from(out: MessageOut) -> Message:
    """A stored message."""
    return Message(
        role=cast("Role", out.role),
        content=out.content,
        id=out.id,
        name=out.name,
        tool_calls=out.tool_calls,
        tool_call_id=out.tool_call_id,
        metadata=ReadOnlyDict(out.metadata) if out.metadata else NOTHING,
        created_at=out.created_at,
        seq=out.seq,
        tokens=out.tokens,
        extra=ReadOnlyDict(out.extra) if out.extra else NOTHING,
    )


def messages_from(outs: Iterable[MessageOut]) -> list[Message]:
    return [message_from(out) for out in outs]


def _fields(out: BaseModel, *without: str) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in out if name not in without
    }


def context_from(out: ContextOut) -> MemoryContext:
    """A read."""
    changed = {
        "messages": tuple(messages_from(out.messages)),
        "omitted": tuple(Omission(**_fields(one)) for one in out.omitted),
    }
    return MemoryContext(**_fields(out, "facts", "hits", "summary") | changed, memory=_memory_parts(out))


def _memory_parts(out: ContextOut) -> Given:
    sources = [tuple(Source(**_fields(source)) for source in fact.sources) for fact in out.facts]
    return Given(
        facts=tuple(
            GivenFact(**_fields(fact, "sources"), sources=of_fact)
            for fact, of_fact in zip(out.facts, sources, strict=True)
        ),
        hits=tuple(
            GivenMessage(**_fields(hit, "message"), message=message_from(hit.message)) for hit in out.hits
        ),
        summary=None if out.summary is None else GivenSummary(**_fields(out.summary)),
    )


def fact_from(out: FactOut, namespace: str, revisions: Sequence[RevisionOut] = ()) -> Fact:
    """A fact, with the revisions that came with it."""
    return RemoteFact(
        **_fields(out, "is_live", "version"),
        namespace=namespace,
        revisions=tuple(FactRevision(**_fields(one)) for one in revisions),
        stored_version=out.version,
    )


def hit_from(out: HitOut, namespace: str) -> SearchResult:
    """A search's hit."""
    if out.fact is not None:
        return FoundFact(fact_from(out.fact, namespace), out.score, out.similarity)
    assert out.message is not None, "a hit is a message or a fact"  # noqa: S101
    return FoundMessage(message_from(out.message), out.session_id or "", out.score, out.similarity)


def correction_from(out: CorrectionOut) -> Correction:
    """A correction of a log."""
    return Correction(**_fields(out))


def run_from(out: RunOut) -> SessionRun:
    """A run as it is stored."""
    corrections = tuple(map(correction_from, out.corrections))
    return SessionRun(**_fields(out, "corrections"), corrections=corrections)


def summary_from(out: SummaryText | None) -> Summary | None:
    """The summary of a session; the service does not tell by which prompt it was made."""
    return None if out is None else Summary(**_fields(out), prompt_hash="")


def latest_summary_from(out: LatestSummaryText | None) -> LatestSummary | None:
    """A summary that was made on call; the service does not tell by which prompt."""
    return None if out is None else LatestSummary(**_fields(out), prompt_hash="")


def changes_from(out: FactChangesOut, namespace: str) -> FactChanges:
    """What came of messages or an instruction."""
    changed = {
        name: tuple(fact_from(fact, namespace) for fact in facts)
        for name, facts in (("added", out.added), ("updated", out.updated))
    }
    return FactChanges(**_fields(out) | changed)
