"""``strandline demo``, and its parts."""
