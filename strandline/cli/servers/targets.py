"""Which servers a command works on: the configured ones, else the embedded ones of STRANDLINE_HOME."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict

import click
from pydantic import SecretStr

from strandline.deploy.embedded.broker import EmbeddedBroker
from strandline.deploy.embedded.stack import mend_broker, prepare_home, running_stack, start_stack
from strandline.pipelines.generations.registry import serving_generations
from strandline.pipelines.inspect.directory import check_namespace
from strandline.schemas.errors import ConfigurationError, EmbeddedUnavailableError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings
from strandline.wiring.assembly import ensure_tables, prepare_stages

NOTHING_DERIVES = (
    "No worker runs here now: facts, summary and vectors of these events are derived when one does"
    " (`strandline up`, or a program that uses Memory)."
)

Kind = Literal["configured", "embedded"]


@dataclass(frozen=True, slots=True)
class Servers:
    """The URLs of Postgres and the broker; ``broker_url`` is None if no broker runs.

    ``mend`` restarts embedded servers that ended, and returns whether all run; ``joined``: the embedded
    Postgres was already running; ``alone``: it was started for this command, so no other worker runs.
    """

    database_url: str
    broker_url: str | None
    database: Kind
    broker: Kind
    joined: bool = False
    alone: bool = False
    mend: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)

    def named_in(self, settings: Settings) -> Settings:
        """The settings with these servers in place of their own."""
        broker = None if self.broker_url is None else SecretStr(self.broker_url)
        return settings.model_copy(
            update={"database_url": SecretStr(self.database_url), "broker_url": broker}
        )


@contextmanager
def running_servers(settings: Settings, *, only_looking: bool) -> Iterator[Servers]:
    """The servers that run already, for a command that only looks, or that uses them as a worker.

    Looking leaves them running; embedded servers end with the last process that uses them.

    Raises:
        ConfigurationError: no database is configured, and none runs in STRANDLINE_HOME or may do so.
    """
    may_join = settings.database_url is None and settings.embedded != "never"
    stack = running_stack(settings.home) if may_join else None
    if settings.database_url is None and stack is None:
        if settings.embedded == "never":
            raise ConfigurationError(
                "No database is configured, and STRANDLINE_EMBEDDED=never forbids the embedded one."
                " Set STRANDLINE_DATABASE_URL, or unset STRANDLINE_EMBEDDED."
            )
        raise ConfigurationError(_why_none_runs(settings.home))
    broker = None if stack is not None or settings.broker_url is not None else _embedded_broker(settings)
    try:
        broker_url = (
            stack.broker_url if stack is not None else broker.attach() if broker is not None else None
        )
        yield Servers(
            database_url=_secret(settings.database_url) or (stack.database_url if stack else ""),
            broker_url=_secret(settings.broker_url) or broker_url,
            database="embedded" if stack else "configured",
            broker="configured" if settings.broker_url is not None else "embedded",
        )
    finally:
        if stack is not None and only_looking:
            stack.detach()
        elif stack is not None:
            stack.stop()
        if broker is not None:
            broker.stop()


@contextmanager
def started_servers(settings: Settings) -> Iterator[Servers]:
    """The configured servers, and embedded ones in place of missing ones.

    Raises:
        EmbeddedUnavailableError: they are needed, and forbidden or not installed.
        DatabaseUnavailableError: Postgres did not come up.
    """
    if settings.database_url is None:
        with start_stack(
            settings.home, with_broker=settings.broker_url is None, embedded=settings.embedded
        ) as stack:
            yield Servers(
                stack.database_url,
                _secret(settings.broker_url) or stack.broker_url,
                "embedded",
                "configured" if settings.broker_url is not None else "embedded",
                joined=stack.joined,
                mend=stack.mend,
            )
        return
    database_url = settings.database_url.get_secret_value()
    if settings.broker_url is not None:
        yield Servers(database_url, settings.broker_url.get_secret_value(), "configured", "configured")
        return
    with _started_broker(settings) as (broker, broker_url):
        yield Servers(database_url, broker_url, "configured", "embedded", mend=partial(_mend, broker))


@contextmanager
def opened_pool(database_url: str, settings: Settings, *, pool_size: int = 2) -> Iterator[Database]:
    """A small pool on ``database_url``, closed in the end."""
    options = ConnectionOptions.from_settings(database_url, settings, pool_size=pool_size)
    database = Database.connect(options, sealed_content(settings))
    try:
        yield database
    finally:
        database.close()


@contextmanager
def servers_for_once(settings: Settings, *, create: bool = False) -> Iterator[Servers]:
    """The servers that run already; else the embedded Postgres of STRANDLINE_HOME, for as long as this lasts.

    Args:
        create: whether an embedded Postgres that was never used may be made, with tables and pipelines.

    Raises:
        ConfigurationError: no database is configured, and none exists in STRANDLINE_HOME.
    """
    if not _is_stopped(settings, or_missing=create):
        with running_servers(settings, only_looking=True) as servers:
            yield servers
        return
    with start_stack(settings.home, with_broker=False, embedded=settings.embedded) as stack:
        with opened_pool(stack.database_url, settings) as database:
            ensure_tables(stack.database_url, database, settings)
            if create and not serving_generations(database):
                # No worker has registered the pipelines yet: those of these settings, as a worker would.
                prepare_stages(database, settings)
        broker_url = _secret(settings.broker_url)
        kind: Kind = "configured" if broker_url else "embedded"
        yield Servers(stack.database_url, broker_url, "embedded", kind, alone=not stack.joined)


class Urls(TypedDict):
    """Where the tables are, as ``Memory.from_defaults`` takes it."""

    database_url: str
    schema: str


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a command, with a pool on the database."""

    settings: Settings
    servers: Servers
    database: Database

    @property
    def urls(self) -> Urls:
        """The tables of this database."""
        return {"database_url": self.servers.database_url, "schema": self.settings.database_schema}


