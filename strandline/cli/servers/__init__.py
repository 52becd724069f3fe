"""Servers that commands work on, the memories there, worker processes, and the options that name them."""
