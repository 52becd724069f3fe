"""Statements about derived; written by `make queries`."""
