"""``strandline encryption``: encrypt namespaces, rotate their keys, and say how far that is."""
