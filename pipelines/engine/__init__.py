"""The engine: drains a lane under a lease, in batches, each applied exactly once."""
