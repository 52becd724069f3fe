"""Parts of a session's face: what `memory.py` puts together."""
