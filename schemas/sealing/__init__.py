"""Sealing: how content becomes ciphertext under an owner's keys, and what wraps these keys; no statement."""
