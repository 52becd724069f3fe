"""URLs: which kinds there are, and how one is shown without its secrets."""
