"""Generations: which derivations run, and what each is made with."""
