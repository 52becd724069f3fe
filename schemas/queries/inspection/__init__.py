"""Statements about inspection; written by `make queries`."""
