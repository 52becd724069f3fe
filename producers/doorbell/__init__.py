"""The doorbell: hints that wake workers, published from a separate thread."""
