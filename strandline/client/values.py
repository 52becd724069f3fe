"""Bodies of the wire as the values that ``Memory`` takes and gives, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from strandline.producers.arguments import listed_messages
from strandline.producers.facts.listing import Fact, FactRevision
from strandline.producers.reading.context import MemoryContext, Omission, OmissionKind
from strandline.producers.reading.given import Given, GivenFact, GivenMessage, GivenSummary, Source
from strandline.producers.reading.summary import Summary
from strandline.producers.runs.latest_summary import LatestSummary
from strandline.producers.runs.run import SessionRun
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.search import FoundMessage, SearchResult
from strandline.producers.writing.correcting.correct import Correction
from strandline.producers.writing.correcting.correct import Kind as CorrectionKind
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.message import NOTHING, Message, ReadOnlyDict, Role, RunStatus, plain
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
        raise InvalidMessageError(where, str(error)) from None
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


def context_from(out: ContextOut) -> MemoryContext:
    """A read."""
    return MemoryContext(
        messages=tuple(messages_from(out.messages)),
        covered_through=out.covered_through,
        caught_up=out.caught_up,
        omitted=tuple(
            Omission(cast("OmissionKind", one.kind), one.name, one.reason, one.from_seq, one.through_seq)
            for one in out.omitted
        ),
        tokens=out.tokens,
        over_budget=out.over_budget,
        session_id=out.session_id,
        memory=_memory_parts(out),
        token_limit=out.token_limit,
        window_from=out.window_from,
        pinned_through=out.pinned_through,
    )


def _memory_parts(out: ContextOut) -> Given:
    facts = tuple(
        GivenFact(
            fact.fact_id,
            fact.text,
            fact.said_at,
            tuple(Source(source.session_id, tuple(source.seqs)) for source in fact.sources),
            fact.score,
            fact.tokens,
        )
        for fact in out.facts
    )
    hits = tuple(
        GivenMessage(
            message_from(hit.message), hit.session_id, hit.score, hit.similarity, hit.tokens, hit.is_beside
        )
        for hit in out.hits
    )
    summary = out.summary
    return Given(
        facts=facts,
        hits=hits,
        summary=None
        if summary is None
        else GivenSummary(summary.text, summary.through_seq, summary.is_cut, summary.tokens),
    )


def fact_from(out: FactOut, namespace: str, revisions: Sequence[RevisionOut] = ()) -> Fact:
    """A fact, with the revisions that came with it."""
    fields = {name: getattr(out, name) for name in _FACT_FIELDS}
    return RemoteFact(
        **fields,
        topics=tuple(out.topics),
        namespace=namespace,
        revisions=tuple(_revision(one) for one in revisions),
        stored_version=out.version,
    )


_FACT_FIELDS = (
    "fact_id", "text", "said_by", "about_date", "said_at", "valid_from", "valid_until", "invalidated_at",
    "invalidated_by", "condensed_into", "input", "agent_id", "team_id", "feedback", "created_at",
    "updated_at", "user_id",
)  # fmt: skip


def _revision(out: RevisionOut) -> FactRevision:
    return FactRevision(
        operation=out.operation,
        text=out.text,
        event_id=out.event_id,
        message_ids=tuple(out.message_ids),
        seqs=tuple(out.seqs),
        model=out.model,
        prompt_hash=out.prompt_hash,
        fact_event=out.fact_event,
        actor=out.actor,
        created_at=out.created_at,
    )


def hit_from(out: HitOut, namespace: str) -> SearchResult:
    """What a search found."""
    if out.fact is not None:
        return FoundFact(fact_from(out.fact, namespace), out.score, out.similarity)
    assert out.message is not None, "a hit is a message or a fact"  # noqa: S101
    return FoundMessage(message_from(out.message), out.session_id or "", out.score, out.similarity)


def correction_from(out: CorrectionOut) -> Correction:
    """A correction of a log."""
    kind = cast("CorrectionKind", out.kind)
    return Correction(out.number, kind, out.from_seq, out.through_seq, tuple(out.seqs), out.created_at)


def run_from(out: RunOut) -> SessionRun:
    """A run as it is stored."""
    return SessionRun(
        out.run_id,
        cast("RunStatus", out.status),
        tuple(out.seqs),
        out.agent_id,
        out.team_id,
        tuple(correction_from(one) for one in out.corrections),
    )


def summary_from(out: SummaryText | None) -> Summary | None:
    """The summary of a session; the service does not tell by which prompt it was made."""
    if out is None:
        return None
    return Summary(
        text=out.text,
        topics=tuple(out.topics),
        through_seq=out.through_seq,
        is_complete=out.is_complete,
        model=out.model,
        prompt_hash="",
        created_at=out.created_at,
    )


def latest_summary_from(out: LatestSummaryText | None) -> LatestSummary | None:
    """A summary that was made on call; the service does not tell by which prompt."""
    if out is None:
        return None
    return LatestSummary(
        text=out.text,
        topics=tuple(out.topics),
        from_seq=out.from_seq,
        through_seq=out.through_seq,
        messages=out.messages,
        model=out.model,
        prompt_hash="",
        input_tokens=out.input_tokens,
        output_tokens=out.output_tokens,
    )


def changes_from(out: FactChangesOut, namespace: str) -> FactChanges:
    """What came of messages or an instruction."""
    return FactChanges(
        source_id=out.source_id,
        is_complete=out.is_complete,
        added=tuple(fact_from(fact, namespace) for fact in out.added),
        updated=tuple(fact_from(fact, namespace) for fact in out.updated),
        deleted=tuple(out.deleted),
        failure=out.failure,
    )
