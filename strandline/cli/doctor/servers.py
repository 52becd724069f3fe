"""Doctor's checks of the servers: Postgres, its rights and tables, workers, clock, broker."""

from __future__ import annotations

import json
import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from strandline.cli.doctor.checks import CheckReport, ok, problem, warn
from strandline.cli.servers.targets import Servers, opened_pool
from strandline.cli.terminal.output import masked_url
from strandline.pipelines.generations.registry import serving_generations, settings_differing
from strandline.pipelines.sealing.rotating import check_keks
from strandline.producers.doorbell.publisher import HintPublisher
from strandline.schemas.broker.settings import broker_kind
from strandline.schemas.broker.troubles import advice_for, describe_trouble
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.display.url_schemes import url_options
from strandline.schemas.errors import ConfigurationError, SchemaError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrations import HEAD_REVISION, functions_at, is_newer
from strandline.schemas.postgres.options import deciding_variables
from strandline.schemas.postgres.pools.beginnings import Beginnings
from strandline.schemas.postgres.revision import (
    newer_tables,
    pgvector_trouble,
    server_trouble,
    tables_trouble,
    version_numbers,
)
from strandline.schemas.postgres.statements import differing_functions
from strandline.schemas.queries.application.sealing import KeksInUse
from strandline.schemas.queries.conversation.retention import ArchiveFolders
from strandline.schemas.queries.inspection.status import (
    DescribeServer,
    DescribeServerRow,
    DividedTables,
    GuardedTables,
    MissingRights,
    SchemaRevision,
    StatusWorkers,
    StatusWorkersRow,
    StoredColumns,
    StoredFunctions,
)
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.schemas.values.partitions import describe_partitions
from strandline.workers.celery_app.app import try_taking

OLDEST_RABBITMQ = (3, 10)
CLOCK_SECONDS = 2.0
# Rights that only some commands need: imports, and pg_dump.
_OF_COMMANDS = {("TEMPORARY", "DATABASE"), ("SELECT", "SEQUENCE")}
# A worker that takes their hints finds nothing to do.
_NO_LANES = [Lane(UUID(int=0), UUID(int=0), 1, stage) for stage in STAGES]


def check_database(servers: Servers, settings: Settings) -> Iterator[CheckReport]:
    """Reachable, recent enough, with the rights and tables it needs, and with workers."""
    where = f"{masked_url(servers.database_url)} ({servers.database})"
    if servers.database == "configured" and (
        deciding := deciding_variables(servers.database_url, os.environ)
    ):
        yield warn(
            "environment",
            f"the URL of the database leaves open what {', '.join(deciding)} decides",
            "say it in the URL, or unset it",
        )
    with opened_pool(servers.database_url, settings) as database:
        try:
            yield from _database(database, settings, where)
        except StrandlineError as error:
            yield problem("database", f"{where}: {error}")


def check_ignored(variables: Sequence[str]) -> Iterator[CheckReport]:
    """Variables unset in this process to reach the embedded server."""
    if variables:
        finding = f"libpq connects nowhere with {', '.join(variables)} as set, so this process ignores it"
        yield warn("environment", finding, "unset it, or correct it")


def _database(database: Database, settings: Settings, where: str) -> Iterator[CheckReport]:
    asked_at = time.time()
    row = database.fetch(DescribeServer(schema=settings.database_schema))[0]
    clock = _clock(abs(float(row.epoch_seconds) - (asked_at + time.time()) / 2))
    finding = f"PostgreSQL {row.server} at {where}"
    if trouble := server_trouble(row.server, row.encoding):
        yield problem("database", f"{where}: {trouble[0]}", trouble[1])
    elif row.is_standby:
        yield warn(
            "database",
            f"{finding}, a standby, which only reads",
            "name its primary, or add target_session_attrs=read-write to the URL's options",
        )
    else:
        yield ok("database", finding)
    yield from _pooler(database.beginnings)
    yield _pgvector(row)
    yield clock
    rights = [*_rights(database, settings), *_row_security(database, settings.database_schema)]
    yield from rights
    if any(right.result == "problem" for right in rights):
        return  # the other checks read tables
    tables = _tables(database, settings, may_create=row.may_create_schema or row.schema_exists)
    yield tables
    if tables.result == "ok":
        yield from _functions(database, settings.database_schema)
    yield from _consumption(database, settings)


def _pooler(beginnings: Beginnings | None) -> Iterator[CheckReport]:
    if beginnings is not None and beginnings.pooled and not beginnings.is_declared:
        yield warn(
            "pooler",
            "a pooler is before the server, and is used as in transaction mode",
            "set STRANDLINE_DATABASE_POOLER=transaction",
        )


