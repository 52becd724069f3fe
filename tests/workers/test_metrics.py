"""A worker's metrics agree with the tables, and hold nothing of what was said."""

from __future__ import annotations

import re
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.workers.busy_workers import converse, environment

CANARY = "xylophone-4711"
LAGS = """
SELECT r.stage, count(*), sum(extract(epoch FROM r.applied_at - e.created_at))::float
FROM strandline.receipt r JOIN strandline.flush_event e USING (shard_key, event_id)
WHERE r.stage <> 'merge' GROUP BY r.stage
"""
CALLS = """
SELECT stage, model, count(*)::int, sum(input_tokens)::int, sum(output_tokens)::int
FROM strandline.model_call GROUP BY stage, model
"""

Samples = dict[tuple[str, frozenset[str]], float]


def scrape(url: str) -> tuple[Samples, str]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    samples = {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return samples, text


def of(samples: Samples, name: str, *labels: str) -> float | None:
    return samples.get((f"strandline_{name}", frozenset(labels)))


def test_lag_and_calls_are_those_of_the_tables(rig: Rig) -> None:
    """Receipts of merge are left out: extract writes those of events without facts."""
    worker = rig.start_worker(**environment(rig.model), STRANDLINE_METRICS_PORT="0")
    converse(rig.memory, 6, 2, broker_url=rig.broker_url)
    rig.memory("canary", user_id=CANARY).put({"role": "user", "content": f"I keep a {CANARY}."})
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="everything to be derived")
    address = re.search(r"serves metrics at (\S+)", "".join(worker.output))
    assert address is not None, worker.output
    lags = rows_of(rig.url, LAGS)
    assert {stage for stage, *_ in lags} == {"extract", "summary", "vectors"}

    def is_counted() -> bool:
        samples, _ = scrape(address[1])
        return all(of(samples, "apply_lag_seconds_count", stage) == n for stage, n, _ in lags)

    # A batch is counted once it is committed.
    wait_until(is_counted, timeout=5, what="all receipts to be counted")
    samples, text = scrape(address[1])
    assert CANARY not in text
    for stage, _, seconds in lags:
        assert of(samples, "apply_lag_seconds_sum", stage) == pytest.approx(seconds, rel=0.05, abs=1)
    for stage, model, calls, read, written in rows_of(rig.url, CALLS):
        assert of(samples, "model_call_seconds_count", stage, model) == calls
        assert of(samples, "model_tokens_total", stage, model, "input") == read
        assert of(samples, "model_tokens_total", stage, model, "output") == written


def test_a_role_whose_provider_refuses_every_call_has_an_open_breaker(rig: Rig) -> None:
    rig.model.behave(status=401, message=f"No {CANARY} here.", path="/chat/completions")
    worker = rig.start_worker(
        **environment(rig.model, STRANDLINE_PROVIDER_PROBE_SECONDS="0.2"), STRANDLINE_METRICS_PORT="0"
    )
    address = re.search(r"serves metrics at (\S+)", "".join(worker.output))
    assert address is not None, worker.output
    converse(rig.memory, 1, 1, broker_url=rig.broker_url)

    def state(reason: str) -> float | None:
        samples, text = scrape(address[1])
        assert CANARY not in text
        return of(samples, "breaker_open", "facts", reason)

    wait_until(lambda: state("ProviderSetupError") == 1, timeout=30, what="the breaker to open")
    rig.model.behave()
    wait_until(lambda: state("none") == 0, timeout=30, what="the breaker to close")
