"""Statements about work; written by `make queries`."""
