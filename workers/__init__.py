"""Workers: what consumes events in the background."""
