"""A thread that puts, takes back, edits and reads by every way in, beside others on the same sessions."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from strandline.service.idempotency import DONE_BEFORE
from tests.chaos.tokens.book import READS, Book, Operation, Owner, Session, Token, tokens_in
from tests.chaos.tokens.doors import Door, ProcessKilledError, kinds_of

THINGS = ("boat", "flat", "cat", "tea")
KINDS = ("blue", "small", "old", "loud")
WRITES: Mapping[str, float] = {
    "put": 30, "import": 1, "flush": 5, "rewind": 2.5, "replace": 3, "pop": 3, "reset": 0.5, "forget": 0.5,
    "fork": 1, "add": 2, "reword": 2, "delete": 3, "clear": 0.3,
}  # fmt: skip
# What a call may be answered beside the erasures, corrections and edits of others.
REFUSALS = ("ErasedError", "NotFoundError", "ConflictError", "DeliveredError")
# As the service says it of a fork's last message.
UNKNOWN_NUMBER = "the session has no message of this number"
MAX_SESSIONS = 5
MAX_MESSAGES = 90
KILL_SHARE = 0.08


def outcome_of(error: BaseException) -> str | None:
    """How a call ended; None for an error that it may not have."""
    if isinstance(error, ProcessKilledError):
        return "unknown"
    kinds = kinds_of(error)
    if "DatabaseUnavailableError" in kinds or DONE_BEFORE in str(error):
        return "unknown"
    if UNKNOWN_NUMBER in str(error):
        return "NotFoundError"
    return next((kind for kind in kinds if kind in REFUSALS), None)


class Asker:
    """Carries orders out by a way in, and tells the book when they began and how they ended."""

    def __init__(self, book: Book, doors: Sequence[Door], chance: random.Random) -> None:
        self.book = book
        self.doors = doors
        self.chance = chance

    def begin(self, door: Door, what: str, owner: Owner, session: Session | None, **more: Any) -> Operation:
        order = {"what": what, "namespace": owner.namespace, "user": owner.user, **more}
        if session is not None:
            order["session"] = session.name
        if door.name == "process" and what in WRITES and self.chance.random() < KILL_SHARE:
            order["dies_after"] = self.chance.uniform(0, 0.03)
        return self.book.begin(door.name, owner, session, order)

    def carry_out(self, one: Operation, ask: Callable[[dict[str, Any]], Any]) -> Any:
        """The call's result; None if it was refused, or its outcome is unknown."""
        try:
            value = ask(one.order)
        except Exception as error:  # noqa: BLE001 - whatever a caller could be given is judged here
            outcome = outcome_of(error)
            one.gave = str(error)
            self.book.end(one, outcome or "unknown")
            if outcome is None:
                self.book.blame(one.owner, f"{one} raised {kinds_of(error)[0]}: {error}")
            return None
        one.gave = value
        self.book.end(one, "done")
        return value

    def read(self, owner: Owner, session: Session, what: str) -> None:
        door = self.chance.choice(self.doors)
        more = {} if what in ("history", "facts") else {"question": self._question(owner)}
        one = self.begin(door, what, owner, session, **more)
        given = self.carry_out(one, door.ask)
        if one.outcome != "done":
            self.book.check_write(one)
            return
        match what:
            case "history":
                self.book.judge_log(one, given, whole=True)
            case "context":
                self.book.judge(one, tokens_in(given["all"]), "memory", "the context")
                self.book.judge(one, tokens_in(" ".join(given["facts"])), "facts", "the context's facts")
                self.book.judge_log(one, given["log"], whole=False)
            case "search":
                self.book.judge(one, tokens_in(" ".join(given)), "memory", "the search")
            case "find":
                self.book.judge(one, tokens_in(" ".join(given)), "facts", "the search")
            case "facts":
                self.book.judge(one, tokens_in(" ".join(text for _id, text in given)), "facts", "the list")
                owner.facts = dict(given)

    def _question(self, owner: Owner) -> str:
        """Often words that are gone, which a search would find first."""
        names = [token.name for token in self.chance.choices(owner.tokens, k=3)] if owner.tokens else []
        return f"boat cat flat tea {' '.join(names)}"


