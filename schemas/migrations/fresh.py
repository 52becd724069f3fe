"""Makes the tables, indexes and functions of an empty schema, as ``schemas/tables`` declares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, create_mock_engine, text
from sqlalchemy.schema import CreateTable, DDLElement

from strandline.schemas.postgres.statements import function_names, function_source, in_schema
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import DIVIDED, PERSONAL, STORAGE

# Indexes and a generated column call these.
_CALLED_BY_TABLES = ("search_code_v1", "search_terms_v1", "role_key_v1")

# Puts in the simple case set none of these columns, so they pay nothing for it.
_SESSION_CHECK = """
CREATE TRIGGER session_check AFTER INSERT OR UPDATE OF log_start_seq, pinned_through, window_from,
    flushed_through, pinned_tokens, deliver, shared_scope, shared_key
ON strandline.session FOR EACH ROW EXECUTE FUNCTION strandline.check_session_v1()
"""


def make_tables(connection: Connection, schema: str, partitions: int) -> None:
    """Make everything in ``schema``; with ``partitions``, tables that grow with each message are divided."""
    _make_functions(connection, schema, _CALLED_BY_TABLES)
    statements = [*_table_statements(divided=partitions > 0), *_partitions(partitions), *_column_settings()]
    for statement in statements:
        connection.exec_driver_sql(in_schema(statement, schema))
    _keep_no_statistics_of_terms(connection, schema)
    # Postgres does not look into their bodies yet (``check_function_bodies``), so any order will do.
    _make_functions(connection, schema, sorted(set(function_names()) - set(_CALLED_BY_TABLES)))
    connection.exec_driver_sql(in_schema(_SESSION_CHECK, schema))


def _make_functions(connection: Connection, schema: str, names: Iterable[str]) -> None:
    for name in names:
        connection.exec_driver_sql(function_source(name, schema).replace("%", "%%"))


def _table_statements(*, divided: bool) -> list[str]:
    statements: list[str] = []

    def take(element: DDLElement, *_arguments: object, **_options: object) -> None:
        statement = str(element.compile(dialect=engine.dialect))
        if divided and isinstance(element, CreateTable) and element.element.info.get(DIVIDED):
            statement += "PARTITION BY HASH (shard_key)"
        statements.append(statement)

    engine = create_mock_engine("postgresql+psycopg://", take)
    metadata.create_all(engine, checkfirst=False)
    return statements


def _partitions(partitions: int) -> Iterator[str]:
    for table in metadata.sorted_tables:
        for number in range(partitions if table.info.get(DIVIDED) else 0):
            yield (
                f"CREATE TABLE {table.fullname}_p{number} PARTITION OF {table.fullname}"
                f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            )


def _column_settings() -> Iterator[str]:
    """Storage and statistics, which go to each partition as well."""
    for table in metadata.sorted_tables:
        changes = []
        for column in table.columns:
            if storage := column.info.get(STORAGE):
                changes.append(f"ALTER COLUMN {column.name} SET STORAGE {storage}")
            if column.info.get(PERSONAL):
                changes.append(f"ALTER COLUMN {column.name} SET STATISTICS 0")
        if changes:
            yield f"ALTER TABLE {table.fullname} {', '.join(changes)}"


def _keep_no_statistics_of_terms(connection: Connection, schema: str) -> None:
    """Keep none of the hashes of words; a change of a divided index does not go to its partitions."""
    index = f"{schema}.chunk_terms"
    parts = text("SELECT relid::regclass::text FROM pg_partition_tree(CAST(:index AS regclass))")
    for name in connection.scalars(parts, {"index": index}).all() or [index]:
        connection.exec_driver_sql(f"ALTER INDEX {name} ALTER COLUMN 1 SET STATISTICS 0")
