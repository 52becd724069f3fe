"""Producers: what accepts writes and answers reads."""
