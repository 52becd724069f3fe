"""``strandline sessions``, and its parts."""
