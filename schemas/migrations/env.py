"""Alembic's environment: runs on the connection that ``schemas.postgres.migrate`` hands over.

An empty schema gets everything as it is declared, at the newest revision; others are brought there by steps.
"""

from __future__ import annotations

from alembic import context

from strandline.schemas.migrations.fresh import make_tables
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
    if context.get_context().get_current_heads():
        context.run_migrations()
    else:
        make_tables(connection, schema, context.config.attributes["partitions"])
        context.get_context().stamp(context.script, "head")
