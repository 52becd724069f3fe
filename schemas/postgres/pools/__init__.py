"""Pools of connections: our own, the caller's, an engine's, and what is said when none can be had."""
