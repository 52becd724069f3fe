"""The doorbell: hints that wake workers, published beside the caller's thread."""