class Actor(Asker):
    """One thread's operations, until ``over``."""

    def __init__(
        self, book: Book, doors: Sequence[Door], chance: random.Random, over: threading.Event
    ) -> None:
        super().__init__(book, doors, chance)
        self._over = over
        self.thread = threading.Thread(target=self._run, name="actor")

    def _run(self) -> None:
        weights = {**WRITES, **READS}
        while not self._over.is_set():
            (what,) = self.chance.choices(list(weights), list(weights.values()))
            owner = self.chance.choice(self.book.owners)
            with owner.gate.entered():
                session = self.chance.choice([one for one in list(owner.sessions.values()) if one.is_usable])
                try:
                    self._do(what, owner, session)
                except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                    self.book.blame(owner, f"{what}: {type(error).__name__}: {error}")

    def _do(self, what: str, owner: Owner, session: Session) -> None:
        if what in READS:
            self.read(owner, session, what)
        elif what in ("put", "import") and len(session.texts()) > MAX_MESSAGES:
            self._reset(owner, session, self.chance.choice(("reset", "forget")))
        elif what in ("put", "import"):
            self._put(owner, session, what)
        elif what in ("reset", "forget"):
            self._reset(owner, session, what)
        else:
            getattr(self, f"_{what}")(owner, session)

    def _text(self, token: Token) -> str:
        return f"my {self.chance.choice(THINGS)} is {self.chance.choice(KINDS)} {token.name}"

    def _put(self, owner: Owner, session: Session, what: str) -> None:
        tokens = [
            self.book.new_token(owner) for _ in range(6 if what == "import" else self.chance.randint(1, 3))
        ]
        messages = [
            {
                "id": uuid4().hex,
                "role": self.chance.choice(("user", "user", "assistant")),
                "content": self._text(one),
            }
            for one in tokens
        ]
        door = self.chance.choice(self.doors)
        with self.book.lock:
            one = self.begin(door, what, owner, session, messages=messages)
            self.book.place(one, session, tokens)
        seqs = self.carry_out(one, door.ask)
        with self.book.lock:
            self.book.check_write(one)
            self.book.settle_put(one, session, tokens, seqs or [None] * len(tokens))

    def _flush(self, owner: Owner, session: Session) -> None:
        door = self.chance.choice(self.doors)
        self.carry_out(self.begin(door, "flush", owner, session), door.ask)

    def _rewind(self, owner: Owner, session: Session) -> None:
        seqs = sorted(one.seq for one in session.texts() if one.seq)
        if not seqs:
            return
        seq = seqs[-min(len(seqs), self.chance.choice((1, 1, 2, 3, 4, 8)))]
        self._take(owner, session, "rewind", range(seq, 2**40), seq=seq, key=uuid4().hex)

    def _pop(self, owner: Owner, session: Session) -> None:
        self._take(owner, session, "pop", range(2**40))

    def _take(self, owner: Owner, session: Session, what: str, seqs: range, **more: Any) -> None:
        door = self.chance.choice(self.doors)
        with self.book.lock:
            one = self.begin(door, what, owner, session, **more)
            self.book.threaten(one, [session], seqs)
        taken = self.carry_out(one, door.ask)
        with self.book.lock:
            self.book.settle_taken(one, taken or [])

    def _replace(self, owner: Owner, session: Session) -> None:
        known = [one for one in session.texts() if one.seq]
        if not known:
            return
        old, token, door = (
            self.chance.choice(known),
            self.book.new_token(owner),
            self.chance.choice(self.doors),
        )
        assert old.seq is not None
        with self.book.lock:
            more = {"seq": old.seq, "content": self._text(token), "key": uuid4().hex}
            one = self.begin(door, "replace", owner, session, **more)
            self.book.threaten(one, [session], range(old.seq, old.seq + 1))
            self.book.place(one, session, [token], old)
        taken = self.carry_out(one, door.ask)
        with self.book.lock:
            self.book.settle_put(one, session, [token], [old.seq])
            self.book.settle_taken(one, taken or [])

    def _reset(self, owner: Owner, session: Session, what: str) -> None:
        door = self.chance.choice(self.doors)
        with self.book.lock:
            one = self.begin(door, "reset", owner, session, derived=what == "forget")
            self.book.threaten(one, [session])
        self.carry_out(one, door.ask)
        with self.book.lock:
            if one.outcome == "ErasedError":
                self.book.check_write(one)
            self.book.settle_taken(one, forget=what == "forget")

    def _fork(self, owner: Owner, session: Session) -> None:
        known = [one for one in session.texts() if one.seq]
        if not known or len(owner.sessions) >= MAX_SESSIONS:
            return
        through = self.chance.choice(known).seq or 0
        copy = Session(name=f"{owner.user}-{uuid4().hex[:6]}", is_usable=False)
        door = self.chance.choice(self.doors)
        with self.book.lock:
            one = self.begin(door, "fork", owner, session, copy=copy.name, through=through)
            copy.takers = [taker for taker in session.takers if taker.what == "erase user"]
            owner.sessions[copy.name] = copy
            self.book.begin_fork(one, session, copy, through)
        self.carry_out(one, door.ask)
        with self.book.lock:
            self.book.settle_fork(one, session, copy)
            copy.is_usable = one.outcome in ("done", "unknown")

    # Facts.

    def _add(self, owner: Owner, _session: Session) -> None:
        self._word(owner, "add")

    def _reword(self, owner: Owner, _session: Session) -> None:
        if owner.facts:
            self._word(owner, "reword", fact=self.chance.choice(list(owner.facts)))

    def _word(self, owner: Owner, what: str, **more: Any) -> None:
        token, door = self.book.new_token(owner, is_fact=True), self.chance.choice(self.doors)
        known = owner.facts.get(more.get("fact", ""), "")
        one = self.begin(door, what, owner, None, content=self._text(token), **more)
        value = self.carry_out(one, door.ask)
        with self.book.lock:
            self.book.check_write(one)
            if one.outcome == "done" and value:
                token.added_at = one.ends
                self.book.lose_facts(tokens_in(known), one.ends)
            elif one.outcome != "unknown":
                self.book.lose_facts([token.name], one.ends, deleted=True)

    def _delete(self, owner: Owner, _session: Session) -> None:
        if not owner.facts:
            return
        fact, text = self.chance.choice(list(owner.facts.items()))
        door = self.chance.choice(self.doors)
        one = self.begin(door, "delete", owner, None, fact=fact)
        if self.carry_out(one, door.ask):
            self.book.lose_facts(tokens_in(text), one.ends, deleted=True)

    def _clear(self, owner: Owner, _session: Session) -> None:
        door = self.chance.choice(self.doors)
        one = self.begin(door, "clear", owner, None)
        self.carry_out(one, door.ask)
        if one.outcome == "done":
            self.book.settle_cleared(one)
