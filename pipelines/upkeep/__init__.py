"""Upkeep: retention and its archives, ages of tables next to the log, and erasure."""
