"""Replay: derives long-term memory again from the log, in place or beside the serving generation."""
