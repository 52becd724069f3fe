"""Overflow: flushed messages are handed to a handler of the application's own."""
