"""Roles of models: what each inherits, to which host a key goes, and what is refused, by its variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.misspelt import unknown_settings
from strandline.schemas.model_roles import (
    ROLES,
    EmbeddingRole,
    ModelRoles,
    RoleName,
    ServerRole,
    TextRole,
    variable,
)
from strandline.schemas.settings import Settings, load_settings, load_usable_settings

PREFIX = "STRANDLINE_MODELS__"


def set_roles(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Sets variables of roles, and those of all models by their own names."""
    for name, value in values.items():
        monkeypatch.setenv(name if name.startswith("OPENAI") else f"{PREFIX}{name}", value)


def key_of(settings: Settings, role: RoleName) -> str | None:
    key = settings.role(role).of.api_key
    return None if key is None else str(key.get_secret_value())


def test_without_roles_all_is_as_the_settings_of_all_models_say() -> None:
    settings = load_settings(openai_base_url="http://a/v1", openai_api_key="k", summary_model="s")
    for role in ROLES:
        chosen = settings.role(role)
        assert (chosen.address, key_of(settings, role)) == ("http://a/v1", "k")
        assert (chosen.place("base_url"), chosen.place("api_key")) == ("OPENAI_BASE_URL", "OPENAI_API_KEY")
        assert settings.backend(role) == "openai"
    models = [settings.role(role).of.model for role in ROLES]
    assert models == ["gpt-4.1-mini", "gpt-4.1-mini", "s", *["text-embedding-3-small"] * 2]


def test_a_role_is_like_another_one_in_what_it_does_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    set_roles(
        monkeypatch,
        OPENAI_BASE_URL="http://a/v1",
        FACTS__BASE_URL="http://b/v1",
        FACTS__API_KEY="kb",
        FACTS__MODEL="f",
        MERGE__TEMPERATURE="0.5",
        EMBEDDING__BASE_URL="http://c/v1",
        EMBEDDING__MODEL="e",
        EMBEDDING__PREFIX="passage: ",
        QUERY_EMBEDDING__PREFIX="query: ",
        DEFAULT__TIMEOUT_SECONDS="20",
        SUMMARY__TIMEOUT_SECONDS="30",
    )
    settings = load_settings()
    merge, summary, query = (settings.role(role) for role in ("merge", "summary", "query_embedding"))
    assert (merge.address, key_of(settings, "merge"), merge.of.model) == ("http://b/v1", "kb", "f")
    assert (merge.of.temperature, settings.text_role("facts").of.temperature) == (0.5, None)
    assert merge.place("base_url") == f"{PREFIX}FACTS__BASE_URL"
    assert (summary.address, summary.of.timeout_seconds, merge.of.timeout_seconds) == ("http://a/v1", 30, 20)
    assert (query.address, query.of.model) == ("http://c/v1", "e")
    assert settings.facts_model == "f" and settings.embedding_model == "e"
    assert (settings.embedding_passage_prefix, settings.embedding_query_prefix) == ("passage: ", "query: ")


SERVERS = st.sampled_from(
    [None, "http://a/v1", "http://a/other?api-version=1", "https://a/v1", "http://b:8/v1"]
)
KEYS = st.sampled_from([None, "k1", "k2"])


@st.composite
def some_roles(draw: st.DrawFn) -> Settings:
    """Roles at some hosts, each of which keys, headers and queries that name the host."""
    roles: dict[str, Any] = {}
    kinds: dict[str, Any] = {"default": ServerRole, **dict.fromkeys(("facts", "merge", "summary"), TextRole)}
    for name, kind in (kinds | dict.fromkeys(("embedding", "query_embedding"), EmbeddingRole)).items():
        url, key = draw(SERVERS), draw(KEYS)
        # The host of a key of a role without an address is that of the role that it is like.
        named = None if url is None else f"{urlsplit(url).scheme}{urlsplit(url).netloc}"
        roles[name] = kind(
            base_url=url,
            api_key=None if key is None or named is None else SecretStr(f"{named} {key}"),
            headers=None if named is None else {"X-Host": named},
            query=None if named is None else {"host": named},
        )
    return load_settings(models=ModelRoles(**roles), openai_api_key="httpsapi.openai.com")


