"""``strandline doctor``, and its parts."""
