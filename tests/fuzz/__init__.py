"""Fuzzing: whatever the input, either a success that is really stored, or one of Strandline's errors.

A few hundred cases of each are part of ``make test``, the same ones every time.  To draw more, and others:
``FUZZ_CASES=10000 .venv/bin/python -m pytest tests/fuzz``.
"""