@given(some_roles())
def test_no_server_is_sent_the_key_of_another_host(settings: Settings) -> None:
    for name in ROLES:
        role = settings.role(name)
        host = f"{urlsplit(role.address).scheme}{urlsplit(role.address).netloc}"
        secrets = [pair[1] for pair in (*(role.of.headers or ()), *(role.of.query or ()))]
        secrets += [] if role.of.api_key is None else [role.of.api_key]
        assert all(secret.get_secret_value().startswith(host) for secret in secrets), (name, host)


def test_a_file_has_a_table_for_each_role_and_variables_are_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-of-a-file\n")
    file = tmp_path / "models.toml"
    file.write_text(
        f'[default]\nheaders = {{"X-Team" = "memory"}}\n[facts]\nbase_url = "http://a/v1"\n'
        f'api_key_file = "{key}"\nmax_tokens = 500\n[embedding]\nsends_dimensions = true\n'
        'body = {input_type = "passage"}\n'
    )
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(file))
    set_roles(monkeypatch, FACTS__MAX_TOKENS="600", EMBEDDING__SENDS_DIMENSIONS="no")
    settings = load_settings()
    facts, embedding = settings.text_role("facts").of, settings.embedding_role().of
    assert (facts.base_url, key_of(settings, "merge"), facts.max_tokens) == (
        "http://a/v1",
        "sk-of-a-file",
        600,
    )
    assert (embedding.sends_dimensions, embedding.body) == (False, '{"input_type": "passage"}')
    assert "sk-of-a-file" not in repr(settings) and "memory" not in repr(settings)
    assert hash(settings) == hash(load_settings())


REFUSALS = [
    ({"FACTS__BASE_URL": "localhost"}, "FACTS__BASE_URL: it is not an http(s) URL"),
    (
        {"FACTS__BASE_UR": "http://a"},
        "FACTS__BASE_UR: it is not a setting of this role; did you mean base_url?",
    ),
    ({"FATCS__MODEL": "m"}, "FATCS: it is not a role; did you mean facts?"),
    ({"EMBEDDING__ANSWER_FORM": "text"}, "EMBEDDING__ANSWER_FORM: it is not a setting of this role"),
    (
        {"FACTS__ANSWER_FORM": "xml"},
        "FACTS__ANSWER_FORM: it must be 'auto', 'json_schema', 'json_object' or 'text'",
    ),
    ({"FACTS__MAX_TOKENS": "many"}, "FACTS__MAX_TOKENS: it must be a whole number"),
    ({"FACTS__TEMPERATURE": "hot"}, "FACTS__TEMPERATURE: it must be a number from 0 to 2, or none"),
    ({"FACTS__HEADERS": "X-Key: sk-1"}, "FACTS__HEADERS: it must be a JSON object"),
    ({"FACTS__HEADERS": '{"X-Key": "sk-\\n"}'}, "FACTS__HEADERS: the header 'X-Key' must have printable"),
    ({"FACTS__KEY_HEADER": "api key"}, "FACTS__KEY_HEADER: it must name HTTP headers"),
    ({"FACTS__BODY": "[1]"}, "FACTS__BODY: it must be a JSON object"),
    ({"FACTS__BODY": '{"top_p": NaN}'}, "FACTS__BODY: it must hold what JSON has"),
    ({"FACTS__QUERY": '{"v": null}'}, "FACTS__QUERY: 'v' must be a text or a number"),
    (
        {"FACTS__API_KEY_FILE": "/no/sk-1"},
        "FACTS__API_KEY_FILE: the file of the key cannot be read: No such file",
    ),
    ({"EMBEDDING__MAX_TEXTS": "0"}, "EMBEDDING__MAX_TEXTS: it must be at least 1"),
    ({"EMBEDDING__SENDS_DIMENSIONS": "perhaps"}, "EMBEDDING__SENDS_DIMENSIONS: it must be true or false"),
    ({"QUERY_EMBEDDING__BACKEND": "local"}, "QUERY_EMBEDDING: backend must be none, or left out"),
    (
        {"SUMMARY__TIMEOUT_SECONDS": "600"},
        "SUMMARY__TIMEOUT_SECONDS (600) must be below STRANDLINE_LEASE_DEADLINE",
    ),
]


