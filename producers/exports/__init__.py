"""Export: everything that is kept about a user or a session, as lines of JSON."""
