"""What each token may be seen in, and from when on in nothing: the model that all reads are held to.

A token is *placed* in sessions by puts and forks, and *threatened* by each call that may take it back, from
its beginning to its end; of a call with an unknown outcome, to the end of ``GRACE_SECONDS``.  A read is
judged by what had returned before it began, and settles what was unknown.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, Literal

from tests.chaos.corrections.gate import Gate

TOKEN = re.compile(r"\bq\d+z\b")
# So long after its end a call without a known outcome may still take effect: longer than any statement.
GRACE_SECONDS = 75.0
KEPT_OPERATIONS = 400
READS: Mapping[str, float] = {"history": 10, "context": 5, "search": 4, "facts": 6, "find": 3}
Plane = Literal["log", "memory", "facts"]


def tokens_in(text: str) -> set[str]:
    return set(TOKEN.findall(text))


@dataclass(eq=False)
class Scope:
    """What can be erased: open, perhaps behind a fence, or closed since the receipt."""

    state: Literal["open", "perhaps", "closed"] = "open"
    opened_at: float = 0.0
    closed_at: float = inf

    def may_refuse(self, began: float) -> bool:
        return self.state != "open" or began < self.opened_at

    def must_refuse(self, began: float) -> bool:
        return self.state == "closed" and began > self.closed_at


@dataclass(eq=False)
class Session(Scope):
    name: str = ""
    placed: dict[str, Placed] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    takers: list[Operation] = field(default_factory=list)
    forks: list[Session] = field(default_factory=list)
    is_usable: bool = True

    def texts(self) -> list[Placed]:
        """The messages that are there, as far as is known; others may put at the same moment."""
        return [one for one in list(self.placed.values()) if one.accepted_at < inf and one.gone_at == inf]


@dataclass(eq=False)
class Owner(Scope):
    """A user, with what was done to them lately; ``gate`` is closed by what needs all others away."""

    namespace: str = ""
    user: str = ""
    max_age: float = inf
    sessions: dict[str, Session] = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)
    unknown_until: float = 0.0
    log: deque[Operation] = field(default_factory=lambda: deque(maxlen=KEPT_OPERATIONS))
    facts: dict[str, str] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)


@dataclass(eq=False)
class Placed:
    """A token in a session; it is accepted, gone from the log, and gone from memory since these moments.

    Attributes:
        threats: until when each call that may have taken it can still do so; ``inf`` while it is under way.
        lost_after: of a put without an answer: a later history that lacks it shows that it never came.
    """

    token: Token
    began: float
    put_by: float
    seq: int | None = None
    accepted_at: float = inf
    gone_at: float = inf
    forgotten_at: float = inf
    lost_after: float = inf
    threats: dict[int, float] = field(default_factory=dict)
    taken_by: Operation | None = None

    def take(self, one: Operation, *, forget: bool = True) -> None:
        """It is gone since that call ended."""
        if self.gone_at == inf:
            self.taken_by = one
        self.gone_at = min(self.gone_at, one.ends)
        if forget:
            self.forgotten_at = min(self.forgotten_at, one.ends)


@dataclass(eq=False)
class Token:
    """``is_fact``: in a fact that a person worded.  ``fact_gone_at``: deleted, cleared, reworded."""

    name: str
    owner: Owner
    is_fact: bool = False
    added_at: float = inf
    places: list[Placed] = field(default_factory=list)
    fact_gone_at: float = inf
    gone_at: float = inf
    is_deleted: bool = False
    is_told: bool = False

    def gone_from(self, plane: Plane) -> float:
        memory = self.gone_at
        if not self.is_fact and self.places:
            memory = min(memory, max(one.forgotten_at for one in self.places))
        return min(memory, self.fact_gone_at) if plane == "facts" or self.is_fact else memory


@dataclass(eq=False)
class Operation:
    """One call: ``ends`` is inf while it is under way."""

    number: int
    began: float
    who: str
    what: str
    owner: Owner
    session: Session | None
    order: dict[str, Any]
    ends: float = inf
    outcome: str = ""
    gave: object = None
    threatened: list[Placed] = field(default_factory=list)

    def __str__(self) -> str:
        where = self.session.name if self.session else "-"
        hidden = ("what", "namespace", "user", "session")
        shown = {name: value for name, value in self.order.items() if name not in hidden}
        when = f"{self.began:.3f} to {self.ends:.3f}"
        gave = f", {self.gave}" if isinstance(self.gave, bool | int) else ""
        return f"{when} #{self.number} {self.who} {self.what} {where} {shown}: {self.outcome}{gave}"


@dataclass
class Book:
    """All of it; every method may be called from any thread.  ``wrong``: what should not have been."""

    seed: int
    owners: list[Owner] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    say: Callable[[str], None] = print
    rows_about: Callable[[Token], Iterable[str]] = lambda _token: ()
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _start: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return time.monotonic() - self._start

    def blame(self, owner: Owner | None, sentence: str, token: Token | None = None) -> None:
        """Note a violation, with what was done to the owner since the last one, and once the token's rows."""
        with self.lock:
            place = f"{owner.namespace}/{owner.user}" if owner else "all"
            sentence = f"seed {self.seed}, {self.now():.1f} s, {place}: {sentence}"
            self.wrong.append(sentence)
            self.say(f"VIOLATION {sentence}")
            if owner and len(self.wrong) <= 20:
                self.say("\n".join(f"    {one}" for one in owner.log))
                owner.log.clear()
            if token and not token.is_told and len(self.wrong) <= 5:
                token.is_told = True
                self.say("\n".join(f"    {line}" for line in self.rows_about(token)))

    def new_token(self, owner: Owner, *, is_fact: bool = False) -> Token:
        with self.lock:
            token = Token(f"q{next(self._numbers)}z", owner, is_fact)
            self.tokens[token.name] = token
            owner.tokens.append(token)
            return token

    def begin(self, who: str, owner: Owner, session: Session | None, order: dict[str, Any]) -> Operation:
        with self.lock:
            one = Operation(next(self._numbers), self.now(), who, order["what"], owner, session, order)
            owner.log.append(one)
            return one

    def end(self, one: Operation, outcome: str) -> None:
        """The call returned, or raised, or was given up; ``unknown`` begins its grace."""
        with self.lock:
            one.ends, one.outcome = self.now(), outcome
            self.counts[f"{one.what}: {outcome}" if outcome != "done" else one.what] += 1
            if outcome == "unknown" and one.what not in READS:
                one.owner.unknown_until = one.ends + GRACE_SECONDS

    # Puts.

    def place(
        self, one: Operation, session: Session, tokens: Iterable[Token], like: Placed | None = None
    ) -> None:
        """These tokens are about to come into the session; a fork's are as old as those that they copy."""
        with self.lock:
            for token in tokens:
                began, put_by = (like.began, like.put_by) if like else (one.began, inf)
                placed = Placed(token, began, put_by, like.seq if like else None)
                token.places.append(placed)
                session.placed[token.name] = placed
                session.takers = [taker for taker in session.takers if self._over(taker) >= one.began]
                for taker in [taker for taker in session.takers if taker is not one]:
                    placed.threats[taker.number] = self._over(taker)
                    taker.threatened.append(placed)
                for fork in session.forks:
                    if token.name not in fork.placed:
                        self.place(one, fork, [token], placed)

    def settle_put(
        self, one: Operation, session: Session, tokens: Collection[Token], seqs: Iterable[int | None]
    ) -> None:
        """The put ended, as its outcome says."""
        with self.lock:
            for token, seq in zip(tokens, seqs, strict=True):
                placed = session.placed[token.name]
                placed.put_by = self._over(one)
                if one.outcome == "done":
                    placed.accepted_at, placed.seq = one.ends, seq
                    if seq in session.taken:
                        placed.take(one)
                elif one.outcome == "unknown":
                    placed.lost_after = one.ends + GRACE_SECONDS
                else:
                    placed.take(one)

    def begin_fork(self, one: Operation, source: Session, copy: Session, through: int) -> None:
        """The copy is about to have these messages; what has left the log may be in what was derived."""
        with self.lock:
            for name, placed in list(source.placed.items()):
                if placed.forgotten_at > one.began and (placed.seq is None or placed.seq <= through):
                    self.place(one, copy, [placed.token], placed)
                    if placed.gone_at <= one.began:
                        copy.placed[name].gone_at = placed.gone_at
            source.forks.append(copy)

    def settle_fork(self, one: Operation, source: Session, copy: Session) -> None:
        with self.lock:
            source.forks.remove(copy)
            for name, placed in copy.placed.items():
                origin = source.placed.get(name)
                is_sure = (
                    origin
                    and origin.seq is not None
                    and origin.accepted_at < one.began
                    and origin.gone_at == inf
                    and not origin.threats
                )
                if one.outcome not in ("done", "unknown"):
                    placed.take(one)
                elif one.outcome == "done" and is_sure:
                    placed.accepted_at = one.ends
                else:
                    placed.lost_after = one.ends + (GRACE_SECONDS if one.outcome == "unknown" else 0)

    # What takes back.

    def threaten(self, one: Operation, sessions: Iterable[Session], seqs: range = range(sys.maxsize)) -> None:
        """The call may take what is there under these numbers, and what comes until it is over."""
        with self.lock:
            for session in sessions:
                session.takers.append(one)
                for placed in session.placed.values():
                    if placed.gone_at == inf and (placed.seq is None or placed.seq in seqs):
                        placed.threats[one.number] = inf
                        one.threatened.append(placed)

    def settle_taken(
        self, one: Operation, seqs: Collection[int] | None = None, *, forget: bool = True
    ) -> None:
        """The call ended; if it is done it took these numbers, or (None) all that was there when it began.

        What a replacement took is what had the number before; the other's words stay if two come at once.
        """
        is_replacement = one.what == "replace"
        with self.lock:
            if seqs and one.session and not is_replacement:
                one.session.taken |= set(seqs)
            for placed in one.threatened:
                is_old = placed.accepted_at < one.began
                is_named = seqs is None or placed.seq in seqs
                is_taken = is_named and (is_old or not (seqs is None or is_replacement))
                is_open = not is_taken and (is_named or placed.seq is None)
                if one.outcome == "done" and is_taken:
                    placed.take(one, forget=forget)
                elif one.outcome == "unknown" or (one.outcome == "done" and is_open):
                    placed.threats[one.number] = self._over(one)
                else:
                    placed.threats.pop(one.number, None)

    def settle_cleared(self, one: Operation) -> None:
        with self.lock:
            for token in one.owner.tokens:
                if min([token.added_at, *(placed.accepted_at for placed in token.places)]) < one.began:
                    self.lose_facts([token.name], one.ends, deleted=token.is_fact)

    def lose_facts(self, names: Iterable[str], at: float, *, deleted: bool = False) -> None:
        with self.lock:
            for name in names:
                token = self.tokens[name]
                token.fact_gone_at = min(token.fact_gone_at, at)
                token.is_deleted |= deleted and token.is_fact

    def close(self, one: Operation, scope: Owner | Session) -> None:
        """There is a receipt for the scope: all that had begun before it is gone for good."""
        with self.lock:
            at = one.ends
            scope.state, scope.closed_at = "closed", at
            sessions = scope.sessions.values() if isinstance(scope, Owner) else [scope]
            for session in sessions:
                for placed in session.placed.values():
                    placed.take(one)
            if isinstance(scope, Owner):
                for token in scope.tokens:
                    token.gone_at = min(token.gone_at, at)

    def open(self, scope: Owner | Session) -> None:
        with self.lock:
            scope.state, scope.opened_at, scope.closed_at = "open", self.now(), inf
            for session in scope.sessions.values() if isinstance(scope, Owner) else [scope]:
                session.taken.clear()  # numbers begin anew

    def check_write(self, one: Operation) -> None:
        """A put after a receipt is refused; a put to a scope without an erasure is not."""
        with self.lock:
            scopes: list[Scope] = [one.owner, *([one.session] if one.session else [])]
            if one.outcome == "done" and any(scope.must_refuse(one.began) for scope in scopes):
                self.blame(one.owner, f"{one} was accepted after the receipt")
            if one.outcome == "ErasedError" and not any(scope.may_refuse(one.began) for scope in scopes):
                self.blame(one.owner, f"{one} was refused, though the scope was not erased")

    # Reads.

    def judge(self, one: Operation, shown: Iterable[str], plane: Plane, what: str) -> None:
        """Nothing in the read is another user's, or was gone from the plane before it began."""
        with self.lock:
            self.counts[f"read of {plane}"] += 1
            for name in set(shown):
                token = self.tokens.get(name)
                if token is None or token.owner is not one.owner:
                    self.blame(one.owner, f"{what} of {one} shows {name} of {token and token.owner.user}")
                elif token.gone_from(plane) < one.began:
                    since = token.gone_from(plane)
                    self.blame(one.owner, f"{what} of {one} shows {name}, gone since {since:.3f}", token)

    def judge_log(self, one: Operation, lines: list[tuple[int, str]], *, whole: bool) -> None:
        """Lines of a session's log; ``whole``: its history, which has to be exactly what was accepted."""
        session = one.session
        assert session is not None
        with self.lock:
            shown = [(seq, name) for seq, text in lines for name in tokens_in(text)]
            self.judge(one, [name for _seq, name in shown], "memory", "the log")
            seqs = [seq for seq, _name in shown]
            if whole and (sorted(set(seqs)) != seqs or len({name for _seq, name in shown}) != len(shown)):
                self.blame(one.owner, f"history of {one} is doubled or out of order: {shown}")
            for seq, name in shown:
                self._judge_shown(one, session.placed.get(name), seq, name)
            if whole:
                names = {name for _seq, name in shown}
                for placed in [one for name, one in session.placed.items() if name not in names]:
                    self._judge_absent(one, placed)

    def _judge_shown(self, one: Operation, placed: Placed | None, seq: int, name: str) -> None:
        if placed is None:
            self.blame(one.owner, f"{one} shows {name}, which was put elsewhere")
            return
        gone = min(placed.gone_at, placed.put_by + one.owner.max_age + 0.5)
        if gone < one.began:
            self.blame(one.owner, f"{one} shows {name}, which was gone from the log since {gone:.3f}")
        if placed.seq not in (None, seq):
            self.blame(one.owner, f"{one} shows {name} as {seq}, and it was put as {placed.seq}")
        placed.seq, placed.accepted_at = seq, min(placed.accepted_at, one.ends)
        placed.threats = {number: over for number, over in placed.threats.items() if over >= one.began}

    def _judge_absent(self, one: Operation, placed: Placed) -> None:
        if placed.gone_at < inf:
            return
        if placed.accepted_at < one.began:
            if placed.threats:
                placed.take(one, forget=False)
            elif one.ends < placed.began + one.owner.max_age:
                self.blame(
                    one.owner, f"{one} lacks {placed.token.name}, accepted at {placed.accepted_at:.3f}"
                )
                placed.gone_at = one.ends  # said once
        elif placed.lost_after < one.began:
            # Beyond the age, or before a reset, it may have been there, and have left what was derived of it.
            placed.take(one, forget=not placed.threats and one.ends < placed.began + one.owner.max_age)

    def taken(self) -> set[str]:
        """What must be in no row: erased, taken back, forgotten; deleted facts that a person worded."""
        with self.lock:
            return {
                name
                for name, token in self.tokens.items()
                if token.gone_from("memory") < inf
                and (not token.is_fact or token.is_deleted or token.gone_at < inf)
            }

    def recognised(self) -> set[str]:
        """Tokens that a tombstone may still recognise: their facts went, and their messages stayed."""
        with self.lock:
            return {
                name
                for name, token in self.tokens.items()
                if token.fact_gone_at < inf
                and token.gone_at == inf
                and not any(one.taken_by and one.taken_by.what == "erase session" for one in token.places)
            }

    @staticmethod
    def _over(one: Operation) -> float:
        return one.ends + GRACE_SECONDS if one.outcome == "unknown" else one.ends
