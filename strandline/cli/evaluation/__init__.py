"""``strandline eval``, and its parts."""
