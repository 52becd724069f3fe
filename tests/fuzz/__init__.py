"""Fuzzing: whatever is given, a success that is really stored, or an error of Strandline's own.

A few hundred cases of each are part of ``make test``, the same ones every time.  More, drawn anew:
``FUZZ_CASES=10000 .venv/bin/python -m pytest tests/fuzz``.
"""