@contextmanager
def opened_servers(settings: Settings, *, create: bool = False, pool_size: int = 2) -> Iterator[Running]:
    """The servers of ``servers_for_once``, with a pool on the database."""
    with (
        servers_for_once(settings, create=create) as servers,
        opened_pool(servers.database_url, settings, pool_size=pool_size) as database,
    ):
        yield Running(settings, servers, database)


@contextmanager
def opened_database(settings: Settings) -> Iterator[Database]:
    """The database alone, of ``opened_servers``."""
    with opened_servers(settings) as running:
        yield running.database


@contextmanager
def _started_broker(settings: Settings) -> Iterator[tuple[EmbeddedBroker, str]]:
    if settings.embedded == "never":
        raise ConfigurationError(
            "STRANDLINE_EMBEDDED=never forbids the embedded broker, and none is configured."
            " Set STRANDLINE_BROKER_URL, or unset STRANDLINE_EMBEDDED."
        )
    prepare_home(settings.home)
    broker = EmbeddedBroker(settings.home / "broker")
    try:
        yield broker, broker.start()
    finally:
        broker.stop()


def _mend(broker: EmbeddedBroker) -> bool:
    if broker.has_ended():
        mend_broker(broker)
    return not broker.has_ended()


def _is_stopped(settings: Settings, *, or_missing: bool) -> bool:
    if settings.database_url is not None or settings.embedded == "never":
        return False
    if not (settings.home / "postgres").is_dir():
        return or_missing
    stack = running_stack(settings.home)
    if stack is not None:
        stack.detach()
    return stack is None


def _why_none_runs(home: Path) -> str:
    if not home.exists():
        return (
            f"No database is configured, and the home directory {home} does not exist."
            " Set STRANDLINE_DATABASE_URL or another STRANDLINE_HOME,"
            " or start `strandline up` in another terminal, which makes it."
        )
    if not home.is_dir():
        return (
            f"No database is configured, and STRANDLINE_HOME, {home}, is not a directory."
            " Set STRANDLINE_DATABASE_URL, or set STRANDLINE_HOME to a directory that you can write."
        )
    return (
        f"No database is configured, and no embedded one runs in {home}."
        " Set STRANDLINE_DATABASE_URL, or start `strandline up` in another terminal."
    )


def _embedded_broker(settings: Settings) -> EmbeddedBroker | None:
    """Where ``strandline up`` keeps a broker for a configured database."""
    if settings.embedded == "never" or not (settings.home / "broker").is_dir():
        return None
    try:
        return EmbeddedBroker(settings.home / "broker")
    except EmbeddedUnavailableError:
        return None


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


ANYWAY = "If it is yet to come, add --even-if-unknown."

even_if_unknown_option = click.option(
    "--even-if-unknown", is_flag=True, help="Also if nothing is stored under this name yet."
)


@contextmanager
def opened_to_read(settings: Settings, namespace: str | None) -> Iterator[Database]:
    """The database, if there is something of the namespace, or none is named; else NotFoundError."""
    with opened_database(settings) as database:
        check_to_be_read(database, namespace)
        yield database


def check_to_be_read(fetcher: Fetcher, namespace: str | None) -> None:
    """Check that there is something of a namespace, if one is named; else raise NotFoundError."""
    if namespace is not None:
        check_namespace(fetcher, namespace)


def check_to_be_changed(fetcher: Fetcher, namespace: str, *, even_if_unknown: bool) -> None:
    """As ``check_to_be_read``, unless the option says that the namespace is yet to come."""
    if not even_if_unknown:
        check_namespace(fetcher, namespace, otherwise=ANYWAY)
