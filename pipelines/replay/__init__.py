"""Replay: long-term memory derived again from the log, in place or beside what serves."""
