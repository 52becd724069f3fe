"""Judging: what was accepted, what came of it, and what may not be."""
