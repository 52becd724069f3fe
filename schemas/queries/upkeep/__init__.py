"""Statements about upkeep; written by `make queries`."""
