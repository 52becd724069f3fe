"""``strandline ask``, and its parts."""
