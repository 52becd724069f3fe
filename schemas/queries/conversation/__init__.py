"""Statements about conversation; written by `make queries`."""