@pytest.mark.parametrize(("values", "says"), REFUSALS, ids=lambda one: str(one)[:50])
def test_a_wrong_setting_of_a_role_is_refused_by_its_variable(
    values: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_roles(monkeypatch, **values)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert f"{PREFIX}{says}" in str(refused.value)
    assert "sk-" not in str(refused.value)
    settings, reasons = load_usable_settings()
    assert (settings.models, list(reasons)) == (ModelRoles(), ["models"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "STRANDLINE_MODELS_FILE: the file cannot be read: No such file or directory"),
        ("[facts\n", "STRANDLINE_MODELS_FILE: the file is not TOML"),
        ("\xff", "STRANDLINE_MODELS_FILE: the file is not TOML"),
        ('facts = "m"\n', "STRANDLINE_MODELS_FILE: the file must have a table for each role"),
        ("[facts]\nmax_tokens = 1\n", "STRANDLINE_MODELS__FACTS__MAX_TOKENS: it must be at least 16"),
        ('[facts]\n"a\\nb" = 1\n', "it is not a setting of this role"),
        ("[facts]\nbody = {on = 2026-01-01}\n", "STRANDLINE_MODELS__FACTS__BODY: it must hold what JSON has"),
        ("[facts]\nbody = " + "[" * 9_000, "STRANDLINE_MODELS_FILE: the file "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    content: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(file))
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_variable_of_a_role_is_no_misspelt_setting() -> None:
    assert not list(unknown_settings({variable("facts", "model"): "m", f"{PREFIX}FATCS__MODEL": "m"}))


@pytest.mark.parametrize(
    ("values", "backends"),
    [
        ({}, ["local"] * 5),
        ({"FACTS__BASE_URL": "http://a/v1"}, ["openai", "openai", "local", "local", "local"]),
        ({"EMBEDDING__API_KEY": "k"}, ["local", "local", "local", "openai", "openai"]),
        ({"EMBEDDING__BACKEND": "none", "DEFAULT__API_KEY": "k"}, [*["openai"] * 3, "none", "none"]),
        ({"QUERY_EMBEDDING__BACKEND": "none", "DEFAULT__API_KEY": "k"}, [*["openai"] * 4, "none"]),
    ],
)
def test_each_role_has_its_backend(
    values: dict[str, str], backends: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_roles(monkeypatch, **values)
    settings = load_settings()
    assert [settings.backend(role) for role in ROLES] == backends


@pytest.mark.parametrize("own_server", [False, True])
def test_a_late_query_names_the_setting_that_bounds_it(own_server: bool) -> None:
    roles = {"query_embedding": {"base_url": "http://127.0.0.1:1/v1"}} if own_server else {}
    settings = load_settings(models=roles, model_timeout_seconds=9)
    place = settings.role("query_embedding").place("timeout_seconds")
    assert place == "STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS"
    assert settings.role("embedding").place("timeout_seconds") == "STRANDLINE_MODEL_TIMEOUT_SECONDS"


def test_a_file_of_a_home_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", "~nobody-has-this-name/models.toml")
    with pytest.raises(ConfigurationError, match="STRANDLINE_MODELS_FILE: the file cannot be used"):
        load_settings()


@pytest.mark.parametrize("of_file", ["api_key", "api_key_file"])
def test_the_variable_of_a_key_is_above_the_file_however_the_key_is_given(
    of_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = tmp_path / "key", tmp_path / "models.toml"
    key.write_text("new" if of_file == "api_key" else "old")
    file.write_text(f'[facts]\n{of_file} = "{"old" if of_file == "api_key" else key}"\n')
    monkeypatch.setenv("STRANDLINE_MODELS_FILE", str(file))
    variables = {"API_KEY_FILE": str(key)} if of_file == "api_key" else {"API_KEY": "new"}
    set_roles(monkeypatch, **{f"FACTS__{name}": content for name, content in variables.items()})
    used = load_settings().text_role("facts").of.api_key
    assert used is not None and used.get_secret_value() == "new"


def test_what_may_not_be_shown_of_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    set_roles(
        monkeypatch,
        FACTS__BASE_URL="https://models.example/v1?code=s3cretcode",
        FACTS__HEADERS='{"Authorization": "Bearer hunter2token", "X-On": true}',
    )
    role = load_settings().text_role("facts")
    assert {"s3cretcode", "hunter2token"} <= set(role.secrets)
    assert dict(role.of.headers or ())["X-On"].get_secret_value() == "true"
