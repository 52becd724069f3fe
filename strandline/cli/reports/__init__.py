"""The output of commands under ``--json``: typed, each with a JSON Schema."""
