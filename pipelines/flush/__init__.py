"""Flushing: which messages leave the window, and the one step that records it."""
