"""The runs of a session, kept in its log: each message is noted with the run that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from agno.memory.v2.memory import Message as AgnoMessage
from agno.memory.v2.memory import RunResponse, RunStatus, TeamRunResponse

from strandline.adapters.agno_v1.messages import PROMPT_ROLES, RunNote, agno_message_of, message_of, note_of
from strandline.adapters.round_trip import as_said
from strandline.producers.memory import SessionMemory
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConflictError
from strandline.schemas.values.message import Message

# So many messages of a run are put at once; a put takes up to a thousand.
MESSAGES_PER_PUT = 500
# Read at first to find the newest runs; each further read takes four times as many.
FIRST_PAGE = 200

# A run that has one of these was not brought to its end.
_NOTED_STATUSES = (RunStatus.paused, RunStatus.cancelled, RunStatus.error)

Run = Any  # Agno's RunResponse or TeamRunResponse


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
        noted = next((status for status in _NOTED_STATUSES if status.value == self.note.status), None)
        if noted is not None:
            return noted
        calls = {str(call.get("id")) for message in self.messages for call in message.tool_calls or ()}
        results = {message.tool_call_id for message in self.messages if message.tool_call_id}
        return RunStatus.paused if calls - results else RunStatus.running

    def as_response(self, session_id: str) -> Run:
        """As Agno's own, with the messages and the last answer."""
        messages = [agno_message_of(message) for message in self.messages]
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


def put_run(memory: SessionMemory, run: Run, *, may_be_shorter: bool = False) -> list[AgnoMessage]:
    """Put a run's own messages; a run with the same id is replaced.  Returns those that it has.

    Putting a run again adds what is new in it; if messages changed, the last run is taken back from there on.

    Args:
        may_be_shorter: whether the run may have fewer messages than it had.

    Raises:
        ConflictError: another message of a run changed its form, and other runs are behind it.
        InvalidMessageError: a message cannot be stored.
    """
    own = [one for one in run.messages or () if not one.from_history and one.role not in PROMPT_ROLES]
    note = _note(run)
    messages = [replace(message_of(one, note), id=f"{note.run_id}.{n}") for n, one in enumerate(own)]
    if may_be_shorter:
        _replace_run(memory, note, messages)
        return own
    try:
        _put(memory, messages)
    except ConflictError:
        _replace_run(memory, note, messages)
    return own


def read_runs(
    memory: SessionMemory, newest: int | None = None, *, accept: Callable[[StoredRun], bool] = bool
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
    status = getattr(run, "status", None)
    return RunNote(
        run_id=getattr(run, "run_id", None) or uuid4().hex,
        agent_id=getattr(run, "agent_id", None),
        team_id=getattr(run, "team_id", None),
        status=status.value if status in _NOTED_STATUSES else None,
    )


def _put(memory: SessionMemory, messages: Sequence[Message]) -> None:
    for start in range(0, len(messages), MESSAGES_PER_PUT):
        memory.put_messages(messages[start : start + MESSAGES_PER_PUT])


def _replace_run(memory: SessionMemory, note: RunNote, messages: Sequence[Message]) -> None:
    """Bring a stored run to ``messages``: by replacing contents, or by taking back from the first change."""
    stored, behind = _find_run(memory, note)
    if len(stored) == len(messages) and all(map(_differs_in_content_alone, stored, messages)):
        for before, after in zip(stored, messages, strict=True):
            if before.content != after.content and before.seq is not None:
                memory.replace(before.seq, after.content)
        return
    same = next(
        (n for n, pair in enumerate(zip(stored, messages, strict=False)) if not _are_same(*pair)),
        min(len(stored), len(messages)),
    )
    if same < len(stored):
        if behind:
            raise ConflictError(
                f"Run {quote(note.run_id)} has other runs behind it, so only texts in it can be replaced;"
                " rewind the session to it, and add it and what follows again."
            )
        memory.rewind(stored[same].seq or 1)
    _put(memory, messages[same:])


def _find_run(memory: SessionMemory, note: RunNote) -> tuple[list[Message], bool]:
    """The stored messages of a run, and whether other runs' messages are behind its first."""
    history = memory.get_all()
    places = [n for n, one in enumerate(history) if _run_id(one) == note.run_id]
    if not places:
        return [], False
    behind = any(_run_id(one) != note.run_id for one in history[places[0] :])
    return [history[place] for place in places], behind


def _are_same(stored: Message, new: Message) -> bool:
    return as_said(stored) == as_said(new)


def _differs_in_content_alone(stored: Message, new: Message) -> bool:
    return replace(as_said(stored), content="") == replace(as_said(new), content="")


def _run_id(message: Message) -> str | None:
    note = note_of(message)
    return None if note is None else note.run_id


def _group(messages: Iterable[Message]) -> list[StoredRun]:
    """The runs in the order in which they began; what was put by something else is a run a turn."""
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
