"""Writes ``schemas/queries``: typed classes for the statements of ``schemas/sql`` (``make queries``)."""
