"""Erasing a user or a session, and looking for remains through each reader."""
