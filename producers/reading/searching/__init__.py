"""What a read searches for: the hits of its blocks, and what may fill its room."""
