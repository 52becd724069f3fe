"""How long a lane waits: growing, capped, jittered, and never shorter than the provider asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.engine.failures import RetryPolicy

SECONDS = st.floats(0.01, 1e6)
JITTER = st.floats(0, 1, exclude_max=True)
POLICIES = st.builds(RetryPolicy, base_seconds=st.floats(0.01, 10), max_seconds=st.floats(10, 600))


@given(POLICIES, st.integers(1, 100_000), JITTER)
def test_a_wait_is_between_half_and_all_of_what_it_may_be(
    policy: RetryPolicy, failures: int, jitter: float
) -> None:
    wait = policy.wait_seconds(failures, jitter=jitter)
    assert policy.base_seconds / 2 <= wait <= policy.max_seconds
    if failures > 40:
        assert wait >= policy.max_seconds / 2


@given(POLICIES, st.integers(1, 60), JITTER)
def test_the_wait_grows_with_each_failure_and_at_most_doubles(
    policy: RetryPolicy, failures: int, jitter: float
) -> None:
    wait, longer = (policy.wait_seconds(count, jitter=jitter) for count in (failures, failures + 1))
    assert wait <= longer <= 2 * wait * 1.000001


@given(POLICIES, st.integers(1, 60), SECONDS, JITTER)
def test_the_provider_is_heeded_within_bounds(
    policy: RetryPolicy, failures: int, asked: float, jitter: float
) -> None:
    wait = policy.wait_seconds(failures, retry_after_seconds=asked, jitter=jitter)
    assert wait >= min(asked, 10 * policy.max_seconds)
    assert wait <= max(policy.max_seconds, min(asked, 10 * policy.max_seconds))


def test_lanes_that_failed_together_do_not_come_back_together() -> None:
    waits = {RetryPolicy().wait_seconds(5) for _ in range(50)}
    assert len(waits) > 40
    assert max(waits) - min(waits) > 2
