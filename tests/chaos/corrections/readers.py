"""A thread that reads all the time, in every way there is, and looks for what must not be shown."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from strandline.schemas.errors import ConfigurationError
from tests.chaos.corrections.book import Book, Session, words_of

QUESTION = "boat cat flat tea noted"
PAUSE_SECONDS = 0.02
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Reader:
    """Reads until ``over``; ``wrong`` is told each sentence about a read that showed what was gone."""

    def __init__(
        self, book: Book, chance: random.Random, over: threading.Event, wrong: Callable[[str], None]
    ) -> None:
        self.reads = 0
        self._book = book
        self._chance = chance
        self._over = over
        self._wrong = wrong
        self.thread = threading.Thread(target=self._run, name="reader")

    def _run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            session = self._chance.choice(list(self._book.sessions.values()))
            try:
                self.read(session)
            except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                self._wrong(f"a read of {session.name} failed: {type(error).__name__}: {error}")

    def read(self, session: Session) -> None:
        """Every way to read a session, its user's facts and its scope, once."""
        memory = session.memory
        question = self._question(session)
        self._look(session, "get_all", lambda: [str(one) for one in memory.get_all()])
        self._look(session, "history", lambda: [str(one) for one in memory.history(5, 1, ["user"])])
        self._look(session, "history", lambda: [str(one) for one in memory.history(metadata={"mood": "a"})])
        self._look(session, "history", lambda: [str(one) for one in memory.history(since=LONG_AGO)])
        self._look(session, "context_window", lambda: [str(one) for one in memory.context_window(2_000)])
        self._look(session, "search", lambda: [str(hit) for hit in memory.search(question, limit=30)])
        self._read_context(session, question)
        self._look(None, "facts", lambda: [fact.text for fact in memory.facts.list(limit=1_000)])
        self._look(None, "facts.search", lambda: [str(hit) for hit in memory.facts.search(question)])
        self._look(
            None,
            "search of the owner",
            lambda: [
                str(hit)
                for hit in memory.search(question, limit=50, scope="owner", kinds=("message", "fact"))
            ],
        )
        try:
            self._look(
                None,
                "search of the scope",
                lambda: [str(hit) for hit in memory.search(question, limit=50, scope="shared")],
            )
        except ConfigurationError:
            return

    def _question(self, session: Session) -> str:
        """Mostly what is gone lately, which a search would find first."""
        gone = sorted(self._book.gone_words(session))
        return f"{QUESTION} {' '.join(self._chance.sample(gone, min(4, len(gone))))}"

    def _read_context(self, session: Session, question: str) -> None:
        gone, gone_here = self._book.gone_words(), self._book.gone_words(session)
        context = session.memory.get(question)
        self._judge(session.name, "get", gone, map(str, context))
        messages = [*context.tail, *context.window]
        self._judge(session.name, "window and tail", gone_here, (one.text for one in messages))

    def _look(self, session: Session | None, what: str, read: Callable[[], list[str]]) -> None:
        gone = self._book.gone_words(session)
        self._judge(session.name if session else "all", what, gone, read())

    def _judge(self, where: str, what: str, gone: frozenset[str], texts: Iterable[str]) -> None:
        self.reads += 1
        shown = words_of(" ".join(texts)) & gone
        # What was asked for may come back as a quote of the question, which no read here does.
        if shown:
            self._wrong(f"{what} of {where} shows {sorted(shown)[:3]}, which a correction had taken away")
