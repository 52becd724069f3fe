"""Extract: the first stage of facts.  Finds candidates in the messages alone, on the session's lane.

The lines just before a batch are shown as context (``context``), and give no candidates themselves.

It does not look at known facts, so extractions of one owner never wait for each other; the merge stage folds
their candidates into the owner's facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from strandline.pipelines.capture import load_capture
from strandline.pipelines.engine.parts import FURTHER, halves, in_parts, steps_in_order
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.facts.grounding import ground_fact
from strandline.pipelines.models.answers import FEW_ITEMS, ExtractedFact, ask, open_numbers, parse_extract
from strandline.pipelines.models.contract import ExtractTask, TextModel, TranscriptLine
from strandline.pipelines.transcript import Transcript, full_text, load_transcript, shown_name
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.facts_merge import InsertCandidates
from strandline.schemas.queries.work.lanes import ContextMessages, InsertReceipts, PassOn
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, DerivationKeys, Lane
from strandline.schemas.values.message import Message, by_local_clock, read_rows
from strandline.schemas.values.normal_form import fingerprint

_STEP = "extract"
# Far more than people say; it keeps a runaway answer in bounds.  Of events and lines, the larger counts.
MAX_FACTS_PER_EVENT = 30
MAX_FACTS_PER_LINE = 2
_CHARACTERS_PER_LINE = 1_000


def load_context(fetcher: Fetcher, batch: Batch, max_tokens: int) -> tuple[TranscriptLine, ...]:
    """The lines before a batch's first event, oldest first, numbered up to 0: no answer can cite them.

    ``max_tokens``: the recipe's limit (0: none); the oldest line is cut at its beginning if the lines
    hold more.
    """
    if not max_tokens:
        return ()
    rows = fetcher.fetch(ContextMessages(shard_key=batch.lane.shard_key, batch_id=batch.batch_id))
    messages = [
        by_local_clock(message, row.time_zone) for row, message in zip(rows, read_rows(rows), strict=True)
    ]
    shown = [(message, text) for message, text in _fit(messages, max_tokens) if text.strip()]
    return tuple(
        TranscriptLine(1 - place, message.role, shown_name(message), text, message.created_at)
        for place, (message, text) in zip(range(len(shown), 0, -1), reversed(shown), strict=True)
        if message.created_at is not None
    )


def _fit(messages: Sequence[Message], max_tokens: int) -> Iterator[tuple[Message, str]]:
    room = max_tokens
    for message in reversed(messages):
        if room <= 0:
            return
        yield message, _cut_beginning(full_text(message), message.tokens or 0, room)
        room -= message.tokens or 0


def _cut_beginning(text: str, tokens: int, max_tokens: int) -> str:
    if tokens <= max_tokens:
        return text
    kept = len(text) * max_tokens // tokens
    return f"…{text[len(text) - kept :]}"


class CandidateRows(DerivationKeys):
    """The candidates of a batch as JSON, and the answer's origin, as parameters of statements."""

    batch_id: UUID
    candidates: str
    model: str
    prompt_hash: str


@dataclass(frozen=True, slots=True)
class ExtractedCandidates:
    """Candidates as statements take them, and the tokens of each event that merge has to do with."""

    rows: CandidateRows | None = None
    sizes: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExtractWork:
    """A batch's transcript, the lines before it, and the operator's capture."""

    transcript: Transcript
    context: tuple[TranscriptLine, ...] = ()
    capture: Capture = field(default_factory=Capture)


@dataclass(frozen=True, slots=True)
class ExtractStage:
    """Candidates from a batch of one session's events, with so many tokens of earlier lines as context."""

    model: TextModel
    context_tokens: int = 0
    name: ClassVar[str] = EXTRACT_STAGE

    def wait_seconds(self) -> float:
        return self.model.wait_seconds()

    def load(self, fetcher: Fetcher, batch: Batch) -> ExtractWork:
        context = load_context(fetcher, batch, self.context_tokens)
        return ExtractWork(load_transcript(fetcher, batch), context, load_capture(fetcher, batch).capture)

    def calls(self, batch: Batch, work: ExtractWork) -> Sequence[Call]:
        if _instructions(batch):
            return ()
        return [
            self._call(batch, work, step, lines)
            for step, lines in work.transcript.lines_by_step(_STEP).items()
        ]

    def _call(self, batch: Batch, work: ExtractWork, step: str, lines: tuple[TranscriptLine, ...]) -> Call:
        task = ExtractTask(
            lines,
            max_facts=max_facts(batch, lines),
            context=work.context if step == _STEP else (),
            instructions=work.capture.instructions,
            more_instructions=work.capture.more_instructions,
        )

        def follow(answer: RawAnswer) -> list[Call]:
            left = open_numbers(answer.body.decode())
            few = in_parts(step, [line for line in lines if line.number in left], FEW_ITEMS, FURTHER)
            return [self._call(batch, work, *part) for part in few]

        def parts() -> list[Call]:
            return [self._call(batch, work, *half) for half in halves(step, lines)]

        # Before that, the engine tries an event alone, and without context.
        is_alone = len(batch.events) == 1 and not work.context
        return Call(step, partial(ask, self.model, task), follow, parts if is_alone else None)

    def effect(
        self, batch: Batch, work: ExtractWork, answers: Mapping[str, RawAnswer]
    ) -> ExtractedCandidates:
        if instructions := _instructions(batch):
            return ExtractedCandidates(sizes=instructions)
        answer = next(iter(answers.values()), None)
        candidates = _candidates(batch, work, answers)
        if not candidates or answer is None:
            return ExtractedCandidates()
        rows = _rows(batch, work.transcript, candidates, answer)
        return ExtractedCandidates(rows, _sizes(batch, candidates))

    def write(
        self, fetcher: Fetcher, batch: Batch, work: ExtractWork, effect: ExtractedCandidates
    ) -> list[Lane]:
        if effect.rows is not None:
            fetcher.fetch(InsertCandidates(**effect.rows))
        owner_lane = Lane.of_owner(**batch.lane.derivation_keys, stage=MERGE_STAGE)
        _receipts(fetcher, batch, [event_id for event_id in batch.event_ids if event_id not in effect.sizes])
        _make_merge_due(fetcher, owner_lane, effect.sizes)
        return [owner_lane] if effect.sizes else []


