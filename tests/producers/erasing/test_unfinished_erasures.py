"""An erasure whose process ended at any step, and what is called beside it: each receipt is of its scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest

from strandline import ConflictError, ErasedError, Memory, NotFoundError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import ErasureReceipt, Erasures
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.upkeep.erasure.steps import ErasureOrder
from strandline.pipelines.upkeep.erasure.target import ErasureTarget, own_session_target
from strandline.producers.erasing import erase as erasing
from strandline.producers.erasing.erase import find_unsettled, plan_erasure
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session, identify_user
from tests.conftest import rows_of
from tests.producers.erasing.conftest import LIMITS
from tests.support.servers.databases import temporary_database

ANN = identify_user("default", "ann").shard_key
# The scopes that are erased; ``fork`` was made of ``one``, and all share with a scope.
USER, ONE, TWO, FORK, ALONE = "user", "one", "two", "fork", "alone"
SESSIONS = (ONE, TWO, FORK)
SCOPES = (USER, *SESSIONS, ALONE)


def name(scope: str) -> str:
    return f"zanzibarq-{scope}"


def is_within(scope: str, other: str) -> bool:
    """Whether what is erased with the one is erased with the other."""
    return scope == other or (other == USER and scope in SESSIONS)


def keys(scope: str) -> tuple[object, object]:
    if scope == USER:
        return ANN, ANN
    identity = identify_session("default", name(scope), None if scope == ALONE else "ann")
    return identity.shard_key, identity.shard_key if scope == ALONE else identity.session_key


def memory_of(scope: str, url: str) -> Memory:
    session = ONE if scope == USER else scope
    user = None if scope == ALONE else "ann"
    return Memory.from_defaults(name(session), user_id=user, database_url=url, **LIMITS)


Progress = Callable[[str, str, int], None]
MakeCopy = Callable[..., "Copy"]


def erase(erasures: Erasures, scope: str, told: Progress = lambda *_: None) -> ErasureReceipt:
    if scope == USER:
        return erasures.erase_user("ann", on_progress=told)
    return erasures.erase_session(name(scope), on_progress=told)


def readmit(erasures: Erasures, scope: str) -> ErasureReceipt:
    return erasures.readmit_user("ann") if scope == USER else erasures.readmit_session(name(scope))


def export(erasures: Erasures, scope: str) -> int:
    exported = erasures.export_user("ann") if scope == USER else erasures.export_session(name(scope))
    return len(list(exported))


@dataclass
class Copy:
    """A copy of the filled database, and its faces."""

    url: str
    erasures: Erasures
    database: Database

    def rows(self, scope: str) -> set[str]:
        """The tables with rows of it."""
        owner, session = keys(scope)
        target = ErasureTarget("session", "default", owner, session)  # type: ignore[arg-type]
        return set(self.database.run(plan_erasure(target)).rows)

    def kept(self, erased: Sequence[str]) -> dict[str, Any]:
        """What is there of the scopes that are in none of these, and of bob: messages, copies, and work."""
        others = [one for one in (*SESSIONS, ALONE) if not any(is_within(one, scope) for scope in erased)]
        bob = identify_user("default", "bob").shard_key
        kept = {
            table: rows_of(
                self.url, f"SELECT t::text FROM strandline.{table} t WHERE shard_key = %s ORDER BY 1", bob
            )
            for table in ("session", "message", "fact", "flush_event", "receipt", "due", "chunk")
        }
        for scope, table in product(others, ("message", "shared_message", "correction", "popped")):
            session = identify_session("default", name(scope), None).session_key
            kept[f"{scope} {table}"] = rows_of(
                self.url,
                f"SELECT t::text FROM strandline.{table} t WHERE session_key = %s ORDER BY 1",
                session,
            )
        return kept

    def close(self) -> None:
        self.erasures.close()
        self.database.close()

    def stop(self, scope: str, at: int) -> bool:
        """Erase until the ``at``-th thing that is told; whether it got there."""
        passed = iter(range(10_000))

        def told(_step: str, _table: str, _rows: int) -> None:
            if next(passed) == at:
                raise KeyboardInterrupt

        try:
            erase(self.erasures, scope, told)
        except KeyboardInterrupt:
            return True
        return False


@pytest.fixture(scope="module")
def alone(stack: EmbeddedStack, filled: str) -> Iterator[str]:
    """The name of the filled database with a session without a user."""
    with temporary_database(stack.database_url, filled) as url:
        memory = memory_of(ALONE, url)
        memory.put_messages([{"role": "user", "content": f"zanzibarqalone {n}"} for n in range(3)])
        memory.close()
        yield urlsplit(url).path[1:]


def open_copy(url: str) -> Copy:
    options = ConnectionOptions.from_settings(url, load_settings(database_url=url))
    return Copy(url, Erasures.of_namespace(database_url=url), Database.connect(options))


@pytest.fixture
def make_copy(stack: EmbeddedStack, alone: str) -> Iterator[MakeCopy]:
    """Makes a copy of the filled database, or of another one; each goes with the test."""
    with ExitStack() as opened:

        def make(of: str = alone) -> Copy:
            copy = open_copy(opened.enter_context(temporary_database(stack.database_url, of)))
            opened.callback(copy.close)
            return copy

        yield make


_ends: dict[str, list[int]] = {}


def ends(make_copy: MakeCopy, scope: str) -> list[int]:
    """Where a process may end, from what the erasure tells: at each step, and after each that deletes rows.

    The first is told before the fence is set.  They are the same in every copy, so a scope is erased for them
    once.
    """
    if scope not in _ends:
        told: list[tuple[str, str, int]] = []
        erase(make_copy().erasures, scope, lambda step, table, rows: told.append((step, table, rows)))
        steps: set[str] = set()
        _ends[scope] = [
            number
            for number, (step, _table, rows) in enumerate(told)
            if number and (rows or step not in steps) and not steps.add(step)  # type: ignore[func-returns-value]
        ]
    return _ends[scope]


def check_unfinished(copy: Copy, scope: str) -> None:
    """No reader is misled, and nothing but the same call goes on with it."""
    erasures = copy.erasures
    assert [(one.finding, one.scope_key) for one in copy.database.run(find_unsettled())] == [
        ("unfinished", keys(scope)[1])
    ]
    report = verify(copy.database)
    assert (report.violations, [one.owner_key for one in report.unjudged]) == ((), [keys(scope)[0]])
    with pytest.raises(ConflictError):
        readmit(erasures, scope)
    for other in SCOPES:
        if is_within(other, scope):
            with pytest.raises(ErasedError):
                memory_of(other, copy.url).put({"role": "user", "content": "back"})
        if is_within(scope, other) or is_within(other, scope):
            # Once the directory is gone, nobody knows the session of an erased user by its name.
            with pytest.raises((ConflictError, NotFoundError)):
                export(erasures, other)
        else:
            assert export(erasures, other) > 2
    if scope == USER:
        for other in SESSIONS:
            with pytest.raises((ConflictError, NotFoundError)):
                erase(erasures, other)
            with pytest.raises(NotFoundError):
                readmit(erasures, other)


def check_receipt(copy: Copy, receipt: ErasureReceipt, scope: str) -> None:
    assert (receipt.owner_key, receipt.scope_key) == keys(scope)
    assert receipt.kind == ("user" if scope == USER else "session")
    assert copy.rows(scope) == set()
    assert not any(check.remaining for check in receipt.checks)
    verdict = copy.erasures.verify(receipt)
    assert (verdict.rows, verdict.fence) == ({}, receipt.number)
    with pytest.raises(ErasedError):
        memory_of(scope, copy.url).put({"role": "user", "content": "back"})


def use_again(copy: Copy, erased: Sequence[str]) -> list[ErasureReceipt]:
    """Readmit all that was erased: each name can be used again, and nothing of before is there."""
    # Names of a user's sessions are known to their own fences alone.
    receipts = [readmit(copy.erasures, scope) for scope in erased]
    for scope in (*SESSIONS, ALONE):
        if any(is_within(scope, one) for one in erased):
            memory = memory_of(scope, copy.url)
            assert memory.put({"role": "user", "content": "new life"}) == 1
            assert memory.put_messages(
                [{"role": "user", "content": "second"}, {"role": "user", "content": "third"}]
            )
            assert [message.text for message in memory.get_all()] == ["new life", "second", "third"]
    assert copy.erasures.find_erased_rows() == {}
    assert copy.database.run(find_unsettled()) == []
    return receipts


# What is erased to its end while the first is unfinished.  The two sessions do not differ.
PAIRS = [
    (USER, None),
    (USER, ALONE),
    (ALONE, None),
    (ALONE, USER),
    (ONE, None),
    (ONE, USER),
    (ONE, TWO),
    (ONE, FORK),
    (FORK, None),
    (FORK, USER),
    (FORK, ONE),
]


def stride(scope: str, beside: str | None) -> tuple[int, int]:
    """Where a pair begins among the ends, and how far it is from one to the next.

    An erasure alone goes through all of them.  Another beside it meets the fence, which is there at each of
    them: each pair of a scope takes another third.
    """
    if beside is None:
        return 0, 1
    pairs = [pair for pair in PAIRS if pair[0] == scope and pair[1] is not None]
    return pairs.index((scope, beside)), 3


@pytest.mark.parametrize(("scope", "beside"), PAIRS)
def test_an_erasure_that_ended_anywhere(make_copy: MakeCopy, scope: str, beside: str | None) -> None:
    """Then others are erased to their end, then the same call ends it, and all are readmitted."""
    first, every = stride(scope, beside)
    for at in ends(make_copy, scope)[first::every]:
        copy = make_copy()
        others = copy.kept([scope, *filter(None, [beside])])
        assert copy.stop(scope, at)
        erased = [scope]
        if beside is None:
            check_unfinished(copy, scope)
        else:
            check_receipt(copy, erase(copy.erasures, beside), beside)
            assert [one.state for one in copy.erasures.list()] == ["done", "running"]
            erased.append(beside)
        check_receipt(copy, erase(copy.erasures, scope), scope)
        assert copy.kept(erased) == others
        use_again(copy, erased)
        assert copy.kept(erased) == others
    report = verify(copy.database)
    assert (report.violations, report.unjudged) == ((), ())


@pytest.mark.parametrize(("scope", "beside"), [pair for pair in PAIRS if pair[0] != ALONE])
def test_receipts_repeated_in_an_older_dump(make_copy: MakeCopy, scope: str, beside: str | None) -> None:
    """The dump is of before all erasures, or of amid the first; whatever else happened is in the receipts."""
    copy = make_copy()
    erased = [scope, *filter(None, [beside])]
    others = copy.kept(erased)
    copy.stop(scope, 3)
    copy.close()
    amid = make_copy(urlsplit(copy.url).path[1:])
    copy = open_copy(copy.url)
    # A session goes before its user, or nobody knows its name any more.
    receipts = [erase(copy.erasures, one) for one in sorted(erased, key=lambda one: one == USER)]
    receipts += [readmit(copy.erasures, one) for one in erased]
    for dump in (make_copy(), amid):
        for receipt in receipts[: len(erased)]:
            verdict = dump.erasures.verify(receipt)
            assert verdict.rows or dump is amid, "a dump has rows of what was erased"
        outcomes = [one.outcome for one in dump.erasures.reapply(receipts, unverified=True)]
        assert outcomes == ["erased"] * len(erased) + ["readmitted"] * len(erased)
        # The act of readmitting is under a pseudonym of the new life.
        assert set().union(*map(dump.rows, erased)) <= {"audit_subject"}
        assert dump.kept(erased) == others
        assert dump.database.run(find_unsettled()) == []
        assert all(dump.erasures.verify(one).rows == {} for one in receipts)


def test_nobody_is_told_that_a_session_is_forgotten_while_its_facts_are_shown(make_copy: MakeCopy) -> None:
    """A forgetting reset ends as forgotten, or as refused: also if only some of the rows are left."""
    first, *_others, last = ends(make_copy, USER)
    shown = []
    for at in (first, last):
        copy = make_copy()
        memory = memory_of(ONE, copy.url)
        assert memory.facts.list()
        assert copy.stop(USER, at)
        with pytest.raises(ErasedError):
            memory.reset(derived=True)
        memory.reset()
        assert memory.get_all() == []
        shown.append(bool(memory.facts.list()))
        erase(copy.erasures, USER)
        memory.reset(derived=True)
        assert memory.facts.list() == []
    assert shown == [True, False], "facts are shown until they are deleted"


def test_a_process_that_was_held_up_deletes_nothing_of_the_life_after(make_copy: MakeCopy) -> None:
    """At each of its steps another ends the erasure, and the user is readmitted and writes."""
    for at in ends(make_copy, USER):
        copy, passed = make_copy(), iter(range(10_000))
        receipts: list[ErasureReceipt] = []

        def hold_up(_step: str, _table: str, _rows: int) -> None:
            if next(passed) == at:  # noqa: B023  # called within this round alone
                other = Erasures.of_namespace(database_url=copy.url)  # noqa: B023
                receipts.append(other.erase_user("ann"))  # noqa: B023
                other.readmit_user("ann")
                memory_of(ONE, copy.url).put({"role": "user", "content": "new life"})  # noqa: B023

        assert erase(copy.erasures, USER, hold_up) == receipts[0]
        assert [message.text for message in memory_of(ONE, copy.url).get_all()] == ["new life"]
        assert verify(copy.database).violations == ()


def test_the_name_of_an_unfinished_session_may_be_anothers_meanwhile(make_copy: MakeCopy) -> None:
    """Once its directory entry is gone; what the other says is no remainder of what is erased."""
    at = ends(make_copy, ONE)[-1]
    copy = make_copy()
    copy.stop(ONE, at)
    others = Memory.from_defaults(name(ONE), user_id="eve", database_url=copy.url, **LIMITS)
    others.put({"role": "user", "content": "mine"})
    target = copy.database.run(own_session_target(identify_session("default", name(ONE), "ann")))
    check_receipt(copy, copy.database.run(erasing.erase(ErasureOrder(target), None)), ONE)
    assert [message.text for message in others.get_all()] == ["mine"]


@pytest.mark.parametrize("user", ["eve", None])
def test_the_same_call_ends_an_erasure_whose_name_is_anothers_meanwhile(
    make_copy: MakeCopy, user: str | None
) -> None:
    """By the name alone, which is the other's now: that one stays, and is erased by another call."""
    at = ends(make_copy, ONE)[-1]
    copy = make_copy()
    copy.stop(ONE, at)
    others = Memory.from_defaults(name(ONE), user_id=user, database_url=copy.url, **LIMITS)
    others.put({"role": "user", "content": "mine"})
    with pytest.raises(ConflictError):
        export(copy.erasures, ONE)
    with pytest.raises(ConflictError):
        readmit(copy.erasures, ONE)
    check_receipt(copy, erase(copy.erasures, ONE), ONE)
    assert [message.text for message in others.get_all()] == ["mine"]
    assert export(copy.erasures, ONE) > 2
    receipt = erase(copy.erasures, ONE)
    assert receipt.owner_key != keys(ONE)[0] and others.get_all() == []
