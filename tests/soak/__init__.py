"""Bounds that need a clock: what the documentation promises in seconds, measured on the real stack.

``python -m tests.soak --help`` runs them.  A case is a module with a function ``run(ground)`` that yields a
``Reading`` for each bound; ``tests/soak/cases.py`` lists them.
"""
