"""A summary of a session's last messages or runs, made when it is asked for and kept nowhere.

The rolling summary tells of a whole session, and is the workers' (``reading.summary``).  No read makes this
one, since a read waits for no text model; an application asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from strandline.pipelines.models.answers import parse_summary
from strandline.pipelines.models.contract import ModelAnswer, SummaryTask, TranscriptLine
from strandline.pipelines.transcript import MAX_LINE_CHARACTERS, cut_pieces, full_text, shown_name
from strandline.producers.facts.capturing import CaptureLevel, read_capture
from strandline.producers.model_calls import PaidCall, Payer, ask_model
from strandline.producers.reading.history.filters import HistoryFilter
from strandline.producers.reading.history.newest import HistoryRequest, newest_history
from strandline.producers.runs.history import RunHistoryRequest, run_history
from strandline.producers.runs.run import UNFINISHED
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import SessionPolicy
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, by_local_clock

MAX_SUMMARIZED_MESSAGES = 1_000
# A model is shown no more text than this: some 30,000 tokens, the newest.
MAX_SUMMARIZED_CHARACTERS = 120_000
# Room for the characters of a token in any script, so that a summary is cut only if it ignored its limit.
_CHARACTERS_PER_TOKEN = 8
_SPOKEN = HistoryFilter(roles=("user", "assistant", "tool"))

AskModel = Callable[[SummaryTask], ModelAnswer]


@dataclass(frozen=True, slots=True)
class LatestSummary:
    """What the last messages of a session say, in short.

    Attributes:
        topics: up to eight short words for what it is about, in lower case.
        from_seq, through_seq: numbers of the first and the last message that it tells of.
        messages: how many it tells of.
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
    """What is to be summarized, and by whom.

    Attributes:
        messages: the newest so many; None: all of the runs.
        runs: only those of the last so many runs; None: whether in a run or not.
        instructions: how to write it, in place of what the prompt says; None: as an operator set it.
        max_tokens: of the summary.
    """

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
    spoken = list(_newest_within(MAX_SUMMARIZED_CHARACTERS, (yield from _last_messages(request))))[::-1]
    if not spoken:
        return None
    policy = yield from fetch(SessionPolicy(**request.identity.keys))
    zone = policy[0].time_zone if policy else None
    lines = _lines(by_local_clock(message, zone) for message in spoken)
    task = SummaryTask("", lines, request.max_tokens, (yield from _instructions(request)))
    make, characters = partial(request.ask_model, task), sum(len(line.text) for line in task.lines)
    answer = yield from ask_model(request.payer, PaidCall("summarize_last", "summary", make, characters))
    summary = parse_summary(answer.text, max_characters=request.max_tokens * _CHARACTERS_PER_TOKEN)
    seqs = [message.seq or 0 for message in spoken]
    return LatestSummary(
        text=summary.summary,
        topics=tuple(summary.topics),
        from_seq=min(seqs),
        through_seq=max(seqs),
        messages=len(spoken),
        model=answer.model,
        prompt_hash=answer.prompt_hash,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
    )


def _last_messages(request: LatestSummaryRequest) -> Operation[list[Message]]:
    limit = MAX_SUMMARIZED_MESSAGES if request.messages is None else request.messages
    if request.runs is None:
        return (yield from newest_history(HistoryRequest(request.identity, _SPOKEN, limit, 0)))
    messages = yield from run_history(
        RunHistoryRequest(request.identity, request.runs, ("system", "developer"), UNFINISHED)
    )
    return messages[-limit:] if limit else []


def _instructions(request: LatestSummaryRequest) -> Operation[str | None]:
    if request.instructions is not None:
        return request.instructions
    identity = request.identity
    return (yield from read_capture(CaptureLevel(identity.namespace, identity.owner))).summary_instructions


def _newest_within(characters: int, messages: Sequence[Message]) -> Iterator[Message]:
    """The newest messages with something to read, the newest first, at least one."""
    is_first = True
    for message in reversed(messages):
        if not (text := full_text(message)):
            continue
        characters -= len(text)
        if characters < 0 and not is_first:
            return
        is_first = False
        yield message


def _newest_part(message: Message) -> str:
    return full_text(message)[-MAX_SUMMARIZED_CHARACTERS:]


def _lines(messages: Iterable[Message]) -> tuple[TranscriptLine, ...]:
    pieces = ((one, text) for one in messages for text in cut_pieces(_newest_part(one), MAX_LINE_CHARACTERS))
    return tuple(
        TranscriptLine(number, message.role, shown_name(message), text, message.created_at)
        for number, (message, text) in enumerate(pieces, 1)
        if message.created_at is not None
    )
