"""Encryption of what is there: sealing a namespace that has data, and rotating keys, while others go on."""
