"""The breaker: closed while the provider answers, open while it does not, and fair to the input."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.provided.breaker import MAX_PAUSE_SECONDS, Breaker
from strandline.schemas.errors import (
    PermanentModelError,
    ProviderDownError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)


@dataclass
class Provider:
    """A provider and a clock that the test moves; ``asked`` counts calls, ``probed`` probes."""

    up: bool = True
    now: float = 1000.0
    asked: int = 0
    probed: int = 0
    breaker: Breaker = field(init=False)

    def __post_init__(self) -> None:
        self.breaker = Breaker("p", self.probe, longest_wait_seconds=10.0, clock=self.clock)

    def clock(self) -> float:
        self.now += 1e-6
        return self.now

    def probe(self) -> None:
        self.probed += 1
        if not self.up:
            raise TransientModelError("down")

    def call(self, failing: Exception | None = None) -> Exception | None:
        """Make a call, which fails if told to or if the provider is down; what came of it."""
        try:
            with self.breaker.guard():
                self.asked += 1
                if failing is not None:
                    raise failing
                if not self.up:
                    raise TransientModelError("down")
        except (TransientModelError, PermanentModelError) as error:
            return error
        return None

    def counts(self, failing: Exception | None = None) -> bool:
        error = self.call(failing)
        assert isinstance(error, TransientModelError)
        return error.counts


def test_a_failure_counts_where_the_probe_is_answered() -> None:
    provider = Provider()
    assert provider.counts(TransientModelError("slow"))
    assert provider.probed == 1
    assert provider.call() is None, "and the provider may be asked on"


def test_a_failure_counts_without_a_probe_where_another_call_was_answered_meanwhile() -> None:
    provider = Provider()

    def fail_while_another_is_answered() -> None:
        with provider.breaker.guard():
            assert provider.call() is None
            raise TransientModelError("slow")

    with pytest.raises(TransientModelError) as caught:
        fail_while_another_is_answered()
    assert caught.value.counts
    assert provider.probed == 0


def test_a_refused_key_counts_nothing_though_another_call_was_answered_before_it() -> None:
    """And those that are turned away are told why."""
    provider = Provider()

    def fail_while_another_is_answered() -> None:
        with provider.breaker.guard():
            assert provider.call() is None
            provider.up = False
            raise ProviderSetupError("the key was refused (401)")

    with pytest.raises(ProviderSetupError) as caught:
        fail_while_another_is_answered()
    assert not caught.value.counts
    assert provider.probed == 1
    for _time in range(100):
        error = provider.call()
        assert isinstance(error, ProviderDownError)
        assert str(error) == "down [p]"
    assert (provider.asked, provider.probed) == (1, 1)


def test_a_refusal_that_a_probe_does_not_meet_is_the_input_s() -> None:
    provider = Provider()
    assert provider.counts(ProviderSetupError("refused (403)"))


def test_an_outage_counts_nothing_and_is_left_alone_between_probes() -> None:
    provider = Provider(up=False)
    assert not provider.counts()
    for _time in range(100):
        error = provider.call()
        assert isinstance(error, ProviderDownError)
        assert not error.counts
        assert 0 < (error.retry_after_seconds or 0) <= 1.0
    assert (provider.asked, provider.probed) == (1, 1)


def test_the_waits_grow_to_their_limit_and_end_with_the_outage(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(up=False)
    provider.call()
    waits = []
    for _probe in range(20):
        waits.append(provider.breaker.wait_seconds())
        provider.now += waits[-1]
        assert isinstance(provider.call(), ProviderDownError)
    assert max(waits) <= 10.0
    assert waits[0] <= 1.0 and min(waits[6:]) >= 7.5
    assert provider.asked == 1, "probes find out, no work is sent"
    provider.up = True
    provider.now += provider.breaker.wait_seconds()
    with caplog.at_level(logging.INFO):
        assert provider.call() is None
    assert "provider answers again" in caplog.text
    assert provider.breaker.wait_seconds() == 0


def test_a_call_in_flight_that_is_answered_ends_the_outage() -> None:
    provider = Provider()
    with provider.breaker.guard():
        provider.up = False
        provider.call()
        assert provider.breaker.wait_seconds() > 0
        provider.up = True
    assert provider.call() is None


def test_a_refusal_is_an_answer() -> None:
    provider = Provider(up=False)
    provider.call()
    provider.now += 1.0
    provider.up = True
    assert isinstance(provider.call(PermanentModelError("refused")), PermanentModelError)
    assert provider.call() is None


@given(asked=st.one_of(st.none(), st.floats(0, 1e6)))
def test_a_rate_limit_pauses_everyone_as_long_as_it_asks_and_counts_nothing(asked: float | None) -> None:
    provider = Provider()
    assert not provider.counts(RateLimitError("429", retry_after_seconds=asked))
    expected = min(asked, MAX_PAUSE_SECONDS) if asked else 1.0
    assert provider.breaker.wait_seconds() == pytest.approx(expected, abs=1e-3)
    provider.now += expected
    assert provider.call() is None
    assert provider.probed == 0


@pytest.mark.parametrize("asked", [0.1, 1.0])
def test_a_provider_that_names_the_same_wait_in_vain_is_left_alone_for_longer(asked: float) -> None:
    provider, refusals = Provider(), 0
    end = provider.now + 600
    while provider.now < end and refusals < 100:
        provider.now += provider.breaker.wait_seconds()
        assert provider.counts(RateLimitError("429", retry_after_seconds=asked)) is False
        refusals += 1
    assert refusals <= 15
    assert provider.breaker.wait_seconds() == pytest.approx(MAX_PAUSE_SECONDS, abs=1e-3)
    provider.now += MAX_PAUSE_SECONDS
    assert provider.call() is None
    provider.call(RateLimitError("429", retry_after_seconds=20.0))
    assert provider.breaker.wait_seconds() == pytest.approx(20.0, abs=1e-3), "it is believed again"


def test_threads_that_fail_together_share_a_probe() -> None:
    probes: list[int] = []
    all_failed = threading.Semaphore(0)

    def probe() -> None:
        probes.append(1)
        if len(probes) == 1:  # answers only when all the others wait for it
            for _thread in range(8):
                all_failed.acquire(timeout=100)
        raise TransientModelError("down")

    def fail(_number: int) -> None:
        with breaker.guard():
            together.wait(100)
            all_failed.release()
            raise TransientModelError("down")

    breaker, together = Breaker("p", probe), threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        failures = [future.exception(10) for future in [threads.submit(fail, n) for n in range(8)]]
    assert all(isinstance(error, TransientModelError) and not error.counts for error in failures)
    assert len(probes) < 8, "each for itself would be eight"


def test_without_a_probe_one_call_tries_while_the_others_wait() -> None:
    now = [1000.0]
    breaker = Breaker("reads", longest_wait_seconds=10.0, clock=lambda: now[0])

    def call(body: Callable[[], None]) -> type[Exception] | None:
        try:
            with breaker.guard():
                body()
        except TransientModelError as error:
            blamed.append(error.counts)
            return type(error)
        return None

    blamed: list[bool] = []

    def fail() -> None:
        raise TransientModelError("too slow for a read")

    assert call(fail) is TransientModelError
    assert call(lambda: None) is ProviderDownError
    now[0] += breaker.wait_seconds()
    others: list[type[Exception] | None] = []
    assert call(lambda: others.append(call(lambda: None))) is None
    assert others == [ProviderDownError]
    assert call(lambda: None) is None
    assert blamed == [False] * 3


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=60))
def test_whatever_happens_a_provider_that_is_back_is_asked_within_its_longest_wait(
    history: list[tuple[bool, float]],
) -> None:
    provider = Provider()
    for up, passed in history:
        provider.up = up
        provider.now += passed
        provider.call()
    provider.up = True
    assert provider.breaker.wait_seconds() <= 10.0
    provider.now += provider.breaker.wait_seconds()
    assert provider.call() is None
