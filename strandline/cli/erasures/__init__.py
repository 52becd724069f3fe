"""``strandline erasures``, and its parts."""
