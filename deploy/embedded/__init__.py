"""The embedded servers: Postgres and a broker from wheels, in one home directory."""
