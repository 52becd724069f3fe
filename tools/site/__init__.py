"""``python -m tools.site OUT``: build the site of the documents; any static server serves it."""
