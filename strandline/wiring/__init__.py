"""Wiring: the one place where the parts are put together; imports lazily."""
