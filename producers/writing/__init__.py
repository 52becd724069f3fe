"""Writing: puts, imports, pops and resets of a session's log."""
