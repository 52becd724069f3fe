"""Retention: what leaves the log, where it is archived, and what grows beside it."""
