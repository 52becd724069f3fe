"""What models cost: prices from the settings, a cost on each call of the ledger, sums in status."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from decimal import Decimal
from typing import Any

import pytest

from strandline.cli.entry import run
from strandline.pipelines.inspect.explain_message import explain
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.prices import cost_usd
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.wire.explanations import MessageExplanation
from tests.conftest import Rig, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

PRICES = '{"gpt-4.1-mini": {"input": 0.4, "output": 1.6}}'


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_MODEL_PRICES", PRICES)
    return load_settings(database_url=database_url, embedding_backend="local")


def status(database_url: str, *options: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(["status", "--database-url", database_url, *options]) == 0
    return out.getvalue()


def test_each_call_has_its_cost(rig: Rig) -> None:
    say(rig.memory("s"), "I keep bees in Kotor", "I keep bees and a goat")
    drain_everything(rig.database, rig.url, rig.settings)
    ledger = rows_of(
        rig.url, "SELECT model, input_tokens, output_tokens, cost_usd FROM strandline.model_call"
    )
    priced = [row for row in ledger if row[0] == "gpt-4.1-mini"]
    assert len(priced) >= 3
    for _model, input_tokens, output_tokens, cost in priced:
        assert cost == (Decimal("0.4") * input_tokens + Decimal("1.6") * output_tokens) / 1_000_000
        assert cost > 0
    unpriced = [row for row in ledger if row[0] != "gpt-4.1-mini"]
    assert unpriced and all(cost is None for *_call, cost in unpriced), "no price, no cost"

    calls = json.loads(status(rig.url, "--json"))["model_calls"]
    total = float(sum(cost for *_call, cost in priced))
    assert calls["calls"] == len(ledger)
    assert calls["input_tokens"] == sum(row[1] for row in ledger)
    assert calls["output_tokens"] == sum(row[2] for row in ledger)
    assert calls["cost_usd"] == pytest.approx(total)
    by_model = {entry["model"]: entry for entry in calls["by_model"]}
    assert by_model["gpt-4.1-mini"]["calls"] == len(priced)
    assert by_model["gpt-4.1-mini"]["cost_usd"] == pytest.approx(total)
    assert [entry["cost_usd"] for name, entry in by_model.items() if name != "gpt-4.1-mini"] == [None]
    assert f"tokens, ${total:.2f})" in status(rig.url)

    (message_id,) = rows_of(rig.url, "SELECT id FROM strandline.message WHERE seq = 1")[0]
    explained = explain(rig.database, message_id)
    assert isinstance(explained, MessageExplanation)
    costs = {call.model: call.cost_usd for trace in explained.stages for call in trace.calls}
    assert costs["gpt-4.1-mini"] is not None and costs["gpt-4.1-mini"] > 0


def test_without_prices_there_is_no_cost(rig: Rig) -> None:
    say(rig.memory("s", memory_blocks=["summary"]), "one")
    local = load_settings(database_url=rig.url, text_backend="local", embedding_backend="local")
    drain_everything(rig.database, rig.url, local)
    calls = json.loads(status(rig.url, "--json"))["model_calls"]
    assert (calls["calls"], calls["cost_usd"]) == (1, None)
    assert "$" not in status(rig.url)


def test_a_cost_is_exact() -> None:
    prices = load_settings(
        model_prices='{"m": {"input": 0.1, "output": 0.3}, "e": {"input": 2}}'
    ).model_prices
    assert cost_usd(prices, "m", input_tokens=1, output_tokens=2) == Decimal("0.0000007")
    assert cost_usd(prices, "e", input_tokens=500_000, output_tokens=7) == Decimal(1)
    assert cost_usd(prices, "other", input_tokens=1, output_tokens=1) is None


@pytest.mark.parametrize(
    "given",
    [
        "not json",
        "[]",
        '"m"',
        '{"m": 3}',
        '{"m": {}}',
        '{"m": {"input": -1}}',
        '{"m": {"input": NaN}}',
        '{"m": {"input": 1, "inptu": 2}}',
        '{"": {"input": 1}}',
    ],
)
def test_prices_that_cannot_be_used_are_named(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_MODEL_PRICES", given)
    with pytest.raises(ConfigurationError, match="STRANDLINE_MODEL_PRICES: "):
        load_settings()


def test_settings_with_prices_can_still_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes keep their pools by settings."""
    plain: dict[Any, int] = {load_settings(): 1}
    monkeypatch.setenv("STRANDLINE_MODEL_PRICES", PRICES)
    assert load_settings() not in plain
    assert {load_settings(): 2}[load_settings()] == 2
