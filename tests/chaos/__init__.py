"""The chaos campaign: a bounded, seeded series of overlapping faults on the real stack, and a judge.

``python -m tests.chaos --help`` runs it; ``docs/faults.md`` says what it does and how to read its table.
"""
