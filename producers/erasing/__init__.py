"""Erasing a user or a session, and looking for what is left through each reader."""
