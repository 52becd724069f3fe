"""Encryption of existing data: sealing a namespace, and rotating keys, during normal use."""
