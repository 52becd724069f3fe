"""Misspelt names are refused with a sentence: where they are given, not at the first use or never."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport import TRANSPORT_ALIASES
from psycopg_pool import ConnectionPool

from strandline import ConfigurationError, Facts, Memory
from strandline.schemas.broker.own_celery import OwnCelery
from strandline.schemas.display.url_schemes import (
    BROKER_OPTIONS,
    DATABASE_DRIVERS,
    check_broker_url,
    check_database_url,
)
from strandline.schemas.postgres.options import options_of, psycopg_url
from strandline.schemas.settings import load_settings
from tests.conftest import Rig, rows_of
from tests.support.processes.commands import run_here

URL = "postgresql://me@host/db"


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"consume": "backgroud"}, "consume is 'backgroud'; it must be 'background'"),
        ({"consume": True}, "consume is True"),
        ({"broker_url": "foo://x"}, "the broker URL begins with 'foo'"),
        ({"broker_url": "127.0.0.1:6379"}, "the broker URL begins with no scheme"),
        ({"broker_url": "amqp://one//;ampq://two//"}, "the broker URL begins with 'ampq'"),
        ({"tokenizer_fn": "cl100k"}, "A name is not accepted"),
        ({"tokenizer_fn": 7}, "tokenizer_fn is 7"),
        ({"database_url": "postgresql+pg8000://me@host/db"}, "the driver 'pg8000'"),
        ({"database_url": "mysql://me@host/db"}, "it runs on Postgres only"),
        ({"database_url": "host/db"}, "begins with no scheme"),
        ({"pool": "postgresql://me@host/db"}, "pool is of the type 'str'"),
        ({"insert_method": "assistant"}, "insert_method is 'assistant'"),
        ({"chat_history_token_ratio": "0.7"}, "chat_history_token_ratio is '0.7'"),
        ({"memory_block": []}, "no argument 'memory_block': did you mean 'memory_blocks'?"),
        ({"zyzzyva": 1}, "no argument 'zyzzyva': help(Memory.from_defaults) lists them"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_typo_is_refused_when_a_memory_is_made(given_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Memory.from_defaults("s", **{"database_url": URL} | given_)
    assert sentence in str(caught.value)


def test_facts_refuse_what_a_memory_refuses() -> None:
    with pytest.raises(ConfigurationError, match="pg8000"):
        Facts.for_owner(user_id="anna", database_url="postgresql+pg8000://host/db")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STRANDLINE_BROKER_URL", "foo://x"),
        ("STRANDLINE_DATABASE_URL", "sqlite:///x"),
        ("STRANDLINE_EMBEDDED", "nevr"),
        ("STRANDLINE_DATABASE_POOLER", "transactions"),
        ("STRANDLINE_TEXT_BACKEND", "lokal"),
        ("STRANDLINE_EMBEDDING_BACKEND", "open-ai"),
        ("STRANDLINE_POOL_MAX_SIZE", "many"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_variable(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable):
        load_settings()


@pytest.mark.parametrize("driver", DATABASE_DRIVERS)
def test_every_driver_that_is_accepted_runs_on_psycopg(driver: str, database_url: str) -> None:
    scheme = f"postgresql+{driver}" if driver else "postgresql"
    memory = Memory.from_defaults("s", database_url=database_url.replace("postgresql", scheme, 1))
    assert memory.put({"role": "user", "content": "hello"}) == 1
    memory.close()


@pytest.mark.parametrize("scheme", sorted({*TRANSPORT_ALIASES, "sqla+postgresql", "SQS"} - {*BROKER_OPTIONS}))
def test_a_broker_of_celery_that_strandline_does_not_work_with_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"begins with '{re.escape(scheme)}'; .*redis://.*amqp://"):
        load_settings(broker_url=f"{scheme}://host/x")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql:///db?host=/run/pg", {"dbname": "db", "host": "/run/pg"}),
        ("postgresql+asyncpg:///db?ssl=require", {"dbname": "db", "sslmode": "require"}),
        ("postgres://?service=billing", {"service": "billing"}),
        ("postgresql://me@one,two:1/", {"user": "me", "host": "one,two", "port": ",1"}),
        ("postgresql://", {}),
    ],
)
def test_a_url_may_leave_out_what_libpq_finds_elsewhere(url: str, named: dict[str, str]) -> None:
    settings = load_settings(database_url=url)
    assert settings.database_url is not None
    assert options_of(psycopg_url(settings.database_url.get_secret_value())) == named


# Known to libpq: those with which nothing works, and those with which all does.
@pytest.mark.parametrize(
    ("option", "is_refused"),
    [
        ("replication=database", True),
        ("replication=true", True),
        ("replication=off", False),
        ("client_encoding=LATIN1", True),
        ("client_encoding=UTF8", False),
        ("fallback_application_name=billing", False),
        ("options=-c%20work_mem%3D9MB", False),
    ],
)
def test_an_option_of_libpq_is_honoured_or_refused(option: str, is_refused: bool, database_url: str) -> None:
    url = f"{database_url}{'&' if '?' in database_url else '?'}{option}"
    if is_refused:
        with pytest.raises(ConfigurationError, match=f"a value of {option.partition('=')[0]} that"):
            load_settings(database_url=url)
        return
    memory = Memory.from_defaults("s", database_url=url, memory_blocks=[])
    assert memory.put({"role": "user", "content": "hello"}) == 1
    if option.startswith("fallback"):
        names = rows_of(database_url, "SELECT DISTINCT application_name FROM pg_stat_activity")
        assert ("billing",) in names
    memory.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/0?socket_timeout=5", "the option 'socket_timeout', .*redis:// takes none"),
        ("redis://h/0?ssl_cert_reqs=required", "the option 'ssl_cert_reqs'"),
        ("rediss://h/0?ssl_cert_reqs=requird", "a value of ssl_cert_reqs that it cannot have: required"),
        ("rediss://h/0?ssl_check_hostname=no", "a value of ssl_check_hostname"),
        ("amqp://h//?foo=1", "the option 'foo', .*takes heartbeat, login_method"),
        ("amqp://h//?heartbeat=often", "a value of heartbeat"),
        ("amqps://h//?ssl_ca_certs=ca.pem", "the option 'ssl_ca_certs'"),
        ("amqp://a//;amqp://b//?foo=1", "the option 'foo'"),
        ("sentinel://h?master_name=m&ssl_cert_reqs=required", "the option 'ssl_cert_reqs'"),
        ("sentinel://h?master_name=m&sentinel_password=a&s3cr3t", "an option, .*takes master_name"),
    ],
)
def test_an_option_of_a_broker_that_would_have_no_effect_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        load_settings(broker_url=url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("rediss://h/0?ssl_ca_certs=a+b&ssl_check_hostname=FALSE",
            {"ssl": {"ssl_ca_certs": "a+b", "ssl_check_hostname": False}}),
        ("amqp://h/v?heartbeat=7&login_method=EXTERNAL",
            {"virtual_host": "v", "heartbeat": 7.0, "login_method": "EXTERNAL"}),
    ],
)  # fmt: skip
def test_an_option_of_a_broker_that_is_accepted_has_its_effect(url: str, found: dict[str, object]) -> None:
    connection = OwnCelery("strandline", check_broker_url(url)).connection_for_write()
    assert {name: getattr(connection, name) for name in found} == found


@given(st.sampled_from(["postgresql+pg8000", "mysql", "foo"]), st.text("abcdefgh0123456789", min_size=8))
def test_no_refusal_shows_a_password(scheme: str, secret: str) -> None:
    for check in (check_database_url, check_broker_url):
        with pytest.raises(ValueError, match=r"begins with|names the driver") as caught:
            check(f"{scheme}://me:{secret}@host/db")
        assert secret not in str(caught.value)


def test_what_is_meant_is_accepted(database_url: str) -> None:
    encode = tiktoken.get_encoding("o200k_base").encode
    Memory.from_defaults("s", database_url=URL, tokenizer_fn=encode, consume="background")
    with ConnectionPool(database_url, min_size=0, max_size=1, open=False) as pool:
        Memory.from_defaults("s", pool=pool)
    for broker in ("redis://h/0", "REDISS://h/0", "redis+socket:///s", "amqp://a//;amqp://b//"):
        assert check_broker_url(broker) == broker


def command(database_url: str, *arguments: str) -> tuple[int, str, str]:
    ended = run_here(*arguments, on=database_url)
    return ended.code, ended.out, ended.err


TYPO = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "--namespace", "typo"),
        ("verify", "--session", "typo"),
        ("verify", "--namespace", "typo", "--session", "s"),
        ("explain", TYPO),
        ("explain", "m", "--namespace", "typo"),
        ("explain", "m", "--session", "typo"),
        ("explain", "m", "--user", "typo"),
        ("facts", "clear", "--namespace", "typo"),
        ("facts", "clear", "--namespace", "typo", "--yes"),
        ("facts", "list", "--user", "typo"),
        ("replay", "--namespace", "typo"),
        ("replay", "--namespace", "typo", "--dry-run"),
        ("replay", "--session", "typo"),
        ("replay", "--user", "typo"),
        ("dead-letters", "list", "--namespace", "typo"),
        ("dead-letters", "list", "--session", "typo"),
        ("dead-letters", "retry", "--all", "--namespace", "typo"),
        ("dead-letters", "drop", "--all", "--session", "typo"),
        ("generations", "diff", "1", "--namespace", "typo"),
        ("generations", "promote", "1", "--user", "typo"),
        ("sessions", "list", "--namespace", "typo"),
        ("sessions", "show", "typo"),
        ("sessions", "set-policy", "typo", "--token-limit", "10"),
        ("flush", "typo"),
        ("flush", "s", "--namespace", "typo"),
        ("get", "typo"),
        ("search", "x", "--user", "typo"),
    ],
    ids=" ".join,
)
def test_a_command_about_what_is_not_there_says_so_and_ends_with_1(
    rig: Rig, arguments: tuple[str, ...]
) -> None:
    rig.memory("s", user_id="u").put({"role": "user", "content": "hello", "id": "m"})
    code, out, err = command(rig.url, *arguments)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert re.match(r"strandline: (Session|Namespace|Fact) .*( does not exist|is unknown| has no)", err)
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.replay") == [(0,)]


def test_what_is_there_and_has_nothing_to_show_ends_with_0(rig: Rig) -> None:
    rig.memory("s", user_id="u").put({"role": "user", "content": "hello", "id": "m"})
    Facts.for_owner(user_id="only-facts", namespace="shop", database_url=rig.url).add("Likes tea")
    for arguments in (
        ("verify", "--namespace", "default"),
        ("verify", "--namespace", "shop"),
        ("verify", "--session", "s"),
        ("dead-letters", "list", "--session", "s"),
        ("dead-letters", "list"),
        ("facts", "list", "--user", "u"),
        ("facts", "list", "--user", "only-facts", "--namespace", "shop"),
        ("facts", "clear", "--namespace", "shop"),
    ):
        code, out, err = command(rig.url, *arguments)
        assert (code, err) == (0, ""), (arguments, err)
        assert out
    assert "1 fact" in command(rig.url, "verify", "--namespace", "shop")[1]
