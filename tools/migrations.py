"""``python -m tools.migrations``: write the first migration and the digests again, until their release.

A migration is frozen once CHANGELOG.md has a heading for its release: then this command leaves it alone, and
further migrations, written by hand, change tables and functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sqlalchemy import create_mock_engine
from sqlalchemy.schema import CreateTable, DDLElement

from strandline.schemas.postgres.migrations import DIVIDED as DIVIDED_MARK
from strandline.schemas.postgres.migrations import FIRST, FUNCTION, digest, revisions
from strandline.schemas.postgres.statements import function_names
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import DIVIDED, PERSONAL, STORAGE
from strandline.schemas.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "schemas" / "sql" / "migrations"
FIRST_FILE = FOLDER / f"{FIRST}_first.sql"
# A line for each migration: its number, its release, and the digest of its statements.
DIGESTS = FOLDER / "digests.txt"

# Names a step: ``unique index fact_fingerprint``, ``comment on table message``.
MADE = re.compile(r"(?:CREATE )?((?:COMMENT ON )?(?:UNIQUE )?[A-Z]+) (?:strandline\.)?([\w.]+)")

# Indexes and a generated column call these.
CALLED_BY_TABLES = ("search_code_v1", "search_terms_v1", "role_key_v1")

# Puts in the simple case set none of these columns, so they pay nothing for it.
SESSION_CHECK = """\
CREATE TRIGGER session_check AFTER INSERT OR UPDATE OF log_start_seq, pinned_through, window_from,
    flushed_through, pinned_tokens, deliver, shared_scope, shared_key
ON strandline.session FOR EACH ROW EXECUTE FUNCTION strandline.check_session_v1()"""

# The hashes of words; a change of a divided index does not go to its partitions.
NO_STATISTICS_OF_TERMS = """\
DO $$ DECLARE part regclass; BEGIN
    FOR part IN SELECT relid FROM pg_partition_tree('strandline.chunk_terms')
        UNION SELECT 'strandline.chunk_terms'::regclass
    LOOP
        EXECUTE format('ALTER INDEX %s ALTER COLUMN 1 SET STATISTICS 0', part);
    END LOOP;
END $$"""


def main() -> None:
    known = frozen()
    if (new := [revision for revision in revisions() if revision not in known]) and is_released(VERSION):
        raise SystemExit(f"{new[0]} is new, and {VERSION} is released: raise VERSION in schemas/version.py.")
    if FIRST not in known:
        FIRST_FILE.write_text(first_migration(), encoding="utf-8")
    lines = [known.get(revision, f"{revision} {VERSION} {digest(revision)}") for revision in revisions()]
    DIGESTS.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def frozen() -> dict[str, str]:
    """The lines of ``DIGESTS`` whose release has a heading in the changelog, by the migration's number."""
    lines = [line.split() for line in DIGESTS.read_text(encoding="utf-8").splitlines()]
    return {
        revision: f"{revision} {release} {executed}"
        for revision, release, executed in lines
        if is_released(release)
    }


def is_released(release: str) -> bool:
    """Whether the changelog has a heading for the release."""
    return f"\n## [{release}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def first_migration() -> str:
    """The text of the first migration, as ``schemas/tables`` and ``schemas/sql/functions`` are now."""
    return "".join(f"-- step: {text}\n{statement}\n\n" for text, statement in _first_steps())


def _first_steps() -> Iterator[tuple[str, str]]:
    yield "the revision", "CREATE TABLE strandline.alembic_version (version_num varchar(32) PRIMARY KEY)"
    for name in CALLED_BY_TABLES:
        yield name, f"{FUNCTION}{name}"
    yield from _tables()
    yield from _column_settings()
    yield "statistics of terms", NO_STATISTICS_OF_TERMS
    # Postgres does not look into their bodies yet (``check_function_bodies``), so any order will do.
    for name in sorted(set(function_names()) - set(CALLED_BY_TABLES)):
        yield name, f"{FUNCTION}{name}"
    yield "the check of sessions", SESSION_CHECK
    yield "the number", "INSERT INTO strandline.alembic_version VALUES ('0001')"


def _tables() -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []

    def take(element: DDLElement, *_arguments: object, **_options: object) -> None:
        lines = str(element.compile(dialect=engine.dialect)).strip().splitlines()
        if isinstance(element, CreateTable) and element.element.info.get(DIVIDED):
            lines.append(DIVIDED_MARK)
        kind, name = MADE.findall(lines[0])[0]
        steps.append((f"{kind.lower()} {name}", "\n".join(line.rstrip() for line in lines)))

    engine = create_mock_engine("postgresql+psycopg://", take)
    metadata.create_all(engine, checkfirst=False)
    # SQLAlchemy keeps the indexes of a table in a set.
    groups = groupby(steps, key=lambda step: "index " in step[0])
    return [step for are_indexes, group in groups for step in (sorted(group) if are_indexes else group)]


def _column_settings() -> Iterator[tuple[str, str]]:
    """Storage and statistics, which go to each partition as well."""
    for table in metadata.sorted_tables:
        changes = []
        for column in table.columns:
            if storage := column.info.get(STORAGE):
                changes.append(f"ALTER COLUMN {column.name} SET STORAGE {storage}")
            if column.info.get(PERSONAL):
                changes.append(f"ALTER COLUMN {column.name} SET STATISTICS 0")
        if changes:
            yield f"columns of {table.name}", f"ALTER TABLE {table.fullname} {', '.join(changes)}"


if __name__ == "__main__":
    main()
