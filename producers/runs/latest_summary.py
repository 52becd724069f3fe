"""A summary of a session's last messages or runs, made when it is asked for and kept nowhere.

The rolling summary tells of a whole session, and is the workers' (``reading.summary``).  No read makes this
one, since a read waits for no text model; an application asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from strandline.pipelines.models.answers import parse_summary
from strandline.pipelines.models.contract import ModelAnswer, SummaryTask, TranscriptLine
from strandline.pipelines.transcript import MAX_LINE_CHARACTERS, cut_pieces, full_text, shown_name
from strandline.producers.facts.capturing import CaptureLevel, read_capture
from strandline.producers.model_calls import PaidCall, Payer, ask_model
from strandline.producers.reading.history import HistoryRequest, newest_seqs
from strandline.producers.runs.run import UNFINISHED, RunHistoryRequest, run_seqs
from strandline.producers.search.message_filter import MessageFilter
from strandline.schemas.errors import UnusableAnswerError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import MessagesInOrder
from strandline.schemas.queries.conversation.sessions import SessionPolicy
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import by_local_clock, read_rows
from strandline.schemas.values.same_named import make_from

MAX_SUMMARIZED_MESSAGES = 1_000
# A model is shown no more text than this: some 30,000 tokens, the newest.
MAX_SUMMARIZED_CHARACTERS = 120_000
# The newest messages are read, so much at once, until that is found; and no more of what holds little text.
PAGE_BYTES = 500_000
MAX_READ_BYTES = 16_000_000
# Room for the characters of a token in any script, so that a summary is cut only if it ignored its limit.
_CHARACTERS_PER_TOKEN = 8
_SPOKEN = MessageFilter(roles=("user", "assistant", "tool"))

AskModel = Callable[[SummaryTask], ModelAnswer]


@dataclass(frozen=True, slots=True)
class LatestSummary:
    """A summary of a session's last messages.

    Attributes:
        topics: up to eight short words for its subject, in lower case.
        from_seq, through_seq: numbers of the first and the last message covered.
        messages: how many it covers.
        model, prompt_hash: who made it, and by which prompt.
        input_tokens, output_tokens: as the provider counts them.
    """

    text: str
    topics: tuple[str, ...]
    from_seq: int
    through_seq: int
    messages: int
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class LatestSummaryRequest:
    """The newest messages or runs to summarize (None: all), how to write about them, and the model."""

    identity: SessionIdentity
    messages: int | None
    runs: int | None
    instructions: str | None
    max_tokens: int
    ask_model: AskModel
    payer: Payer


def summarize_last(request: LatestSummaryRequest) -> Operation[LatestSummary | None]:
    """Ask the model, without holding a connection; None if nothing was said, and the model is not asked.

    Raises:
        OwnerError: the session belongs to another owner.
        BudgetError: the namespace has used up its budget.
        ModelError: the model failed, or its answer cannot be used.
    """
    spoken = (yield from _newest_within(request, (yield from _last_seqs(request))[::-1]))[::-1]
    if not spoken:
        return None
    task = SummaryTask(
        "", _lines(line for _seq, line in spoken), request.max_tokens, (yield from _instructions(request))
    )
    make, characters = partial(request.ask_model, task), sum(len(line.text) for line in task.lines)
    answer = yield from ask_model(request.payer, PaidCall("summarize_last", "summary", make, characters))
    summary = parse_summary(answer.text, max_characters=request.max_tokens * _CHARACTERS_PER_TOKEN)
    if not summary.summary:
        raise UnusableAnswerError("The summary says nothing.")
    seqs = [seq for seq, _line in spoken]
    return make_from(
        LatestSummary,
        answer,
        text=summary.summary,
        topics=tuple(summary.topics),
        from_seq=min(seqs),
        through_seq=max(seqs),
        messages=len(spoken),
    )


def _last_seqs(request: LatestSummaryRequest) -> Operation[list[int]]:
    limit = MAX_SUMMARIZED_MESSAGES if request.messages is None else request.messages
    if request.runs is None:
        return (yield from newest_seqs(HistoryRequest(request.identity, _SPOKEN, limit, 0)))
    runs = RunHistoryRequest(request.identity, request.runs, ("system", "developer"), UNFINISHED)
    return (yield from run_seqs(runs))[-limit:] if limit else []


def _instructions(request: LatestSummaryRequest) -> Operation[str | None]:
    if request.instructions is not None:
        return request.instructions
    identity = request.identity
    return (yield from read_capture(CaptureLevel(identity.namespace, identity.owner))).summary_instructions


def _newest_within(
    request: LatestSummaryRequest, seqs: list[int]
) -> Operation[list[tuple[int, TranscriptLine]]]:
    """Readable messages, as many as a model is shown, at least one; none is kept whole."""
    spoken: list[tuple[int, TranscriptLine]] = []
    characters, left = MAX_SUMMARIZED_CHARACTERS, MAX_READ_BYTES
    policy = yield from fetch(SessionPolicy(**request.identity.keys))
    zone = policy[0].time_zone if policy else None
    while seqs and left > 0:
        page = min(PAGE_BYTES, left)
        rows = yield from fetch(MessagesInOrder(**request.identity.keys, seqs=seqs, page_bytes=page))
        for message in (by_local_clock(one, zone) for one in read_rows(rows)):
            text = full_text(message)
            characters -= len(text)
            if characters < 0 and spoken:
                return spoken
            if text and message.seq is not None and message.created_at is not None:
                ending, at = text[-MAX_SUMMARIZED_CHARACTERS:], message.created_at
                line = TranscriptLine(0, message.role, shown_name(message), ending, at)
                spoken.append((message.seq, line))
        seqs = seqs[rows[-1].place :] if rows else []
        left -= rows[-1].bytes_taken if rows else 0
    return spoken


def _lines(lines: Iterable[TranscriptLine]) -> tuple[TranscriptLine, ...]:
    pieces = ((one, text) for one in lines for text in cut_pieces(one.text, MAX_LINE_CHARACTERS))
    return tuple(replace(one, number=number, text=text) for number, (one, text) in enumerate(pieces, 1))
