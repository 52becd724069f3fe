"""The runs of a session, kept in its log: each message is noted with the run that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal
from uuid import uuid4

from agno.memory.v2.memory import Message as AgnoMessage
from agno.memory.v2.memory import RunResponse, RunStatus, TeamRunResponse

from strandline import Memory, Message
from strandline.adapters.converter import as_said, in_chat_form
from strandline.adapters.legacy.agno_v1.messages import (
    LIBRARY,
    RunNote,
    agno_message_of,
    message_of,
    note_of,
)
from strandline.adapters.storable import parts_of, storable
from strandline.producers.reading.call_pairs import settled
from strandline.schemas.values.message import HEAD_ROLES

# A run of more messages cannot be put at once, so none of them can be replaced.
MAX_RUN_MESSAGES = 1_000
# Read at first to find the newest runs; each further read takes four times as many.
FIRST_PAGE = 200

Status = Literal["paused", "cancelled", "error", "completed"]
# A run that has one of these was not brought to its end.
_UNFINISHED: Mapping[RunStatus, Status] = {
    RunStatus.paused: "paused",
    RunStatus.cancelled: "cancelled",
    RunStatus.error: "error",
}

Run = Any  # Agno's RunResponse or TeamRunResponse


@dataclass(frozen=True, slots=True)
class PutRun:
    """The put part of a run.

    Attributes:
        messages: its own, without prompts and history.
        is_open: whether it ended without an answer, so that its turn is open.
    """

    messages: list[AgnoMessage]
    is_open: bool


@dataclass(slots=True)
class StoredRun:
    """A run as the log has it."""

    note: RunNote
    messages: list[Message] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(message.tokens or 0 for message in self.messages)

    @property
    def status(self) -> RunStatus:
        """As noted; paused, if a call in it still has no result."""
        noted = next((status for status in _UNFINISHED if status.value == self.note.status), None)
        if noted is not None:
            return noted
        calls = {call_id for message in self.messages for call_id in message.calls}
        results = {call_id for message in self.messages for call_id in message.answers}
        return RunStatus.paused if calls - results else RunStatus.running

    def as_response(self, session_id: str) -> Run:
        """As Agno's own, with the messages and the last answer."""
        messages = [agno_message_of(message) for message in in_chat_form(settled(self.messages), LIBRARY)]
        answers = [message for message in messages if message.role == "assistant"]
        fields = {
            "run_id": self.note.run_id,
            "team_id": self.note.team_id,
            "session_id": session_id,
            "messages": messages,
            "content": answers[-1].content if answers else None,
            "status": self.status,
        }
        if self.note.team_id is not None and self.note.agent_id is None:
            return TeamRunResponse(**fields)
        fields.pop("team_id")
        return RunResponse(**fields, agent_id=self.note.agent_id)


def put_run(memory: Memory, run: Run) -> PutRun:
    """Put a run's own messages, in place of its earlier ones if it comes again.

    Raises:
        ConflictError: it has other messages now, and too many were put behind it.
        InvalidMessageError: a message cannot be stored.
    """
    own = [one for one in run.messages or () if not one.from_history and one.role not in HEAD_ROLES]
    note = _note(run)
    # The last message alone has the status: when a run resumes, the earlier ones stay.
    notes = [replace(note, status=None)] * (len(own) - 1) + [note]
    messages = storable(map(message_of, own, notes), memory.put_limits)
    if own and all(one.role != "user" for one in own):
        messages = [*_question_of(memory, note), *messages]
    status = _UNFINISHED.get(StoredRun(note, messages).status, "completed")
    if len(messages) > MAX_RUN_MESSAGES:
        named = [replace(one, id=f"{note.run_id}.{place}") for place, one in enumerate(messages)]
        for part in parts_of(named):
            memory.put_messages(part)
    elif messages:
        memory.add_run(
            str(note.run_id), messages, status=status, agent_id=note.agent_id, team_id=note.team_id
        )
    is_open = bool(own) and own[-1].role != "assistant" and status != "paused"
    return PutRun(own, is_open)


def _question_of(memory: Memory, note: RunNote) -> Iterator[Message]:
    """The words of the user in a run that resumes, which Agno takes out of its messages."""
    stored = read_runs(memory, 1, accept=lambda run: run.note.run_id == note.run_id)
    question = takewhile(lambda one: one.role == "user", stored[0].messages if stored else ())
    return (replace(as_said(one), created_at=one.created_at) for one in question)


def read_runs(
    memory: Memory, newest: int | None = None, *, accept: Callable[[StoredRun], bool] = bool
) -> list[StoredRun]:
    """The newest runs that are accepted, so many or all, in order."""
    if newest is None:
        return [run for run in _group(memory.get_all()) if accept(run)]
    if newest <= 0:
        return []
    size = FIRST_PAGE
    while True:
        messages = memory.history(limit=size)
        runs = [run for run in _group(messages) if accept(run)]
        # The first one may be cut by the page.
        if len(runs) > newest or len(messages) < size:
            return runs[-newest:]
        size *= 4


def within_tokens(runs: Sequence[StoredRun], token_limit: int) -> list[StoredRun]:
    """The newest of ``runs`` that fit; the last one stays in any case."""
    fitting: list[StoredRun] = []
    left = token_limit
    for run in reversed(runs):
        left -= run.tokens
        if left < 0 and fitting:
            break
        fitting.insert(0, run)
    return fitting


def _note(run: Run) -> RunNote:
    status: RunStatus | None = getattr(run, "status", None)
    return RunNote(
        run_id=getattr(run, "run_id", None) or uuid4().hex,
        agent_id=getattr(run, "agent_id", None),
        team_id=getattr(run, "team_id", None),
        status=status.value if status is not None and status in _UNFINISHED else None,
    )


def _group(messages: Iterable[Message]) -> list[StoredRun]:
    runs: dict[object, StoredRun] = {}
    turn: object = None
    for message in messages:
        note = note_of(message)
        if note is None or note.run_id is None:
            turn = (message.seq,) if message.role == "user" or turn is None else turn
            runs.setdefault(turn, StoredRun(note or RunNote())).messages.append(message)
            continue
        turn = None
        run = runs.setdefault(note.run_id, StoredRun(note))
        run.note = note
        run.messages.append(message)
    return list(runs.values())
