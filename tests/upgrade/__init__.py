"""Two releases beside one another: an upgrade under load, back, and forward again."""
