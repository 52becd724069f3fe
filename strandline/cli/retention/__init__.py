"""``strandline retention``, and its parts."""
