"""No message shows a password or key, whatever it is made of and however a URL holds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, closing
from urllib.parse import quote

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from hypothesis import settings as running

from strandline import Memory
from strandline.cli.doctor.servers import check_broker, check_database
from strandline.cli.servers.targets import Servers
from strandline.pipelines.models.factory import build_embedder
from strandline.producers.doorbell.doorbell import Doorbell
from strandline.schemas.display.service_links import service_links
from strandline.schemas.display.shown_url import secrets_of, shown_url, without_secrets
from strandline.schemas.errors import StrandlineError
from strandline.schemas.misspelt import unknown_settings
from strandline.schemas.postgres.migrate import current_revision
from strandline.schemas.postgres.options import psycopg_url
from strandline.schemas.settings import Settings, load_settings
from tests.support.servers.model_server import ModelServer

# The mark of a secret, found however it was cut in pieces; nothing else of a URL has these letters.
MARK = "QZX"
# Pieces with the mark, parted by whatever means something in a URL; each piece may be a number beside it.
SECRETS = st.lists(
    st.tuples(st.sampled_from(list("/@#%:?;[]&=+ ")), st.integers(0, 99)), min_size=0, max_size=5
).map(lambda parts: MARK + "".join(f"{special}{MARK}{number}" for special, number in parts))
URLS = (
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1:1/db?sslmode=disable&application_name=a@b",
    "postgresql://:{}@/db?host=/tmp",
    "postgresql://127.0.0.1:1/db?user=me&password={}",
    "postgresql+asyncpg://me:{}@127.0.0.1:1,127.0.0.1:2/db",
    "redis://:{}@127.0.0.1:1/0",
    "amqp://me:{}@127.0.0.1:1//;amqp://me:{}@127.0.0.1:2//",
    "https://127.0.0.1:1/v1?api-key={}",
    "https://127.0.0.1:1/v1?api-version=1&code={}&x=1",
    "https://me:{}@127.0.0.1:1/v1",
    "me:{}@127.0.0.1/db",
    "me:{}://@127.0.0.1/db",
)


@given(secret=SECRETS, url=st.sampled_from(URLS), encoded=st.booleans())
@example(secret=MARK, url=URLS[0], encoded=False)
def test_a_shown_url_has_nothing_of_it(secret: str, url: str, encoded: bool) -> None:
    given_url = url.replace("{}", quote(secret, safe="") if encoded else secret)
    assert MARK not in shown_url(given_url)
    said = f'connection to "{given_url}" failed, option "{secret}" is unknown'
    assert MARK not in without_secrets(said, given_url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://me:p%40ss@host:5432/db?sslmode=require",
            "postgresql://me:***@host:5432/db?sslmode=require",
        ),
        ("postgresql://me:p@s/s@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:12?s@host/db", "postgresql://***"),
        ("amqp://u:p@a:5672//;amqp://u:p@b:5672//", "amqp://u:***@a:5672//;amqp://u:***@b:5672//"),
        ("https://host/v1?api-key=k&api-version=2", "https://host/v1?api-key=***&api-version=2"),
        ("https://host/v1?odd=k", "https://host/v1?***"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
    ],
)
def test_a_shown_url_hides_the_secret_parts(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_secret_is_known_in_each_of_its_spellings() -> None:
    assert {"p%40s", "p@s"} <= set(secrets_of("postgresql://me:p%40s@host/db"))
    assert secrets_of("http://localhost:11434/v1") == []


def told_by(call: Callable[[], object]) -> str:
    """The sentence that a call ends with, if any, and those behind it."""
    try:
        call()
    except StrandlineError as error:
        return f"{error} {error.__cause__ or ''}"
    return ""


@given(secret=SECRETS, url=st.sampled_from(URLS), encoded=st.booleans())
def test_no_refusal_of_a_url_quotes_it(secret: str, url: str, encoded: bool) -> None:
    given_url = url.replace("{}", quote(secret, safe="") if encoded else secret)
    assert MARK not in told_by(lambda: psycopg_url(given_url))
    for setting in ("database_url", "broker_url"):
        assert MARK not in told_by(lambda: load_settings(**{setting: given_url}))  # noqa: B023


@running(max_examples=25, deadline=None)
@given(secret=SECRETS, url=st.sampled_from(URLS[:5]), encoded=st.booleans())
def test_no_attempt_to_connect_tells_it(secret: str, url: str, encoded: bool) -> None:
    """By threads, by tasks, by migrate and by doctor."""
    given_url = url.replace("{}", quote(secret, safe="") if encoded else secret)
    message = {"role": "user", "content": "hello"}

    def memory() -> Memory:
        return Memory.from_defaults("s", database_url=given_url, memory_blocks=[])

    def put() -> None:
        with closing(memory()) as used:
            used.put(message)

    async def aput() -> None:
        async with aclosing(memory()) as used:
            await used.aput(message)

    def look() -> None:
        servers = Servers(given_url, None, "configured", "configured")
        raise StrandlineError(" ".join(check.found for check in check_database(servers, load_settings())))

    told = [
        told_by(put),
        told_by(lambda: asyncio.run(aput())),
        told_by(lambda: current_revision(given_url, "strandline")),
        told_by(look),
    ]
    assert all(told)
    assert [sentence for sentence in told if MARK in sentence.partition("\n")[0]] == []


@running(max_examples=25, deadline=None)
@given(secret=SECRETS, url=st.sampled_from(URLS[5:7]), encoded=st.booleans())
def test_nothing_that_speaks_to_a_broker_tells_it(secret: str, url: str, encoded: bool) -> None:
    given_url = url.replace("{}", quote(secret, safe="") if encoded else secret)
    assert MARK not in check_broker(Servers("", given_url, "configured", "configured")).found
    assert MARK not in told_by(lambda: Doorbell(given_url).close())


def test_no_log_of_the_model_client_has_a_key_of_its_url(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its HTTP library logs each request's URL at INFO."""
    caplog.set_level(logging.DEBUG)
    url = f"{model_server.base_url}?api-key={MARK}%2F1&api-version=2"
    configured = load_settings(openai_base_url=url, embedding_backend="openai", embedding_dimensions=256)
    assert MARK not in told_by(lambda: build_embedder(configured).embed(["ping"], timeout_seconds=10))
    assert "HTTP Request" in caplog.text
    assert MARK not in caplog.text


