"""Forking a session: the copy goes its own way, nothing is extracted again, and no users are mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import psycopg
import pytest

from strandline import ConfigurationError, ConflictError, Memory, NotFoundError, OwnerError
from strandline.pipelines.inspect.sessions import show_session
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import EXTRACT_STAGE, SUMMARY, SUMMARY_STAGE, VECTORS, VECTORS_STAGE
from tests.conftest import MakeMemory, Rig, lock_is_awaited, nothing_due, rows_of, wait_until
from tests.support.fresh_session import derived_of
from tests.support.messages import user
from tests.support.stored import stored_sessions
from tests.support.workers.draining import drain_everything

Work = Callable[[], None]


@pytest.fixture
def work(database: Database, database_url: str, model_settings: Settings) -> Work:
    def drained() -> None:
        drain_everything(database, database_url, model_settings)
        assert nothing_due(database_url)

    return drained


@pytest.fixture
def memory(make_memory: MakeMemory, work: Work) -> Memory:
    """A head and four events of one message, each derived; two messages that are not delivered."""
    made = make_memory("trunk", user_id="ana")
    made.put({"role": "system", "content": "Be brief."})
    for number in range(1, 5):
        made.put({**user(f"event {number}"), "id": f"m{number}"})
        made.flush(all=True)
        work()
    made.put_messages([user("in the window"), user("and this")])
    return made


def texts(memory: Memory) -> list[str]:
    return [message.text for message in memory.get_all()]


def test_a_fork_takes_over_what_was_derived(rig: Rig, memory: Memory, work: Work) -> None:
    asked, before = rig.model.received, derived_of(rig.url, memory)
    fork = memory.fork("branch")
    assert (fork.session_id, fork.through_seq, fork.messages) == ("branch", 7, 7)
    branch = rig.memory("branch", user_id="ana")
    assert branch.get_all() == memory.get_all()
    assert derived_of(rig.url, branch) == before
    assert [str(message) for message in branch.get()] == [str(message) for message in memory.get()]
    assert nothing_due(rig.url)
    assert rig.model.received == asked
    assert verify(rig.database).violations == ()
    assert branch.put(user("on the branch")) == 8
    assert memory.put(user("on the trunk")) == 8
    branch.flush(all=True)
    work()
    assert "on the trunk" not in texts(branch) and "on the branch" not in texts(memory)
    assert derived_of(rig.url, branch).summary.endswith("event 4 in the window and this on the branch")
    assert derived_of(rig.url, memory).summary == before.summary
    branch.rewind(2)
    work()
    assert texts(memory)[1] == "event 1"
    assert verify(rig.database).violations == ()


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 6])
def test_a_fork_may_be_cut_anywhere(rig: Rig, memory: Memory, work: Work, cut: int) -> None:
    memory.replace(4, "event three")
    fork = memory.fork(through_seq=cut)
    branch = rig.memory(fork.session_id, user_id="ana")
    expected = ["Be brief.", "event 1", "event 2", "event three", "event 4", "in the window"][:cut]
    assert texts(branch) == expected
    assert verify(rig.database).violations == ()
    work()
    branch.flush(all=True)
    work()
    assert derived_of(rig.url, branch).summary == " ".join(expected[1:])
    branch.put(user("goes on"))
    assert [message.text for message in branch.get()][-1] == "goes on"
    assert verify(rig.database).violations == ()


def test_an_event_that_is_cut_is_delivered_again(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    memory.put_messages([user(f"line {number}") for number in range(1, 7)])
    memory.flush(all=True)
    work()
    branch = rig.memory(memory.fork(through_seq=3).session_id, user_id="ana")
    assert [message.text for message in branch.get().window] == ["line 1", "line 2", "line 3"]
    assert verify(rig.database).violations == ()
    branch.flush(all=True)
    work()
    assert len(branch.facts.list()) == 6, "the user's facts, each once"
    assert verify(rig.database).violations == ()


def test_a_fork_has_the_whole_policy_of_its_source(make_memory: MakeMemory, database: Database) -> None:
    limits = {"token_limit": 2_000, "max_window_messages": 9, "message_flush_size": 4, "idle_seconds": 60}
    memory = make_memory("trunk", user_id="ana", memory_blocks=["facts"], deliver="turn", **limits)
    memory.put(user("one"))
    memory.fork("branch")
    source, branch = (show_session(database, name).session.policy for name in ("trunk", "branch"))
    assert (branch.deliver, branch.message_flush_size) == ("turn", 4)
    assert branch == source


def test_what_cannot_be_forked_is_refused(make_memory: MakeMemory, memory: Memory, database_url: str) -> None:
    with pytest.raises(NotFoundError, match="no message 99"):
        memory.fork(through_seq=99)
    with pytest.raises(ConflictError, match="exists already"):
        memory.fork("trunk")
    make_memory("of-bo", user_id="bo", memory_blocks=[]).put(user("mine"))
    with pytest.raises(OwnerError):
        memory.fork("of-bo")
    with pytest.raises(OwnerError):
        make_memory("trunk", user_id="bo").fork("elsewhere")
    alone = make_memory(memory_blocks=[])
    alone.put(user("mine"))
    with pytest.raises(ConfigurationError, match="no user"):
        alone.fork()
    assert stored_sessions(database_url) == 3
    # A name that a refused fork was to have is free for anyone.
    with pytest.raises(NotFoundError):
        memory.fork("next", through_seq=99)
    make_memory("next", user_id="bo", memory_blocks=[]).put(user("mine"))


@pytest.mark.parametrize("kind", ["rewind", "replace", "pop", "reset"])
@pytest.mark.parametrize("is_derived", [True, False])
def test_a_fork_keeps_the_facts_of_what_its_source_takes_back(
    rig: Rig, work: Work, kind: str, *, is_derived: bool
) -> None:
    """A fork is how a conversation keeps what a correction would take away."""
    memory = rig.memory(user_id="ana")
    work()  # registers the stand-in
    for number in range(1, 4):
        memory.put(user(f"event {number}"))
        memory.flush(all=True)
    if is_derived:
        work()
    branch = rig.memory(memory.fork().session_id, user_id="ana")
    match kind:
        case "rewind":
            memory.rewind(2)
        case "replace":
            memory.replace(2, "event two")
        case "pop":
            memory.pop()
        case _:
            memory.reset(derived=True)
    assert verify(rig.database).violations == ()
    work()
    facts = {fact.text for fact in branch.facts.list()}
    assert facts == {"event 1", "event 2", "event 3"} | ({"event two"} if kind == "replace" else set())
    assert verify(rig.database).violations == ()


def test_a_correction_of_a_fork_derives_no_more_again_than_one_of_its_source(
    rig: Rig, memory: Memory, work: Work
) -> None:
    """Of facts and vectors: the summary of a fork is one state, made of all that it took over."""

    def due(session_id: str) -> dict[str, int]:
        query = """
            SELECT d.stage, count(*) FROM strandline.due d
            JOIN strandline.session s USING (shard_key, session_key)
            WHERE s.session_id = %s GROUP BY 1"""
        return dict(rows_of(rig.url, query, session_id))

    memory.fork("branch")
    branch = rig.memory("branch", user_id="ana")
    branch.rewind(5)
    assert due("branch") == {EXTRACT_STAGE: 1, VECTORS_STAGE: 1, SUMMARY_STAGE: 4}
    work()
    memory.rewind(5)
    assert due("trunk") == {EXTRACT_STAGE: 1, VECTORS_STAGE: 1, SUMMARY_STAGE: 1}
    work()
    assert due("branch") == due("trunk") == {}
    assert derived_of(rig.url, branch) == derived_of(rig.url, memory)
    assert verify(rig.database, deep=True).violations == ()


def test_a_fork_of_a_fork_keeps_what_both_take_back(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    for number in range(1, 4):
        memory.put(user(f"event {number}"))
        memory.flush(all=True)
    work()
    branch = rig.memory(memory.fork().session_id, user_id="ana")
    twig = rig.memory(branch.fork().session_id, user_id="ana")
    memory.rewind(2)
    branch.rewind(3)
    work()
    assert {fact.text for fact in twig.facts.list()} == {"event 1", "event 2", "event 3"}
    branch.reset(derived=True)
    memory.reset(derived=True)
    work()
    assert {fact.text for fact in twig.facts.list()} == {"event 1", "event 2", "event 3"}
    twig.reset(derived=True)
    assert not list(twig.facts.list())
    assert verify(rig.database).violations == ()


def test_a_fork_has_the_policy_and_the_rows_of_its_source(rig: Rig) -> None:
    memory = rig.memory(
        "trunk",
        user_id="ana",
        deliver="turn",
        token_limit=2_000,
        max_window_messages=40,
        message_flush_size=20,
        idle_seconds=60,
        memory_blocks=["facts"],
    )
    memory.put({**user("kumquat"), "metadata": {"mood": "glad"}})
    memory.fork("branch")
    session = "to_jsonb(s) - ARRAY['session_key', 'incarnation', 'session_id', 'created_at']"
    moments = "ARRAY['last_put_at', 'watched_until', 'overdue_at']"
    one, other = (
        rows_of(
            rig.url,
            f"SELECT {session} - {moments}, s.watched_until - s.last_put_at,"
            " (SELECT jsonb_agg(to_jsonb(m) - ARRAY['session_key', 'incarnation', 'labels'])"
            " FROM strandline.message m WHERE m.session_key = s.session_key),"
            " (SELECT array_agg(w.cause) FROM strandline.watch w WHERE w.session_key = s.session_key)"
            " FROM strandline.session s WHERE s.session_id = %s",
            name,
        )
        for name in ("trunk", "branch")
    )
    assert one == other
    branch = rig.memory("branch", user_id="ana")
    assert [message.text for message in branch.history(metadata={"mood": "glad"})] == ["kumquat"]
    assert verify(rig.database).violations == ()


RECEIPT = """
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
SELECT e.shard_key, md5(e.event_id::text || %s)::uuid, g.generation_id, g.entry_stage, 'void'
FROM strandline.flush_event e CROSS JOIN strandline.generation g WHERE g.pipeline = %s
"""


@contextmanager
def forking(url: str, memory: Memory, name: str, pipeline: str) -> Iterator[None]:
    """A fork is under way, and stands where it writes the receipts of a pipeline."""
    keys = identify_session("default", name, memory.user_id)
    with psycopg.connect(url) as connection:
        connection.execute(RECEIPT, [str(keys.session_key), pipeline])
        thread = Thread(target=memory.fork, args=(name,))
        thread.start()
        wait_until(lambda: lock_is_awaited(url), timeout=60, what="the fork to wait")
        yield
        connection.rollback()
    thread.join()


@pytest.mark.parametrize("pipeline", [VECTORS, SUMMARY])
def test_a_fork_keeps_what_a_replay_takes_from_its_source_meanwhile(
    rig: Rig, memory: Memory, model_settings: Settings, work: Work, pipeline: str
) -> None:
    before = derived_of(rig.url, memory)
    rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
    with forking(rig.url, memory, "branch", pipeline):
        replay = begin_in_place(rig.database, pipeline, Selection())
        assert replay_in_place(rig.database, replay, model_settings).asked_again
    assert verify(rig.database, deep=True).violations == ()
    work()
    assert derived_of(rig.url, rig.memory("branch", user_id="ana")) == before
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("is_extracted", [True, False])
def test_a_fork_keeps_the_facts_that_a_reset_keeps_from_its_source(
    rig: Rig, model_settings: Settings, work: Work, *, is_extracted: bool
) -> None:
    """What was pending in the source is void then."""
    memory = rig.memory(user_id="ana")
    work()  # registers the stand-in
    memory.put(user("event 1"))
    memory.flush(all=True)
    if is_extracted:
        drain_everything(rig.database, rig.url, model_settings, ["extract"])
    branch = rig.memory(memory.fork().session_id, user_id="ana")
    memory.reset()
    work()
    assert [fact.text for fact in branch.facts.list()] == ["event 1"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_fork_that_lost_its_first_event_to_its_source_verifies_clean(
    rig: Rig, memory: Memory, model_settings: Settings, work: Work
) -> None:
    """Its batch of what it took over begins later then, and still shows no context."""
    rig.memory(memory.fork().session_id, user_id="ana")
    # As if extract saw so few lines before its own that no other batch saw this one.
    rows_of(
        rig.url,
        "UPDATE strandline.generation SET config = config || '{\"context_tokens\": 4}'"
        " WHERE pipeline = 'facts' RETURNING 1",
    )
    rows_of(
        rig.url,
        "UPDATE strandline.batch SET context_seqs = context_seqs[cardinality(context_seqs):]"
        " WHERE stage = 'extract' RETURNING 1",
    )
    memory.replace(2, "event one")
    work()
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_fork_has_nothing_of_its_sources_earlier_lives(
    rig: Rig, model_settings: Settings, work: Work, *, is_one_batch: bool
) -> None:
    """A summary that goes on from them is not taken over: it is not that of the fork's messages."""
    memory = rig.memory(user_id="ana")
    for number in range(1, 4):
        memory.put(user(f"event {number}"))
        memory.flush(all=True)
        work()
        if number == 1:
            memory.reset()
    if is_one_batch:
        rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
        replay_in_place(rig.database, begin_in_place(rig.database, SUMMARY, Selection()), model_settings)
        work()
    branch = rig.memory(memory.fork().session_id, user_id="ana")
    work()
    assert derived_of(rig.url, memory).summary == "event 1 event 2 event 3"
    assert derived_of(rig.url, branch).summary == "event 2 event 3"
    assert len(derived_of(rig.url, branch).chunks) == 2
    assert verify(rig.database, deep=True).violations == ()
