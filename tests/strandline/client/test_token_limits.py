"""One meaning of ``token_limit``: the same read gives the same in this process, from afar, and over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from strandline import Memory
from strandline.client import AsyncRemoteMemory, RemoteMemory, RemoteService
from tests.support.servers.service_server import RunningService

MakeBoth = Callable[..., tuple[Memory, RemoteMemory]]
STORED = {"token_limit": 500, "token_flush_size": 60, "memory_blocks": []}
# What a read says of itself, in each form.
PARTS = ("messages", "tokens", "token_limit", "over_budget", "omitted", "window_from", "pinned_through")


def fill(memory: Memory | RemoteMemory) -> None:
    memory.put({"role": "system", "content": "Answer in one sentence."})
    for number in range(30):
        memory.put({"role": "user", "content": f"Question {number} of a long talk about boats."})
        memory.put({"role": "assistant", "content": f"Answer {number}, in one sentence."})


@pytest.mark.parametrize("used", [0, 40, 400])
@pytest.mark.parametrize(
    ("limit", "within"),
    [(None, 500), (100, 100), (499, 499), (500, 500), (501, 501), (9_000, 9_000)],
)
def test_the_same_read_gives_the_same_everywhere(
    make_both: MakeBoth,
    running: RunningService,
    remote: RemoteService,
    user: str,
    limit: int | None,
    within: int,
    used: int,
) -> None:
    stored, _ = make_both(**STORED)
    fill(stored)
    name = stored.session_id
    asked: dict[str, Any] = {"memory_blocks": [], **({} if limit is None else {"token_limit": limit})}
    near, far = make_both(name, **asked)
    ours = near.get(initial_token_count=used)
    assert ours.token_limit == max(0, within - used)
    assert ours[-1].text == "Answer 29, in one sentence.", "the last turn stays"
    fits = sum(one.tokens or 0 for one in (*ours.head, *ours.window[-2:])) <= ours.token_limit
    assert ours.over_budget is not fits
    assert bool(ours.omitted) is (ours.window[0].seq != stored.get().window[0].seq)
    theirs = far.get(initial_token_count=used)
    for part in (*PARTS, "head", "tail", "window"):
        assert getattr(theirs, part) == getattr(ours, part), part
    awaited = asyncio.run(read_both(near, remote, asked, used))
    assert [list(one) for one in awaited] == [list(ours)] * 2
    body = {"initial_token_count": used, **({} if limit is None else {"token_limit": limit})}
    headers = {"Authorization": f"Bearer {running.make_key().key}", "Strandline-User": user}
    with httpx2.Client(base_url=running.url, headers=headers) as client:
        path = f"/v1/sessions/{name}/context"
        answers = [client.post(path, json={**body, "form": "openai"}).raise_for_status().json()]
        if not used:
            query = {} if limit is None else {"token_limit": limit}
            answers.append(client.get(path, params={**query, "form": "openai"}).raise_for_status().json())
    for answer in answers:
        assert answer["messages"] == ours.to_openai()
        assert (answer["tokens"], answer["token_limit"]) == (ours.tokens, ours.token_limit)


async def read_both(near: Memory, remote: RemoteService, asked: dict[str, Any], used: int) -> list[Any]:
    far = AsyncRemoteMemory.from_defaults(near.session_id, user_id=near.user_id, service=remote, **asked)
    try:
        return [await near.aget(initial_token_count=used), await far.get(initial_token_count=used)]
    finally:
        await near.aclose()
        await far.aclose()


def test_a_session_that_has_not_begun_is_read_within_the_default(make_both: MakeBoth) -> None:
    near, far = make_both()
    assert near.get().token_limit == far.get().token_limit == near.token_limit == far.token_limit == 30_000
    near, far = make_both(token_limit=600)
    assert near.get().token_limit == far.get().token_limit == 600


def test_a_changed_limit_is_that_of_later_reads(make_both: MakeBoth) -> None:
    near, far = make_both(**STORED)
    plain, plain_far = make_both(near.session_id, memory_blocks=[])
    fill(near)
    near.set_policy(token_limit=800)
    assert [one.get().token_limit for one in (near, far, plain, plain_far)] == [800, 500, 800, 800]


def test_zone_offset_and_prompt_are_the_same_from_afar(make_both: MakeBoth) -> None:
    near, far = make_both(time_zone="Asia/Tokyo", memory_blocks=[])
    far.put({"role": "system", "content": "V1"})
    far.put({"role": "user", "content": "Hi.", "created_at": "2026-03-10T22:30:00-08:00"})
    assert far.put({"role": "system", "content": "V2"}, replace_prompt=True) == 3
    assert far.put_messages([{"role": "system", "content": "V3"}], replace_prompt=True) == [4]
    ours, theirs = near.get(), far.get()
    assert [one.text for one in ours] == ["V3", "Hi."] and list(ours) == list(theirs)
    for part in ("prompt_seq", "time_zone", "head", "window"):
        assert getattr(theirs, part) == getattr(ours, part), part
    assert (theirs.prompt_seq, theirs.time_zone) == (4, "Asia/Tokyo")
    assert [str(one.created_at) for one in (theirs[1], far.get_all()[1])] == ["2026-03-10 22:30:00-08:00"] * 2
    assert far.set_policy(time_zone="Europe/Oslo").time_zone == near.set_policy().time_zone == "Europe/Oslo"
    for memory in (near, far):
        with pytest.raises(Exception, match="time zone database"):
            memory.set_policy(time_zone="Mars/Olympus")
        section = "<memory>\n<summary>\nS\n</summary>\n</memory>"
        assert memory.put({"role": "system", "content": section}) == 0


def test_a_policy_that_is_not_the_stored_one_is_told_once(
    make_both: MakeBoth, caplog: pytest.LogCaptureFixture
) -> None:
    stored, _ = make_both("told-1", token_limit=7_777, idle_seconds=77)
    other, _ = make_both("told-2", token_limit=7_777, idle_seconds=77)
    for memory in (stored, other):
        memory.put({"role": "user", "content": "Hello."})
    with caplog.at_level(logging.WARNING, "strandline.policy"):
        for name in ("told-1", "told-2"):
            for _ in range(2):
                make_both(name)[0].get()
                make_both(name, token_limit=7_777, idle_seconds=77)[0].get()
                make_both(name, token_limit=8_888, idle_seconds=None, deliver="turn")[0].get()
            make_both(name, token_limit=30_000, idle_seconds=77)[0].get()
            make_both(name, token_limit=7_777, chat_history_token_ratio=0.5, idle_seconds=77)[0].get()
    record, default, ratio = caplog.records
    assert "made with token_limit=30000; its session has stored token_limit=7777" in default.getMessage()
    assert "set-policy SESSION --history-ratio 0.5;" in ratio.getMessage()
    said = record.getMessage()
    assert "token_limit=8888, deliver=turn, idle_seconds=None" in said
    assert "token_limit=7777, deliver=window, idle_seconds=77" in said
    assert "strandline sessions set-policy SESSION --token-limit 8888 --deliver turn --never-idle" in said
    assert "told-" not in said
    changing = make_both("told-1", token_limit=9_999)[0]
    changing.set_policy(token_limit=9_999)
    caplog.clear()
    changing.get()
    assert not caplog.records
