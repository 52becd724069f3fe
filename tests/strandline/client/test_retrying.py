"""When a request is sent again, and how what went wrong is told; no Strandline service is needed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import ConfigurationError, DatabaseTimeoutError, DatabaseUnavailableError, NotFoundError
from strandline.client import (
    RemoteMemory,
    RemoteService,
    Retries,
    ServiceError,
    ServiceKeyError,
    ServiceTimeoutError,
    ServiceUnavailableError,
    Timeouts,
)
from strandline.client.operations import Call
from strandline.client.problems import ERRORS, error_of
from strandline.client.retrying import NOT_DONE, UNKNOWN, Failure, failure_of, retry_after_of
from strandline.schemas.errors import InvalidMessageError, NamespaceFullError, StrandlineError
from strandline.schemas.wire.base import Problem, ProblemPlace
from strandline.service.gate.problems import KINDS
from tests.support.servers.scripted_server import Answers, answering, event, position, problem

KEY = "sl_abc_thesecretofthekey"
retries = st.builds(
    Retries,
    attempts=st.integers(1, 10),
    total_seconds=st.floats(0, 100),
    base_seconds=st.floats(0, 10),
    longest_seconds=st.floats(0, 60),
)
failures: st.SearchStrategy[Failure] = st.sampled_from(("not_sent", "not_done", "unknown"))


@given(
    retries,
    failures,
    st.integers(1, 12),
    st.floats(0, 200),
    st.none() | st.floats(0, 300),
    st.floats(0, 0.999),
)
def test_waits_are_spread_and_bounded(
    policy: Retries, failure: Failure, attempt: int, spent: float, after: float | None, random: float
) -> None:
    wait = policy.wait_seconds(
        "always", failure, attempt=attempt, spent_seconds=spent, retry_after=after, random=lambda: random
    )
    if wait is None:
        least = after or 0.0
        assert attempt >= policy.attempts or spent + least + policy.longest_seconds >= policy.total_seconds
        return
    assert attempt < policy.attempts
    assert spent + wait <= policy.total_seconds
    assert (after or 0.0) <= wait <= (after or 0.0) + policy.longest_seconds
    # Full jitter: the first time at most the base, and anything down to nothing.
    shortest = policy.wait_seconds(
        "always", failure, attempt=attempt, spent_seconds=spent, retry_after=after, random=lambda: 0.0
    )
    assert shortest == (after or 0.0)
    assert wait - (after or 0.0) <= policy.base_seconds * 2.0 ** (attempt - 1) + 1e-9
    again = policy.wait_seconds(
        "if_not_done", failure, attempt=attempt, spent_seconds=spent, retry_after=after, random=lambda: random
    )
    assert again == (None if failure == "unknown" else wait)


def reach(policy: Retries, random: Callable[[], float]) -> float:
    """When the last attempt begins, in seconds after the first, if none takes any time."""
    spent, attempt = 0.0, 1
    while True:
        wait = policy.wait_seconds(
            "always", "not_sent", attempt=attempt, spent_seconds=spent, retry_after=None, random=random
        )
        if wait is None:
            return spent
        spent, attempt = spent + wait, attempt + 1


@given(st.integers(0, 2**64))
def test_the_defaults_bridge_a_restart_whatever_the_jitter(seed: int) -> None:
    drawn = Random(seed)  # noqa: S311
    assert 25 < reach(Retries(), drawn.random) <= 30
    assert 290 < reach(Retries().of_streams(), drawn.random) <= 300
    assert reach(Retries(attempts=1).of_streams(), drawn.random) == 0


def test_every_problem_of_the_service_is_an_exception() -> None:
    names = {kind.name for kind in KINDS}
    assert set(ERRORS) == names
    assert names >= NOT_DONE | UNKNOWN
    for kind in KINDS:
        problem = Problem(
            type=f"urn:strandline:problem:{kind.name}",
            title=kind.title,
            status=kind.status,
            detail=kind.detail,
        )
        error = error_of(problem, kind.status)
        assert isinstance(error, StrandlineError)
        assert kind.detail in str(error) or kind.name == "erased"
        # What asks to come later is tried again, and nothing else; but a model that failed was asked again by
        # the service, and each further try costs tokens.
        comes_again = kind.retry_after_seconds is not None and kind.name != "model-failed"
        assert (failure_of(kind.name, kind.status) == "not_done") == comes_again, kind.name


def test_a_full_namespace_is_told_without_which_bound_it_is() -> None:
    told = Problem(type="urn:strandline:problem:namespace-full", title="T", status=507, detail="It is full.")
    error = error_of(told, 507)
    assert isinstance(error, NamespaceFullError)
    assert (str(error), error.bound) == ("T: It is full.", None)


def test_a_reason_without_a_place_is_told() -> None:
    detail = "A key for the whole installation has no user."
    told = Problem(type="urn:strandline:problem:invalid", title="T", status=422, detail=detail)
    with pytest.raises(ConfigurationError, match=detail):
        raise error_of(told, 422)


@pytest.mark.parametrize(
    ("pointer", "field"),
    [
        ("/messages/0/content/0/a~1b", "messages[0].content[0].a/b"),
        ("/body/messages/0/content/0/a~1b/~01/2", "messages[0].content[0].a/b.~1[2]"),
        ("/body/messages/0/content/1/0/1", "messages[0].content[1].0[1]"),
        ("/body/messages/0/content/1//01", "messages[0].content[1]..01"),
        ("/body/elsewhere/0", "elsewhere[0]"),
        ("/query/since", "since"),
        ("/body", "body"),
        ("/", "body"),
        ("", "body"),
    ],
)
def test_a_pointer_is_told_as_the_field_that_it_leads_to(pointer: str, field: str) -> None:
    parts = [{"type": "x", "a/b": {"~1": [1, 2, 3]}}, {"type": "x", "0": [1, 2], "": {"01": 1}}]
    body = {"messages": [{"role": "user", "content": parts}]}
    place = ProblemPlace(pointer=pointer, detail="It is odd.")
    told = Problem(
        type="urn:strandline:problem:invalid", title="T", status=422, detail="It is odd.", errors=[place]
    )
    error = error_of(told, 422, body=body)
    assert str(error) == f"{field}: it is odd"
    assert isinstance(error, ConfigurationError if field == "since" else InvalidMessageError)


@pytest.mark.parametrize(
    ("value", "field"),
    [({"n": [1, {"a/b": float("nan")}]}, "messages[0].n[1].a/b"), ({"n": {(1,): 2}}, "body")],
)
def test_a_value_that_json_lacks_is_told_by_its_field(value: Any, field: str) -> None:
    with RemoteService("http://127.0.0.1:9", KEY) as service, pytest.raises(InvalidMessageError) as raised:
        service.request_of(Call("POST", "/x", body={"messages": [value]}))
    assert raised.value.field == field


def test_a_body_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with RemoteService("http://127.0.0.1:9", KEY) as service, pytest.raises(InvalidMessageError):
        service.request_of(Call("POST", "/x", body={"messages": value}))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        (" 5 ", 5.0),
        ("\xb2", None),
        ("\u0665", None),
        ("-1", None),
        ("1e3", None),
        ("9" * 10, None),
    ],
)
def test_a_wish_that_cannot_be_read_is_none(value: str, seconds: float | None) -> None:
    assert retry_after_of(value) == seconds


DONE = (201, {"Content-Type": "application/json"}, b'{"messages": [{"id": "m", "seq": 7}]}')
HELLO: dict[str, Any] = {"role": "user", "content": "hello"}


def test_a_refusal_that_passes_is_waited_for_under_one_key() -> None:
    answers = Answers(
        problem("busy", 503, **{"Retry-After": "0"}),
        problem("too-many-requests", 429, **{"Retry-After": "0"}),
        (502, {}, b"<html>a proxy's</html>"),
        DONE,
    )
    with answering(answers) as url, RemoteService(url, KEY, retries=Retries(base_seconds=0.001)) as service:
        assert RemoteMemory.from_defaults("a", service=service).put(HELLO) == 7
    keys = {headers["Idempotency-Key"] for headers in answers.headers}
    assert (answers.asked, len(keys)) == (4, 1)


def test_a_longer_wait_than_there_is_time_for_ends_at_once() -> None:
    answers = Answers(problem("busy", 503, **{"Retry-After": "3600"}))
    with (
        answering(answers) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(ServiceUnavailableError, match=r"T: D\. \(It asks for 3,600 seconds"),
    ):
        RemoteMemory.from_defaults("a", service=service).put(HELLO)
    assert answers.asked == 1


def test_the_attempts_come_to_an_end() -> None:
    answers = Answers(problem("stopping", 503, **{"Retry-After": "0"}))
    quick = Retries(attempts=3, base_seconds=0.001)
    with (
        answering(answers) as url,
        RemoteService(url, KEY, retries=quick) as service,
        pytest.raises(DatabaseUnavailableError),
    ):
        RemoteMemory.from_defaults("a", service=service).put(HELLO)
    assert answers.asked == 3


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (problem("unauthenticated", 401), ServiceKeyError, "T: D"),
        (problem("forbidden", 403), ServiceKeyError, "T: D"),
        (problem("newer-than-this-release", 418), ServiceError, "T: D"),
        ((404, {"Content-Type": "text/html"}, b"<html>"), ServiceError, "not Strandline's"),
        ((301, {"Location": "http://evil.example/"}, b""), ServiceError, "status 301"),
        ((201, {"Content-Type": "application/json"}, b'{"seqs": [1]}'), ServiceError, "messages"),
        ((201, {"Content-Type": "text/html"}, b"<html>"), ServiceError, "of a form"),
    ],
)
def test_what_is_no_answer_is_an_error_that_says_what_to_do(
    answer: tuple[int, dict[str, str], bytes], error: type[Exception], sentence: str
) -> None:
    answers = Answers(answer)
    with (
        answering(answers) as url,
        RemoteService(url, KEY) as service,
        pytest.raises(error, match=sentence),
    ):
        RemoteMemory.from_defaults("a", service=service).put(HELLO)
    assert answers.asked == 1


def test_a_stream_that_is_cut_goes_on_behind_its_last_event() -> None:
    answers = Answers(event(5), problem("stopping", 503, **{"Retry-After": "0"}), event(6), event(7))
    quick = Retries(base_seconds=0.001)
    with answering(answers) as url, RemoteService(url, KEY, retries=quick) as service:
        stream = RemoteMemory.from_defaults("a", service=service).events(last_event_id="4")
        seen = [(one.id, one.through_seq) for one in islice(stream, 3)]
        stream.close()
    assert seen == [("5", 5), ("6", 6), ("7", 7)]
    assert [one["Last-Event-ID"] for one in answers.headers] == ["4", "5", "5", "6"]


def test_a_stream_that_told_nothing_goes_on_where_it_was() -> None:
    answers = Answers(position(5), problem("stopping", 503, **{"Retry-After": "0"}), event(9))
    quick = Retries(base_seconds=0.001)
    with answering(answers) as url, RemoteService(url, KEY, retries=quick) as service:
        stream = RemoteMemory.from_defaults("a", service=service).events()
        assert next(stream).id == "9"
        stream.close()
    assert [one.get("Last-Event-ID") for one in answers.headers] == [None, "7", "7"]


def test_a_stream_that_says_where_it_is_and_ends_is_none_that_held() -> None:
    answers = Answers(position(5))
    quick = Retries(base_seconds=0.001, stream_seconds=0.1)
    with (
        answering(answers) as url,
        RemoteService(url, KEY, retries=quick) as service,
        pytest.raises(ServiceUnavailableError),
    ):
        next(RemoteMemory.from_defaults("a", service=service).events())
    assert answers.asked > 1


def test_a_stream_that_is_refused_says_so() -> None:
    for name, status, error in (("not-found", 404, NotFoundError), ("busy", 503, ServiceUnavailableError)):
        answers = Answers(problem(name, status))
        quick = Retries(stream_seconds=0)
        with answering(answers) as url, RemoteService(url, KEY, retries=quick) as service:
            stream = RemoteMemory.from_defaults("a", service=service).events()
            with pytest.raises(error):
                next(stream)
        assert answers.asked == 1


@pytest.mark.parametrize("name", ["no-route", "of-a-later-release"])
def test_a_404_that_does_not_say_that_the_thing_is_missing_is_no_empty_answer(name: str) -> None:
    """As of a service of another release, or behind a wrong path."""
    with answering(Answers(problem(name, 404))) as url, RemoteService(url, KEY) as service:
        memory = RemoteMemory.from_defaults("a", user_id="ana", service=service)
        for ask in (memory.get_all, memory.history):
            with pytest.raises(ServiceError):
                ask()


def test_a_put_and_a_stream_wait_for_a_service_that_restarts() -> None:
    """More refusals in a row than six attempts of each; a service that stops and begins again gives them."""
    away = [problem("stopping", 503, **{"Retry-After": "0"})] * 8
    quick = Retries(base_seconds=0.001, longest_seconds=0.002)
    for answers in (Answers(*away, DONE), Answers(event(5), *away, event(6))):
        with answering(answers) as url, RemoteService(url, KEY, retries=quick) as service:
            memory = RemoteMemory.from_defaults("a", service=service)
            if answers.answers[-1] is DONE:
                assert memory.put(HELLO) == 7
            else:
                assert [one.id for one in islice(memory.events(), 2)] == ["5", "6"]


def test_a_service_that_is_away_is_told_with_its_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with (
        RemoteService(url, KEY, retries=Retries(attempts=2, base_seconds=0)) as service,
        pytest.raises(ServiceUnavailableError, match=r"cannot be reached \(ConnectError, tried 2 times"),
    ):
        RemoteMemory.from_defaults("a", service=service).put(HELLO)


def test_a_read_that_is_not_answered_in_time_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        quick = Retries(attempts=1)
        with (
            RemoteService(url, KEY, timeouts=Timeouts(read=0.05), retries=quick) as service,
            pytest.raises(ServiceTimeoutError, match="did not answer in time") as raised,
        ):
            RemoteMemory.from_defaults("a", service=service).get("x")
    assert isinstance(raised.value, DatabaseTimeoutError)
    assert isinstance(raised.value, TimeoutError)


def test_the_key_is_in_nothing_that_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers = Answers(problem("unauthenticated", 401))
    with answering(answers) as url, RemoteService(url, KEY) as service:
        memory = RemoteMemory.from_defaults("a", user_id="ana", service=service)
        with pytest.raises(ServiceKeyError) as raised:
            memory.put(HELLO)
        shown = [repr(one) for one in (service, memory, memory.facts, service.client().auth)]
        error: BaseException | None = raised.value
        while error is not None:
            shown += [str(error), repr(error)]
            error = error.__cause__
    assert answers.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert "thesecret" not in caplog.text + "".join(shown)


@pytest.mark.parametrize("url", ["memory.example", "ftp://x", "http://u:p@x", "http://x/?a=b", "", 5])
def test_a_url_that_cannot_be_used_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError):
        RemoteService(url, KEY)


@pytest.mark.parametrize("key", ["", "secret", "sl_ü_x", "sl_a\nb", None])
def test_what_is_no_key_is_refused_and_not_quoted(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="strandline keys create") as raised:
        RemoteService("http://x", key)
    assert not key or key not in str(raised.value)


def test_numbers_that_cannot_be_waited_for_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"attempts": 0},
        {"attempts": True},
        {"total_seconds": -1},
        {"base_seconds": "1"},
        {"stream_seconds": -1},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            Retries(**wrong)
    with pytest.raises(ConfigurationError):
        Timeouts(read=0)


def test_only_the_first_client_reads_the_list_of_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of a loop is made by a call in it: what it read would hold up all tasks."""

    async def connect(service: RemoteService) -> None:
        async with service.aclient():
            pass

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was read again")

    with RemoteService("http://x", "sl_a_b") as first:
        first.client()
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
    with RemoteService("http://x", "sl_a_b") as service:
        service.client()
        for _ in range(2):
            asyncio.run(connect(service))