def check_broker(servers: Servers) -> CheckReport:
    """Whether the broker answers."""
    url = servers.broker_url
    if url is None:
        return warn(
            "broker",
            "none is configured or runs here; only in-process consumption works",
            "set STRANDLINE_BROKER_URL, or start `strandline up`",
        )
    where = f"{masked_url(url)} ({servers.broker})"
    started = time.perf_counter()
    try:
        version = _try_broker(url)
    except Exception as error:  # noqa: BLE001  # transports raise what they like
        trouble = describe_trouble(error)
        finding = f"{where} {trouble or 'cannot be used as a broker'}"
        return problem("broker", finding, f"{advice_for(trouble)}; puts do not need it")
    answered = f"{where}, answered in {(time.perf_counter() - started) * 1000:.0f} ms"
    if version is None:
        return judge_verification(url, answered)
    finding = f"RabbitMQ {version} at {answered}"
    if version_numbers(version) < OLDEST_RABBITMQ:
        return warn("broker", finding, "before 3.10 quorum queues keep expired hints; upgrade it")
    return ok("broker", finding)


def judge_verification(broker_url: str, answered: str) -> CheckReport:
    """``rediss`` alone encrypts, without verifying the answering server."""
    asked = url_options(broker_url).get("ssl_cert_reqs", "none").lower()
    if not broker_url.lower().startswith("rediss:") or asked.removeprefix("cert_") == "required":
        return ok("broker", answered)
    return warn(
        "broker",
        f"{answered}; its certificate is not verified",
        "end the URL with ?ssl_cert_reqs=required, and &ssl_ca_certs=FILE for your own authority",
    )


def _try_broker(broker_url: str) -> str | None:
    """Leave a hint of no lane in each queue, and take it; RabbitMQ's version, None for Redis."""
    publisher = HintPublisher(broker_url)
    try:
        publisher.publish(_NO_LANES)
        connection: Any = publisher.connection
        try_taking(connection, broker_url)
        if broker_kind(broker_url) == "rabbitmq":
            return str(connection.connection.server_properties.get("version", "0"))
        return None
    finally:
        publisher.close()


def _pgvector(row: DescribeServerRow) -> CheckReport:
    if trouble := pgvector_trouble(row.vector_installed, row.vector_available):
        return problem("pgvector", *trouble)
    if row.vector_installed:
        return ok("pgvector", row.vector_installed)
    if row.may_create_vector:
        return ok("pgvector", f"{row.vector_available}, created by the first `strandline migrate`")
    return problem(
        "pgvector",
        f"{row.vector_available} is there, but this user may not create it",
        "let an administrator run CREATE EXTENSION vector in this database",
    )


def _rights(database: Database, settings: Settings) -> Iterator[CheckReport]:
    """Rights that a hardened server withholds from the application's role."""
    for row in database.fetch(MissingRights(schema=settings.database_schema)):
        others = f" and {row.objects - 1} more" if row.objects > 1 else ""
        where = row.kind if row.kind in ("SCHEMA", "DATABASE") else f"ALL {row.kind}S IN SCHEMA"
        is_needed = (row.right_name, row.kind) not in _OF_COMMANDS
        yield (problem if is_needed else warn)(
            "rights",
            f"this user has no {row.right_name} on the {row.kind.lower()} {quote(row.example)}{others}",
            f"run as their owner: GRANT {row.right_name} ON {where} {row.schema_name} TO {row.role_name}",
        )


def _row_security(database: Database, schema: str) -> Iterator[CheckReport]:
    if rows := database.fetch(GuardedTables(schema=schema)):
        names = ", ".join(row.table_name for row in rows)
        yield (warn if all(row.has_policies for row in rows) else problem)(
            "rights",
            f"row level security shows this user of {names} only rows by policy",
            f"run as a superuser: ALTER ROLE {rows[0].role_name} BYPASSRLS",
        )


def _functions(database: Database, schema: str) -> Iterator[CheckReport]:
    stored = database.fetch(StoredFunctions(schema=schema))
    if differing := differing_functions(functions_at(HEAD_REVISION), stored, schema):
        number = quantity(len(differing), "function")
        yield problem(
            "functions",
            f"{number} of schema {schema}, as {differing[0]}, missing or other than this release's, as after"
            " a rename of the schema",
            "run `strandline migrate` as their owner, to make them again",
        )


def _clock(difference_seconds: float) -> CheckReport:
    finding = f"database and host differ by {difference_seconds:.2f} s"
    if difference_seconds <= CLOCK_SECONDS:
        return ok("clock", finding)
    advice = "the database's time counts for leases; synchronise this host's clock"
    return warn("clock", finding, advice)


