"""Alembic's environment: runs on the connection that ``schemas.postgres.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from strandline.schemas.tables import metadata

connection = context.config.attributes["connection"]
schema = context.config.attributes["schema"]

context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table_schema=schema,
    include_schemas=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
