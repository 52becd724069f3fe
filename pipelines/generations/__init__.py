"""Generations: the derivations that run, and their recipes."""
