"""Flushing: chooses the messages that leave the window, and records that in one step."""
