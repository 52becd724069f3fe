"""Servers that tests start, or that stand in for a part that fails."""
