"""The play: a conversation in chat JSONL, measured puts and reads, and looks at their session in Postgres."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from strandline.chat_import.file_lines import longest_line, object_in, read_lines
from strandline.memory import Memory
from strandline.pipelines.inspect.sessions import session_state
from strandline.producers.reading.context import MemoryContext
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.sessions import ShowEvents, ShowEventsRow
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import PIPELINES
from strandline.schemas.values.message import Message
from strandline.schemas.values.same_named import make_from

SAMPLE = "conversation.jsonl"


class Question(BaseModel, coerce_numbers_to_str=True):
    """A question about the conversation; ``evidence`` names the messages that answer it."""

    question: str
    answer: str | None = None
    evidence: list[str] | None = None


QUESTIONS = TypeAdapter(list[Question])


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation to play, checked beforehand: each of its messages can be put."""

    path: Path
    messages: Sequence[Message]
    questions: Sequence[Question]


def read_conversation(path: Path | None, questions: Path | None, settings: Settings) -> Conversation:
    """Read ``path`` (default: the shipped sample) and its questions (default: ``X.qa.json`` next to it)."""
    if path is None:
        with resources.as_file(resources.files("strandline") / "samples" / SAMPLE) as sample:
            return read_conversation(sample, questions, settings)
    if questions is None and path.with_suffix(".qa.json").is_file():
        questions = path.with_suffix(".qa.json")
    messages = _read_messages(path, settings)
    if not messages:
        raise ConfigurationError(f"{path} holds no messages; it needs one JSON object per line.")
    return Conversation(path, messages, _read_questions(questions) if questions else [])


def _read_messages(path: Path, settings: Settings) -> list[Message]:
    limits = make_from(PutLimits, settings)
    messages: list[Message] = []
    first_use: dict[str, int] = {}
    for number, line in enumerate(read_lines(path, longest_line(settings), lambda: None), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            message = Message.from_openai(object_in(line))
            prepare(message, "message", limits)
        except InvalidMessageError as error:
            raise ConfigurationError(f"{where}: {error}.") from None
        except ValueError as error:
            raise ConfigurationError(f"{where}: line: {error}.") from None
        if message.id is not None and (first := first_use.setdefault(message.id, number)) != number:
            raise ConfigurationError(f"{where}: its id {message.id!r} is already used in line {first}.")
        messages.append(message)
    return messages


def _read_questions(path: Path) -> list[Question]:
    try:
        return QUESTIONS.validate_python(read_json(path.read_text(encoding="utf-8-sig")))
    except ValidationError as error:
        item = error.errors()[0]
        raise ConfigurationError(
            f"{path} must be a JSON list of objects with a 'question', and perhaps an 'answer' and ids of"
            f" messages as 'evidence'; at {'.'.join(map(str, item['loc'])) or 'its top'}: {item['msg']}."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON ({error}).") from None


PAUSE_SECONDS = 0.05

# An event is consumed by a pipeline once its last stage is done with it.
_LAST_STAGES = frozenset(pipeline.last_stage for pipeline in PIPELINES.values())


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """A flush event; ``consumed`` has the seconds it took by pipeline, ``outcomes`` how that ended."""

    row: ShowEventsRow
    consumed: Mapping[str, float]
    outcomes: Mapping[str, str]

    def is_consumed_by(self, pipelines: Sequence[str]) -> bool:
        return all(pipeline in self.consumed for pipeline in pipelines)


@dataclass(frozen=True, slots=True)
class Look:
    """The session at one moment."""

    tokens: int = 0
    mark: int = 0
    events: Sequence[SeenEvent] = ()
    facts: int = 0


@dataclass
class Play:
    """A conversation that is played, with its measurements; of reads above the limit, some say so."""

    memory: Memory
    messages: Sequence[Message] = ()
    put_ms: list[float] = field(default_factory=list)
    get_ms: list[float] = field(default_factory=list)
    get_tokens: list[int] = field(default_factory=list)
    over_budget: int = 0
    unexplained: int = 0
    seconds: float = 0.0
    consumed_after: float | None = None  # the demo gave up waiting
    look: Look = field(default_factory=Look)
    stored: Sequence[Message] = ()

    @property
    def pipelines(self) -> list[str]:
        return [block.pipeline for block in self.memory.memory_blocks if block.pipeline is not None]

    @property
    def applications(self) -> int:
        outcomes = (outcome for event in self.look.events for outcome in event.outcomes.values())
        return sum(outcome == "applied" for outcome in outcomes)

    def put_all(self, *, reads: int, wait: Callable[[], None]) -> None:
        """Put every message by itself, and read at ``reads`` user messages spread over them."""
        asked = [number for number, message in enumerate(self.messages) if message.role == "user"]
        read_at = asked[:: max(1, math.ceil(len(asked) / reads))]
        began = time.monotonic()
        for number, message in enumerate(self.messages):
            started = time.perf_counter()
            self.memory.put(message)
            self.put_ms.append((time.perf_counter() - started) * 1000)
            if number in read_at:
                self.get(message.text)
            wait()
        self.seconds = time.monotonic() - began

    def get(self, query: str) -> MemoryContext:
        """One read, measured."""
        started = time.perf_counter()
        context = self.memory.get(query)
        self.get_ms.append((time.perf_counter() - started) * 1000)
        self.get_tokens.append(context.tokens)
        self.over_budget += context.over_budget
        self.unexplained += context.tokens > self.memory.token_limit and not context.over_budget
        return context


def await_consumed(
    look: Callable[[], Look],
    pipelines: Sequence[str],
    *,
    patience_seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> tuple[Look, float | None]:
    """The look that sees every event consumed, and the seconds it took; None: no next one came in time."""
    before, since = -1, time.monotonic()
    moved_at = since
    while True:
        seen, now = look(), time.monotonic()
        if all(event.is_consumed_by(pipelines) for event in seen.events):
            return seen, now - since
        done = sum(len(event.consumed) for event in seen.events)
        if done > before:
            before, moved_at = done, now
        elif now - moved_at > patience_seconds():
            return seen, None
        pause(PAUSE_SECONDS)


def look_at(memory: Memory, database: Database, identity: SessionIdentity) -> Look:
    """Read the session's marks and events, and how many facts are known."""
    state = session_state(database, identity)
    return Look(
        tokens=state.pinned_tokens + state.window_tokens,
        mark=state.policy.flush_at_tokens,
        events=[_event(row) for row in database.fetch(ShowEvents(**identity.keys))],
        facts=memory.facts.list(limit=1).total,
    )


def _event(row: ShowEventsRow) -> SeenEvent:
    ends = [item for item in json.loads(row.receipts) if item["stage"] in _LAST_STAGES]
    return SeenEvent(
        row,
        consumed={item["pipeline"]: float(item["seconds"]) for item in ends},
        outcomes={item["pipeline"]: item["outcome"] for item in ends},
    )
