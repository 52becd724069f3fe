"""Workers: consume events in the background."""
