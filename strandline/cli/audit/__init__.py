"""``strandline audit``, and its parts."""
