"""What a process has cached of a user who is erased by another process."""

from __future__ import annotations

import sys
from uuid import uuid4

import pytest

from strandline.erasure import Erasures
from strandline.producers.reading.window_cache import WindowCache
from strandline.producers.search.index.index_cache import Beginning, IndexCache
from strandline.producers.search.index.scope_index import ScopeKey
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, rows_of
from tests.producers.erasing.conftest import LIMITS
from tests.support.processes.forking import run


def erase(url: str, *arguments: str) -> None:
    """``strandline erasures erase``, in a process of its own."""
    options = ["--yes", "--even-if-unknown", "--database-url", url]
    command = ["-m", "strandline", "erasures", "erase", *arguments, *options]
    ended = run([sys.executable, *command], capture_output=True)
    assert ended.returncode == 0, ended.stderr


def test_a_process_drops_what_it_has_of_an_erased_user_at_its_next_read(rig: Rig) -> None:
    anns = rig.memory("zanzibarq-one", user_id="ann", **LIMITS)
    bobs = rig.memory("bobsword-one", user_id="bob", **LIMITS)
    assert anns.get() and bobs.get()
    windows: WindowCache = anns._resources.windows
    names = {"ann": "zanzibarq-one", "bob": "bobsword-one"}

    def cached(user: str) -> tuple[int, ...]:
        session = identify_session("default", names[user], user)
        return windows.find((session.shard_key, session.session_key)).window.seqs

    assert cached("ann") and cached("bob")
    erase(rig.url, "--user", "ann")
    assert list(anns.get()) == []
    assert not cached("ann")
    bobs.get()
    assert cached("bob")
    assert windows.erasures == 1


def test_a_read_of_somebody_else_suffices(make_memory: MakeMemory, database_url: str) -> None:
    anns = make_memory("zanzibarq-one", user_id="ann", **LIMITS)
    assert anns.get()
    # Known, so that the owners who were erased since are asked for.
    erase(database_url, "--user", "somebody")
    make_memory("bobsword-one", user_id="bob", **LIMITS).get()
    assert anns.get()
    windows: WindowCache = anns._resources.windows
    session = identify_session("default", "zanzibarq-one", "ann")
    assert windows.find((session.shard_key, session.session_key)).window.seqs
    erase(database_url, "--user", "ann")
    make_memory("bobsword-one", user_id="bob", **LIMITS).get()
    assert not windows.find((session.shard_key, session.session_key)).window.seqs


def test_a_read_that_was_overtaken_by_an_erasure_keeps_nothing(rig: Rig) -> None:
    anns = rig.memory("zanzibarq-one", user_id="ann", **LIMITS)
    assert anns.get()
    windows: WindowCache = anns._resources.windows
    session = identify_session("default", "zanzibarq-one", "ann")
    place = (session.shard_key, session.session_key)
    window = windows.find(place)
    windows.forget_erased({session.shard_key}, 7)
    windows.keep(place, window, 6)
    assert not windows.find(place).window.seqs
    windows.keep(place, window, 7)
    assert windows.find(place).window.seqs


@pytest.mark.parametrize("scope", ["user", "session"])
def test_what_was_read_at_any_step_of_an_erasure_is_shown_by_no_read_after_it(rig: Rig, scope: str) -> None:
    chats = [rig.memory(f"zanzibarq-{name}", user_id="ann", **LIMITS) for name in ("one", "two")]
    erasures = Erasures.of_namespace("default", database_url=rig.url)
    steps = []

    def shown() -> list[str]:
        reads = [chat.get(question) for chat in chats for question in (None, "which boat is it?") * 2]
        return [text for read in reads for text in (*map(str, read.messages), *map(str, read.facts))]

    def read(step: str, table: str, _rows: int) -> None:
        steps.append((step, table))
        shown()

    gone = "zanzibarq" if scope == "user" else "zanzibarqone"
    assert gone in str(shown())
    if scope == "user":
        erasures.erase_user("ann", on_progress=read)
    else:
        erasures.erase_session("zanzibarq-one", on_progress=read)
    assert len(steps) > 20
    assert [text for text in shown() if gone in text] == []


def test_indexes_of_erased_owners_are_dropped() -> None:
    class Parts:
        size = 1

    indexes = IndexCache(1_000, Parts)  # type: ignore[arg-type]
    gone, other = (ScopeKey(uuid4(), 1, None) for _ in range(2))

    def begun(scope: ScopeKey) -> bool:
        with indexes.next_part(scope, "1") as beginning:
            return beginning is not None and beginning.parts is not None

    for scope in (gone, other):
        assert not begun(scope)
        indexes.keep_beginning(scope, Beginning("1", Parts()))  # type: ignore[arg-type]
    indexes.forget_owners({gone.shard_key})
    assert not begun(gone)
    assert begun(other)
    with indexes.next_part(gone, "2") as beginning:
        assert beginning is None, "as if it had never been searched"


def test_pieces_that_are_left_of_a_session_go_out_of_indexes_too(database_url: str) -> None:
    """A worker that was sharing may leave some; of a whole owner there is no index any more."""
    keys = identify_session("default", "zanzibarq-two", "ann")
    owner, session = keys.shard_key, keys.session_key
    noted = "SELECT count(*)::int FROM strandline.derived_change WHERE shard_key = %s"
    erased = "SELECT strandline.erase_rows_v1(0, 'chunk', %s, %s, %s, 1)"
    session = rows_of(database_url, "SELECT session_key FROM strandline.chunk WHERE shard_key = %s", owner)[
        0
    ][0]
    ((before,),) = rows_of(database_url, noted, owner)
    assert rows_of(database_url, erased, owner, "session_key", session) == [(1,)]
    assert rows_of(database_url, noted, owner) == [(before + 1,)]
    assert rows_of(database_url, erased, owner, "session_key", uuid4()) == [(0,)]
    assert rows_of(database_url, erased, owner, None, None) == [(1,)]
    assert rows_of(database_url, noted, owner) == [(before + 1,)]
