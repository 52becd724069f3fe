"""Statements as typed classes; written by `make queries`."""
