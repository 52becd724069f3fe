"""Servers that tests start, or that take the place of a part that fails."""
