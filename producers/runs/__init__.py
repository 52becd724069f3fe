"""Runs of agents in a session: adding them by id, and the messages of the last ones."""
