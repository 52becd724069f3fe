"""A service, or what passes for it, that is broken or means harm: what it can do to a client is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from strandline import ConfigurationError, NotFoundError, OutcomeUnknownError
from strandline.client import (
    AsyncRemoteMemory,
    RemoteAdmin,
    RemoteFacts,
    RemoteMemory,
    RemoteService,
    Retries,
    ServiceError,
    ServiceTimeoutError,
    Timeouts,
)
from strandline.schemas.wire.base import Problem
from tests.support.servers.scripted_server import Answers, answering

KEY = "sl_abc_thesecretofthekey"
JSON = {"Content-Type": "application/json"}
ONCE = Retries(attempts=1)
HELLO = {"role": "user", "content": "hello"}


def endless() -> Iterator[bytes]:
    return repeat(b" " * 65_536)


def dripping() -> Iterator[bytes]:
    return repeat(b" ")


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_an_end_is_cut(status: int) -> None:
    answers = Answers((status, JSON, endless))
    with (
        answering(answers) as url,
        RemoteService(url, KEY, retries=ONCE, max_answer_bytes=1_000_000) as service,
    ):
        memory = RemoteMemory.from_defaults("a", service=service)
        with pytest.raises(ServiceError, match="more than 1,000,000 bytes; ask for less") as raised:
            memory.get_all()
        assert "taken effect" not in str(raised.value)
        with pytest.raises(ServiceError, match="may have taken effect"):
            memory.put(HELLO)

        async def aput() -> None:
            try:
                await AsyncRemoteMemory.from_defaults("a", service=service).put(HELLO)
            finally:
                await service.aclose()

        with pytest.raises(ServiceError, match="1,000,000 bytes"):
            asyncio.run(aput())
    assert answers.asked == 3


def test_an_answer_that_drips_ends_in_time() -> None:
    """Each part comes in time, and the whole never does."""
    with (
        answering(Answers((200, JSON, dripping))) as url,
        RemoteService(url, KEY, retries=ONCE, timeouts=Timeouts(answer=0.05)) as service,
    ):
        memory = RemoteMemory.from_defaults("a", service=service)
        with pytest.raises(ServiceTimeoutError, match="in time"):
            memory.get_all()
        with pytest.raises(OutcomeUnknownError):
            memory.put(HELLO)

        async def aget_all() -> None:
            try:
                await memory.aget_all()
            finally:
                await service.aclose()

        with pytest.raises(ServiceTimeoutError):
            asyncio.run(aget_all())


def test_a_refusal_to_a_stream_is_bounded_as_well(tmp_path: Path) -> None:
    with (
        answering(Answers((503, JSON, endless))) as url,
        RemoteService(url, KEY, retries=ONCE, max_answer_bytes=1_000_000) as service,
    ):
        admin = RemoteAdmin(service)
        for ask in (lambda: admin.export_user("ana", tmp_path / "x.jsonl"), lambda: next(admin.events())):
            with pytest.raises(ServiceError, match="1,000,000 bytes"):
                ask()
    assert list(tmp_path.iterdir()) == []


ASKS: list[Callable[[RemoteMemory, RemoteAdmin, Path], Any]] = [
    lambda memory, admin, path: memory.put(HELLO),
    lambda memory, admin, path: memory.get("x"),
    lambda memory, admin, path: next(memory.events()),
    lambda memory, admin, path: admin.export_user("ana", path / "x.jsonl"),
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("status", [301, 307, 308])
def test_no_key_goes_where_a_redirect_leads(status: int, ask: Callable[..., Any], tmp_path: Path) -> None:
    evil = Answers((200, JSON, b"{}"))
    with (
        answering(evil) as elsewhere,
        answering(Answers((status, {"Location": f"{elsewhere}/v1/whoami"}, b""))) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(ServiceError, match=f"status {status}"),
    ):
        ask(RemoteMemory.from_defaults("a", service=service), RemoteAdmin(service), tmp_path)
    assert evil.asked == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"items": [{}]}',
        b'{"items": 5}',
    ],
)
def test_what_is_no_answer_is_told_as_such(body: bytes) -> None:
    answers = Answers((200, JSON, body))
    with (
        answering(answers) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(ServiceError, match="not of a form that this release reads"),
    ):
        RemoteMemory.from_defaults("a", service=service).get_all()
    assert answers.asked == 1


def test_a_receipt_that_is_no_text_is_told_as_such() -> None:
    with (
        answering(Answers((200, JSON, b"\xff"))) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(ServiceError, match="not UTF-8"),
    ):
        RemoteAdmin(service).receipt(1)


MESSAGE = b'{"role": "user", "content": "x", "seq": 1}'
FACTS = b'{"items": [], "next_cursor": "on", "total": 9}'


@pytest.mark.parametrize(
    ("body", "ask"),
    [
        (b'{"items": [], "next_cursor": "on"}', lambda service: list(RemoteAdmin(service).keys())),
        (
            b'{"items": [], "next_cursor": "on"}',
            lambda service: RemoteMemory.from_defaults("a", service=service).get_all(),
        ),
        (
            b'{"items": [%s]}' % b",".join([MESSAGE] * 1_000),
            lambda service: RemoteMemory.from_defaults("a", service=service).history(),
        ),
        (FACTS, lambda service: RemoteFacts.for_owner(user_id="ana", service=service).list()),
    ],
)
def test_a_list_that_goes_in_a_circle_ends(body: bytes, ask: Callable[[RemoteService], Any]) -> None:
    answers = Answers((200, JSON, body))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        service.known_namespace = "default"
        with pytest.raises(ServiceError, match="the same page"):
            ask(service)
    assert answers.asked == 2


def test_what_a_service_says_is_no_command_to_a_terminal() -> None:
    said = Problem(
        type="urn:strandline:problem:not-found",
        title="\x1b[2J",
        status=404,
        detail="\x1b]0;owned\x07" + "x" * 100_000,
    )
    answer = (404, {"Content-Type": "application/problem+json"}, said.model_dump_json().encode())
    with (
        answering(Answers(answer)) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(NotFoundError) as raised,
    ):
        RemoteAdmin(service).whoami()
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 3_000


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_is_a_step_of_a_path_asks_nothing(name: str) -> None:
    """An HTTP client would make ``/v1/events`` of ``/v1/sessions/../events``: the events of everybody."""
    answers = Answers((200, JSON, b"{}"))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        memory, admin = RemoteMemory.from_defaults(name, service=service), RemoteAdmin(service)
        facts = RemoteFacts.for_owner(user_id=name, service=service)
        for ask in (
            lambda: memory.put(HELLO),
            lambda: next(memory.events()),
            lambda: list(admin.erasures(user_id=name)),
            lambda: admin.export_user(name, "x"),
            facts.clear,
            lambda: facts.forget_source(name),
        ):
            with pytest.raises(ConfigurationError, match="steps of a path"):
                ask()
    assert answers.asked == 0


@pytest.mark.parametrize("text", ["a\nb", "a\x00", "\ud800", " a", "a "])
def test_what_no_header_can_hold_asks_nothing(text: str) -> None:
    answers = Answers((200, JSON, b"{}"))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        facts = RemoteFacts.for_owner(user_id="ana", service=service)
        with pytest.raises(ConfigurationError, match="Idempotency-Key"):
            RemoteAdmin(service).erase_user("ana", idempotency_key=text)
        if text.strip(" ") == text:
            with pytest.raises(ConfigurationError, match="If-Match"):
                facts.delete("73f29f21-6e09-4f0a-a382-3babda36d7d2", if_version=text)
    assert answers.asked == 0


def test_a_wrong_argument_is_none_of_the_answer() -> None:
    answers = Answers((200, JSON, b"{}"))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        admin = RemoteAdmin(service)
        with pytest.raises(ConfigurationError, match=r"^overlap_seconds: input should be greater"):
            admin.rotate_key("k", overlap_seconds=-1)
        assert answers.asked == 0
        with pytest.raises(ServiceError, match="not of a form"):
            admin.whoami()


@pytest.mark.parametrize("wait", ["5", float("nan"), True])
def test_a_wait_that_is_no_time_asks_nothing(wait: Any) -> None:
    answers = Answers((200, JSON, b"{}"))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        admin, memory = RemoteAdmin(service), RemoteMemory.from_defaults("a", user_id="ana", service=service)
        for ask in (
            lambda: admin.erase_user("ana", wait=wait),
            lambda: admin.erase_session("a", wait=wait),
            lambda: memory.summarize(wait=wait),
            lambda: memory.facts.instruct("x", wait=wait),
            lambda: memory.get(wait_for=1, timeout=wait),
        ):
            with pytest.raises(ConfigurationError, match="number of seconds"):
                ask()
    assert answers.asked == 0
