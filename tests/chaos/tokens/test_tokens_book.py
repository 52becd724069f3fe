"""The model that reads are held to finds each kind of violation, and none where either is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import ConflictError
from strandline.client.problems import error_of
from strandline.schemas.wire.base import Problem
from strandline.service.gate.problems import CONFLICT, ProblemError
from strandline.service.idempotency import DONE_BEFORE
from tests.chaos.tokens import book as module
from tests.chaos.tokens.actor import outcome_of
from tests.chaos.tokens.book import Book, Operation, Owner, Session


class Play:
    """An owner with a session, whose calls are told of by hand."""

    def __init__(self) -> None:
        self.book = Book(1, say=lambda _line: None)
        self.owner = self._owner("ana")
        self.session = self.owner.sessions["s"]

    def _owner(self, user: str) -> Owner:
        return Owner(namespace="default", user=user, sessions={"s": Session(name="s")})

    def begin(self, what: str, owner: Owner | None = None) -> Operation:
        return self.book.begin("sync", owner or self.owner, self.session, {"what": what})

    def put(self, outcome: str = "done", seq: int | None = 1) -> str:
        token, one = self.book.new_token(self.owner), self.begin("put")
        self.book.place(one, self.session, [token])
        self.book.end(one, outcome)
        self.book.check_write(one)
        self.book.settle_put(one, self.session, [token], [seq])
        return token.name

    def take(self, what: str, outcome: str = "done", seqs: Any = None) -> Operation:
        one = self.begin(what)
        self.book.threaten(one, [self.session])
        self.book.end(one, outcome)
        self.book.settle_taken(one, seqs)
        return one

    def history(self, *names: str) -> int:
        one = self.begin("history")
        self.book.end(one, "done")
        self.book.judge_log(one, list(enumerate(names, 1)), whole=True)
        return len(self.book.wrong)


@pytest.fixture
def play() -> Play:
    return Play()


def test_a_history_is_what_was_accepted(play: Play) -> None:
    name = play.put()
    assert play.history(name) == 0
    assert play.history() == 1  # it is missing


def test_what_was_taken_back_is_not_shown(play: Play) -> None:
    name = play.put()
    play.take("rewind", seqs=[1])
    assert play.history() == 0
    assert play.history(name) > 0


def test_what_another_user_said_is_not_shown(play: Play) -> None:
    name = play.put()
    one = play.begin("search", play._owner("ben"))
    play.book.judge(one, [name], "memory", "the search")
    assert len(play.book.wrong) == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_read_decides_what_nobody_knows(
    play: Play, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put without an answer may be there or not, but then it stays so."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    name = play.put("unknown", None)
    given = [name] if is_there else []
    assert play.history(*given) == 0
    assert play.history(*given) == 0
    assert play.history(*([] if is_there else [name])) > 0


def test_what_a_reset_may_have_left_may_still_be_remembered(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in the log; but it may have come before the reset, which takes nothing that was derived."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    name = play.put("unknown", None)
    play.take("reset")
    assert play.history() == 0
    play.book.judge(play.begin("search"), [name], "memory", "the search")
    assert not play.book.wrong


def test_a_copy_remembers_what_had_left_the_log_of_its_source(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its summary is the source's, which stays when the source is erased."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    name = play.put()
    play.take("reset", "unknown")
    assert play.history() == 0
    fork, copy = play.begin("fork"), Session(name="copy")
    play.owner.sessions["copy"] = copy
    play.book.begin_fork(fork, play.session, copy, 1)
    play.book.end(fork, "done")
    play.book.settle_fork(fork, play.session, copy)
    play.book.close(play.take("erase session"), play.session)
    play.book.judge(play.begin("context"), [name], "memory", "the context")
    assert not play.book.wrong
    erase = play.begin("erase session")
    play.book.end(erase, "done")
    play.book.close(erase, copy)
    read = play.begin("context")
    play.book.judge(read, [name], "memory", "the context")
    assert len(play.book.wrong) == 1


def test_a_pop_without_an_answer_may_still_take_effect(play: Play) -> None:
    name = play.put()
    play.take("pop", "unknown")
    assert play.history(name) == 0
    assert play.history() == 0
    assert play.history(name) > 0  # it was gone


def test_nothing_is_accepted_behind_a_receipt_until_it_is_readmitted(play: Play) -> None:
    name = play.put()
    play.book.close(play.take("erase user"), play.owner)
    play.put("ErasedError")
    assert play.history() == 0
    play.put()
    assert len(play.book.wrong) == 1
    play.book.open(play.owner)
    play.put("ErasedError")
    assert len(play.book.wrong) == 2
    assert name in play.book.taken()


def test_a_deleted_fact_is_not_live_again(play: Play) -> None:
    name = play.put()
    delete = play.begin("delete")
    play.book.end(delete, "done")
    play.book.lose_facts([name], delete.ends)
    read = play.begin("facts")
    play.book.judge(read, [name], "memory", "the context")
    assert not play.book.wrong
    play.book.judge(read, [name], "facts", "the list")
    assert len(play.book.wrong) == 1


def test_a_repeated_pop_whose_response_was_forgotten_may_have_taken(play: Play) -> None:
    """Its first answer was lost, and somebody took the session back before it was asked for again."""
    refusal = Problem.model_validate_json(bytes(ProblemError(CONFLICT, detail=DONE_BEFORE).response().body))
    told = error_of(refusal, 409)
    assert isinstance(told, ConflictError)
    play.put()
    play.take("pop", str(outcome_of(told)))
    assert play.history() == 0
    assert outcome_of(ConflictError("Others kept putting.")) == "ConflictError"
