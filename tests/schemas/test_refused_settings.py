"""Settings that cannot be used are refused in our words, by variable, and without their values."""

from __future__ import annotations

import pytest

from strandline import ConfigurationError, Memory
from strandline.schemas.settings import PAIRS, RESERVED_WORDS, load_settings, load_usable_settings
from tests.conftest import rows_of

PRICES = 'for example {"gpt-4.1-mini": {"input": 0.4, "output": 1.6}}'


def refusal() -> str:
    """What is said of the settings in the environment."""
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    return str(refused.value)


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
        ("EMBEDDING_QUERY_PREFIX", "q" * 501, "it must have at most 500 characters"),
        ("EMBEDDING_PASSAGE_PREFIX", "p\x1b", "it must be plain text, without control characters"),
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
    assert refusal() == f"Settings cannot be used. STRANDLINE_{variable}: {says}"


@pytest.mark.parametrize("name", ["select", "user", "order", "pg_x", "information_schema"])
def test_a_schema_that_postgres_keeps_for_itself_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_SCHEMA", name)
    assert "STRANDLINE_DATABASE_SCHEMA: it is a name that Postgres keeps for itself" in refusal()


def test_the_reserved_words_are_those_of_the_server(empty_database_url: str) -> None:
    reserved = "SELECT word::text FROM pg_get_keywords() WHERE catcode IN ('R', 'T')"
    assert {word for (word,) in rows_of(empty_database_url, reserved)} <= RESERVED_WORDS


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


CONTRADICTIONS = [
    (
        "HEARTBEAT_INTERVAL_SECONDS",
        "5",
        "STRANDLINE_HEARTBEAT_INTERVAL_SECONDS (5) must be below STRANDLINE_WORKER_DEAD_AFTER_SECONDS"
        " (5 by default): otherwise a living worker counts as dead between two heartbeats, and others take"
        " its lanes; lower the first, or raise the second",
    ),
    (
        "WORKER_DEAD_AFTER_SECONDS",
        "0.5",
        "STRANDLINE_HEARTBEAT_INTERVAL_SECONDS (1 by default) must be below"
        " STRANDLINE_WORKER_DEAD_AFTER_SECONDS (0.5): otherwise a living worker counts as dead between two"
        " heartbeats, and others take its lanes; lower the first, or raise the second",
    ),
    (
        "MODEL_TIMEOUT_SECONDS",
        "600",
        "STRANDLINE_MODEL_TIMEOUT_SECONDS (600) must be below STRANDLINE_LEASE_DEADLINE_SECONDS (600 by"
        " default): otherwise the lease ends while a slow model call may still run, and others repeat the"
        " call; lower the first, or raise the second",
    ),
    (
        "BLOCK_TIMEOUT_SECONDS",
        "3600",
        "STRANDLINE_BLOCK_TIMEOUT_SECONDS (3600) must be below STRANDLINE_LEASE_DEADLINE_SECONDS (600 by"
        " default): otherwise the lease ends while a slow call of a block may still run, and others repeat"
        " the call; lower the first, or raise the second",
    ),
    (
        "RETRY_BASE_SECONDS",
        "60.5",
        "STRANDLINE_RETRY_BASE_SECONDS (60.5) must be at most STRANDLINE_RETRY_MAX_SECONDS (60 by default):"
        " the first wait after an error cannot be longer than the longest; lower the first, or raise the"
        " second",
    ),
]


@pytest.mark.parametrize(("variable", "value", "says"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused_with_both_names(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STRANDLINE_{variable}", value)
    assert refusal() == f"Settings cannot be used. {says}"


def test_numbers_that_contradict_each_other_are_shown_with_all_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_LEASE_DEADLINE_SECONDS", "3600")
    monkeypatch.setenv("STRANDLINE_MODEL_TIMEOUT_SECONDS", "3600.001")
    monkeypatch.setenv("STRANDLINE_RETRY_BASE_SECONDS", "1000000")
    told = refusal()
    assert "MODEL_TIMEOUT_SECONDS (3600.001) must be below STRANDLINE_LEASE_DEADLINE_SECONDS (3600)" in told
    assert "RETRY_BASE_SECONDS (1000000) must be at most" in told


def test_each_pair_of_settings_is_among_the_contradictions() -> None:
    told = [says for _variable, _value, says in CONTRADICTIONS]
    for pair in PAIRS:
        assert any(pair.lower.upper() in says and pair.upper.upper() in says for says in told), pair


def test_a_first_wait_as_long_as_the_longest_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_RETRY_BASE_SECONDS", "60")
    assert load_settings().retry_base_seconds == 60


def test_every_contradiction_is_told_and_what_is_left_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lease is at odds with two limits; every setting that belongs to a pair has its default."""
    monkeypatch.setenv("STRANDLINE_LEASE_DEADLINE_SECONDS", "50")
    monkeypatch.setenv("STRANDLINE_POOL_MAX_SIZE", "7")
    settings, reasons = load_usable_settings()
    assert list(reasons) == ["model_timeout_seconds", "block_timeout_seconds"]
    assert (settings.lease_deadline_seconds, settings.pool_max_size) == (600, 7)


def test_a_setting_that_is_refused_by_itself_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_HEARTBEAT_INTERVAL_SECONDS", "often")
    monkeypatch.setenv("STRANDLINE_WORKER_DEAD_AFTER_SECONDS", "0.5")
    _settings, reasons = load_usable_settings()
    assert reasons == {
        "heartbeat_interval_seconds": "STRANDLINE_HEARTBEAT_INTERVAL_SECONDS: it must be a number"
    }
