"""The one place that knows psycopg, SQLAlchemy and Alembic."""
