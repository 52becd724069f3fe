"""One answer in ten is cut: no put is lost, none is doubled, and what cannot be repeated says so."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from strandline import OutcomeUnknownError
from strandline.client import RemoteAdmin, RemoteFacts, RemoteMemory, RemoteService, Retries
from strandline.schemas.wire.keys import KeyRequest
from tests.support.proxies.cutting_proxy import CuttingProxy
from tests.support.servers.service_server import RunningService

QUICK = Retries(base_seconds=0.001, longest_seconds=0.01)


@pytest.fixture
def proxy(running: RunningService) -> Iterator[CuttingProxy]:
    with CuttingProxy(running.url, lambda number: number % 10 == 3 or number % 20 == 6) as proxy:
        yield proxy


def test_no_put_is_lost_and_none_doubled(running: RunningService, proxy: CuttingProxy, user: str) -> None:
    sessions = [uuid4().hex for _ in range(4)]
    said = [f"message {number}" for number in range(30)]
    with RemoteService(proxy.url, running.make_key().key, retries=QUICK) as service:

        def chat(session: str) -> list[int]:
            memory = RemoteMemory.from_defaults(session, user_id=user, service=service)
            return [memory.put({"role": "user", "content": text}) for text in said]

        with ThreadPoolExecutor(4) as pool:
            seqs = list(pool.map(chat, sessions))
        assert proxy.cut >= 12
        assert seqs == [[*range(1, 31)]] * 4
        for session in sessions:
            memory = RemoteMemory.from_defaults(session, user_id=user, service=service)
            assert [message.text for message in memory.get_all()] == said


def test_changes_under_a_key_happen_once(running: RunningService, user: str) -> None:
    # Each second answer is cut, so each change below is sent twice or more.
    with (
        CuttingProxy(running.url, lambda number: number % 2 == 1) as proxy,
        RemoteService(proxy.url, running.make_key().key, retries=QUICK) as service,
    ):
        memory = RemoteMemory.from_defaults(uuid4().hex, user_id=user, service=service)
        memory.put_messages([{"role": "user", "content": text} for text in "abcd"])
        popped = memory.pop()
        assert popped is not None
        assert popped.text == "d"
        assert memory.rewind(3).number == 1
        assert memory.replace(1, "A").number == 2
        fork = memory.fork()
        assert len(memory.flush(all=True)) == 1
        assert [message.text for message in memory.get_all()] == ["A", "b"]
        assert fork.messages == 2
        fact = memory.facts.add("Likes tea.")
        assert memory.facts.delete(fact.fact_id) is True
        assert memory.facts.list().total == 0
        assert proxy.cut >= 8


def test_a_deletion_without_an_answer_is_told_by_what_was_recorded(
    running: RunningService, user: str
) -> None:
    """A fact that is not there need not have gone by the attempt whose answer was lost."""
    near = RemoteFacts.for_owner(user_id=user, service=RemoteService(running.url, running.make_key().key))
    cleared = near.add("Likes rye.")
    near.feedback(cleared.fact_id, "wrong")
    near.clear()
    known = near.add("Likes tea.")
    with (
        CuttingProxy(running.url, lambda number: number % 2 == 1) as proxy,
        RemoteService(proxy.url, running.make_key().key, retries=QUICK) as service,
        RemoteService(proxy.url, running.make_key(scopes=("facts",)).key, retries=QUICK) as blind,
    ):
        far = RemoteFacts.for_owner(user_id=user, service=service)
        assert [far.delete(one) for one in (uuid4(), cleared.fact_id)] == [False, False]
        with pytest.raises(OutcomeUnknownError, match="may have taken effect"):
            RemoteFacts.for_owner(user_id=user, service=blind).delete(uuid4())  # its key may not look
        assert [one.text for one in near.list()] == ["Likes tea."]
        assert far.delete(known.fact_id) is True
    assert near.list() == []
    near.service.close()


def test_what_cannot_be_repeated_says_that_it_may_have_happened(running: RunningService, user: str) -> None:
    key = running.make_key(scopes=("operate",)).key
    with (
        CuttingProxy(running.url, lambda number: number % 2 == 1) as proxy,
        RemoteService(proxy.url, key, retries=QUICK) as service,
        RemoteService(running.url, key) as direct,
    ):
        before = len(list(RemoteAdmin(direct).keys()))
        with pytest.raises(OutcomeUnknownError, match="may have taken effect"):
            RemoteAdmin(service).create_key(KeyRequest(scopes=["read"], label="lost"))
        assert proxy.answers == 1
        assert len(list(RemoteAdmin(direct).keys())) == before + 1


def test_a_change_of_a_version_is_not_sent_again(running: RunningService, user: str) -> None:
    key = running.make_key().key
    near = RemoteFacts.for_owner(user_id=user, service=RemoteService(running.url, key))
    fact = near.add("Likes tea.")
    with (
        CuttingProxy(running.url, lambda number: True) as proxy,
        RemoteService(proxy.url, key, retries=QUICK) as service,
    ):
        far = RemoteFacts.for_owner(user_id=user, service=service)
        with pytest.raises(OutcomeUnknownError):
            far.replace(fact.fact_id, "Likes coffee.", if_version=fact.version)
        assert proxy.answers == 1
    assert [one.text for one in near.list()] == ["Likes coffee."]
    near.service.close()
