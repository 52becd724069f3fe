"""Settings that cannot be used are refused in our words, by variable, and without their values."""

from __future__ import annotations

import pytest

from strandline import ConfigurationError, Memory
from strandline.schemas.settings import load_settings, load_usable_settings

PRICES = 'for example {"gpt-4.1-mini": {"input": 0.4, "output": 1.6}}'


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("POOL_MAX_SIZE", "zero", "it must be a whole number"),
        ("POOL_MAX_SIZE", "1.5", "it must be a whole number"),
        ("POOL_MAX_SIZE", "9" * 5_000, "it is too large a number"),
        ("POOL_MAX_SIZE", "0", "it must be at least 1"),
        ("POOL_MAX_SIZE", "501", "it must be at most 500"),
        ("MAX_METADATA_BYTES", "1", "it must be at least 2"),
        ("SWEEP_BATCH_SIZE", "10001", "it must be at most 10,000"),
        ("POOL_TIMEOUT_SECONDS", "soon", "it must be a number"),
        ("POOL_TIMEOUT_SECONDS", "0", "it must be above 0"),
        ("PUBLIC_APIS_ONLY", "perhaps", "it must be true or false"),
        ("EMBEDDED", "always", "it must be 'auto' or 'never'"),
        (
            "DATABASE_SCHEMA",
            "A-b",
            "it must be a name of at most 51 lower-case letters, digits and underscores that does not begin"
            " with a digit",
        ),
        ("MODEL_PRICES", "cheap", f"it is not JSON; {PRICES}"),
        ("MODEL_PRICES", "[" * 100_000, f"it is not JSON; {PRICES}"),
        ("MODEL_PRICES", "[]", f"it must be a JSON object; {PRICES}"),
        ("MODEL_PRICES", '{"m": {"input": "cheap"}}', "'input' must be a number"),
        ("MODEL_PRICES", '{"m": {"input": -1}}', "'input' must be at least 0"),
        ("MODEL_PRICES", '{"m": {}}', "'input' is missing"),
        ("MODEL_PRICES", '{"m": {"input": 1, "ouput": 2}}', "'ouput' is not a known field"),
        ("MODEL_PRICES", '{"": {"input": 1}}', "'model' is empty"),
    ],
)
def test_a_wrong_value_is_refused_in_words(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STRANDLINE_{variable}", value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"Settings cannot be used. STRANDLINE_{variable}: {says}"


@pytest.mark.parametrize(
    "url", ["foo", "localhost:11434", "ftp://h/v1", "http://[half", "http://", "http://h:0"]
)
def test_a_model_servers_url_is_refused_before_any_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigurationError) as refused:
        Memory.from_defaults("s", database_url="postgresql://127.0.0.1:1/x")
    assert str(refused.value) == (
        "Settings cannot be used. OPENAI_BASE_URL: it is not an http(s) URL; a valid one is"
        " http://localhost:11434/v1"
    )
    settings, reasons = load_usable_settings()
    assert settings.openai_base_url is None
    assert list(reasons) == ["openai_base_url"]


def test_blanks_around_a_model_servers_url_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", " http://127.0.0.1:9/v1\n")
    assert load_settings().openai_base_url == "http://127.0.0.1:9/v1"
