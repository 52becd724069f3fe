"""``strandline keys``, and its parts."""
