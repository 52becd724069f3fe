"""History: the messages of a session's log, by filters and number, and the newest that fit some tokens."""
