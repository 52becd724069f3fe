"""A thread that puts to sessions and corrects them in every way, beside others that do the same."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from strandline import Memory
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.errors import ConflictError, DeliveredError, NotFoundError
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.chaos.corrections.blocks import BLOCKS
from tests.chaos.corrections.book import Book, Session
from tests.chaos.corrections.doomed import Moment, correct, kill_in_the_middle
from tests.chaos.corrections.gate import Gate
from tests.chaos.corrections.reruns import add_new_run, add_run_again
from tests.conftest import rows_of

THINGS = ("boat", "flat", "cat", "tea")
KINDS = ("blue", "small", "old", "loud")
LIMITS: dict[str, Any] = {"token_limit": 400, "chat_history_token_ratio": 0.3, "token_flush_size": 40}
SCOPE = "harbour"
MIN_SESSIONS_OF_A_USER, MAX_SESSIONS_OF_A_USER = 3, 6

CORRECTIONS: Mapping[str, float] = {
    "rewind": 4,
    "replace": 6,
    "regenerate": 4,
    "edit": 3,
    "pop": 4,
    "pop_together": 2,
    "rerun": 6,
    "fork": 4,
    "reset": 0.7,
    "delete": 0.4,
}
OTHERS: Mapping[str, float] = {"put": 16, "put_call": 1, "run": 5, "flush": 5, "deliver": 1, "await": 4}
# Of these the threads of a session are alone: what stands behind a run is put again under other numbers.
ALONE = ("rerun",)
POPS_TOGETHER = 3
# So long a thread waits for the workers at most, so that there is something derived to correct.
AWAIT_SECONDS = 4.0
DUE = "SELECT count(*) FROM strandline.due WHERE shard_key = %s AND session_key = %s AND ring_at < 'infinity'"
MOMENTS: tuple[Moment, ...] = ("in the transaction", "before the copies go", "sometime")


@dataclass
class Scene:
    """What all threads of a campaign share.

    Attributes:
        corrections: how many there were of each kind; ``target`` ends the campaign.
        kills: of producers in the middle of a correction, by moment.
    """

    url: str
    broker_url: str
    target: int
    kill_share: float
    book: Book = field(default_factory=Book)
    gate: Gate = field(default_factory=Gate)
    over: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    corrections: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _words: count[int] = field(default_factory=count)

    def word(self) -> str:
        return f"q{next(self._words)}z"

    def progress(self) -> int:
        return self.corrections.total()

    def note(self, counts: Counter[str], what: str) -> None:
        with self._lock:
            counts[what] += 1
            if self.progress() >= self.target:
                self.over.set()

    def note_messages(self, number: int) -> None:
        with self._lock:
            self.messages += number

    def open_session(self, user: str | None, *, name: str | None = None, deliver: str = "window") -> Session:
        """A session for the book; every session of users shares with all others."""
        name = name or f"s-{uuid4().hex[:8]}"
        memory = Memory.from_defaults(
            name,
            user_id=user,
            database_url=self.url,
            broker_url=self.broker_url,
            shared_scope=SCOPE if user else None,
            memory_blocks=[FACTS, SUMMARY, VECTORS, *(block() for block in BLOCKS)],
            deliver=deliver,  # type: ignore[arg-type]
            **LIMITS,
        )
        return Session(name, user, memory)


class Actor:
    """One thread's operations."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene = scene
        self._book = scene.book
        self._chance = chance
        self.thread = threading.Thread(target=self._act, name="actor")

    def _act(self) -> None:
        names = [*OTHERS, *CORRECTIONS]
        weights = [*OTHERS.values(), *CORRECTIONS.values()]
        while not self._scene.over.is_set():
            (name,) = self._chance.choices(names, weights)
            with self._scene.gate.entered():
                session = self._chance.choice(self._book.open_sessions())
                try:
                    with session.gate.closed() if name in ALONE else session.gate.entered():
                        getattr(self, f"_{name}")(session)
                except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                    self._scene.wrong.append(f"{name} of {session.name}: {type(error).__name__}: {error}")
                self._scene.note(self._scene.operations, name)

    # What is put.

    def _text(self, begins: str = "my") -> str:
        text = f"{begins} {self._chance.choice(THINGS)} is {self._chance.choice(KINDS)}"
        # Some in the same words as others: facts with several sources.
        return text if self._chance.random() < 0.15 else f"{text} {self._scene.word()}"

    def _user(self) -> dict[str, Any]:
        return {"role": "user", "content": self._text(), "metadata": {"mood": self._chance.choice("ab")}}

    def _put_messages(self, session: Session, messages: list[dict[str, Any]]) -> None:
        seqs = session.memory.put_messages(messages)
        texts = [str(message["content"] or "") for message in messages]
        self._book.place(session, list(zip(seqs, texts, strict=True)))
        self._scene.note_messages(len(messages))

    def _put(self, session: Session) -> None:
        self._put_messages(session, [self._user(), {"role": "assistant", "content": self._text("noted")}])

    def _put_call(self, session: Session) -> None:
        call = {"id": uuid4().hex, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        self._put_messages(
            session,
            [
                self._user(),
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": self._text("found"), "tool_call_id": call["id"]},
                {"role": "assistant", "content": self._text("noted")},
            ],
        )

    def _flush(self, session: Session) -> None:
        session.memory.flush(all=self._chance.random() < 0.5)

    def _deliver(self, session: Session) -> None:
        session.memory.deliver()

    def _await(self, session: Session) -> None:
        """Let the workers catch up with this session, if they can."""
        deadline = time.monotonic() + AWAIT_SECONDS
        keys = identify_session("default", session.name, session.user).keys
        while rows_of(self._scene.url, DUE, keys["shard_key"], keys["session_key"])[0][0]:
            if self._scene.over.wait(0.05) or time.monotonic() > deadline:
                break

    # What is corrected.

    def _rewind(self, session: Session) -> None:
        seqs = list(self._book.lines(session))
        if seqs:
            # Mostly of the end; sometimes far below the window.
            back = self._chance.choice((1, 2, 3, 4, 6, len(seqs)))
            self._take_back(session, "rewind", seqs[-min(back, len(seqs))])

    def _regenerate(self, session: Session) -> None:
        """The last answer again."""
        if (seq := self._newest(session, "noted")) and self._take_back(session, "regenerate", seq):
            self._put_messages(session, [{"role": "assistant", "content": self._text("noted")}])

    def _edit(self, session: Session) -> None:
        """The last turn in other words."""
        if (seq := self._newest(session, "my")) and self._take_back(session, "edit", seq):
            self._put(session)

    def _newest(self, session: Session, begins: str) -> int | None:
        lines = self._book.lines(session)
        return max((seq for seq, text in lines.items() if text.startswith(begins)), default=None)

    def _take_back(self, session: Session, what: str, seq: int) -> bool:
        correction = self._correct(session, {"kind": "rewind", "seq": seq, "content": None})
        if correction is None:
            return False
        self._book.take(session, correction.seqs)
        self._scene.note(self._scene.corrections, what)
        return True

    def _replace(self, session: Session) -> None:
        lines = self._book.lines(session)
        seqs = [seq for seq, text in lines.items() if text]
        if not seqs:
            return
        seq = self._chance.choice(seqs)
        text = self._text(lines[seq].split()[0])
        correction = self._correct(session, {"kind": "replace", "seq": seq, "content": text})
        if correction is not None:
            self._book.place(session, [(seq, text)], correction.number)
            self._scene.note(self._scene.corrections, "replace")

    def _correct(self, session: Session, order: dict[str, Any]) -> Correction | None:
        """Correct, sometimes after a process that was to do it was killed; None: another one was first."""
        order["key"] = uuid4().hex
        try:
            if self._chance.random() < self._scene.kill_share:
                self._have_killed(session, order)
            correction = correct(session.memory, order)
        except (NotFoundError, ConflictError, DeliveredError) as error:
            self._scene.note(self._scene.refusals, type(error).__name__)
            if isinstance(error, NotFoundError):
                session.refusals.add(order["seq"])
            return None
        if self._chance.random() < 0.2:
            self._repeat(session, order, correction)
        return correction

    def _repeat(self, session: Session, order: dict[str, Any], correction: Correction) -> None:
        try:
            again = correct(session.memory, order)
        except NotFoundError:
            # A reset has deleted it meanwhile, with the message.
            session.refusals.add(order["seq"])
        else:
            if again != correction:
                self._scene.wrong.append(f"a repeated correction was another one: {correction}, {again}")

    def _have_killed(self, session: Session, order: dict[str, Any]) -> None:
        order |= {
            "session_id": session.name,
            "user_id": session.user,
            "shared_scope": SCOPE if session.user else None,
        }
        moment = self._chance.choice(MOMENTS)
        if kill_in_the_middle(self._scene.url, order, moment, self._chance.uniform(0, 0.02)):
            self._scene.note(self._scene.kills, moment)

    def _pop(self, session: Session) -> None:
        if self._chance.random() < 0.6:
            session.memory.flush(all=True)
        self._pop_one(session, "pop")

    def _pop_together(self, session: Session) -> None:
        """Several callers at once, often of the only message there is, which was delivered."""
        seqs = list(self._book.lines(session))
        if len(seqs) > 1 and self._chance.random() < 0.3:
            self._take_back(session, "rewind", seqs[1])
        session.memory.flush(all=True)
        with ThreadPoolExecutor(POPS_TOGETHER) as threads:
            pops = [
                threads.submit(self._pop_one, session, "pop at once with others")
                for _caller in range(POPS_TOGETHER)
            ]
        for pop in pops:
            pop.result()

    def _pop_one(self, session: Session, what: str) -> None:
        message = session.memory.pop()
        if message is None or message.seq is None:
            return
        if message.answers:  # its call, put in one with it, went with it
            self._book.take(session, [message.seq - 1])
        if not self._book.pop(session, message.seq):
            self._scene.wrong.append(f"message {message.seq} of {session.name} was popped twice")
        self._scene.note(self._scene.corrections, what)

    def _run(self, session: Session) -> None:
        self._scene.note_messages(add_new_run(session, self._book, self._run_texts()))

    def _rerun(self, session: Session) -> None:
        """A run again, the last or an earlier one: as it was, with more, fewer or other messages."""
        what = add_run_again(session, self._book, self._chance, self._run_texts(), self._scene.wrong.append)
        if what is not None:
            self._scene.note(self._scene.corrections, what)

    def _run_texts(self) -> list[str]:
        return [self._text(begins) for begins in ("my", "noted", "noted")[: self._chance.randint(2, 3)]]

    def _fork(self, session: Session) -> None:
        seqs = list(self._book.lines(session))
        if not seqs or session.user is None:
            return
        if self._sessions_of(session.user) >= MAX_SESSIONS_OF_A_USER:
            self._delete(session)
            return
        through_seq = self._chance.choice(seqs[len(seqs) // 2 :])
        copy = self._scene.open_session(session.user)
        with self._book.forking(session, through_seq):
            try:
                session.memory.fork(copy.name, through_seq=through_seq)
            except NotFoundError:
                session.refusals.add(through_seq)
                return
            messages = copy.memory.get_all()
            self._book.place(copy, [(one.seq or 0, one.text) for one in messages])
            self._book.add(copy)
        self._scene.note(self._scene.corrections, "fork")

    def _sessions_of(self, user: str | None) -> int:
        return [one.user for one in self._book.open_sessions()].count(user)

    def _reset(self, session: Session) -> None:
        self._forget(session)
        self._scene.note(self._scene.corrections, "reset")

    def _delete(self, session: Session) -> None:
        """As ``strandline sessions delete`` does; another session takes its place if its user has few."""
        session.is_open = False
        if self._sessions_of(session.user) < MIN_SESSIONS_OF_A_USER:
            self._book.add(self._scene.open_session(session.user))
        self._forget(session)
        self._scene.note(self._scene.corrections, "delete")

    def _forget(self, session: Session) -> None:
        session.memory.reset(derived=True)
        self._book.begin_anew(session, log_start(self._scene.url, session))


def log_start(url: str, session: Session) -> int:
    """Where the session's log begins by now; 0 if nothing was put yet."""
    keys = identify_session("default", session.name, session.user).keys
    rows = rows_of(
        url,
        "SELECT log_start_seq FROM strandline.session WHERE shard_key = %s AND session_key = %s",
        keys["shard_key"],
        keys["session_key"],
    )
    return int(rows[0][0]) if rows else 0
