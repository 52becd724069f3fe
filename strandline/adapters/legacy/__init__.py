"""Adapters to libraries that are superseded: Agno 1 and TFrameX."""
