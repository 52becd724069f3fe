"""Pools of connections: our own, the caller's, an engine's, and the report if no connection is available."""
