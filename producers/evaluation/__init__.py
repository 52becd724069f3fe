"""Measures what searches and reads give for questions whose answers are known."""