def _tables(database: Database, settings: Settings, *, may_create: bool) -> CheckReport:
    here = settings.database_schema
    try:
        numbers = [row.version_num for row in database.fetch(SchemaRevision())]
    except SchemaError:
        numbers = []
    columns = [row.column_name for row in database.fetch(StoredColumns(schema=here))]
    functions = [row.function_name for row in database.fetch(StoredFunctions(schema=here))]
    if trouble := tables_trouble(here, numbers, columns, functions):
        return problem("tables", *trouble)
    if numbers and is_newer(numbers[0]):
        return warn("tables", newer_tables(numbers[0]), "use that release again, unless you chose this one")
    if numbers == [HEAD_REVISION]:
        finding = f"schema {here} at revision {HEAD_REVISION}"
        tables = database.fetch(DividedTables(schema=here))
        if divided := {row.table_name: row.partitions for row in tables}:
            finding += f"; {', '.join(divided)} in {describe_partitions(divided)} each"
        return ok("tables", finding)
    finding, whose = "there are none", "" if may_create else f" as a user that may create the schema {here}"
    if numbers:
        finding, whose = f"at revision {numbers[0]}, not {HEAD_REVISION}", " as their owner"
    return problem("tables", finding, f"run `strandline migrate`{whose}")


def _consumption(database: Database, settings: Settings) -> Iterator[CheckReport]:
    try:
        rows = database.fetch(StatusWorkers(dead_after_seconds=settings.worker_dead_after_seconds))
        generations = serving_generations(database)
    except StrandlineError:
        # Without tables there is nothing to look at; the check of the tables says so.
        return
    yield from _worker_checks(rows)
    yield from _encryption(database)
    yield from _archives(database)
    try:
        differences = settings_differing(generations, settings)
    except ConfigurationError:
        # The check of the settings says which cannot be used.
        return
    for pipeline, differing in differences.items():
        yield warn(
            f"generation of {pipeline}",
            f"serves as it was made; the settings differ ({'; '.join(differing)})",
            f"derive it again with `strandline replay --new --pipeline {pipeline}`, or restore the settings",
        )


def _archives(database: Database) -> Iterator[CheckReport]:
    for row in database.fetch(ArchiveFolders()):
        folder = Path(unquote(urlsplit(row.archive).path))
        if folder.is_dir() and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
            yield warn(
                "archive",
                f"{quote(str(folder))} holds messages, and is open to other accounts (mode {mode:04o})",
                f"`chmod -R go= {shlex.quote(str(folder))}`",
            )


def _encryption(database: Database) -> Iterator[CheckReport]:
    if not isinstance(database.content, SealedContent):
        return
    try:
        used = list(check_keks(database, database.content))
    except StrandlineError as error:
        if database.fetch(KeksInUse(namespace=None)):
            yield problem("encryption", str(error))
        return
    missing = [one for one in used if one.state == "missing"]
    if missing:
        keys = _quote_all({one.key_id for one in missing})
        namespaces = _quote_all({one.namespace for one in missing})
        yield problem(
            "encryption",
            f"the keyring lacks {keys}, of {namespaces}",
            "add the keys to the keyring, here and where producers and workers run",
        )
    for one in used:
        if one.state == "wrong":
            # The sentence says what to do.
            yield problem("encryption", one.problem or "")
    if used and all(one.state == "ok" for one in used):
        count = quantity(len({one.namespace for one in used}), "encrypted namespace")
        yield ok("encryption", f"{count}; each key opens the data keys that name it")


def _quote_all(names: Iterable[str]) -> str:
    return ", ".join(map(quote, sorted(names)))


def _worker_checks(rows: Sequence[StatusWorkersRow]) -> Iterator[CheckReport]:
    served = {stage for row in rows for stage in row.stages}
    unserved = [stage for stage in STAGES if stage not in served]
    names = ", ".join(f"{row.pid} on {row.host}" for row in rows)
    if not rows:
        yield warn("workers", "none is alive", "start one with `strandline worker`")
    elif unserved:
        yield warn("workers", names, f"no worker serves {', '.join(unserved)}")
    else:
        yield ok("workers", names)
    conditions = [json.loads(row.condition) for row in rows]
    for reason in sorted({one["no_broker"] for one in conditions if "no_broker" in one}):
        yield warn("workers", f"work without their broker ({reason}), and find work by their sweep")
    if any(one.get("drops_hints") for one in conditions):
        dropped = sum(one.get("dropped_hints", 0) for one in conditions)
        yield warn(
            "workers",
            f"dropped {quantity(dropped, 'message')} of the broker, which came from elsewhere",
            "give each installation its own Redis database or RabbitMQ virtual host",
        )
    reasons = {key: reason for one in conditions for key, reason in one.get("reasons", {}).items()}
    for key, reason in sorted(reasons.items()):
        generation, stage = key.split("/", 1)
        yield problem(f"work of {stage}", f"waits in generation {generation}. {reason}")
