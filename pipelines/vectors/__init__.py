"""Vectors: make flushed messages searchable."""
