"""Erasure of a user or of a session: the fence, the steps after it, and the receipt."""