# What Kubernetes sets for a Service is no setting, whatever the Service is called.


def links_of(service: str, host: str, port: str) -> dict[str, str]:
    """The variables of a Service, as the kubelet makes them."""
    prefix = service.upper().replace("-", "_")
    url = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    numbered = f"{prefix}_PORT_{port}_TCP"
    return {
        f"{prefix}_SERVICE_HOST": host,
        f"{prefix}_SERVICE_PORT": port,
        f"{prefix}_SERVICE_PORT_HTTP": port,
        f"{prefix}_PORT": url,
        numbered: url,
        f"{numbered}_PROTO": "tcp",
        f"{numbered}_PORT": port,
        f"{numbered}_ADDR": host,
    }


# Also a Service for each setting that a link of it would have the name of.
OF_SETTINGS = [
    f"strandline-{name.removesuffix('_port').replace('_', '-')}"
    for name in Settings.model_fields
    if name.endswith("_port")
]


@pytest.mark.parametrize("service", ["strandline", "strandline-models--facts", "redis", *OF_SETTINGS])
@pytest.mark.parametrize("host", ["10.96.0.17", "fd07::11"])
def test_a_service_sets_nothing_and_is_not_warned_of(
    service: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_settings()
    links = links_of(service, host, "9999")
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert load_settings() == before
    assert service_links(links) == links.keys()
    assert list(unknown_settings(links)) == []


def test_what_is_set_in_spite_of_a_link_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in links_of("strandline", "10.96.0.17", "9999").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STRANDLINE_SERVICE_HOST", "0.0.0.0")  # noqa: S104
    settings = load_settings()
    assert (settings.service_host, settings.service_port) == ("0.0.0.0", 8420)  # noqa: S104
