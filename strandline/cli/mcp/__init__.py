"""``strandline mcp``, and its parts."""
