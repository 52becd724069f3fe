"""Vectors: what makes flushed messages searchable."""
