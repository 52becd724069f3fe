"""How to connect, for both drivers: the URL in psycopg's form, and the options of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from strandline.schemas.display.url_schemes import check_database_url
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.deadlines import GRACE_SECONDS
from strandline.schemas.postgres.pools.beginnings import MARK, PINNED, Beginnings, values_of
from strandline.schemas.settings import Settings

# After these seconds of silence the kernel probes the peer, and gives up a connection that does not answer or
# acknowledge: sooner than a statement's deadline.
TCP = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}
# No server listens there, whatever addresses a service or PGHOSTADDR names.
_NOWHERE = {"host": "/nonexistent", "hostaddr": ""}
# Overrides the database's and the role's transaction settings; the mark shows that all took effect.
TRANSACTIONS = (
    (MARK, "on"),
    ("default_transaction_isolation", r"read\ committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to connect and how long to wait, in seconds; ``pool_size`` counts connections.

    ``durable=False`` commits without waiting for the disk (Postgres's ``synchronous_commit = off``): if the
    server dies, the last moment's commits are lost, whole and in order. It is for workers, which make every
    write but a model's answer again from due work.

    ``planned_once=True`` keeps one plan for each statement, whatever its parameters. It is for producers and
    workers, whose statements are look-ups by keys. By default Postgres compares estimated costs, and some
    statistics make it plan each read again: that takes four times as long as reading.

    ``find_url`` returns the URL before each new connection, and may block: for a server that may have to be
    started again. Default: always ``url``.

    ``pooled=True`` is for a pooler such as PgBouncer that gives each transaction another connection: nothing
    is set at the start of a session, and no statement is prepared, because both would affect other clients.
    An undeclared pooler is noticed at the first connection (``postgres.pools.beginnings``).

    ``public_apis_only=True`` runs statements by psycopg's cursors, and leaves it to TCP to find out that a
    server does not answer.
    """

    url: str
    schema: str
    pool_size: int
    pool_timeout: float
    connect_timeout: float
    statement_timeout: float
    idle_in_transaction_timeout: float = 15.0
    durable: bool = True
    planned_once: bool = False
    pooled: bool = False
    public_apis_only: bool = False
    find_url: Callable[[], str] | None = None

    @classmethod
    def from_settings(
        cls,
        url: str,
        settings: Settings,
        *,
        pool_size: int | None = None,
        durable: bool = True,
        planned_once: bool = False,
        find_url: Callable[[], str] | None = None,
    ) -> ConnectionOptions:
        return cls(
            url=psycopg_url(url),
            schema=settings.database_schema,
            pool_size=pool_size or settings.pool_max_size,
            pool_timeout=settings.pool_timeout_seconds,
            connect_timeout=settings.connect_timeout_seconds,
            statement_timeout=settings.statement_timeout_seconds,
            durable=durable,
            planned_once=planned_once,
            pooled=settings.database_pooler == "transaction",
            public_apis_only=settings.public_apis_only,
            find_url=find_url,
        )

    @property
    def conninfo(self) -> str | Callable[[], str]:
        """The connection string, as the pool for threads takes it."""
        return self.find_url or self.url

    @property
    def async_conninfo(self) -> str | Callable[[], Awaitable[str]]:
        """The connection string, as the pool of an event loop takes it."""
        if self.find_url is None:
            return self.url
        return partial(asyncio.to_thread, self.find_url)

    @property
    def statement_seconds(self) -> float:
        """How long a client waits for the answer to one statement: somewhat longer than Postgres may take."""
        return self.statement_timeout + GRACE_SECONDS

    def connect_arguments(self) -> dict[str, Any]:
        """Keyword arguments for psycopg: autocommit, since every statement stands alone.

        psycopg prepares nothing: ``schemas.postgres.prepared`` does, except behind a pooler or if it must not
        be used. Options of the URL stay: settings of a session are added to its ``options``, after those of
        ``PGOPTIONS`` where the URL has none.
        """
        return {
            "autocommit": True,
            "prepare_threshold": 2 if self.public_apis_only and not self.pooled else None,
            "client_encoding": "utf8",
            "options": all_options(self.url, self._session()),
            **with_defaults(options_of(self.url), connect_timeout=max(2, int(self.connect_timeout))),
        }

    def beginnings(self) -> Beginnings:
        """How a pool's connections begin."""
        own = options_of(self.url).get("options", "")
        # A generic plan would be made for each statement, since none is prepared behind a pooler.
        session = {name: str(value) for name, value in self._session() if name != "plan_cache_mode"}
        return Beginnings(own, session, is_declared=self.pooled, durable=self.durable)

    def _session(self) -> Iterator[tuple[str, int | str]]:
        yield "statement_timeout", int(self.statement_timeout * 1000)
        yield "idle_in_transaction_session_timeout", int(self.idle_in_transaction_timeout * 1000)
        # Every statement but verify's goes by an index.  A plan made while a table was small would read it
        # whole, and go on to do so however fast it grows, until its statistics are brought up to date.
        yield "enable_seqscan", "off"
        if self.planned_once:
            yield "plan_cache_mode", "force_generic_plan"
        yield "jit", "off"
        if not self.durable:
            yield "synchronous_commit", "off"


