"""Measurements of the hot path, as ratios to the plain statement that each is built on."""
