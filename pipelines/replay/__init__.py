"""Replay: derives long-term memory again from the log, in place or in a new generation."""
