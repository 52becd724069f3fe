"""Adapters: other libraries' memory interfaces over a session's memory, each an optional extra.

A library is imported by its own module here, and by nothing else.
"""
