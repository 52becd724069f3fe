"""``strandline facts``, and its parts."""
