"""Upkeep: what ends, by a person's order."""
