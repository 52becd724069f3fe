"""A campaign of everything at once, in which each message and each fact has a token of its own.

``python -m tests.chaos.tokens --seed 1 --minutes 40`` runs a long one.
"""
