"""Forking a session: the copy goes its own way, nothing is extracted again, and no users are mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline import ConfigurationError, ConflictError, Memory, NotFoundError, OwnerError
from strandline.pipelines.inspect.sessions import show_session
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import MakeMemory, nothing_due, rows_of
from tests.support.fresh_session import derived_of
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

Work = Callable[[], None]


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    return load_settings(database_url=database_url, embedding_backend="local")


@pytest.fixture
def work(database: Database, database_url: str, settings: Settings) -> Work:
    def drained() -> None:
        drain_everything(database, database_url, settings)
        assert nothing_due(database_url)

    return drained


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


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


def test_a_fork_takes_over_what_was_derived(
    make_memory: MakeMemory,
    memory: Memory,
    database: Database,
    database_url: str,
    work: Work,
    model_server: ModelServer,
) -> None:
    asked, before = model_server.received, derived_of(database_url, memory)
    fork = memory.fork("branch")
    assert (fork.session_id, fork.through_seq, fork.messages) == ("branch", 7, 7)
    branch = make_memory("branch", user_id="ana")
    assert branch.get_all() == memory.get_all()
    assert derived_of(database_url, branch) == before
    assert [str(message) for message in branch.get()] == [str(message) for message in memory.get()]
    assert nothing_due(database_url)
    assert model_server.received == asked
    assert verify(database).violations == ()
    assert branch.put(user("on the branch")) == 8
    assert memory.put(user("on the trunk")) == 8
    branch.flush(all=True)
    work()
    assert "on the trunk" not in texts(branch) and "on the branch" not in texts(memory)
    assert derived_of(database_url, branch).summary.endswith("event 4 in the window and this on the branch")
    assert derived_of(database_url, memory).summary == before.summary
    branch.rewind(2)
    work()
    assert texts(memory)[1] == "event 1"
    assert verify(database).violations == ()


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 6])
def test_a_fork_may_be_cut_anywhere(
    make_memory: MakeMemory, memory: Memory, database: Database, database_url: str, work: Work, cut: int
) -> None:
    memory.replace(4, "event three")
    fork = memory.fork(through_seq=cut)
    branch = make_memory(fork.session_id, user_id="ana")
    expected = ["Be brief.", "event 1", "event 2", "event three", "event 4", "in the window"][:cut]
    assert texts(branch) == expected
    assert verify(database).violations == ()
    work()
    branch.flush(all=True)
    work()
    assert derived_of(database_url, branch).summary == " ".join(expected[1:])
    branch.put(user("goes on"))
    assert [message.text for message in branch.get()][-1] == "goes on"
    assert verify(database).violations == ()


def test_an_event_that_is_cut_is_delivered_again(
    make_memory: MakeMemory, database: Database, database_url: str, work: Work
) -> None:
    memory = make_memory(user_id="ana")
    memory.put_messages([user(f"line {number}") for number in range(1, 7)])
    memory.flush(all=True)
    work()
    branch = make_memory(memory.fork(through_seq=3).session_id, user_id="ana")
    assert [message.text for message in branch.get().window] == ["line 1", "line 2", "line 3"]
    assert verify(database).violations == ()
    branch.flush(all=True)
    work()
    assert len(branch.facts.list()) == 6, "the user's facts, each once"
    assert verify(database).violations == ()


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
    assert rows_of(database_url, "SELECT count(*) FROM strandline.session") == [(3,)]
