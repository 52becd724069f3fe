"""Producers: accept writes and answer reads."""
