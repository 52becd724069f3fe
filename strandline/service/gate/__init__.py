"""The gate of a request: its key, its permit, its body, and the form of a refusal."""
