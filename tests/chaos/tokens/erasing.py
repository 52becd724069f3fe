"""A thread that erases users and sessions, one after the other, some by processes that end in the middle."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from strandline.erasure import ErasureReceipt, Erasures, verifier_of
from strandline.schemas.errors import DatabaseUnavailableError
from tests.chaos.tokens.actor import Asker
from tests.chaos.tokens.book import READS, Book, Operation, Owner, Session
from tests.chaos.tokens.doors import Door, KilledProcess, Remote, erase

# An erasure has so many transactions, about, of which each may be the last of its process.
MAX_STEPS = 30
ATTEMPTS = 20


class Eraser(Asker):
    """Erases, readmits and verifies; ``more_owners`` replaces an owner who is gone for good."""

    def __init__(
        self,
        book: Book,
        doors: Sequence[Door],
        chance: random.Random,
        over: threading.Event,
        *,
        url: str,
        key: Path,
        process: KilledProcess,
        remote: Remote,
        pause_seconds: float,
        more_owners: Callable[[Owner], None],
    ) -> None:
        super().__init__(book, doors, chance)
        self._over, self._url, self._process, self._remote = over, url, process, remote
        self._pause, self._more_owners = pause_seconds, more_owners
        self._verifier = verifier_of(key)
        self._unfinished: list[tuple[Owner, Session | None]] = []
        self.thread = threading.Thread(target=self._run, name="eraser")

    def _run(self) -> None:
        while not self._over.wait(self.chance.uniform(0.5, 1.5) * self._pause):
            try:
                self._one()
            except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                self.book.blame(None, f"erasing: {type(error).__name__}: {error}")

    def _one(self) -> None:
        if self._unfinished and self.chance.random() < 0.6:
            self._beside_unfinished(*self.chance.choice(self._unfinished))
        elif (closed := self._closed()) and self.chance.random() < 0.5:
            self._after(*self.chance.choice(closed))
        else:
            owner = self.chance.choice(self.book.owners)
            names = [one for one in list(owner.sessions.values()) if one.is_usable]
            self.erase(owner, self.chance.choice(names) if self.chance.random() < 0.5 else None)

    def _closed(self) -> list[tuple[Owner, Session | None]]:
        closed: list[tuple[Owner, Session | None]] = []
        for owner in self.book.owners:
            if owner.state == "closed":
                closed.append((owner, None))
            else:
                closed += [(owner, one) for one in list(owner.sessions.values()) if one.state == "closed"]
        return closed

    def _beside_unfinished(self, owner: Owner, session: Session | None) -> None:
        """While its process is gone: the same again, another erasure of the same user, or a readmission."""
        match self.chance.choice(("again", "again", "user", "session", "readmit")):
            case "again":
                self.erase(owner, session)
            case "user":
                self.erase(owner, None)
            case "session":
                self.erase(owner, self.chance.choice(list(owner.sessions.values())))
            case _:
                self._readmit(owner, session)

    def _after(self, owner: Owner, session: Session | None) -> None:
        """Behind a receipt: begin anew, erase again, or leave it for good."""
        match self.chance.choice(("readmit", "readmit", "again", "leave")):
            case "readmit":
                self._readmit(owner, session)
            case "again":
                self.erase(owner, session)
            case _:
                if session is None:
                    self._more_owners(owner)

    def erase(self, owner: Owner, session: Session | None, how: str | None = None) -> None:
        """Erase, and look, if there is a receipt; ``how``: by which way, or drawn."""
        how = how or self.chance.choice(("sync", "http", "process", "dies", "dies", "killed"))
        scope = session or owner
        what = "erase user" if session is None else "erase session"
        order: dict[str, Any] = {"what": what, "namespace": owner.namespace, "user": owner.user}
        if session is not None:
            order["session"] = session.name
        if how == "dies":
            order["dies_at_step"] = self.chance.randrange(MAX_STEPS)
        elif how == "killed":
            order["dies_after"] = self.chance.uniform(0, 0.2)
        ask = {"sync": lambda order: erase(order, self._url), "http": self._remote.erase}.get(
            how, self._process.ask
        )
        with self.book.lock:
            state = scope.state
            one = self.book.begin(how, owner, session, order)
            if state != "closed":
                scope.state = "perhaps"
            self.book.threaten(one, [session] if session else owner.sessions.values())
        receipt = self.carry_out(one, ask)
        if receipt is not None:
            self._judge(one, receipt)
        else:
            self._settle_failed(one, scope, state)

    def _settle_failed(self, one: Operation, scope: Owner | Session, state: Any) -> None:
        with self.book.lock:
            self.book.settle_taken(one)
            if one.outcome != "unknown":
                scope.state = state
                if one.outcome == "ConflictError" and "perhaps" not in (state, one.owner.state):
                    self.book.blame(one.owner, f"{one}, though no erasure is unfinished: {one.gave}")
            elif state != "closed" and (one.owner, one.session) not in self._unfinished:
                self._unfinished.append((one.owner, one.session))

    def _judge(self, one: Operation, given: dict[str, Any]) -> None:
        """The receipt says what is gone: that has to be what was asked for, or all of its user."""
        receipt = ErasureReceipt.from_json(json.dumps(given, sort_keys=True, separators=(",", ":")))
        scope: Owner | Session = one.session or one.owner
        with self.book.lock:
            is_of_owner = receipt.scope_key == receipt.owner_key
            if is_of_owner and one.session is not None and one.owner.state == "open":
                self.book.blame(one.owner, f"{one} gave a receipt of the whole user")
            if not is_of_owner and one.session is None:
                self.book.blame(one.owner, f"{one} gave a receipt of a session")
            if is_of_owner:
                scope = one.owner
            if scope.state != "closed":
                self.book.close(one, scope)
            self.book.settle_taken(one)
            gone = [(one.owner, None), *((one.owner, each) for each in one.owner.sessions.values())]
            finished = gone if is_of_owner else [(one.owner, one.session)]
            self._unfinished = [each for each in self._unfinished if each not in finished]
        self._verify(one, receipt)
        for session in [one.session] if one.session else list(one.owner.sessions.values()):
            for what in READS:
                self.read(one.owner, session, what)

    def _verify(self, one: Operation, receipt: ErasureReceipt) -> None:
        erasures = Erasures.of_namespace(receipt.namespace, database_url=self._url)
        verdict = self._persist(lambda: erasures.verify(receipt, self._verifier))
        if not verdict.is_good:
            self.book.blame(one.owner, f"the receipt of {one} does not hold: {verdict}")

    def _persist(self, call: Callable[[], Any]) -> Any:
        for _attempt in range(ATTEMPTS):
            try:
                return call()
            except DatabaseUnavailableError:
                time.sleep(0.5)
        return call()

    def _readmit(self, owner: Owner, session: Session | None) -> None:
        """Only once nothing of before can come any more."""
        if owner.unknown_until > self.book.now() or (session and owner.state != "open"):
            if owner.state == "closed":
                self._more_owners(owner)
            return
        scope = session or owner
        what = "readmit user" if session is None else "readmit session"
        order = {"what": what, "namespace": owner.namespace, "user": owner.user}
        if session is not None:
            order["session"] = session.name
        with owner.gate.closed():
            state = scope.state
            one = self.book.begin("sync", owner, session, order)
            self.carry_out(one, lambda order: erase(order, self._url))
            with self.book.lock:
                if one.outcome == "done":
                    self._let_in(one, scope)
                elif one.outcome == "unknown":
                    scope.state = "perhaps"
                elif state == "closed":
                    self.book.blame(owner, f"{one} did not let in who was erased: {one.outcome}")

    def _let_in(self, one: Operation, scope: Owner | Session) -> None:
        """Open a scope again; an erasure whose end was not seen has then ended, and took everything."""
        if scope.state == "perhaps":
            self.book.close(one, scope)
            self._unfinished = [each for each in self._unfinished if each != (one.owner, one.session)]
        self.book.open(scope)
        for session in one.owner.sessions.values() if scope is one.owner else ():
            if session.state != "open":
                session.state = "perhaps"  # its own fence may stand

    def finish(self) -> None:
        """At the end: whatever was begun is finished by the same call."""
        for owner, session in list(self._unfinished):
            for _attempt in range(ATTEMPTS):
                if (owner, session) in self._unfinished:
                    self.erase(owner, session, "sync")
