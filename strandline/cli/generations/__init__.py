"""``strandline generations``, and its parts."""
