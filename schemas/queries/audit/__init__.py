"""Statements about audit; written by `make queries`."""