def options_of(url: str) -> dict[str, Any]:
    """A URL's options, by the names of libpq's options; with those of its service that ours would replace.

    Raises:
        ConfigurationError: libpq cannot read it; the sentence does not show the URL.
    """
    try:
        named = conninfo_to_dict(url)
        return _of_service(str(named.get("service") or _default("service"))) | named
    except psycopg.ProgrammingError:
        raise ConfigurationError(
            "The database URL cannot be read. In its user, its password and the values of its options,"
            " percent-encode / ? # @ : % [ ] & = and blanks, as %2F for / and %20 for a blank."
        ) from None


def _of_service(service: str) -> dict[str, Any]:
    """A service's values for waiting and for the session; libpq reads its file for an attempt to connect."""
    if not service:
        return {}
    attempt = pq.PGconn.connect_start(make_conninfo(service=service, **_NOWHERE).encode())
    named = {option.keyword.decode(): option.val.decode() for option in attempt.info if option.val}
    attempt.finish()
    return {name: named[name] for name in ("options", "connect_timeout", *TCP) if name in named}


def all_options(url: str, settings: Iterable[tuple[str, int | str]]) -> str:
    """The options of a session: those of the URL, else ``PGOPTIONS``; ``settings``; and the pinned ones."""
    named = options_of(url)
    own = named["options"] if "options" in named else _default("options")
    every = chain(settings, TRANSACTIONS, values_of(PINNED).items())
    return " ".join(filter(None, [str(own), *(f"-c {name}={value}" for name, value in every)]))


def deciding_variables(url: str, environ: Mapping[str, str]) -> list[str]:
    """libpq's variables that decide something of a connection, since neither its URL nor Strandline does."""
    named = {*options_of(psycopg_url(url)), "hostaddr", "client_encoding", "connect_timeout"}
    known = (
        (option.keyword.decode(), (option.envvar or b"").decode()) for option in pq.Conninfo.get_defaults()
    )
    return sorted(variable for name, variable in known if variable in environ and name not in named)


def with_defaults(arguments: Mapping[str, Any], *, connect_timeout: int) -> dict[str, Any]:
    """How to wait for a server, without what its URL says of that.

    The host of a URL counts, whatever ``PGHOSTADDR`` says.
    """
    named = {"connect_timeout": connect_timeout, "fallback_application_name": "strandline"}
    defaults: dict[str, Any] = TCP | named
    if "host" in arguments:
        defaults["hostaddr"] = ""
    return {name: value for name, value in defaults.items() if name not in arguments}


def _default(name: str) -> str:
    """The value of an option by the environment; empty without one."""
    return next(
        (o.val or b"" for o in pq.Conninfo.get_defaults() if o.keyword == name.encode()), b""
    ).decode()


def psycopg_url(url: str) -> str:
    """Turn ``postgresql+asyncpg://`` and the like into a URL for psycopg.

    Raises:
        ConfigurationError: it is not a Postgres URL.
    """
    try:
        check_database_url(url)
    except ValueError as error:
        sentence = str(error)
        raise ConfigurationError(f"{sentence[0].upper()}{sentence[1:]}.") from None
    # A driver may have a name that no scheme of a URL may have, such as psycopg_async.
    parts = urlsplit(f"postgresql://{url.partition('://')[2]}")
    # As it stands, since "+" is a plus sign to libpq, and a space to those who read URLs as forms.
    query = parts.query.replace("+", "%2B").split("&")
    renamed = ("sslmode" + option[len("ssl") :] if option.startswith("ssl=") else option for option in query)
    return f"postgresql://{parts.netloc}{parts.path}?{'&'.join(renamed)}"
