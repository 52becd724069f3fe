"""The shared scope: sessions that opted in find each other, and no others; forgotten ones are gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest

from strandline import ConfigurationError, InvalidMessageError, Memory, VectorMemoryBlock
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.statements import statements
from strandline.schemas.queries.conversation.messages import Correct
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session, shared_scope_key
from strandline.schemas.values.lanes import VECTORS_STAGE
from tests.conftest import MakeMemory, Rig, lock_is_awaited, nothing_due, rows_of, wait_until
from tests.support.opened_rows import clear_only
from tests.support.workers.draining import drain_everything

Share = Callable[..., Memory]

CHATTER = ("Good morning to you.", "The weather is fine today.")
KEY = "Lars keeps the key of the boathouse."
LOCAL = {"STRANDLINE_EMBEDDING_BACKEND": "local", "STRANDLINE_TEXT_BACKEND": "local"}
QUERY = "Who keeps the key of the boathouse?"


@pytest.fixture
def derive(database: Database, database_url: str) -> Callable[[], None]:
    local = load_settings(database_url=database_url, embedding_backend="local", text_backend="local")
    return lambda: drain_everything(database, database_url, local, [VECTORS_STAGE])


@pytest.fixture
def share(make_memory: MakeMemory, derive: Callable[[], None]) -> Share:
    """Puts and flushes texts in a session that shares with a team, unless it is told otherwise."""

    def put(session_id: str, texts: Sequence[str], **options: Any) -> Memory:
        options = {"memory_blocks": ["vectors"], "shared_scope": "team", "user_id": session_id, **options}
        memory = make_memory(session_id, **options)
        memory.put_messages([{"role": "user", "content": text} for text in texts])
        memory.flush(all=True)
        derive()
        return memory

    return put


def found(memory: Memory, query: str = QUERY, **options: Any) -> list[tuple[str, str]]:
    return [(hit.session_id, hit.text) for hit in memory.search(query, scope="shared", **options)]


def shared_rows(database_url: str) -> tuple[int, int]:
    """How many messages and chunks lie under the key of the team."""
    key = shared_scope_key("default", "team")
    counted = "SELECT count(*) FROM strandline.{} WHERE shard_key = %s"
    messages, chunks = (
        rows_of(database_url, counted.format(table), key)[0][0] for table in ("shared_message", "chunk")
    )
    return messages, chunks


def test_a_user_finds_what_another_user_flushed_into_the_shared_scope(
    share: Share, database: Database
) -> None:
    share("of-lars", [*CHATTER, KEY])
    maren = share("of-maren", ["My hobby is keeping bees."])
    assert found(maren)[0] == ("of-lars", KEY)
    (hit,) = maren.search(QUERY, scope="shared", limit=1)
    assert hit.message.id and hit.similarity is not None
    assert maren.search(QUERY, scope="owner") != [hit]
    assert ("of-maren", "My hobby is keeping bees.") in found(maren, "bees")
    assert found(maren, "bees hobby", exclude_current=True) == [
        one for one in found(maren, "bees hobby") if one[0] == "of-lars"
    ]
    assert verify(database).violations == ()


def test_a_block_shows_what_is_shared_and_not_what_its_window_shows(
    share: Share, make_memory: MakeMemory
) -> None:
    share("of-lars", [KEY, "It hangs beside the door."])
    block = VectorMemoryBlock(scope="shared", similarity_top_k=1)
    maren = make_memory("of-maren", user_id="maren", shared_scope="team", memory_blocks=[block])
    maren.put({"role": "user", "content": "Where is the key?"})
    shown = maren.get(QUERY)
    assert KEY in shown[0].text
    assert shown.omitted == () or {one.kind for one in shown.omitted} == {"search_text_only"}


def test_a_session_that_did_not_opt_in_contributes_nothing(rig: Rig, share: Share) -> None:
    share("silent", [KEY], shared_scope=None)
    maren = share("of-maren", list(CHATTER))
    assert all(session == "of-maren" for session, _ in found(maren, f"{QUERY} morning weather"))
    # The first put decides: a memory made later neither shares nor stops sharing.
    late = rig.memory("silent", user_id="silent", shared_scope="team", memory_blocks=["vectors"])
    late.put({"role": "user", "content": KEY})
    assert shared_rows(rig.url) == (2, 2)
    block = VectorMemoryBlock(scope="shared")
    asking = rig.memory("silent", user_id="silent", shared_scope="team", memory_blocks=[block])
    assert "not_shared" in {one.kind for one in asking.get(QUERY).omitted}


def test_scopes_of_other_names_and_namespaces_are_other_scopes(share: Share) -> None:
    share("a", [KEY], namespace="south")
    share("b", [KEY], shared_scope="another team")
    share("c", [KEY], shared_scope="te\u200bam")
    maren = share("of-maren", list(CHATTER))
    assert {session for session, _ in found(maren, f"{QUERY} morning")} <= {"of-maren"}
    south = share("d", list(CHATTER), namespace="south")
    assert found(south)[0] == ("a", KEY)


def test_keys_of_scopes_and_owners_never_meet() -> None:
    names = ["team", "", "s", "shared-scope", "default"]
    shared = {shared_scope_key(namespace, name) for namespace in names for name in names}
    assert len(shared) == len(names) ** 2
    owners = {identify_session(a, b, user).shard_key for a in "xs" for b in "xs" for user in (None, "s")}
    assert not shared & owners


def flushed(make_memory: MakeMemory, broker_url: str, texts: Sequence[str]) -> Memory:
    """A session that shares with the team, whose flush is still due."""
    options: dict[str, Any] = {"memory_blocks": ["vectors"], "shared_scope": "team", "user_id": "of-lars"}
    memory = make_memory("of-lars", broker_url=broker_url, **options)
    memory.put_messages([{"role": "user", "content": text} for text in texts])
    memory.flush(all=True)
    return memory


def test_a_worker_that_dies_after_it_shared_leaves_what_the_next_one_shares(rig: Rig) -> None:
    doomed = rig.start_worker(**LOCAL, STRANDLINE_STOP_AT="applying:SIGKILL")
    flushed(rig.memory, rig.broker_url, [*CHATTER, KEY])
    wait_until(lambda: doomed.process.poll() is not None, timeout=20, what="the kill")
    assert shared_rows(rig.url) == (3, 3)
    assert not nothing_due(rig.url)
    rig.start_worker(**LOCAL)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the other worker to finish")
    assert shared_rows(rig.url) == (3, 3)
    assert verify(rig.database).violations == ()


def test_a_forgetting_reset_takes_what_was_shared_away(rig: Rig, share: Share, derive: Any) -> None:
    lars = share("of-lars", [KEY])
    maren = share("of-maren", list(CHATTER))
    lars.reset()
    assert found(maren)[0] == ("of-lars", KEY)  # what was derived before stays
    lars.put({"role": "user", "content": "The key is under the mat."})
    lars.flush(all=True)
    derive()
    assert len([one for one in found(maren, "key mat boathouse") if one[0] == "of-lars"]) == 2
    lars.reset(derived=True)
    assert {session for session, _ in found(maren, "key mat boathouse morning")} <= {"of-maren"}
    assert shared_rows(rig.url) == (2, 2)
    names = "SELECT session_id FROM strandline.shared_session WHERE gone_at IS NOT NULL"
    assert set(rows_of(rig.url, names)) == {(None,)}
    # It goes on sharing in its new life.
    lars.put({"role": "user", "content": KEY})
    lars.flush(all=True)
    derive()
    assert found(maren)[0] == ("of-lars", KEY)
    assert verify(rig.database).violations == ()


def test_a_reset_wins_against_a_worker_that_pauses_before_it_shares(rig: Rig) -> None:
    paused = rig.start_worker(**LOCAL, STRANDLINE_STOP_AT="stored:SIGSTOP")
    memory = flushed(rig.memory, rig.broker_url, [*CHATTER, KEY])
    answered = "SELECT count(*) FROM strandline.answer"
    wait_until(lambda: rows_of(rig.url, answered) == [(1,)], timeout=20, what="the answer")
    memory.reset(derived=True)
    paused.process.send_signal(signal.SIGCONT)
    assert paused.stop() == 0  # it ends what it has in hand
    assert shared_rows(rig.url) == (0, 0)
    assert verify(rig.database).violations == ()


def test_a_reset_wins_against_a_worker_that_pauses_while_it_shares(rig: Rig, share: Share) -> None:
    lars = share("of-lars", [KEY])
    owner = identify_session("default", "of-lars", "of-lars")
    shared = shared_scope_key("default", "team")
    ((incarnation,),) = rows_of(rig.url, "SELECT incarnation FROM strandline.session")
    named: dict[str, Any] = {
        "shard_key": shared,
        "session_key": owner.session_key,
        "incarnation": incarnation,
        "owner_key": owner.shard_key,
        "session_id": "of-lars",
        "seqs": [7],
        "ids": ["late"],
        "roles": ["user"],
        "tokens": [1],
        "created_at": ["2026-01-01T00:00:00Z"],
        "envelopes": ['{"content": "late"}'],
        "metadata": [None],
    }
    resetting = threading.Thread(target=lars.reset, kwargs={"derived": True})
    with psycopg.connect(rig.url) as worker:
        for name in ("lock_shared_session", "share_messages"):
            worker.execute(statements("strandline")[name].encode(), named)
        resetting.start()
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the reset to wait for the worker")
        worker.commit()
    resetting.join(100)
    assert not resetting.is_alive()
    assert shared_rows(rig.url) == (0, 0)
    assert verify(rig.database).violations == ()


def test_a_correction_takes_the_copies_away_at_once(
    rig: Rig, share: Share, derive: Callable[[], None]
) -> None:
    lars = share("of-lars", [*CHATTER, KEY, "It hangs beside the door."])
    maren = share("of-maren", ["My hobby is keeping bees."])
    lars.replace(3, "Nobody keeps it. " * 200)
    assert KEY not in [text for _, text in found(maren)]
    lars.rewind(4)
    assert not [text for _, text in found(maren, "Does it hang beside the door?") if "door" in text]
    assert shared_rows(rig.url) == (3, 3)
    assert verify(rig.database).violations == ()
    derive()
    assert found(maren, "Nobody keeps it")[0][1].startswith("Nobody keeps it.")
    assert verify(rig.database).violations == ()
    lars.replace(3, "Short.")
    derive()
    assert not [text for _, text in found(maren, "Nobody keeps it") if "Nobody" in text]
    assert shared_rows(rig.url) == (4, 4), "no piece of the longer text is left"
    assert verify(rig.database).violations == ()


@pytest.mark.parametrize("is_repeated", [False, True])
def test_copies_that_a_correction_could_not_remove_go_later(
    rig: Rig, share: Share, derive: Callable[[], None], *, is_repeated: bool
) -> None:
    """The process that corrects dies between its two transactions."""
    lars = share("of-lars", [*CHATTER, KEY])
    identity = identify_session("default", "of-lars", "of-lars")
    rig.database.fetch(
        Correct(
            **identity.keys,
            correction_id=uuid5(identity.session_key, "again"),
            kind="rewind",
            from_seq=2,
            newest=None,
            corrections=None,
            content=None,
            actor=None,
            expected=None,
            digest=None,
            envelope=None,
            tokens=None,
            bytes=None,
            act=None,
        )
    )
    assert shared_rows(rig.url) == (3, 3)
    if is_repeated:
        assert lars.rewind(2, idempotency_key="again").number == 1
        assert shared_rows(rig.url) == (1, 1)
    assert verify(rig.database).violations == (), "the events are due"
    derive()
    assert shared_rows(rig.url) == (1, 1)
    assert verify(rig.database).violations == ()


@pytest.mark.parametrize("kind", ["rewind", "replace"])
def test_a_correction_wins_against_a_worker_that_pauses_before_it_shares(rig: Rig, kind: str) -> None:
    paused = rig.start_worker(**LOCAL, STRANDLINE_STOP_AT="stored:SIGSTOP")
    memory = flushed(rig.memory, rig.broker_url, [*CHATTER, KEY])
    answered = "SELECT count(*) FROM strandline.answer"
    wait_until(lambda: rows_of(rig.url, answered) == [(1,)], timeout=20, what="the answer")
    if kind == "rewind":
        memory.rewind(3)
    else:
        memory.replace(3, "Nobody keeps it.")
    paused.process.send_signal(signal.SIGCONT)
    assert paused.stop() == 0  # it ends what it has in hand
    copies = str(rows_of(rig.url, "SELECT envelope FROM strandline.shared_message"))
    assert KEY not in copies
    assert verify(rig.database).violations == ()
    rig.start_worker(**LOCAL)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the other worker to finish")
    assert shared_rows(rig.url) == ((2, 2) if kind == "rewind" else (3, 3))
    assert KEY not in str(rows_of(rig.url, "SELECT envelope FROM strandline.shared_message"))
    assert verify(rig.database).violations == ()


BREAKS: list[tuple[str, str]] = [
    ("shared_missing", "DELETE FROM strandline.chunk WHERE shard_key = %(shared)s RETURNING 1"),
    (
        "shared_without_consent",
        "UPDATE strandline.session SET shared_scope = NULL, shared_key = NULL RETURNING 1",
    ),
    ("shared_forgotten", "UPDATE strandline.shared_session SET gone_at = now() RETURNING 1"),
    (
        "shared_outside_event",
        "UPDATE strandline.chunk SET through_seq = 99 WHERE shard_key = %(shared)s RETURNING 1",
    ),
    ("shared_outside_event", "DELETE FROM strandline.shared_message RETURNING 1"),
    (
        "shared_superseded",
        """WITH told AS (UPDATE strandline.message SET envelope = '{"content": "other"}' RETURNING *)
        INSERT INTO strandline.superseded
        SELECT shard_key, session_key, seq, 1, 1, false FROM told RETURNING 1""",
    ),
]


@pytest.mark.parametrize(("kind", "sql"), BREAKS)
def test_verify_names_what_is_wrong_with_shared_rows(rig: Rig, share: Share, kind: str, sql: str) -> None:
    share("of-lars", [KEY])
    assert verify(rig.database).violations == ()
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(sql.encode(), {"shared": shared_scope_key("default", "team")})
    assert kind in {one.kind for one in verify(rig.database).violations}


def test_a_value_that_cannot_name_a_shared_scope_is_refused(make_memory: MakeMemory) -> None:
    for wrong in ("", "x" * 513, "a\x00b", 7):
        with pytest.raises(InvalidMessageError, match="shared_scope"):
            make_memory("s", shared_scope=wrong)
    with pytest.raises(ConfigurationError, match="shared_scope="):
        make_memory("s", memory_blocks=[VectorMemoryBlock(scope="shared")])


@clear_only("asks by SQL, with words in clear")
def test_a_shared_scope_is_searched_by_its_key(share: Share, database: Database, database_url: str) -> None:
    """No table is read whole, though many scopes lie beside this one."""
    share("of-lars", [KEY])
    filled = """
    INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq,
        event_id, batch_id, length, lexemes)
    SELECT gen_random_uuid(), c.generation_id, gen_random_uuid(), n, 0, n, c.event_id, c.batch_id, c.length,
        c.lexemes FROM strandline.chunk c, generate_series(1, 5000) AS n WHERE c.shard_key = %s
    """
    message = """
    INSERT INTO strandline.shared_message SELECT gen_random_uuid(), gen_random_uuid(), n, incarnation, id,
        role, tokens, envelope, metadata, created_at
    FROM strandline.shared_message, generate_series(1, 5000) AS n
    """
    wanted = {
        "shard_key": shared_scope_key("default", "team"),
        "session_key": UUID(int=1),
        "generation_id": rows_of(database_url, "SELECT generation_id FROM strandline.chunk LIMIT 1")[0][0],
        "embedding": None,
        "lexemes": ["key"],
        "visible_from": 0,
        "similarity_cutoff": 0.0,
        "top_k": 5,
        "is_own": False,
        "names": [],
        "dates_from": [],
        "dates_through": [],
        "dates_fit": [],
        "words": 0,
        "beside": 1,
    }
    with psycopg.connect(database_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(filled.encode(), (wanted["shard_key"],))
        connection.execute(message.encode())
        connection.execute("VACUUM ANALYZE")
        explain = (
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statements("strandline")["search_shared_chunks"]
        )
        for _ in range(2):  # the first one reads the catalogue as well
            plan = connection.execute(explain.encode(), wanted).fetchall()[0][0][0]["Plan"]
    assert plan["Actual Rows"] == 1
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200
    assert "Seq Scan" not in str(plan)