def _instructions(batch: Batch) -> dict[UUID, int]:
    return {event.event_id: max(1, event.tokens) for event in batch.events if event.cause == "instruction"}


def max_facts(batch: Batch, lines: Sequence[TranscriptLine]) -> int:
    """The maximum for a call, by its events and its lines, so that large inputs lose nothing."""
    long_lines = sum(-(-len(line.text) // _CHARACTERS_PER_LINE) for line in lines)
    return max(MAX_FACTS_PER_EVENT * len(batch.events), MAX_FACTS_PER_LINE * long_lines)


def is_capped(batch: Batch, transcript: Transcript, answers: Mapping[str, RawAnswer]) -> bool:
    """Whether a call answered with as many facts as it might, so that there may be more."""
    most = {step: max_facts(batch, transcript.lines_of(step)) for step in answers}
    return any(len(_facts(transcript, answer, most[step])) == most[step] for step, answer in answers.items())


def _facts(transcript: Transcript, answer: RawAnswer, most: int) -> tuple[ExtractedFact, ...]:
    return parse_extract(answer.body.decode(), len(transcript.lines), max_facts=most)


def _candidates(
    batch: Batch, work: ExtractWork, answers: Mapping[str, RawAnswer]
) -> Mapping[UUID, list[ExtractedFact]]:
    transcript = work.transcript
    by_call = [
        _facts(transcript, answers[step], max_facts(batch, transcript.lines_of(step)))
        for step in steps_in_order(answers, transcript.lines_of)
    ]
    facts = (fact for facts in by_call for fact in facts)
    by_event: dict[UUID, list[ExtractedFact]] = {}
    for fact in (kept for fact in facts if (kept := ground_fact(fact, transcript.lines, work.context))):
        by_event.setdefault(transcript.event_of(fact.messages[0]).event_id, []).append(fact)
    return by_event


def _rows(
    batch: Batch, transcript: Transcript, by_event: Mapping[UUID, list[ExtractedFact]], answer: RawAnswer
) -> CandidateRows:
    records = [
        _record(event_id, ordinal, fact, transcript)
        for event_id, facts in by_event.items()
        for ordinal, fact in enumerate(facts)
    ]
    return CandidateRows(
        **batch.lane.derivation_keys,
        batch_id=batch.batch_id,
        candidates=json.dumps(records),
        model=answer.model,
        prompt_hash=answer.prompt_hash,
    )


def _sizes(batch: Batch, by_event: Mapping[UUID, list[ExtractedFact]]) -> dict[UUID, int]:
    return {
        event_id: max(1, sum(len(fact.text) for fact in by_event[event_id]) // 4)
        for event_id in batch.event_ids
        if event_id in by_event
    }


def _record(event_id: UUID, ordinal: int, fact: ExtractedFact, transcript: Transcript) -> dict[str, Any]:
    sources = list({message.seq: message for message in map(transcript.message_of, fact.messages)}.values())
    said_at = max(message.created_at for message in sources if message.created_at is not None)
    return {
        "event_id": str(event_id),
        "ordinal": ordinal,
        "session_key": str(transcript.event_of(fact.messages[0]).session_key),
        "text": fact.text,
        "fingerprint": fingerprint(fact.text).hex(),
        "seqs": [message.seq for message in sources],
        "topics": list(fact.topics),
        "said_by": fact.said_by,
        "about_date": fact.about_date.isoformat() if fact.about_date else None,
        "said_at": said_at.isoformat(),
    }


def _receipts(fetcher: Fetcher, batch: Batch, event_ids: Sequence[UUID]) -> None:
    if event_ids:
        fetcher.fetch(
            InsertReceipts(
                shard_key=batch.lane.shard_key,
                generation_id=batch.lane.generation_id,
                stage=MERGE_STAGE,
                batch_id=batch.batch_id,
                event_ids=list(event_ids),
            )
        )


def _make_merge_due(fetcher: Fetcher, lane: Lane, sizes: Mapping[UUID, int]) -> None:
    for event_id, tokens in sizes.items():
        fetcher.fetch(
            PassOn(
                shard_key=lane.shard_key,
                scope_key=lane.scope_key,
                generation_id=lane.generation_id,
                next_stage=lane.stage,
                event_ids=[event_id],
                tokens=tokens,
            )
        )
