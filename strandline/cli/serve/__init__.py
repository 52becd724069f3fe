"""``strandline serve``, and its parts."""
