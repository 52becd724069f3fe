"""Overflow: what is flushed is handed to a handler of the application's own."""
