"""Statements about application; written by `make queries`."""
