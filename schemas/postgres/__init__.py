"""The one place that knows psycopg."""
