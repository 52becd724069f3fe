"""Importing the tables of Agno 1, 2 and 3."""
