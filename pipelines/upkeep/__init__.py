"""Upkeep: retention and its archives, what grows beside the log, and erasure."""
