"""Sealed content on its way to and from Postgres: finds an owner's keys, seals parameters, opens rows."""
